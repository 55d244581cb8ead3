#!/usr/bin/env python3
"""Writes golden blocks of the quantised types of GGUF: a file TYPE.bin has some blocks, then the float32
numbers that the `gguf` package expands them to, all little-endian. The blocks are random bytes; of some,
every pair of bytes is an extreme half (zeros, least denormal, largest, infinity, NaN) or all bits are
equal. Run by hand when a type is added:

    pip install gguf==0.19 && python3 tools/make_gguf_blocks.py tests/data/gguf/blocks [BLOCKS]
"""
import pathlib
import sys

import gguf
import numpy as np

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
         "MXFP4"]
EXTREME_HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00]
SMALL_FILE_COLUMNS = 3072  # columns of all blocks of a file of the default size


def random_blocks(count, size, random):
    """Three quarters are plain random bytes; in the others halves are extreme or all bits equal."""
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    halves = np.array(EXTREME_HALVES, dtype="<u2")
    for row in range(0, count, 4):
        pick = row // 4 % 4
        if pick == 3:
            blocks[row] = random.choice([0x00, 0xFF, 0x80, 0x7F])
            continue
        chosen = random.choice(halves, (size + 1) // 2).view(np.uint8)
        where = random.random(size) < 0.5 if pick == 0 else np.ones(size, dtype=bool)
        blocks[row][where] = chosen[:size][where]
    return blocks


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(TYPES):
        kind = gguf.GGMLQuantizationType[name]
        columns, size = gguf.GGML_QUANT_SIZES[kind]
        count = int(sys.argv[2]) if len(sys.argv) > 2 else SMALL_FILE_COLUMNS // columns
        blocks = random_blocks(count, size, np.random.default_rng(number))
        with np.errstate(all="ignore"):
            numbers = gguf.quants.dequantize(blocks, kind).astype("<f4")
        (folder / f"{name}.bin").write_bytes(blocks.tobytes() + numbers.tobytes())


if __name__ == "__main__":
    main()
