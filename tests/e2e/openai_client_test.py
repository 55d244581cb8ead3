#!/usr/bin/env python3
"""`klotski serve` with the official OpenAI client: `openai_client_test.py KLOTSKI SOURCE_FOLDER ENVIRONMENT_FOLDER`.

The client is installed from PyPI into a virtual environment in ENVIRONMENT_FOLDER, which later runs find there.
Where PyPI cannot be reached and no environment is there, nothing is tested and a message says so."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ENVIRONMENT = pathlib.Path(sys.argv[3]).resolve()
PYTHON = ENVIRONMENT / "bin" / "python"


def has_client():
    return PYTHON.exists() and subprocess.run([PYTHON, "-c", "import openai"], capture_output=True).returncode == 0


def install_client():
    """Whether the client is there in the end."""
    if has_client():
        return True
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "openai>=1.50,<3"]
    for command in ([sys.executable, "-m", "venv", ENVIRONMENT], install):
        try:
            made = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            print("SKIPPED: the openai client could not be installed within 300 s")
            return False
        if made.returncode != 0:
            print("SKIPPED: the openai client cannot be installed here:", (made.stderr or made.stdout).strip()[-300:])
            return False
    return True


if sys.prefix != str(ENVIRONMENT):
    if not install_client():
        sys.exit(0)
    os.execv(PYTHON, [PYTHON, *sys.argv])

import openai  # noqa: E402  (of the environment)

from server import Server  # noqa: E402

HELLO = [{"role": "user", "content": "Hello"}]


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="klotski-jobs-")
        cls.server = Server("--jobs-folder", cls.folder.name)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        with cls.server as server:
            server.stop()
        cls.folder.cleanup()

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").id, "tiny")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_chat(self):
        answer = self.client.chat.completions.create(
            model="tiny", messages=HELLO, max_completion_tokens=9, n=2, temperature=1, seed=4, logprobs=True,
            top_logprobs=3, presence_penalty=0.1, frequency_penalty=0.1, logit_bias={"5": -100}, user="me")
        self.assertEqual(len(answer.choices), 2)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(len(answer.choices[0].logprobs.content), 9)
        self.assertEqual(len(answer.choices[0].logprobs.content[0].top_logprobs), 3)
        self.assertEqual(answer.usage.completion_tokens, 18)

    def test_streamed_chat(self):
        whole = self.client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=12)
        text, usage, reason = "", None, None
        for chunk in self.client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=12, stream=True,
                                                         stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(reason, "length")
        self.assertEqual(usage, whole.usage)

    def test_completions(self):
        answer = self.client.completions.create(model="tiny", prompt=["Once upon a time", [1, 5, 9]], max_tokens=5,
                                                logprobs=2, stop=["zzz"])
        self.assertEqual(len(answer.choices), 2)
        self.assertEqual(len(answer.choices[0].logprobs.tokens), 5)
        pieces = list(self.client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=5, stream=True))
        self.assertEqual("".join(piece.choices[0].text for piece in pieces), answer.choices[0].text)

    def test_tools(self):
        answer = self.client.chat.completions.create(
            model="tiny", messages=[*HELLO, {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "7"}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], max_tokens=4)
        self.assertIsNone(answer.choices[0].message.tool_calls)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.chat.completions.create(model="tiny", messages=HELLO, response_format={"type": "json_object"})
        self.assertEqual(refused.exception.param, "response_format")
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="other", prompt="x")

    def batch(self, rows):
        """A batch of rows that generate `rows[i]` tokens."""
        lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
                             "body": {"model": "tiny", "messages": HELLO, "max_tokens": tokens}})
                 for i, tokens in enumerate(rows)]
        file = self.client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
        self.assertEqual(self.client.files.retrieve(file.id).filename, "in.jsonl")
        return file, self.client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions",
                                                completion_window="24h", metadata={"kind": "test"})

    def wait_for(self, batch, status):
        while batch.status != status:
            self.assertNotIn(batch.status, ("failed", "completed", "cancelled"), batch)
            time.sleep(0.02)
            batch = self.client.batches.retrieve(batch.id)
        return batch

    def test_files_and_batches(self):
        file, batch = self.batch([3, 5, 0])
        batch = self.wait_for(batch, "completed")
        self.assertEqual((batch.request_counts.completed, batch.request_counts.failed), (2, 1))
        self.assertEqual(batch.metadata, {"kind": "test"})
        rows = [json.loads(line) for line in self.client.files.content(batch.output_file_id).text.splitlines()]
        tokens = {row["custom_id"]: row["response"]["body"]["usage"]["completion_tokens"] for row in rows}
        self.assertEqual(tokens, {"0": 3, "1": 5})
        self.assertIn("max_tokens", self.client.files.content(batch.error_file_id).text)
        self.assertIn(batch.id, [one.id for one in self.client.batches.list(limit=1)])
        self.assertTrue(self.client.files.delete(file.id).deleted)
        self.assertNotIn(file.id, [one.id for one in self.client.files.list()])
        with self.assertRaises(openai.NotFoundError):
            self.client.files.content(file.id)
        with self.assertRaises(openai.BadRequestError):
            self.client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")

    def test_cancelling_a_batch(self):
        _, batch = self.batch([200] * 500)
        self.assertEqual(self.client.batches.cancel(batch.id).status, "cancelling")
        self.assertLess(self.wait_for(batch, "cancelled").request_counts.completed, 500)

    def test_cancelling_a_stream(self):
        stream = self.client.completions.create(model="tiny", prompt="The", max_tokens=1000, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        while self.server.stats()["running"] > 0:
            pass


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
