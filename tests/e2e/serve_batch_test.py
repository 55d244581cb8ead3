#!/usr/bin/env python3
"""Files and batches of `klotski serve`: `serve_batch_test.py KLOTSKI SOURCE_FOLDER [unittest arguments]`."""
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
from unittest import mock

from program import HANGS, KLOTSKI
from server import Server, post_bytes


def row(number, **body):
    return {"custom_id": f"row {number}", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": f"Number {number} is", "max_tokens": 1 + number % 23, "temperature": 0.8, **body}}


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


class Jobs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-jobs-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self):
        server = Server("--jobs-folder", self.folder / "jobs")
        self.addCleanup(server.__exit__)
        return server

    def upload(self, server, text, purpose="batch", code=200):
        body = (f'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n--xyz\r\n'
                f'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n{text}\r\n--xyz--\r\n')
        status, _, answer = server.request("POST", "/v1/files", body.encode(),
                                           {"Content-Type": "multipart/form-data; boundary=xyz"})
        self.assertEqual(status, code, answer)
        return json.loads(answer)

    def get(self, server, path, code=200):
        status, body = server.get(path)
        self.assertEqual(status, code, body)
        return json.loads(body)

    def create(self, server, file, endpoint="/v1/completions", code=200):
        status, batch = server.post("/v1/batches", {"input_file_id": file, "endpoint": endpoint,
                                                    "completion_window": "24h"})
        self.assertEqual(status, code, batch)
        return batch

    def wait(self, server, batch, status="completed"):
        end = time.monotonic() + HANGS
        while (now := self.get(server, "/v1/batches/" + batch["id"]))["status"] != status:
            self.assertNotIn(now["status"], ("failed", "completed", "cancelled"), now)
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return now

    def results(self, server, batch, field="output_file_id"):
        """The rows of an output file by custom_id, without the time at which the batch was begun."""
        status, text = server.get(f"/v1/files/{batch[field]}/content")
        self.assertEqual(status, 200)
        rows = [json.loads(line) for line in text.decode().splitlines()]
        for one in rows:
            one["response"]["body"].pop("created", None)
        by_id = {one["custom_id"]: one for one in rows}
        self.assertEqual(len(by_id), len(rows))
        return by_id


class Files(Jobs):
    def test_a_file_comes_and_goes(self):
        server = self.start()
        text = jsonl([row(1)])
        file = self.upload(server, text)
        self.assertEqual((file["object"], file["bytes"], file["filename"]), ("file", len(text), "in.jsonl"))
        self.assertEqual(self.get(server, "/v1/files/" + file["id"]), file)
        self.assertEqual(self.get(server, "/v1/files")["data"], [file])
        self.assertEqual(server.get(f"/v1/files/{file['id']}/content")[1].decode(), text)
        status, _, answer = server.request("DELETE", "/v1/files/" + file["id"])
        self.assertEqual((status, json.loads(answer)["deleted"]), (200, True))
        self.get(server, "/v1/files/" + file["id"], code=404)
        self.get(server, "/v1/files/..%2F..%2Flock/content", code=404)
        self.get(server, "/v1/files?limit=x", code=400)
        self.upload(server, text, purpose="fine-tune", code=400)
        status, _, _ = server.request("POST", "/v1/files", b"{}")
        self.assertEqual(status, 415)
        status, _, _ = server.request("PUT", "/v1/files", b"{}")
        self.assertEqual(status, 405)

    def test_without_a_folder_the_cache_has_one_for_one_server(self):
        with mock.patch.dict(os.environ, {"KLOTSKI_CACHE": str(self.folder)}):
            with Server() as server:
                file = self.upload(server, jsonl([row(1)]))
                with Server() as second:
                    self.assertIn("--jobs-folder", self.get(second, "/v1/files", code=404)["error"]["message"])
            with Server() as server:
                self.assertEqual(self.get(server, "/v1/files")["data"], [file])

    def test_one_server_a_folder(self):
        self.start()
        result = subprocess.run([KLOTSKI, "serve", "tiny", "--port", "0", "--jobs-folder", self.folder / "jobs"],
                                capture_output=True, timeout=HANGS)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"another server uses it", result.stderr)

    def test_large_files_and_their_bound(self):
        server = self.start()
        text = jsonl(row(i, user="x" * 1000) for i in range(15000))  # beyond the bound of other bodies
        self.assertEqual(self.upload(server, text)["bytes"], len(text))
        self.assertIn(b" 413 ", server.raw(post_bytes("/v1/completions", b" " * (9 << 20)))[:20])


class Batches(Jobs):
    def test_rows_give_what_requests_give(self):
        server = self.start()
        rows = [row(i) for i in range(20)] + [row(100, n=0), row(101, n=2, seed=5), {"custom_id": "empty"}]
        rows += [{"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions", "body": {}}]
        batch = self.create(server, self.upload(server, jsonl(rows))["id"])
        self.assertEqual((batch["object"], batch["status"]), ("batch", "validating"))
        done = self.wait(server, batch)
        self.assertEqual(done["request_counts"], {"total": 24, "completed": 21, "failed": 3})
        results = self.results(server, done)
        self.assertEqual(set(results), {f"row {i}" for i in range(20)} | {"row 101"})
        self.assertEqual(len(results["row 101"]["response"]["body"]["choices"]), 2)
        alone = server.complete(prompt="Number 3 is", max_tokens=4, temperature=0)
        again = self.create(server, self.upload(server, jsonl([row(3, temperature=0)]))["id"])
        body = self.results(server, self.wait(server, again))["row 3"]["response"]["body"]
        self.assertEqual(body["choices"], alone["choices"])
        errors = self.results(server, done, "error_file_id")
        self.assertEqual(set(errors), {"row 100", "empty", "chat"})
        self.assertEqual(errors["row 100"]["response"]["status_code"], 400)
        self.assertEqual(len(self.get(server, "/v1/batches?limit=1")["data"]), 1)
        self.assertEqual(len(self.get(server, "/v1/batches")["data"]), 2)

    def test_wrong_batches(self):
        server = self.start()
        self.create(server, "file-none", code=400)
        file = self.upload(server, jsonl([row(1), row(1)]))
        self.create(server, file["id"], endpoint="/v1/embeddings", code=400)
        failed = self.wait(server, self.create(server, file["id"]), "failed")
        self.assertIn("on lines 1 and 2", failed["errors"]["data"][0]["message"])
        self.get(server, "/v1/batches/batch_none", code=404)

    def test_cancelling_keeps_what_is_done(self):
        server = self.start()
        batch = self.create(server, self.upload(server, jsonl(row(i) for i in range(5000)))["id"])
        while self.get(server, "/v1/batches/" + batch["id"])["request_counts"]["completed"] < 20:
            time.sleep(0.01)
        status, answer = server.post(f"/v1/batches/{batch['id']}/cancel", {})
        self.assertEqual((status, answer["status"]), (200, "cancelling"))
        done = self.wait(server, batch, "cancelled")
        self.assertEqual(len(self.results(server, done)), done["request_counts"]["completed"])
        self.assertLess(done["request_counts"]["completed"], 5000)
        status, _ = server.post(f"/v1/batches/{batch['id']}/cancel", {})
        self.assertEqual(status, 400)

    def test_batches_survive_killed_servers(self):
        server = self.start()
        file = self.upload(server, jsonl(row(i) for i in range(400)))["id"]
        undisturbed = self.results(server, self.wait(server, self.create(server, file)))
        batch = self.create(server, file)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            before = self.get(server, "/v1/batches/" + batch["id"])["request_counts"]["completed"]
            while (now := self.get(server, "/v1/batches/" + batch["id"]))["request_counts"]["completed"] < before + 30:
                self.assertEqual(now["status"] in ("validating", "in_progress"), True, now)
                time.sleep(0.005)
            server.stop(number)
            server = self.start()
        done = self.wait(server, batch)
        self.assertEqual(done["request_counts"], {"total": 400, "completed": 400, "failed": 0})
        self.assertEqual(self.results(server, done), undisturbed)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
