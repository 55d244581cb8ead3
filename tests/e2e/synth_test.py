#!/usr/bin/env python3
"""Models of random weights, as users make them: `synth_test.py KLOTSKI SOURCE_FOLDER`."""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, TINY

SHAPES = {
    "mixtral": "L=2,H=64,F=32,E=8,K=2",
    "qwen3_moe": "qwen3-30b-a3b,L=2,H=64,F=32,E=16,K=4,vocab=1000",
    "qwen2_moe": "qwen1.5-moe-a2.7b,L=2,H=64,F=32,E=8,K=2,shared=48,vocab=1000",
    "olmoe": "olmoe-1b-7b,L=2,H=64,F=32,E=16,K=4,vocab=1000",
    "deepseek_v2": "deepseek-v2-lite,L=2,H=64,F=32,E=8,K=2,heads=4,vocab=1000",
    "gpt_oss": "gpt-oss-20b,L=2,H=64,F=32,E=16,K=4,vocab=1000",
    "qwen3_next": "qwen3-next-80b-a3b,L=2,H=64,F=32,E=16,K=4,shared=48,vocab=1000",
}


def run(*arguments, **options):
    return subprocess.run([KLOTSKI, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=HANGS, **options)


class Synth(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-synth-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def ok(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result.stdout.decode()

    def refused(self, code, *arguments, says="", **options):
        result = run(*arguments, **options)
        message = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, code, (arguments, message))
        self.assertEqual(message.count("\n"), 1, message)
        self.assertIn(says, message)

    def files(self, name):
        return {path.name: path.read_bytes() for path in (self.folder / name).iterdir()}

    def test_every_family_runs(self):
        for family, shape in SHAPES.items():
            out = self.folder / family
            self.assertIn(f"{out}: {family}, ", self.ok("synth", shape, out))
            info = json.loads(self.ok("info", out, "--json"))
            self.assertEqual(info["architecture"], family)
            self.assertEqual(info["layers"], 2)
            self.assertEqual(info["weight_type"], "BF16")
            self.assertTrue(info["tokenizer"] and info["chat_template"])
            self.assertLessEqual(info["tokenizer_tokens"], info["vocabulary"])
            for chat in ([], ["--chat"]):
                report = json.loads(self.ok("run", out, "-p", "Grüße, all of you!", "-n", "8",
                                            "--ignore-end", "--json", *chat))
                self.assertEqual(report["completion_tokens"], 8)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(SHAPES))

    def test_a_seed_gives_the_same_files_and_another_differs(self):
        for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
            self.ok("synth", SHAPES["mixtral"], self.folder / name, "--seed", seed)
        self.assertEqual(self.files("a"), self.files("b"))
        self.assertNotEqual(self.files("a")["model.safetensors"], self.files("c")["model.safetensors"])

    def test_options_take_effect(self):
        for dtype, stored in (("bf16", "BF16"), ("f16", "F16"), ("f32", "F32")):
            out = self.folder / dtype
            self.ok("synth", SHAPES["mixtral"], out, "--dtype", dtype, "--share", "0.75")
            self.assertEqual(json.loads(self.ok("info", out, "--json"))["weight_type"], stored)
            config = json.loads((out / "config.json").read_text())
            self.assertEqual(config["klotski_synthetic"], {"seed": 0, "share": 0.75})
        out = self.folder / "copied"
        self.ok("synth", SHAPES["mixtral"], out, "--tokenizer", TINY)
        self.assertEqual((out / "tokenizer.json").read_bytes(), (TINY / "tokenizer.json").read_bytes())
        self.ok("run", out, "-p", "Once upon a time", "-n", "4")

    def test_refusals(self):
        out = self.folder / "out"
        for shape in ("nonsense", "L=2", "L=2,H=64,F=32,E=2,K=3", "L=2,H=64,F=32,E=8,K=2,x=1", ""):
            self.refused(2, "synth", shape, out, says="shape")
        for share in ("0.25", "1", "0.1", "x"):
            self.refused(2, "synth", SHAPES["mixtral"], out, "--share", share, says="share")
        self.refused(2, "synth", SHAPES["mixtral"], out, "--dtype", "int8", says="--dtype")
        self.refused(2, "synth", SHAPES["mixtral"], out, "--tokenizer", out, says="tokenizer")
        self.refused(2, "synth", SHAPES["olmoe"], out, "--tokenizer", TINY, says="4096")
        self.refused(2, "synth", SHAPES["mixtral"], self.folder / "no" / "out", says="no such folder")
        self.refused(2, "synth", SHAPES["mixtral"], TINY, says="new or empty folder")
        self.refused(4, "synth", "L=1000,H=65536,F=65536,E=1000,K=2", out, says="too little")
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_full_disk_leaves_nothing(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        self.refused(4, "synth", "L=2,H=256,F=512,E=8,K=2", self.folder / "out",
                     says="cannot be written", preexec_fn=small_files)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_killed_one_leaves_no_model_and_the_next_cleans_up(self):
        out = self.folder / "out"
        process = subprocess.Popen([KLOTSKI, "synth", "L=8,H=1024,F=4096,E=8,K=2", out],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        partial = self.folder / ".out.klotski-partial"
        while process.poll() is None and not (partial / "model.safetensors.partial").exists():
            time.sleep(0.001)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL)
        self.assertFalse(out.exists())
        self.assertTrue(partial.exists())
        self.ok("synth", SHAPES["mixtral"], out)
        self.assertEqual(os.listdir(self.folder), ["out"])
        self.assertLess((out / "model.safetensors").stat().st_size, 1 << 20)

    def test_an_interrupted_one_removes_its_files_and_says_so(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen([KLOTSKI, "synth", "L=8,H=1024,F=4096,E=8,K=2", self.folder / "out"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            partial = self.folder / ".out.klotski-partial" / "model.safetensors.partial"
            while process.poll() is None and not partial.exists():
                time.sleep(0.001)
            process.send_signal(number)
            said = process.communicate(timeout=HANGS)[1]
            self.assertEqual(process.returncode, code, said)
            self.assertIn("stopped; the files written so far are removed\n", said)
            self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
