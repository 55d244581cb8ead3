#!/usr/bin/env python3
"""Runs `klotski batch` as users do: `batch_test.py KLOTSKI SOURCE_FOLDER [unittest arguments]`."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, SANITIZED, TINY

ROWS_FAILED = 7  # exit code


def completion(custom_id, prompt="Once upon a time", **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions",
            "body": {"model": "any", "prompt": prompt, "max_tokens": 4, **body}}


def chat(custom_id, *messages, **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": list(messages), "max_tokens": 4, **body}}


class Batch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-batch-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.input = self.folder / "in.jsonl"
        self.output = self.folder / "out.jsonl"

    def write(self, rows):
        with self.input.open("w") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")

    def command(self, *arguments, model="tiny", output=None):
        return [KLOTSKI, "batch", model, "-i", self.input, "-o", output or self.output, *arguments]

    def run_batch(self, *arguments, code=0, says="", **options):
        result = subprocess.run(self.command(*arguments, **options), capture_output=True,
                                timeout=HANGS)
        message = result.stderr.decode()
        self.assertEqual(result.returncode, code, message)
        self.assertEqual(result.stdout, b"")
        self.assertIn(says, message)
        return message

    def results(self):
        """The rows of the output by custom_id; every line must be whole."""
        text = self.output.read_text()
        self.assertTrue(text == "" or text.endswith("\n"))
        rows = [json.loads(line) for line in text.splitlines()]
        for row in rows:
            self.assertEqual(list(row), ["id", "custom_id", "response", "error"])
        self.assertEqual(len({row["id"] for row in rows}), len(rows))
        return {row["custom_id"]: row for row in rows}

    def klotski_run(self, *arguments):
        result = subprocess.run([KLOTSKI, "run", *arguments, "--json"], capture_output=True,
                                check=True, timeout=HANGS)
        return json.loads(result.stdout)


class Format(Batch):
    def test_a_row_gives_what_run_gives(self):
        prompts = ["Once upon a time", "My fellow citizens,", "The"]
        self.write([completion(str(i), prompt, max_tokens=20 + i) for i, prompt in enumerate(prompts)])
        message = self.run_batch()
        self.assertIn("3 of 3 rows done: 3 ok, 0 failed", message)
        for i, prompt in enumerate(prompts):
            expected = self.klotski_run("tiny", "-p", prompt, "-n", str(20 + i))
            body = self.results()[str(i)]["response"]["body"]
            self.assertEqual(body["choices"][0]["text"], expected["text"])
            self.assertEqual(body["choices"][0]["finish_reason"], expected["finish_reason"])
            self.assertEqual(body["usage"]["prompt_tokens"], expected["prompt_tokens"])
            self.assertEqual(body["usage"]["completion_tokens"], expected["completion_tokens"])

    def test_sampling_follows_the_row(self):
        self.write([completion("a", "The", max_tokens=30, temperature=1.2, top_k=50, seed=1)])
        self.run_batch()
        expected = self.klotski_run("tiny", "-p", "The", "-n", "30", "--temperature", "1.2",
                                    "--top-k", "50", "--seed", "1")
        self.assertEqual(self.results()["a"]["response"]["body"]["choices"][0]["text"],
                         expected["text"])

    def test_chat(self):
        model = self.folder / "model"
        shutil.copytree(TINY, model)
        (model / "chat_template.jinja").write_text(
            "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
        user = {"role": "user", "content": "Hello"}
        self.write([chat("a", user, max_tokens=9), chat("b", user, stream=True)])
        self.run_batch(model=model, code=ROWS_FAILED, says="line 2: stream: is not supported")
        body = self.results()["a"]["response"]["body"]
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["choices"][0]["message"]["role"], "assistant")
        expected = self.klotski_run(model, "--chat", "-p", "Hello", "-n", "9")
        self.assertEqual(body["choices"][0]["message"]["content"], expected["text"])
        self.assertEqual(self.results()["b"]["response"]["body"]["error"]["param"], "stream")

    def test_line_ends_blank_lines_and_byte_order_mark(self):
        rows = [json.dumps(completion(name)).encode() for name in "abc"]
        self.input.write_bytes(b"\xef\xbb\xbf" + rows[0] + b"\r\n\r\n\n" + rows[1] + b"\n" + rows[2])
        self.run_batch(says="3 of 3 rows")
        self.assertEqual(set(self.results()), {"a", "b", "c"})

    def test_no_rows(self):
        self.input.write_text("\n")
        self.run_batch(says="0 of 0 rows")
        self.assertEqual(self.output.read_text(), "")


    def test_planned_beside_measured_and_remembered(self):
        cache = {**os.environ, "KLOTSKI_CACHE": str(self.folder / "cache")}
        self.write([completion(str(i), "Once upon a time", max_tokens=3) for i in range(5)])
        for times in (1, 2):
            result = subprocess.run(self.command("--overwrite"), capture_output=True, timeout=HANGS,
                                    env=cache, check=True, text=True)
            self.assertEqual(times == 1, "measured the machine" in result.stderr)
            self.assertRegex(result.stderr, r"planned +measured +ratio")
            self.assertRegex(result.stderr, r"compute +[0-9.]+ s +[0-9.]+ s")
            doctor = subprocess.run([KLOTSKI, "doctor", "--json"], capture_output=True, env=cache,
                                    check=True, timeout=HANGS)
            self.assertEqual(json.loads(doctor.stdout)["history"]["runs"], times)


class Errors(Batch):
    def test_bad_rows_do_not_stop_the_job(self):
        bad = ["{", "[1]", "{}", json.dumps({"custom_id": ""}), "\x00", '{"custom_id": "\\ud800"}',
               json.dumps({"custom_id": "no-url", "method": "POST", "body": {}}), "[" * 100000,
               json.dumps(completion("words", "word " * 3000)), json.dumps(chat("chat"))]
        lines = [line for i, text in enumerate(bad)
                 for line in (text, json.dumps(completion(f"good {i}")))]
        self.input.write_text("\n".join(lines))
        model = self.folder / "model"
        shutil.copytree(TINY, model, ignore=shutil.ignore_patterns("chat_template.jinja"))
        message = self.run_batch(model=model, code=ROWS_FAILED, says=f"{len(bad)} ok, {len(bad)} failed")
        self.assertIn("  line 1: ", message)
        self.assertIn(f"and {len(bad) - 5} more rows failed: see {self.output}", message)
        results = self.results()
        self.assertEqual(results["no-url"]["response"]["status_code"], 400)
        self.assertEqual(results["words"]["response"]["status_code"], 400)
        self.assertIn("no chat template", results["chat"]["response"]["body"]["error"]["message"])
        self.assertIsNone(results["chat"]["error"])

    def test_a_very_long_line_is_an_error_row(self):
        with self.input.open("w") as file:
            file.write(json.dumps(completion("a")) + "\n")
            file.write('{"custom_id": "long", "x": "')
            for _ in range(70):
                file.write("x" * (1 << 20))
            file.write('"}\n' + json.dumps(completion("b")))
        self.run_batch(code=ROWS_FAILED, says="2 ok, 1 failed")
        self.assertEqual(set(self.results()), {"a", None, "b"})

    def test_equal_ids_are_refused_before_anything_is_done(self):
        self.write([completion("a"), completion("b"), completion("a")])
        self.run_batch(code=2, says="'a' is on lines 1 and 3")
        self.assertFalse(self.output.exists())

    def test_files_are_not_lost(self):
        self.write([completion("a")])
        before = self.input.read_bytes()
        self.output.write_text("precious")
        self.run_batch(code=2, says="--overwrite")
        self.assertEqual(self.output.read_text(), "precious")
        self.run_batch("--overwrite", code=2, says="is the input", output=self.input)
        self.assertEqual(self.input.read_bytes(), before)
        self.run_batch("--overwrite")
        self.assertEqual(set(self.results()), {"a"})

    def test_bad_files(self):
        self.run_batch(code=2, says="cannot be opened")
        self.write([completion("a")])
        self.run_batch(code=2, says="No such file", output=self.folder / "no" / "out")
        self.run_batch(code=2, output=self.folder)
        message = self.run_batch(code=1, says="No space left", output="/dev/full")
        self.assertNotIn("rows done", message)  # refused before any was run


class Ends(Batch):
    def start(self, rows):
        self.write(completion(str(i), max_tokens=1 + i % 40) for i in range(rows))
        # Fixed: a choice among groups takes a sanitizer longer than all that is looked at here.
        command = self.command("--strategy", "klotski", "--micro-batch", "16", "--n-batches", "4")
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + HANGS
        while not (self.output.exists() and self.output.stat().st_size > 0):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process

    def begin_anew(self):
        for path in (self.output, self.folder / "out.jsonl.journal"):
            path.unlink(missing_ok=True)

    def test_signals_end_the_job_with_whole_rows(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.begin_anew()
            process = self.start(3000)
            process.send_signal(number)
            message = process.communicate(timeout=HANGS)[1].decode()
            self.assertEqual(process.returncode, 128 + number, message)
            done = len(self.results())
            self.assertIn(f"{done} of 3000 rows done", message)
            self.assertTrue(0 < done < 3000)

    def test_a_killed_job_leaves_whole_rows(self):
        for wait in (0.0, 0.1, 0.3):
            self.begin_anew()
            process = self.start(3000)
            time.sleep(wait)
            process.kill()
            process.wait(timeout=HANGS)
            self.assertGreater(len(self.results()), 0)

    @unittest.skipIf(SANITIZED, "a sanitizer keeps freed memory")
    def test_memory_does_not_grow_with_rows(self):
        # Measuring the machine takes more memory: a first run does so, and the others find no run
        # that contradicts what it measured.
        cache = self.folder / "cache"
        environment = {**os.environ, "KLOTSKI_CACHE": str(cache)}
        peaks = []  # a child's includes the peak of this process when it began: keep that small
        for rows in (1, 400, 2000):
            self.write(completion(str(i), "The", max_tokens=1, user="x" * 10000)
                       for i in range(rows))
            (cache / "history.jsonl").unlink(missing_ok=True)
            process = subprocess.Popen(
                self.command("--overwrite", "--micro-batch", "16", "--n-batches", "4"),
                stderr=subprocess.DEVNULL, env=environment)  # more rows would be given larger groups
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status
            self.assertEqual(status, 0)
            self.assertEqual(len(self.results()), rows)
            peaks.append(usage.ru_maxrss)
        # The rows more take 15,600; memory comes in steps of 2 MiB, a few more or fewer each time.
        self.assertLess(peaks[2], peaks[1] + 8192, "KiB")
        self.assertLess(peaks[2], 128 * 1024, "KiB, and none measured the machine")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
