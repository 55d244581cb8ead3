#!/usr/bin/env python3
"""Runs, batches and requests in which a call of the system fails, the k-th of its kind or all from the k-th on:
`fault_sweep_test.py KLOTSKI SOURCE_FOLDER FAIL_CALL_LIBRARY [unittest arguments]`.

FAULTS says how many are tried (150), FAULT_SEED which. Where a kind has no more calls than its share, each of them fails
once. The program must give the right answer or end with an exit code of its own and a message; the same command without
a fault must then succeed, from whatever files the failed one has left. A server must answer the next request right, or
have ended in the same way."""
import collections
import http.client
import json
import mmap
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from program import HANGS, KLOTSKI, TINY
from server import Server

LIBRARY = pathlib.Path(sys.argv[3]).resolve()
FAULTS = int(os.environ.get("FAULTS", "150"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
KINDS = ("open", "read", "write", "sync", "map", "memory")  # as in tests/faults/fail_call.cpp
ENTRY = struct.Struct("qqq")  # calls so far, first that fails, number of failures
LASTING = 1 << 40
ROWS_FAILED = 7
CODES = range(1, 8)  # the program's own: never a signal, nor what follows from one


class Sweep(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-faults-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.calls = self.folder / "calls"
        self.calls.write_bytes(bytes(ENTRY.size * len(KINDS)))
        self.environment = {**os.environ, "KLOTSKI_CACHE": str(self.folder / "cache"), "SOURCE_DATE_EPOCH": "1700000000"}
        self.faulty = {**self.environment, "LD_PRELOAD": str(LIBRARY), "KLOTSKI_FAULTS": str(self.calls)}
        self.random = random.Random(SEED)

    def run_once(self, command, environment):
        return subprocess.run(command, capture_output=True, timeout=HANGS, env=environment)

    def set_fault(self, kind=None, first=0, failures=0):
        """Counts calls from 0 on; the first of a kind that fails, and the number of failures, are given."""
        with open(self.calls, "r+b") as file, mmap.mmap(file.fileno(), 0) as page:
            page[:] = b"".join(ENTRY.pack(0, first, failures) if name == kind else bytes(ENTRY.size) for name in KINDS)

    def counts(self):
        return dict(zip(KINDS, (count for count, _, _ in ENTRY.iter_unpack(self.calls.read_bytes()))))

    def faults(self, counts, share):
        """Kind, first call and number of failures: of each kind all calls, or as many as the share."""
        for kind, count in counts.items():
            numbers = range(1, count + 1)
            for number in numbers if count <= share else self.random.sample(numbers, share):
                yield kind, number, LASTING if self.random.random() < 0.3 else 1

    def sweep(self, command, answer, begin_anew):
        """`answer`: what the command has answered, given the finished program."""
        begin_anew()
        self.run_once(command, self.environment)  # measures the machine
        begin_anew()
        self.set_fault()
        done = self.run_once(command, self.faulty)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = answer(done)
        counts = self.counts()
        for kind in ("open", "read", "memory"):
            self.assertGreater(counts[kind], 0, f"{kind}: no call was counted")
        ends = Ends()
        for kind, first, failures in self.faults(counts, FAULTS // len(KINDS) // 3):
            with self.subTest(kind=kind, first=first, failures=failures):
                begin_anew()
                self.set_fault(kind, first, failures)
                done = self.run_once(command, self.faulty)
                ends.count(kind, done.returncode)
                message = done.stderr.decode(errors="replace")
                if done.returncode == 0:
                    self.assertEqual(answer(done), expected, message)
                    continue
                self.assertIn(done.returncode, CODES, message)
                self.assertTrue(message.strip(), f"exit code {done.returncode} without a word")
                again = self.run_once(command, self.environment)
                if ROWS_FAILED in (done.returncode, again.returncode):  # and their errors are results
                    begin_anew()
                    again = self.run_once(command, self.environment)
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertEqual(answer(again), expected, message)
        ends.print(counts)

    def test_a_run_from_disk(self):
        command = [KLOTSKI, "run", TINY, "-p", "The river", "-n", "4", "--ram", "40MiB"]
        self.sweep(command, lambda done: done.stdout, lambda: None)

    def test_a_batch(self):
        rows = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                 "body": {"prompt": f"Number {i} is", "max_tokens": 1 + i, "temperature": 0}} for i in range(6)]
        (self.folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        place = self.folder / "job"
        command = [KLOTSKI, "batch", TINY, "-i", self.folder / "in.jsonl", "-o", place / "out.jsonl", "--ordered",
                   "--strategy", "klotski", "--micro-batch", "2", "--n-batches", "2"]

        def begin_anew():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()

        def answer(_):
            return {file.name: file.read_bytes() for file in place.iterdir()}

        self.sweep(command, answer, begin_anew)

    def answer(self, server, request):
        """Status and document; 0 and nothing where the server had no memory for an answer, or is gone."""
        try:
            return server.post("/v1/completions", request)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return 0, None

    def test_a_server(self):
        request = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
        ends = Ends()
        faults, expected, counts = None, None, None
        while faults is None or faults:
            self.set_fault()
            with Server("--expert-slots", "2", environment=self.faulty) as server:  # the others are read again and again
                if faults is None:
                    server.complete(**request)
                    self.set_fault()
                    expected = server.complete(**request)["choices"]
                    counts = self.counts()
                    for kind in ("read", "memory"):
                        self.assertGreater(counts[kind], 0, f"{kind}: no call was counted")
                    faults = list(self.faults(counts, FAULTS // len(KINDS) // 3))
                while faults and server.process.poll() is None:
                    kind, first, failures = faults.pop()
                    with self.subTest(kind=kind, first=first, failures=failures):
                        self.set_fault(kind, first, failures)
                        status, document = self.answer(server, request)
                        self.set_fault()
                        self.assertTrue(status in (0, 200) or status >= 500, document)
                        if status == 200:
                            self.assertEqual(document["choices"], expected)
                        next_status, document = self.answer(server, request)
                        if next_status == 200:
                            self.assertEqual(document["choices"], expected)
                            ends.count(kind, status or "no answer")
                        else:
                            self.assertIn(server.process.wait(HANGS), CODES, "".join(server.said))
                            ends.count(kind, "the server's end")
        ends.print(counts)

    def test_clients_are_accepted_after_memory_ran_out_for_one(self):
        request = {"prompt": "One", "max_tokens": 1, "temperature": 0}
        firsts = list(range(60, 0, -1))
        while firsts:
            self.set_fault()
            with Server(environment=self.faulty) as server:
                server.complete(**request)
                while firsts and server.process.poll() is None:
                    first = firsts.pop()
                    with self.subTest(first=first):
                        self.set_fault("memory", first, 1)
                        self.answer(server, request)
                        self.set_fault()
                        if self.answer(server, request)[0] != 200:
                            self.assertIn(server.process.wait(HANGS), CODES, "".join(server.said))


class Ends:
    """How often programs and requests ended in which way, by the kind of the call that failed."""

    def __init__(self):
        self.counted = {kind: collections.Counter() for kind in KINDS}

    def count(self, kind, end):
        self.counted[kind][str(end)] += 1

    def print(self, calls):
        for kind, ends in self.counted.items():
            told = ", ".join(f"{count} ended with {end}" for end, count in sorted(ends.items()))
            print(f"{kind} ({calls[kind]} calls): {told}")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
