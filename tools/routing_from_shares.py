#!/usr/bin/env python3
"""Samples a routing trace from the shares of tokens that requests send to each expert.

    routing_from_shares.py SHARES.npy... -o TRACE [--requests N] [--tokens N] [--top-k K] [--seed S]

Each file holds float32 or float64 numbers [request][layer][expert]: the share of a request's tokens that goes to
each expert of a layer, for one subject. Requests of all files are mixed in a random order. Each token of a request
chooses its experts at random such that the expected shares are exactly those of the file; experts of a token are
written with the larger share first. Real tokens repeat the choices of their neighbours more often than that, so a
sampled trace has less locality than the model it comes from. Token ids are all 0: the shares do not tell them.
The trace's format is that of docs/routing-trace.md. The same arguments give the same bytes.
"""
import argparse
import array
import ast
import json
import pathlib
import random
import struct
import sys

MAX_HEADER = 1 << 16


def read_npy(path):
    """The shape and the numbers of a NumPy file of little-endian floats in C order."""
    data = pathlib.Path(path).read_bytes()
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        raise ValueError(f"{path}: expected a NumPy file, found something else")
    wide = data[6] >= 2
    length = struct.unpack_from("<I" if wide else "<H", data, 8)[0]
    begin = 12 if wide else 10
    if length > MAX_HEADER or begin + length > len(data):
        raise ValueError(f"{path}: expected a header of at most {MAX_HEADER} bytes, found {length}")
    header = ast.literal_eval(data[begin:begin + length].decode("latin-1"))
    code = {"<f4": "f", "<f8": "d"}.get(header["descr"])
    shape = header["shape"]
    if code is None or header["fortran_order"] or len(shape) != 3:
        raise ValueError(f"{path}: expected float32 or float64 [request][layer][expert], found {header}")
    numbers = array.array(code)
    numbers.frombytes(data[begin + length:])
    if len(numbers) != shape[0] * shape[1] * shape[2]:
        raise ValueError(f"{path}: expected {shape} numbers, found {len(numbers)}")
    if sys.byteorder == "big":
        numbers.byteswap()
    return shape, numbers


def requests_of(path):
    """The requests of a file: for each a list of layers, each a list of shares by expert."""
    (count, layers, experts), numbers = read_npy(path)
    for request in range(count):
        at = request * layers * experts
        yield [list(numbers[at + layer * experts:at + (layer + 1) * experts]) for layer in range(layers)]


def chances(shares, top_k):
    """The probability of each expert that a token chooses it: they sum to top_k and none exceeds 1."""
    total = sum(shares)
    if not total > 0 or min(shares) < 0:
        raise ValueError(f"expected shares of at least 0 with a positive sum, found {shares}")
    wanted = [top_k * share / total for share in shares]
    for _ in range(len(shares)):
        over = sum(p - 1 for p in wanted if p > 1)
        if over < 1e-12:
            break
        room = sum(p for p in wanted if p < 1)
        if room <= 0:  # fewer experts than top_k have a share: the others are alike
            idle = [e for e, p in enumerate(wanted) if p == 0]
            return [over / len(idle) if e in idle else min(p, 1.0) for e, p in enumerate(wanted)]
        wanted = [1.0 if p >= 1 else p * (1 + over / room) for p in wanted]
    return wanted


def choose(order, probability, generator):
    """A random set of experts in which each is with its probability: experts side by side in a random order, each as
    long as it is likely, and marks one apart."""
    generator.shuffle(order)
    mark = generator.random()
    end = 0.0
    chosen = []
    for expert in order:
        end += probability[expert]
        if end > mark:
            chosen.append(expert)
            mark += 1.0
    return chosen


def sample(layers, tokens, top_k, generator):
    """The choices of a request's tokens: for each token one list with the experts of all layers."""
    probabilities = [chances(shares, top_k) for shares in layers]
    orders = [list(range(len(shares))) for shares in layers]
    for _ in range(tokens):
        choices = []
        for order, probability in zip(orders, probabilities):
            chosen = choose(order, probability, generator)
            while len(chosen) != top_k:  # sums of fractions may miss the last mark
                chosen = choose(order, probability, generator)
            choices += sorted(chosen, key=lambda expert: (-probability[expert], expert))
        yield choices


def write_trace(out, requests, options, generator):
    layers, experts = len(requests[0]), len(requests[0][0])
    header = json.dumps({
        "version": 1, "model": options.model, "sampled": True,
        "layers": [{"layer": i, "experts": experts, "top_k": options.top_k} for i in range(layers)],
    }).encode()
    out.write(b"KLTRACE1" + struct.pack("<I", len(header)) + header)
    record = struct.Struct(f"<IIi{layers * options.top_k}H")
    for sequence, request in enumerate(requests):
        for position, choices in enumerate(sample(request, options.tokens, options.top_k, generator)):
            out.write(record.pack(sequence, position, 0, *choices))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("shares", nargs="+", metavar="SHARES.npy")
    parser.add_argument("-o", "--output", required=True, metavar="TRACE")
    parser.add_argument("--requests", type=int, default=20, help="requests of each file, the first ones (default 20)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each request (default 64)")
    parser.add_argument("--top-k", type=int, default=2, help="experts of each token (default 2)")
    parser.add_argument("--model", default="mixtral", help="name in the trace's header (default mixtral)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    try:
        requests = []
        for path in options.shares:
            requests += [one for _, one in zip(range(options.requests), requests_of(path))]
        if not requests or any(len(one) != len(requests[0]) or len(one[0]) != len(requests[0][0]) for one in requests):
            raise ValueError("expected requests with as many layers and experts in every file")
        if not 1 <= options.top_k <= len(requests[0][0]):
            raise ValueError(f"--top-k: expected 1 to {len(requests[0][0])} experts, found {options.top_k}")
        generator.shuffle(requests)
        with open(options.output, "wb") as out:
            write_trace(out, requests, options, generator)
    except (OSError, ValueError, SyntaxError, KeyError) as error:
        print(f"routing_from_shares: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: {len(requests) * options.tokens} tokens of {len(requests)} requests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
