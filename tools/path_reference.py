#!/usr/bin/env python3
"""The routing-path predictor of src/experts/path_network.h in PyTorch, to compare ours with.

  path_reference.py golden FILE                          one forward and backward pass, for a unit test
  path_reference.py train TRACE... [--test TRACE]        the training of `klotski train-predictor` with the same
                                                         first weights, split, batches and schedule; recall as JSON

Needs PyTorch and numpy.
"""
import argparse
import json
import math
import struct
import time

import numpy as np
import torch
from torch.nn import functional

CHUNK, HEADS, WARM_UP = 32, 4, 20
U64 = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15  # kNoiseStep of src/base/noise.h


def mix(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & U64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & U64
    return value ^ (value >> 31)


def noise_key(seed, name):
    key = mix((seed + STEP) & U64)
    for byte in name.encode():
        key = (mix(key ^ byte) + STEP) & U64
    return key


def noise(seed, name, count):
    """Nearly normal numbers with deviation 1, as src/base/noise.h makes them."""
    with np.errstate(over="ignore"):
        bits = np.uint64(noise_key(seed, name)) + np.arange(count, dtype=np.uint64) * np.uint64(STEP)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    total = sum(((bits >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4)) - 2 * 65535
    return total / math.sqrt((65536.0 * 65536.0 - 1.0) / 3.0)


class PathNetwork:
    """Parameters by the names of the C++ network; row 0 of `tokens` is for unknown tokens, row 1 for beginnings."""

    def __init__(self, layers, width, heads, inner, chunk, known):
        self.width, self.heads, self.chunk, self.known = width, heads, chunk, known
        experts = sum(layer["experts"] for layer in layers)
        sizes = {"tokens": (len(known) + 2, width), "positions": (chunk, width)}

        def linear(name, out, into):
            sizes[name], sizes[name + ".bias"] = (out, into), (1, out)

        for part in ("encoder", "decoder", "cross"):
            sizes[part + ".norm"] = (1, width)
            for name in ("query", "key", "value", "output"):
                linear(f"{part}.{name}", width, width)
        for part in ("encoder.feed", "decoder.feed"):
            sizes[part + ".norm"] = (1, width)
            linear(part + ".up", inner, width)
            linear(part + ".down", width, inner)
        sizes["norm"] = (1, width)
        linear("heads", experts, width)
        self.parameters = {name: torch.zeros(size) for name, size in sizes.items()}

    def initialise(self, seed, shares):
        for name, value in self.parameters.items():
            if name.endswith("norm"):
                value.fill_(1.0)
            elif not name.endswith((".bias", ".output", ".down")) and name != "heads":
                drawn = noise(seed, name, value.numel()) / math.sqrt(value.shape[1])
                value.copy_(torch.tensor(drawn).reshape(value.shape))
        shares = np.clip(shares, 1e-4, 1 - 1e-4)
        self.parameters["heads.bias"].copy_(torch.tensor(np.log(shares / (1 - shares))))

    def rows(self, tokens):
        place = np.searchsorted(self.known, tokens)
        place = np.minimum(place, len(self.known) - 1)
        return np.where(np.asarray(self.known)[place] == tokens, place + 2, 0)

    def linear(self, name, x):
        return functional.linear(x, self.parameters[name], self.parameters[name + ".bias"][0])

    def normalise(self, name, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.parameters[name][0]

    def attend(self, part, queries, keys, values, mask):
        def split(x):
            return x.reshape(*x.shape[:-1], self.heads, self.width // self.heads).transpose(1, 2)

        scores = split(queries) @ split(keys).transpose(2, 3) / math.sqrt(self.width // self.heads)
        shares = torch.softmax(scores.masked_fill(~mask[:, None], -math.inf), -1)
        return self.linear(part + ".output", (shares @ split(values)).transpose(1, 2).reshape(queries.shape))

    def feed_forward(self, part, x):
        up = torch.relu(self.linear(part + ".up", self.normalise(part + ".norm", x)))
        return x + self.linear(part + ".down", up)

    def logits(self, chunks):
        """[tokens of all chunks][experts]; chunks are pairs (tokens before, tokens), padded here to one length."""
        before = np.zeros((len(chunks), self.chunk), np.int64)
        tokens = np.zeros((len(chunks), self.chunk), np.int64)
        seen = torch.zeros(len(chunks), self.chunk, dtype=torch.bool)
        valid = torch.zeros(len(chunks), self.chunk, dtype=torch.bool)
        for i, (one_before, one) in enumerate(chunks):
            context = self.rows(one_before) if len(one_before) else np.array([1])
            before[i, : len(context)] = context
            tokens[i, : len(one)] = self.rows(one)
            seen[i, : len(context)] = True
            valid[i, : len(one)] = True
        table, positions = self.parameters["tokens"], self.parameters["positions"]
        x = functional.embedding(torch.tensor(before), table) + positions
        normed = self.normalise("encoder.norm", x)
        x = x + self.attend("encoder", self.linear("encoder.query", normed), self.linear("encoder.key", normed),
                            self.linear("encoder.value", normed), seen[:, None])
        context = self.feed_forward("encoder.feed", x)
        x = functional.embedding(torch.tensor(tokens), table) + positions
        normed = self.normalise("decoder.norm", x)
        causal = torch.ones(self.chunk, self.chunk, dtype=torch.bool).tril()[None]
        x = x + self.attend("decoder", self.linear("decoder.query", normed), self.linear("decoder.key", normed),
                            self.linear("decoder.value", normed), causal)
        x = x + self.attend("cross", self.linear("cross.query", self.normalise("cross.norm", x)),
                            self.linear("cross.key", context), self.linear("cross.value", context), seen[:, None])
        x = self.feed_forward("decoder.feed", x)
        return self.linear("heads", self.normalise("norm", x))[valid]


def write_golden(path):
    """A tiny network with weights everywhere, two chunks of which one begins a sequence and one is short."""
    layers = [{"experts": 5, "top_k": 2}, {"experts": 3, "top_k": 1}]
    network = PathNetwork(layers, width=8, heads=2, inner=12, chunk=4, known=[3, 5, 8, 13, 21, 34])
    for name, value in network.parameters.items():
        drawn = noise(7, name, value.numel())
        drawn = 1 + 0.1 * drawn if name.endswith("norm") else 0.4 * drawn
        value.copy_(torch.tensor(drawn).reshape(value.shape))
        value.requires_grad_()
    chunks = [([], [3, 99, 8, 5]), ([3, 99, 8, 5], [34, 21, 3])]
    targets = torch.tensor([[(3 * i + 5 * e + i * e) % 4 == 0 for e in range(8)] for i in range(7)]).float()
    logits = network.logits(chunks)
    loss = functional.binary_cross_entropy_with_logits(logits, targets)
    loss.backward()

    def rounded(values):
        return [float(f"{v:.6g}") for v in values]

    golden = {
        "made_by": f"tools/path_reference.py golden, PyTorch {torch.__version__}",
        "chunks": [{"before": before, "tokens": tokens} for before, tokens in chunks],
        "targets": [int(v) for v in targets.flatten()],
        "logits": [rounded(row) for row in logits.tolist()],
        "loss": loss.item(),
        "gradients": {n: rounded(v.grad.flatten().tolist()) for n, v in network.parameters.items()},
    }
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(golden) + "\n")


def read_trace(path):
    """The routed layers, and for each sequence its tokens [n] and choices [n][choices]."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"KLTRACE1", f"{path}: not a routing trace"
    (length,) = struct.unpack("<I", data[8:12])
    layers = json.loads(data[12 : 12 + length])["layers"]
    choices = sum(layer["top_k"] for layer in layers)
    record = np.dtype([("sequence", "<u4"), ("position", "<u4"), ("token", "<i4"), ("choices", "<u2", (choices,))])
    records = np.frombuffer(data, record, offset=12 + length)
    numbers, first = np.unique(records["sequence"], return_index=True)
    parts = [records[records["sequence"] == n] for n in numbers[np.argsort(first)]]
    return layers, [(part["token"].astype(np.int64), part["choices"].astype(np.int64)) for part in parts]


def read_traces(paths):
    read = [read_trace(path) for path in paths]
    assert all(layers == read[0][0] for layers, _ in read), "traces of different models"
    return read[0][0], [sequence for _, sequences in read for sequence in sequences]


def columns_of(layers):
    """For each choice of a record, where the experts of its layer begin among all experts."""
    first, columns = 0, []
    for layer in layers:
        columns += [first] * layer["top_k"]
        first += layer["experts"]
    return np.array(columns), first


def chunks_of(sequences):
    return [(tokens[max(0, at - CHUNK) : at], tokens[at : at + CHUNK], choices[at : at + CHUNK])
            for tokens, choices in sequences for at in range(0, len(tokens), CHUNK)]


def targets_of(layers, chunks):
    columns, experts = columns_of(layers)
    chosen = np.concatenate([choices for _, _, choices in chunks]) + columns
    targets = torch.zeros(len(chosen), experts)
    return targets.scatter_(1, torch.tensor(chosen), 1.0)


def recall(network, layers, sequences):
    hits, counts = np.zeros(len(layers)), np.zeros(len(layers))
    chunks = chunks_of(sequences)
    for at in range(0, len(chunks), 64):
        batch = chunks[at : at + 64]
        with torch.no_grad():
            logits = network.logits([(before, tokens) for before, tokens, _ in batch])
        targets, first = targets_of(layers, batch), 0
        for i, layer in enumerate(layers):
            part = slice(first, first + layer["experts"])
            best = logits[:, part].topk(layer["top_k"]).indices
            hits[i] += targets[:, part].gather(1, best).sum().item()
            counts[i] += len(logits) * layer["top_k"]
            first = part.stop
    return {"path": hits.sum() / counts.sum(), "layers": [round(h / c, 5) for h, c in zip(hits, counts)]}


def shuffled(count, seed, epoch):
    order, key = list(range(count)), noise_key(seed, f"epoch {epoch}")
    for i in range(count, 1, -1):
        other = mix((key + i * STEP) & U64) % i
        order[i - 1], order[other] = order[other], order[i - 1]
    return order


def cosine(step, total):
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARM_UP) / max(1, total - WARM_UP))))


def train(options):
    layers, sequences = read_traces(options.traces)
    count = len(sequences)
    kept = min(max(1, round(options.held_out / 100 * count)), count - 1)
    held = [(i + 1) * kept // count != i * kept // count for i in range(count)]
    training = [s for s, h in zip(sequences, held) if not h]
    held_out = [s for s, h in zip(sequences, held) if h]
    tokens, counts = np.unique(np.concatenate([t for t, _ in training]), return_counts=True)
    network = PathNetwork(layers, options.width, HEADS, 2 * options.width, CHUNK, tokens[counts >= 2])
    chunks = chunks_of(training)
    network.initialise(options.seed, targets_of(layers, chunks).double().mean(0).numpy())
    for value in network.parameters.values():
        value.requires_grad_()
    values = network.parameters.values()
    groups = [{"params": [v for v in values if v.shape[0] > 1], "weight_decay": 0.01},
              {"params": [v for v in values if v.shape[0] == 1], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.99))
    per_epoch = (len(chunks) + options.batch - 1) // options.batch
    total, step, begin, best, losses = options.epochs * per_epoch, 0, time.time(), None, []
    for epoch in range(options.epochs):
        order = shuffled(len(chunks), options.seed, epoch)
        for at in range(0, len(chunks), options.batch):
            batch = [chunks[i] for i in order[at : at + options.batch]]
            for group in adam.param_groups:
                group["lr"] = options.learning_rate * cosine(step, total)
            logits = network.logits([(before, tokens) for before, tokens, _ in batch])
            loss = functional.binary_cross_entropy_with_logits(logits, targets_of(layers, batch))
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
            step += 1
        now = recall(network, layers, held_out)
        if best is None or now["path"] > best[0]["path"]:
            best = now, {n: v.detach().clone() for n, v in network.parameters.items()}
    network.parameters = best[1]
    result = {"made_by": f"tools/path_reference.py, PyTorch {torch.__version__}", "seconds": time.time() - begin,
              "first_loss": losses[0], "held_out": best[0]}
    if options.test:
        result["test"] = recall(network, layers, read_traces(options.test)[1])
    print(json.dumps(result, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("golden").add_argument("file")
    training = commands.add_parser("train")
    training.add_argument("traces", nargs="+")
    training.add_argument("--test", action="append")
    for name, kind, value in (("epochs", int, 10), ("batch", int, 16), ("width", int, 64), ("seed", int, 1),
                              ("learning-rate", float, 0.01), ("held-out", float, 10.0)):
        training.add_argument("--" + name, type=kind, default=value)
    options = parser.parse_args()
    if options.command == "golden":
        write_golden(options.file)
    else:
        train(options)


if __name__ == "__main__":
    main()
