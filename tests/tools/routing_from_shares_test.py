"""Traces sampled from shares have the format, the sequences and, on average, the shares they were made from."""

import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "routing_from_shares.py"


def npy(requests):
    shape = (len(requests), len(requests[0]), len(requests[0][0]))
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    numbers = array.array("f", [share for request in requests for layer in request for share in layer])
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + numbers.tobytes()


def records(data):
    length = struct.unpack_from("<I", data, 8)[0]
    header = json.loads(data[12:12 + length])
    record = struct.Struct(f"<IIi{sum(layer['top_k'] for layer in header['layers'])}H")
    return header, list(record.iter_unpack(data[12 + length:]))


class RoutingFromShares(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True)

    def sampled(self, files, *options):
        paths = []
        for i, requests in enumerate(files):
            paths.append(self.path / f"{i}.npy")
            paths[-1].write_bytes(npy(requests))
        out = self.path / "out.trace"
        result = self.run_tool(*paths, "-o", out, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return out.read_bytes()

    def test_shares_come_back(self):
        shares = [[0.4, 0.3, 0.2, 0.1], [0.5, 0.0, 0.25, 0.25]]
        header, found = records(self.sampled([[shares]], "--tokens", 8000))
        self.assertEqual(header["layers"], [{"layer": i, "experts": 4, "top_k": 2} for i in range(2)])
        self.assertEqual(len(found), 8000)
        for layer in range(2):
            counts = [0] * 4
            for _, _, _, *choices in found:
                pair = choices[2 * layer:2 * layer + 2]
                self.assertNotEqual(pair[0], pair[1])
                self.assertGreaterEqual(shares[layer][pair[0]], shares[layer][pair[1]])
                for expert in pair:
                    counts[expert] += 1
            for expert in range(4):
                self.assertAlmostEqual(counts[expert] / 16000, shares[layer][expert], delta=0.015)

    def test_requests_of_all_files_are_mixed(self):
        one, two = [[[1, 1, 0, 0]]] * 6, [[[0, 0, 1, 1]]] * 6
        data = self.sampled([one, two], "--tokens", 3, "--requests", 5)
        _, found = records(data)
        self.assertEqual([(r[0], r[1]) for r in found], [(s, p) for s in range(10) for p in range(3)])
        kinds = [found[3 * s][3] // 2 for s in range(10)]
        self.assertEqual(sorted(kinds), [0] * 5 + [1] * 5)
        self.assertNotEqual(kinds, sorted(kinds), "in a random order")
        self.assertEqual(data, self.sampled([one, two], "--tokens", 3, "--requests", 5), "the same bytes again")
        self.assertNotEqual(data, self.sampled([one, two], "--tokens", 3, "--requests", 5, "--seed", 2))

    def test_a_share_above_what_tokens_can_give_leaves_room_for_another(self):
        _, found = records(self.sampled([[[[0.9, 0.1, 0.0, 0.0]]], [[[1.0, 0.0, 0.0, 0.0]]]], "--tokens", 50))
        self.assertTrue(all(record[3] == 0 for record in found), "the first is in every token")

    def test_bad_files_are_refused(self):
        good = npy([[[0.5, 0.5]]])
        for bad in (b"", b"\x93NUMPY", good[:-1], good.replace(b"<f4", b"<i4"), npy([[[0.0, 0.0]]]),
                    good.replace(b"(1, 1, 2)", b"(1, 9, 2)")):
            path = self.path / "bad.npy"
            path.write_bytes(bad)
            result = self.run_tool(path, "-o", self.path / "out.trace", "--top-k", 1)
            self.assertEqual(result.returncode, 2, bad)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
