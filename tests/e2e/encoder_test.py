#!/usr/bin/env python3
"""Models with an encoder, as users run them: `encoder_test.py KLOTSKI SOURCE_FOLDER`."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from program import HANGS, KLOTSKI, SOURCE

SWITCH = "switch-base-128,L=2,H=64,F=48,E=8,heads=4,head_dim=16,vocab=600"
NLLB = "nllb-moe-54b,L=4,H=64,F=48,E=8,heads=4,vocab=600"
TEXTS = ["Hello", "A much longer text, which the encoder takes in one piece.", "x"]


class Encoder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-encoder-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_klotski(self, *arguments, code=0, says=""):
        result = subprocess.run([KLOTSKI, *arguments], stdin=subprocess.DEVNULL,
                                capture_output=True, timeout=HANGS)
        message = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, code, message)
        self.assertIn(says, message)
        return result.stdout.decode()

    def synth(self, shape):
        self.run_klotski("synth", shape, self.folder / "model")
        return self.folder / "model"

    def test_fixtures_and_variants_equal_their_references(self):
        models = SOURCE / "tests" / "data" / "models"
        for name in ("switch", "nllb_moe", "variants/nllb_routed"):
            report = json.loads(self.run_klotski(
                "verify", models / name, "--reference", models / name / "reference.json",
                "--precision", "f32", "--json"))
            self.assertTrue(report["passed"])
            self.assertEqual(report["clear_agreed"], report["clear"])
            self.assertEqual(bool(report["repeated_fault"]), name == "nllb_moe")

    def test_batches_equal_runs(self):
        for shape, language in ((SWITCH, []), (NLLB, ["--target-language", "b"])):
            with self.subTest(shape):
                model = self.synth(shape)
                rows = self.folder / "in.jsonl"
                out = self.folder / "out.jsonl"
                rows.write_text("".join(json.dumps(
                    {"custom_id": text, "method": "POST", "url": "/v1/completions",
                     "body": {"prompt": text, "max_tokens": 6}}) + "\n" for text in TEXTS))
                self.run_klotski("batch", model, "-i", rows, "-o", out, "--overwrite", *language)
                results = {row["custom_id"]: row["response"]["body"]["choices"][0]["text"]
                           for row in map(json.loads, out.read_text().splitlines())}
                for text in TEXTS:
                    alone = json.loads(self.run_klotski("run", model, "-p", text, "-n", "6",
                                                        "--json", *language))
                    self.assertEqual(alone["text"], results[text])
                shutil.rmtree(model)

    def test_refusals(self):
        model = self.synth(SWITCH)
        self.run_klotski("run", model, "-p", "x", "--target-language", "fra_Latn", code=2,
                         says="--target-language: expected a model that translates")
        self.run_klotski("run", model, code=2, says="has an encoder and does not chat")
        self.run_klotski("run", model, "-p", "x", "--attention-window", "8", code=2,
                         says="--attention-window")
        self.run_klotski("run", model, "-p", "x", "--warm-up", "sample", code=2,
                         says="models without an encoder")
        shutil.rmtree(model)
        self.run_klotski("run", self.synth(NLLB), "-p", "x", "--target-language", "zz_Zzzz", code=2,
                         says="such as fra_Latn, found 'zz_Zzzz'")

    def test_other_commands(self):
        model = self.synth("nllb-moe-54b,L=4,H=128,F=128,E=4,heads=4,vocab=600")
        info = json.loads(self.run_klotski("info", model, "--json"))
        self.assertEqual((info["layers"], info["encoder_layers"]), (8, 4))
        packed = self.folder / "packed"
        self.run_klotski("compact", model, packed)
        plain = self.run_klotski("run", model, "-p", "Hello", "-n", "5")
        self.assertEqual(self.run_klotski("run", packed, "-p", "Hello", "-n", "5"), plain)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
