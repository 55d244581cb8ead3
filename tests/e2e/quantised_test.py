"""Quantised safetensors checkpoints at the command line: `quantised_test.py KLOTSKI SOURCE_FOLDER`. They are made here
of tiny models, each beside a checkpoint of the numbers that the format's definition gives: of float32 for products of
float32, and rounded for those of bfloat16."""
import array
import bisect
import json
import math
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from program import HANGS, KLOTSKI, SOURCE, TINY, multiplied_precision
from safetensors_files import read_tensors, write_tensors

QWEN = SOURCE / "tests" / "data" / "models" / "qwen3_moe"
QWEN2 = QWEN.with_name("qwen2_moe")
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
E4M3 = [m / 8 * 2.0 ** -6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127]
E4M3_BETWEEN = [(low + high) / 2 for low, high in zip(E4M3, E4M3[1:])]


def rounded(value, kind):
    """The nearest number of float32 (f), float16 (e) or, where kind is b, bfloat16 (cut off)."""
    if kind == "b":
        return struct.unpack("<f", b"\0\0" + struct.pack("<f", value)[2:])[0]
    return struct.unpack("<" + kind, struct.pack("<" + kind, value))[0]


def packed(values, kind):
    if kind == "b":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{kind}", *values)


def words(numbers):
    """Eight numbers of four bits each, the first in the lowest bits."""
    return sum(number << (4 * i) for i, number in enumerate(numbers))


def read_model(folder):
    for path in sorted(folder.glob("*.safetensors")):
        yield from read_tensors(path)


def write_model(folder, source, tensors, quantization=None):
    folder.mkdir()
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        if (source / name).exists():
            shutil.copy(source / name, folder)
    config = json.loads((source / "config.json").read_text())
    if quantization:
        config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", sorted(tensors, key=lambda tensor: len(tensor[3]) % 8 != 0))


def fp8(base, shape, values, kind, powers_of_two=False):
    rows, columns = shape
    blocks = [-(-rows // 128), -(-columns // 128)]
    block = [r // 128 * blocks[1] + c // 128 for r in range(rows) for c in range(columns)]
    largest = [1e-6] * (blocks[0] * blocks[1])
    for at, value in zip(block, values):
        largest[at] = max(largest[at], abs(value))
    scales = [2.0 ** math.ceil(math.log2(number / 400)) if powers_of_two else rounded(number / 400, kind)
              for number in largest]
    codes, numbers = bytearray(), []
    for at, value in zip(block, values):
        code = bisect.bisect_left(E4M3_BETWEEN, abs(value) / scales[at])
        codes.append(code | (128 if value < 0 else 0))
        numbers.append(rounded(E4M3[code] * scales[at] * (-1 if value < 0 else 1), "f"))
    return [(base + ".weight", "F8_E4M3", shape, bytes(codes)),
            (base + ".weight_scale_inv", {"f": "F32", "b": "BF16"}[kind], blocks, packed(scales, kind))], numbers


def four_bits(shape, values, group, kind, symmetric):
    """Numbers of four bits [row][column], zero points and scales [row][group], and the numbers they stand for."""
    rows, columns = shape
    group = columns if group == -1 else group
    numbers, zeros, scales, expanded = [], [], [], []
    for r in range(rows):
        row = values[r * columns:(r + 1) * columns]
        numbers.append([])
        zeros.append([])
        scales.append([])
        for begin in range(0, columns, group):
            part = row[begin:begin + group]
            least, most = min(0, *part), max(1e-6, *part)
            scale = rounded((max(most, -least) / 7 if symmetric else (most - least) / 15) * 1.01, kind)
            zero = 8 if symmetric else max(1, round(-least / scale))
            quantised = [min(15, max(0, round(value / scale) + zero)) for value in part]
            numbers[-1] += quantised
            zeros[-1].append(zero)
            scales[-1].append(scale)
            expanded += [(q - zero) * scale for q in quantised]
    return numbers, zeros, scales, expanded


def int4(base, shape, values, group, kind, symmetric):
    numbers, zeros, scales, expanded = four_bits(shape, values, group, kind, symmetric)
    rows, columns, groups = *shape, len(scales[0])
    content = struct.pack(f"<{rows * columns // 8}I",
                          *(words(row[c:c + 8]) for row in numbers for c in range(0, columns, 8)))
    tensors = [(base + ".weight_packed", "I32", [rows, columns // 8], content),
               (base + ".weight_scale", {"b": "BF16", "e": "F16"}[kind], [rows, groups],
                packed(sum(scales, []), kind)),
               (base + ".weight_shape", "I64", [2], struct.pack("<2q", *shape))]
    if not symmetric:
        points = [words([zeros[r + i][g] for i in range(8)]) for r in range(0, rows, 8) for g in range(groups)]
        tensors.append((base + ".weight_zero_point", "I32", [rows // 8, groups],
                        struct.pack(f"<{len(points)}I", *points)))
    return tensors, expanded


def transposed(base, shape, values, group, method):
    numbers, zeros, scales, expanded = four_bits(shape, values, group, "e", False)
    rows, columns, groups = *shape, len(scales[0])
    order = AWQ_ORDER if method == "awq" else range(8)
    less = 1 if method == "gptq" else 0
    points = [words([zeros[r + i][g] - less for i in order]) for g in range(groups) for r in range(0, rows, 8)]
    if method == "awq":
        place = [columns, rows // 8]
        content = [words([numbers[r + i][c] for i in order]) for c in range(columns) for r in range(0, rows, 8)]
    else:
        place = [columns // 8, rows]
        content = [words(numbers[r][c:c + 8]) for c in range(0, columns, 8) for r in range(rows)]
    tensors = [(base + ".qweight", "I32", place, struct.pack(f"<{len(content)}I", *content)),
               (base + ".qzeros", "I32", [groups, rows // 8], struct.pack(f"<{len(points)}I", *points)),
               (base + ".scales", "F16", [groups, rows], packed([s[g] for g in range(groups) for s in scales], "e"))]
    if method != "awq":
        order_of_columns = [c // (columns if group == -1 else group) for c in range(columns)]
        tensors.append((base + ".g_idx", "I32", [columns], struct.pack(f"<{columns}i", *order_of_columns)))
    return tensors, expanded


def compressed(group, symmetric):
    weights = {"num_bits": 4, "type": "int", "strategy": "channel" if group == -1 else "group", "group_size": group,
               "symmetric": symmetric, "actorder": None}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
# The name of a format, quantization_config, and the function that quantises a matrix.
FORMATS = {
    "FP8_E4M3_F32": (FP8, lambda *matrix: fp8(*matrix, "f")),
    "FP8_E4M3_BF16": (FP8, lambda *matrix: fp8(*matrix, "b")),
    "INT4_G32_BF16": (compressed(32, True), lambda *matrix: int4(*matrix, 32, "b", True)),
    "INT4_ROW_F16": (compressed(-1, True), lambda *matrix: int4(*matrix, -1, "e", True)),
    "INT4_ZP_G64_BF16": (compressed(64, False), lambda *matrix: int4(*matrix, 64, "b", False)),
    "GPTQ4_G32": (GPTQ, lambda *matrix: transposed(*matrix, 32, "gptq")),
    "GPTQ4_V2_G128": ({**GPTQ, "group_size": 128, "checkpoint_format": "gptq_v2"},
                      lambda *matrix: transposed(*matrix, 128, "gptq_v2")),
    "AWQ4_G32": (AWQ, lambda *matrix: transposed(*matrix, 32, "awq")),
    "AWQ4_G128": ({**AWQ, "group_size": 128}, lambda *matrix: transposed(*matrix, 128, "awq")),
}


def nearest_bf16(numbers):
    """Bits of the nearest bfloat16 numbers, ties to even."""
    bits = struct.unpack(f"<{len(numbers)}I", struct.pack(f"<{len(numbers)}f", *numbers))
    return struct.pack(f"<{len(numbers)}H", *(one + 0x7FFF + (one >> 16 & 1) >> 16 for one in bits))


def quantise(source, wanted, function):
    """The tensors of a model with some of its matrices quantised, and with the numbers these expand to: in the
    precision of float32 and rounded to bfloat16."""
    quantised, expanded = [], {"f32": [], "bf16": []}
    for name, dtype, shape, content in read_model(source):
        if not re.fullmatch(wanted, name):
            quantised.append((name, dtype, shape, content))
            for tensors in expanded.values():
                tensors.append((name, dtype, shape, content))
            continue
        values = array.array("f", array.array("I", (bits << 16 for bits in array.array("H", content))).tobytes())
        stored, numbers = function(name.removesuffix(".weight"), shape, values)
        quantised += stored
        expanded["f32"].append((name, "F32", shape, struct.pack(f"<{len(numbers)}f", *numbers)))
        expanded["bf16"].append((name, "BF16", shape, nearest_bf16(numbers)))
    return quantised, expanded


class Quantised(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)

    def tearDown(self):
        self.scratch.cleanup()

    def program(self, *arguments, codes=(0,)):
        done = subprocess.run([KLOTSKI, *map(str, arguments)], capture_output=True, text=True, timeout=HANGS)
        self.assertIn(done.returncode, codes, done.stderr)
        return done.stdout if done.returncode in (0, 1) else done.stderr

    def verified(self, folder, *arguments, model=QWEN):
        """Errors of the logits to the last digit, so that equal errors are those of equal logits, and tokens that
        agree. Other fields depend on a run in float32 too."""
        reference = ("--reference", model / "reference.json", "--json")
        report = json.loads(self.program("verify", folder, *reference, *arguments, codes=(0, 1)))
        return [(prompt["logit_error"], prompt["positions_agreed"], prompt["greedy_agreed"])
                for prompt in report["prompts"]]

    def test_every_format_gives_the_numbers_that_it_is_defined_by(self):
        wanted = r"model\.layers\.1\.(mlp\.experts\..*|self_attn\.._proj\.weight)"
        for name, (config, function) in FORMATS.items():
            with self.subTest(name):
                stored, expanded = quantise(QWEN, wanted, function)
                quantised = self.folder / name
                write_model(quantised, QWEN, stored, config)
                for precision in expanded:
                    plain = self.folder / f"{name}-{precision}"
                    write_model(plain, QWEN, expanded[multiplied_precision(precision)])
                    arguments = ("--precision", precision)
                    expected = self.verified(plain, *arguments)
                    self.assertEqual(self.verified(quantised, *arguments), expected)
                    self.assertEqual(self.verified(quantised, *arguments, "--expert-slots", "4"), expected)
                    self.assertTrue(0.005 < max(error for error, *_ in expected) < 0.5, expected)
                self.check_info(name, quantised, stored)

    def test_any_matrix_may_be_quantised(self):
        """Router, shared expert and its gate of one row, output: of another family. Routers are not rounded, so the
        numbers are such that bfloat16 holds them."""
        matrices = r"(lm_head|model\.layers\.\d\..*(proj|gate))\.weight"
        stored, expanded = quantise(QWEN2, matrices, lambda *matrix: fp8(*matrix, "b", powers_of_two=True))
        write_model(self.folder / "quantised", QWEN2, stored, FP8)
        for precision, tensors in expanded.items():
            write_model(self.folder / precision, QWEN2, tensors)
            arguments = ("--precision", precision)
            self.assertEqual(*(self.verified(self.folder / name, *arguments, model=QWEN2)
                               for name in ("quantised", precision)))
        info = json.loads(self.program("info", self.folder / "quantised", "--json"))
        self.assertEqual(info["lossy"]["FP8_E4M3_BF16"]["matrices"], 1 + 3 * (4 + 1 + 4 + 3 * 8))

    def check_info(self, name, folder, stored):
        info = json.loads(self.program("info", folder, "--json"))
        read = [tensor for tensor in stored if not tensor[0].endswith((".g_idx", ".weight_shape"))]
        lossy = [tensor for tensor in read if ".layers.1." in tensor[0] and tensor[0].split(".")[-2] != "gate"
                 and "norm" not in tensor[0]]
        matrices = 16 * 3 + 4
        self.assertEqual(info["lossy"], {name: {"matrices": matrices, "bytes": sum(len(t[3]) for t in lossy)}})
        self.assertEqual(info["bytes"]["total"], sum(len(tensor[3]) for tensor in read))
        self.assertIn(f"lossy         {name} ", self.program("info", folder))

    def test_a_text_and_what_results_say(self):
        config, function = FORMATS["AWQ4_G128"]
        stored, expanded = quantise(TINY, r"model\.layers\.0\.block_sparse_moe\.experts\.[01]\..*", function)
        write_model(self.folder / "awq", TINY, stored, config)
        write_model(self.folder / "plain", TINY, expanded[multiplied_precision("bf16")])
        arguments = ("-p", "The quick brown fox", "-n", "12", "--temperature", "0", "--json")
        quantised, plain = (json.loads(self.program("run", self.folder / name, *arguments))
                            for name in ("awq", "plain"))
        self.assertEqual(quantised["text"], plain["text"])
        self.assertEqual(plain["lossy"], [])
        self.assertEqual(quantised["lossy"], ["weights quantised as AWQ4_G128"])
        self.assertIn("not BF16", self.program("compact", self.folder / "awq", self.folder / "compact"))

    def refused(self, name, stored, config, *messages):
        folder = self.folder / name
        write_model(folder, QWEN, stored, config)
        error = self.program("info", folder, codes=(3,))
        for message in messages:
            self.assertIn(message, error)

    def test_what_is_refused(self):
        wanted = r"model\.layers\.1\.self_attn\.q_proj\.weight"
        stored, _ = quantise(QWEN, wanted, FORMATS["GPTQ4_G32"][1])
        query = "model.layers.1.self_attn.q_proj"
        self.refused("method", stored, {"quant_method": "bitsandbytes"}, "quant_method", "'bitsandbytes'", "gptq")
        self.refused("bits", stored, {**GPTQ, "bits": 8}, "bits: expected 4", "found 8")
        self.refused("order", stored, {**GPTQ, "desc_act": True}, "desc_act")
        self.refused("awq", stored, AWQ, f"'{query}.qweight'", "[64, 16]", "[8, 128]")
        self.refused("group", stored, {**GPTQ, "group_size": 64}, f"'{query}.g_idx'", "column 32 in group 1")
        self.refused("none", stored, None, f"'{query}.weight'")
        self.refused("scales", [t for t in stored if not t[0].endswith(".scales")], GPTQ, f"'{query}.scales'")
        shuffled = [t if not t[0].endswith(".g_idx") else (*t[:3], struct.pack("<64i", *([1, 0] * 32))) for t in stored]
        self.refused("shuffled", shuffled, GPTQ, f"'{query}.g_idx'", "column 0 in group 1", "act-order")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
