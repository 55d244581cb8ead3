#!/usr/bin/env python3
"""`klotski replay` beside a simulation of its plain case written here: `replay_test.py KLOTSKI SOURCE_FOLDER [...]`.

The plain case (predictor `none`): records in file order, layers rising, experts best first, one pool of N slots over all
layers, an expert loaded when asked for.
"""
import collections
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from program import HANGS, KLOTSKI, TINY

HALVING = 65536  # uses after which lfu halves its counts


def read_trace(path):
    """The layers of a trace, and for each record the list of its (layer, expert) in the order of requests."""
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 8)[0]
    layers = json.loads(data[12:12 + length])["layers"]
    keys = [layer["layer"] for layer in layers for _ in range(layer["top_k"])]
    record = struct.Struct(f"<IIi{len(keys)}H")
    return layers, [list(zip(keys, fields[3:])) for fields in record.iter_unpack(data[12 + length:])]


def lru(requests, slots):
    pool, hits = collections.OrderedDict(), 0
    for key in requests:
        hits += key in pool
        if key not in pool and len(pool) == slots:
            pool.popitem(last=False)
        pool[key] = None
        pool.move_to_end(key)
    return hits


def lfu(requests, slots):
    pool, uses, hits = set(), {}, 0

    def frequency(key, now):
        last, count = uses.get(key, (0, 0))
        return count >> (now // HALVING - last // HALVING)

    for now, key in enumerate(requests):  # `now` uses have been counted
        hits += key in pool
        if key not in pool and len(pool) == slots:
            pool.remove(min(pool, key=lambda k: (frequency(k, now), uses[k][0], k)))
        pool.add(key)
        uses[key] = (now + 1, frequency(key, now + 1) + 1)
    return hits


def belady(requests, slots):
    uses = collections.defaultdict(collections.deque)
    for i, key in enumerate(requests):
        uses[key].append(i)
    pool, hits = set(), 0
    for key in requests:
        uses[key].popleft()
        hits += key in pool
        if key not in pool and len(pool) == slots:
            pool.remove(max(pool, key=lambda k: uses[k][0] if uses[k] else len(requests)))
        pool.add(key)
    return hits


SIMULATED = {"lru": lru, "lfu": lfu, "belady": belady}


class Replay(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-replay-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def klotski(self, *arguments):
        return subprocess.run([KLOTSKI, *map(str, arguments)], capture_output=True, timeout=HANGS, text=True)

    def replay(self, *arguments):
        result = self.klotski("replay", "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refused(self, code, says, *arguments):
        result = self.klotski("replay", *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(says, result.stderr)

    def write_trace(self, name, layers, records):
        """`records`: (sequence, position, token, experts of all layers)."""
        header = json.dumps({"version": 1, "model": "made", "layers": layers}).encode()
        path = self.folder / name
        path.write_bytes(b"KLTRACE1" + struct.pack("<I", len(header)) + header + b"".join(
            struct.pack(f"<IIi{len(experts)}H", sequence, position, token, *experts)
            for sequence, position, token, experts in records))
        return path

    def random_trace(self, name, seed, tokens=400):
        """Layers 0 and 2 of a model, five and seven experts, skewed differently in every sequence."""
        generator = random.Random(seed)
        layers = [{"layer": 0, "experts": 5, "top_k": 2}, {"layer": 2, "experts": 7, "top_k": 3}]
        records = []
        for i in range(tokens):
            experts = []
            for layer in layers:
                chances = [(e * 3 + i // 40) % layer["experts"] + 0.3 for e in range(layer["experts"])]
                ranked = sorted(range(layer["experts"]), key=lambda e: -chances[e] * generator.random())
                experts += ranked[:layer["top_k"]]
            records.append((i // 40, i % 40, generator.randrange(9), experts))
        return self.write_trace(name, layers, records)

    def check_plain(self, result, paths, sizes):
        requests = [key for path in paths for record in read_trace(path)[1] for key in record]
        found = {(r["rule"], r["experts_in_memory"]): r for r in result["results"] if r["predictor"] == "none"}
        for slots in sizes:
            for rule, simulate in SIMULATED.items():
                one = found[rule, slots]
                self.assertEqual(one["requests"], len(requests))
                self.assertEqual(one["hits"], simulate(requests, slots), (rule, slots))
                self.assertEqual(one["bytes"], (len(requests) - one["hits"]) * result["expert_bytes"])
                rate = result["link_bytes_per_second"]
                self.assertAlmostEqual(one["stall_seconds"], one["bytes"] / rate, places=9)
        for one in result["results"]:
            self.assertLessEqual(one["hits"], found["belady", one["experts_in_memory"]]["hits"], one)

    def test_worked_by_hand(self):
        # Two layers, one expert each: requests 0.0 1.0, 0.1 1.0, 0.0 1.1 with two slots. lru: the third request takes
        # the place of 0.0, the fourth hits, the fifth takes the place of 0.1, the sixth that of 1.0: one hit. The
        # oracle keeps 1.0, which comes next, and has nothing to gain from 0.0: it leaves for 0.1, so one hit too.
        layers = [{"layer": i, "experts": 2, "top_k": 1} for i in range(2)]
        path = self.write_trace("hand", layers, [(0, i, 0, e) for i, e in enumerate([(0, 0), (1, 0), (0, 1)])])
        result = self.replay(path, "--experts-in-memory", "2,3", "--expert-bytes", "1000B")
        hits = {(r["rule"], r["experts_in_memory"]): r["hits"]
                for r in result["results"] if r["predictor"] == "none"}
        self.assertEqual((hits["lru", 2], hits["belady", 2], hits["lru", 3], hits["belady", 3]), (1, 1, 2, 2))
        self.assertEqual(result["expert_bytes"], 1000)
        self.assertFalse(result["expert_bytes_assumed"])

    def test_the_plain_case_equals_an_independent_simulation(self):
        paths = [self.random_trace("one", 1), self.random_trace("two", 2)]
        sizes = [1, 2, 3, 6, 9, 12, 40]
        result = self.replay(*paths, "--experts-in-memory", ",".join(map(str, sizes)), "--link-gbps", "2")
        self.assertEqual(result["experts"], 12)
        self.assertEqual(result["tokens"], 800)
        self.assertTrue(result["expert_bytes_assumed"])
        self.check_plain(result, paths, sizes)

    def test_counts_are_halved_as_documented(self):
        path = self.random_trace("long", 4, tokens=30000)  # 150 000 requests
        self.check_plain(self.replay(path, "--experts-in-memory", "4"), [path], [4])

    def test_a_recorded_trace(self):
        trace = self.folder / "tiny.trace"
        result = self.klotski("trace", TINY, "-o", trace)
        self.assertEqual(result.returncode, 0, result.stderr)
        layers, _ = read_trace(trace)
        experts = sum(layer["experts"] for layer in layers)
        result = self.replay(trace, "--experts-in-memory", experts // 4)
        self.check_plain(result, [trace], [experts // 4])
        # All experts fit: each is loaded once, whatever rule or predictor.
        result = self.replay(trace, "--experts-in-memory", experts)
        self.assertEqual(len({r["hits"] for r in result["results"]}), 1)

    def test_every_predictor_with_rules_that_ask_it(self):
        paths = [self.random_trace("one", 1), self.random_trace("two", 2)]
        eamc = self.folder / "eamc.json"
        arguments = (paths[0], "--learn", paths[1], "--experts-in-memory", "5", "--eamc", eamc)
        result = self.replay(*arguments)
        pairs = {(r["rule"], r["predictor"]) for r in result["results"]}
        for predictor in ("popularity", "correlation", "activation-aware", "token"):
            self.assertIn(("activation-aware", predictor), pairs)
            self.assertIn(("plec", predictor), pairs)
            self.assertNotIn(("lru", predictor), pairs, "it does not ask")
        kept = json.loads(eamc.read_text())
        self.assertEqual(len(kept["decode"]), 20, "a matrix for each sequence")
        self.assertEqual(result, self.replay(*arguments[:-2]), "the same again without the file")
        text = self.klotski("replay", paths[0], "--experts-in-memory", "5").stdout
        self.assertIn("belady", text)
        eamc.write_text(eamc.read_text().replace('"experts":7', '"experts":8'))
        self.refused(3, "experts", *arguments)

    def test_bad_use(self):
        path = self.random_trace("one", 1, tokens=5)
        self.refused(2, "--experts-in-memory", path)
        for sizes in ("0", "5,x", "-1", "", "5,,6", "5,"):
            self.refused(2, "--experts-in-memory", path, "--experts-in-memory", sizes)
        self.refused(2, "--link-gbps", path, "--experts-in-memory", "5", "--link-gbps", "0")
        self.refused(3, "cannot be opened", self.folder / "missing", "--experts-in-memory", "5")
        broken = self.folder / "broken"
        broken.write_bytes(path.read_bytes()[:-3])
        self.refused(3, "torn", broken, "--experts-in-memory", "5")
        other = self.write_trace("other", [{"layer": 0, "experts": 3, "top_k": 1}], [(0, 0, 0, (1,))])
        self.refused(2, "same routed layers", path, other, "--experts-in-memory", "5")
        self.refused(2, "--learn", path, "--learn", other, "--experts-in-memory", "5")
        empty = self.write_trace("empty", [{"layer": 0, "experts": 3, "top_k": 1}], [])
        result = self.replay(empty, "--experts-in-memory", "2")
        self.assertEqual({r["requests"] for r in result["results"]}, {0})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
