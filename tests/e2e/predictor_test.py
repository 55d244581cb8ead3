#!/usr/bin/env python3
"""Predictors trained from routing traces: `predictor_test.py KLOTSKI SOURCE_FOLDER [...]`."""
import gzip
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, SOURCE


class Predictor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-predictor-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        packed = SOURCE / "tests" / "data" / "text" / "techdocs_python_heldout.txt.gz"
        text = gzip.decompress(packed.read_bytes()).decode()
        for name, begin, end in (("training", 0, 24000), ("test", 30000, 36000)):
            (cls.folder / name).write_text(text[begin:end])
            cls.trace("tiny", name, "--sequence-tokens", "128")

    @classmethod
    def trace(cls, model, name, *arguments):
        subprocess.run([KLOTSKI, "trace", model, "-f", cls.folder / name, "-o",
                        cls.folder / f"{name}.trace", *arguments], check=True, capture_output=True,
                       timeout=HANGS)

    def command(self, *arguments):
        return [KLOTSKI, "train-predictor", *map(str, arguments)]

    def train(self, *arguments, code=0):
        result = subprocess.run(self.command(*arguments), stdin=subprocess.DEVNULL,
                                capture_output=True, timeout=HANGS)
        self.assertEqual(result.returncode, code, (arguments, result.stderr.decode()))
        return result.stdout.decode(), result.stderr.decode()

    def test_beats_popularity_and_correlation_on_other_text(self):
        file = self.folder / "out.klpath"
        text, _ = self.train(self.folder / "training.trace", "-o", file, "--test", self.folder / "test.trace",
                             "--epochs", "4", "--json")
        report = json.loads(text)
        self.assertEqual(len(report["results"]), 2)
        judged = report["results"][1]
        self.assertEqual([layer["layer"] for layer in judged["layers"]], list(range(6)))
        for name in ("popularity", "correlation"):
            self.assertGreater(judged["path"], judged[name] + 0.05)
            for layer in judged["layers"]:
                self.assertGreater(layer["path"], layer[name], layer)
        self.assertEqual(file.read_bytes()[:8], b"KLPATH01")
        self.assertFalse((self.folder / "out.klpath.checkpoint").exists())

    def test_threads_change_nothing(self):
        for threads in (1, 2):
            text, _ = self.train(self.folder / "test.trace", "-o", self.folder / f"threads{threads}", "--epochs", "1",
                                 "--threads", threads)
            self.assertIn("| all |", text)
        self.assertEqual((self.folder / "threads1").read_bytes(), (self.folder / "threads2").read_bytes())

    def interrupted(self, file, *arguments):
        """Steps done when the training was told to stop, at least an epoch after it began."""
        checkpoint = pathlib.Path(f"{file}.checkpoint")
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = subprocess.Popen(self.command(self.folder / "test.trace", "-o", file, "--epochs", "10000",
                                                *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begin = time.monotonic()
        while time.monotonic() - begin < HANGS and process.poll() is None:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns > before:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        message = process.communicate(timeout=HANGS)[1].decode()
        self.assertEqual(process.returncode, 130, message)
        self.assertTrue(checkpoint.exists())
        return int(re.search(r"stopped after (\d+) of", message)[1])

    def test_an_interruption_keeps_the_best_and_can_be_resumed(self):
        file = self.folder / "interrupted.klpath"
        first = self.interrupted(file)
        self.assertEqual(file.read_bytes()[:8], b"KLPATH01")
        self.assertGreater(self.interrupted(file, "--resume"), first)
        # A checkpoint of other options.
        _, message = self.train(self.folder / "test.trace", "-o", file, "--resume", "--epochs", "7", code=2)
        self.assertIn("other traces or options", message)

    def test_bad_input_is_refused(self):
        trace, file = self.folder / "test.trace", self.folder / "refused"
        for arguments, code, says in (
                ((self.folder / "absent",), 3, "absent"),
                ((self.folder / "test",), 3, "KLTRACE1"),
                ((trace, "--resume"), 3, "refused.checkpoint"),
                ((trace, "--width", "30"), 2, "--width"),
                ((trace, "--epochs", "0"), 2, "--epochs"),
                ((trace, "--held-out", "95"), 2, "--held-out")):
            _, message = self.train(*arguments, "-o", file, code=code)
            self.assertIn(says, message)
        self.train(trace, code=2)
        self.assertFalse(file.exists())

    def test_traces_of_another_model_and_too_few_sequences_are_refused(self):
        model = self.folder / "other-model"
        subprocess.run([KLOTSKI, "synth", "L=2,H=64,F=128,E=8,K=2,vocab=512", model], check=True,
                       capture_output=True, timeout=HANGS)
        (self.folder / "other").write_text("Once upon a time")
        self.trace(model, "other")
        file, trace = self.folder / "refused", self.folder / "test.trace"
        self.assertIn("others", self.train(trace, self.folder / "other.trace", "-o", file, code=2)[1])
        self.assertIn("--test", self.train(trace, "--test", self.folder / "other.trace", "-o", file, code=2)[1])
        self.assertIn("at least 2", self.train(self.folder / "other.trace", "-o", file, code=2)[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
