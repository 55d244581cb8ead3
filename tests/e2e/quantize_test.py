"""`klotski quantize` at the command line: `quantize_test.py KLOTSKI SOURCE_FOLDER`. Quantised weights are expanded here
once more, by the layout in src/tensor/hqq.h."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, TINY, multiplied_precision
from safetensors_files import read_tensors, write_tensors

SHAPE = "L=2,H=128,F=200,E=4,K=2,vocab=512"
QUESTION = ("-p", "Once upon a time", "-n", "24", "--temperature", "0", "--ignore-end", "--device", "cpu")


def run(*arguments):
    return subprocess.run([KLOTSKI, *arguments], capture_output=True, timeout=HANGS)


def single(number):
    """A number rounded to float32."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def bf16(data, at):
    return struct.unpack("<f", b"\0\0" + data[at:at + 2])[0]


def to_bf16(number):
    bits, = struct.unpack("<I", struct.pack("<f", number))
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def expand_row(row, columns, bits, group):
    groups = -(-columns // group)
    wide = 8 * -(-groups // 128)
    header = -(-(wide + 2 * groups) // 16) * 16

    def number(index, kind):
        at = index // 128 * 8 + 4 * kind
        return single(bf16(row, at + 2) + bf16(row, at) * row[wide + kind * groups + index])

    scales, zeros = ([number(i, kind) for i in range(groups)] for kind in (0, 1))
    numbers = []
    for column in range(columns):
        block = row[header + column // 64 * 8 * bits:][:8 * bits]
        place = column % 64
        if bits == 4:
            code = block[place % 32] >> (4 * (place // 32)) & 15
        else:
            code = (block[place % 16] >> (2 * (place // 16)) & 3) | (block[16 + place // 8] >> place % 8 & 1) << 2
        numbers.append(single(scales[column // group] * single(code - zeros[column // group])))
    return numbers


class Quantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = pathlib.Path(tempfile.mkdtemp(prefix="klotski-quantize-"))
        cls.addClassCleanup(shutil.rmtree, cls.home, ignore_errors=True)
        cls.plain = cls.home / "plain"
        result = run("synth", SHAPE, cls.plain)
        assert result.returncode == 0, result.stderr

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.home))

    def ok(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result.stdout.decode()

    def refused(self, code, *arguments, says):
        result = run(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(says, result.stderr.decode())

    def expanded(self, model, precision):
        """A copy of a quantised model that has the numbers which are multiplied: float32, or rounded to bf16."""
        shapes = {name: shape for name, _, shape, _ in read_tensors(self.plain / "model.safetensors")}
        tensors = []
        for name, dtype, shape, content in read_tensors(model / "model.safetensors"):
            plain, _, form = name.rpartition(".hqq")
            if plain:
                bits, group = map(int, form.split("_"))
                rows, columns = shapes[plain]
                self.assertEqual((dtype, shape), ("U8", [rows, len(content) // rows]))
                numbers = []
                for row in range(rows):
                    numbers += expand_row(content[row * shape[1]:][:shape[1]], columns, bits, group)
                content = (struct.pack(f"<{len(numbers)}f", *numbers) if precision == "f32"
                           else struct.pack(f"<{len(numbers)}H", *map(to_bf16, numbers)))
                name, dtype, shape = plain, "F32" if precision == "f32" else "BF16", [rows, columns]
            tensors.append((name, dtype, shape, content))
        copy = self.folder / precision
        shutil.copytree(model, copy)
        write_tensors(copy / "model.safetensors", tensors)
        return copy

    def test_runs_as_its_expanded_weights_do(self):
        for options in (("--bits", "4"), ("--bits", "3", "--attention", "--group", "32")):
            with self.subTest(options):
                out = self.folder / "out"
                self.ok("quantize", self.plain, out, *options)
                for precision in ("f32", "bf16"):
                    copy = self.expanded(out, multiplied_precision(precision))
                    arguments = (*QUESTION, "--precision", precision)
                    self.assertEqual(self.ok("run", out, *arguments), self.ok("run", copy, *arguments))
                    shutil.rmtree(copy)
                shutil.rmtree(out)

    def test_says_what_was_lost(self):
        out = self.folder / "out"
        said = self.ok("quantize", self.plain, out, "--bits", "3", "--attention")
        self.assertIn("32 matrices quantised with a relative error of 0.1", said)
        self.assertEqual(os.listdir(self.folder), ["out"])
        info = json.loads(self.ok("info", out, "--json"))
        # Rows of 128 and of 200 columns: a header of 16 bytes, 24 for every 64 columns.
        self.assertEqual(info["bytes"]["one_expert"], 2 * 200 * (16 + 2 * 24) + 128 * (16 + 4 * 24))
        quantised = info["quantised"]
        self.assertEqual(quantised["matrices"], 32)
        self.assertEqual([layer["layer"] for layer in quantised["layers"]], [0, 1])
        for layer in quantised["layers"]:
            self.assertEqual([role["role"] for role in layer["roles"]],
                             ["query", "key", "value", "output", "gate", "up", "down"])
            for role in layer["roles"]:
                self.assertLessEqual(role["mean"], role["worst"])
                least, most = (0.1, 0.25) if role["matrices"] == 4 else (0.05, 0.12)
                self.assertTrue(least < role["mean"] < most, role)
        self.assertEqual({name: form["matrices"] for name, form in info["lossy"].items()},
                         {"HQQ3_64": 24, "HQQ4_64": 8})
        self.assertEqual(sum(form["bytes"] for form in info["lossy"].values()), quantised["bytes"])
        text = self.ok("info", out)
        self.assertIn("\n  layer 1 ", text)
        self.assertIn(" bits a weight", text)
        answer = json.loads(self.ok("run", out, *QUESTION, "--json"))
        self.assertEqual(answer["lossy"], ["weights quantised as HQQ3_64, HQQ4_64"])
        self.assertIsNone(json.loads(self.ok("info", self.plain, "--json"))["quantised"])

    def test_a_killed_run_goes_on(self):
        whole, out = self.folder / "whole", self.folder / "out"
        hidden = self.folder / ".out.klotski-partial"
        self.ok("quantize", TINY, whole, "--bits", "4")
        program = subprocess.Popen([KLOTSKI, "quantize", TINY, out, "--bits", "4"], stderr=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)
        while program.poll() is None and not (hidden / "model.safetensors.partial").exists():
            time.sleep(0.001)
        program.kill()
        if program.wait() == -signal.SIGKILL:  # a quick machine may have been through
            self.assertFalse(out.exists())
            self.assertTrue(hidden.exists())
            self.ok("quantize", TINY, out, "--bits", "4")
        self.assertFalse(hidden.exists())
        files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (whole, out)]
        self.assertEqual(files[0], files[1])

    def test_an_interrupted_run_keeps_its_files_and_says_so(self):
        out, hidden = self.folder / "out", self.folder / ".out.klotski-partial"
        program = subprocess.Popen([KLOTSKI, "quantize", TINY, out, "--bits", "4"], stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True)
        while program.poll() is None and not (hidden / "model.safetensors.partial").exists():
            time.sleep(0.001)
        program.send_signal(signal.SIGINT)
        said = program.communicate(timeout=HANGS)[1]
        if program.returncode == 130:  # a quick machine may have been through
            self.assertIn("stopped; the same command goes on with the files that are complete\n", said)
            self.assertTrue(hidden.exists())
            self.ok("quantize", TINY, out, "--bits", "4")
        self.assertEqual(program.returncode in (0, 130), True, said)
        self.assertFalse(hidden.exists())
        self.assertTrue((out / "config.json").exists())

    def test_refusals(self):
        out = self.folder / "out"
        self.refused(2, "quantize", self.plain, out, says="--bits")
        self.refused(2, "quantize", self.plain, out, "--bits", "5", says="--bits")
        self.refused(2, "quantize", self.plain, out, "--bits", "4", "--group", "48", says="48")
        self.refused(2, "quantize", self.plain, TINY, "--bits", "4", says="new or empty folder")
        self.refused(3, "quantize", self.folder / "none", out, "--bits", "4", says="none")
        self.assertEqual(os.listdir(self.folder), [])
        self.ok("quantize", self.plain, out, "--bits", "4")
        self.refused(2, "quantize", out, self.folder / "again", "--bits", "3", says="24 packed already")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
