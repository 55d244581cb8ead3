#!/usr/bin/env python3
"""Runs under random limits of memory: `limits_test.py KLOTSKI SOURCE_FOLDER [...]`.

However little there is, a run gives the answer it gives with plenty, within its limit, or says what
it lacks and exits with 4. KLOTSKI_LIMITS_SEED chooses other runs, KLOTSKI_LIMITS_RUNS how many.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, SANITIZED, SOURCE

SEED = int(os.environ.get("KLOTSKI_LIMITS_SEED", "3"))
RUNS = int(os.environ.get("KLOTSKI_LIMITS_RUNS", "200"))
AT_ONCE = 2
MIB = 2**20
LEAST, MOST = 8 * MIB, 400 * MIB

LARGE = "large"  # 75 MiB of weights: most limits are too small for all of them
SHAPES = {
    LARGE: "L=6,H=256,F=512,E=16,K=2,vocab=512",
    "deepseek": "deepseek-v2-lite,L=2,H=64,F=32,E=8,K=2,heads=4,vocab=512",
    "mixtral": "L=2,H=64,F=128,E=8,K=2,vocab=512",
    "olmoe": "olmoe-1b-7b,L=2,H=64,F=32,E=16,K=4,heads=4,kv_heads=4,vocab=512",
    "qwen2": "qwen1.5-moe-a2.7b,L=2,H=64,F=32,E=8,K=2,heads=4,kv_heads=4,vocab=512,shared=64",
    "qwen3": "qwen3-30b-a3b,L=2,H=64,F=32,E=16,K=4,heads=4,kv_heads=2,head_dim=16,vocab=512",
    "qwen3_next": "qwen3-next-80b-a3b,L=4,H=64,F=32,E=16,K=4,heads=4,kv_heads=2,head_dim=16,vocab=512,shared=64",
}
PROFILED = {"data": SOURCE / "tests/data/models/mixtral"}  # and LARGE: measuring takes seconds
MEASURING_EVERY = 25  # one of this many runs finds no profile of the machine

SIZE = r"\d[\d.]* (?:B|KiB|MiB|GiB)"
SHORTAGE = re.compile(rf"needs at least {SIZE}.*the limit is {SIZE}.*: {SIZE} too little")


class MemoryGroup:
    """A control group of its own for one run, inside that of the test."""

    @staticmethod
    def parent():
        """The folder of the test's own group and the version, or nothing."""
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                yield pathlib.Path("/sys/fs/cgroup" + path), 2
            elif "memory" in controllers.split(","):
                yield pathlib.Path("/sys/fs/cgroup/memory" + path), 1

    @classmethod
    def possible(cls):
        try:
            cls(MOST).remove()
            return True
        except OSError:
            return False

    def __init__(self, limit):
        for parent, version in self.parent():
            self.limit_file, self.peak_file, self.kills_file = (
                ("memory.max", "memory.peak", "memory.events") if version == 2 else
                ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"))
            if not (parent / self.limit_file).exists() and version == 1:
                continue
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-limits-", dir=parent))
            try:
                (self.folder / self.limit_file).write_text(str(limit))
                return
            except OSError:
                self.folder.rmdir()
        raise OSError("no control group that bounds memory can be made")

    def peak(self):
        file = self.folder / self.peak_file
        return int(file.read_text()) if file.exists() else 0

    def kills(self):
        counts = dict(line.split() for line in
                      (self.folder / self.kills_file).read_text().splitlines())
        return int(counts.get("oom_kill", 0))

    def remove(self):
        for _ in range(200):
            try:
                return self.folder.rmdir()
            except OSError:  # the last process of the group is not quite gone
                time.sleep(0.01)


Outcome = collections.namedtuple("Outcome", "code stdout stderr peak")


def execute(command, folder, environment):
    """Runs a command to its end; its peak counts this program too, from which it was started."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 env={**os.environ, **environment})
        deadline = time.monotonic() + HANGS
        pid = 0
        while pid == 0:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid == 0 and time.monotonic() > deadline:
                child.kill()
                deadline = float("inf")
            time.sleep(0.002)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(child.returncode, (folder / "stdout").read_bytes(),
                   (folder / "stderr").read_text(errors="replace"), usage.ru_maxrss * 1024)


class Run:
    """One command and one limit, drawn by a seed of its own."""

    def __init__(self, number, kinds):
        self.number = number
        dice = random.Random(f"{SEED} {number}")
        self.limit = int(LEAST * (MOST / LEAST) ** dice.random())
        self.measures = number % MEASURING_EVERY == MEASURING_EVERY - 1
        self.name = dice.choice(("doctor", "plan", "batch") if self.measures else
                                ("run", "run", "batch", "batch", "plan"))
        with_ram = self.name != "doctor"  # doctor has no such option
        self.kind = dice.choice([kind for kind in kinds if kind != "--ram" or with_ram])
        if self.name in ("run", "batch"):
            self.model = dice.choice([LARGE] * len(SHAPES) + list(SHAPES))
            self.work = dice.randrange(4)
        else:
            self.model = dice.choice([LARGE, *PROFILED])
            self.work = dice.randrange(1000)

    def arguments(self, models, folder):
        """The command for the program, in a folder of its own."""
        model = str(models / self.model) if self.model in SHAPES else str(PROFILED[self.model])
        if self.name == "doctor":
            return ["doctor", model, "--json"]
        dice = random.Random(f"{SEED} {self.model} {self.name} {self.work}")
        if self.name == "plan":
            return ["plan", model, "--json", "--workload",
                    f"prompt={dice.randrange(1, 200)},gen={dice.randrange(1, 30)},"
                    f"sequences={dice.randrange(1, 40)}"]
        if self.name == "run":
            prompt = "Once upon a time " * dice.randrange(1, 25)
            return ["run", model, "--ignore-end", "-n", str(dice.randrange(1, 25)), "-p", prompt]
        with (folder / "in.jsonl").open("w") as file:
            for i in range(dice.randrange(1, 30)):
                body = {"prompt": f"Row {i} " + "and so on " * dice.randrange(1, 12),
                        "max_tokens": dice.randrange(1, 12)}
                file.write(json.dumps({"custom_id": str(i), "method": "POST",
                                       "url": "/v1/completions", "body": body}) + "\n")
        return ["batch", model, "-n", "12", "-i", str(folder / "in.jsonl"),
                "-o", str(folder / "out.jsonl")]

    def limited(self, arguments, group):
        """A shell's line that sets the limit first: what a user would repeat."""
        before = {"--ram": "",
                  "address space": f"ulimit -v {self.limit // 1024}; ",
                  "data": f"ulimit -d {self.limit // 1024}; ",
                  "control group": f"echo 0 > {group.folder}/cgroup.procs; " if group else ""}
        if self.kind == "--ram":
            arguments = [*arguments, "--ram", str(self.limit)]
        return before[self.kind] + "exec " + shlex.join([str(KLOTSKI), *arguments])


def answers(run, outcome, folder):
    """What must be the same whatever the limit."""
    if run.name == "run":
        return outcome.stdout
    if run.name != "batch":
        json.loads(outcome.stdout)  # times differ
        return None
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return {row["custom_id"]: (row["response"]["body"]["choices"][0]["text"] if row["response"]
                               else row["error"]["message"]) for row in rows}


@unittest.skipIf(SANITIZED, "a sanitizer takes memory and address space of its own")
class Limits(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-limits-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.expected = {}
        self.profiles = {"KLOTSKI_CACHE": str(self.folder / "profiles")}

    def new_folder(self, name):
        folder = self.folder / name
        folder.mkdir()
        return folder

    def unlimited(self, run):
        """The answers without a limit, of runs that do the same."""
        folder = self.new_folder(f"{run.name}-{run.model}-{run.work}")
        outcome = execute([KLOTSKI, *run.arguments(self.folder, folder)], folder, self.profiles)
        self.assertEqual(outcome.code, 0, outcome.stderr)
        return answers(run, outcome, folder)

    def loads(self, run):
        """Whether the system can load the program at all under the limit."""
        if run.kind not in ("address space", "data"):
            return True
        line = run.limited(["--version"], None)
        outcome = execute(["sh", "-c", line], self.new_folder(f"load-{run.number}"), {})
        return outcome.code not in (127, -9, -11)

    def check(self, run):
        """Nothing, or what is wrong; and whether it was answered, refused or not even loaded."""
        if not self.loads(run):
            return "not loaded", None
        folder = self.new_folder(f"limited-{run.number}")
        cache = {"KLOTSKI_CACHE": str(folder)} if run.measures else self.profiles
        group = MemoryGroup(run.limit) if run.kind == "control group" else None
        line = run.limited(run.arguments(self.folder, folder), group)
        try:
            outcome = execute(["sh", "-c", line], folder, cache)
            peak = group.peak() if group else outcome.peak if run.kind == "--ram" else 0
            kills = group.kills() if group else 0
        finally:
            if group:
                group.remove()
        wrong = self.fault(run, outcome, folder)
        if kills:
            wrong = f"{kills} processes of the control group were killed"
        elif outcome.code == 0 and peak > run.limit:
            wrong = f"the peak is {peak} bytes"
        if wrong:
            wrong = (f"{wrong}; run {run.number} of seed {SEED}, {run.limit} bytes of {run.kind}, "
                     f"model {run.model} (klotski synth {SHAPES.get(run.model, '-')})\n"
                     f"  {line}\n  exit {outcome.code}: {outcome.stderr[-600:]}")
        return "answered" if outcome.code == 0 else "refused", wrong

    def fault(self, run, outcome, folder):
        if outcome.code == 0:
            if answers(run, outcome, folder) != self.expected.get((run.name, run.model, run.work)):
                return "another answer than without a limit"
            return None
        if outcome.code != 4:
            return "neither answered nor refused"
        if outcome.stdout or (folder / "out.jsonl").exists():
            return "refused with something written"
        last = outcome.stderr.splitlines()[-1] if outcome.stderr else ""
        if not SHORTAGE.search(last):
            return "refused without what is needed, what is allowed and the shortfall"
        return None

    def test_every_run_is_answered_within_its_limit_or_refused(self):
        for name, shape in SHAPES.items():
            subprocess.run([KLOTSKI, "synth", shape, self.folder / name], check=True,
                           capture_output=True, timeout=HANGS)
        kinds = ["--ram", "address space", "data"]
        kinds += ["control group"] if MemoryGroup.possible() else []
        runs = [Run(number, kinds) for number in range(RUNS)]
        alike = {(run.name, run.model, run.work): run for run in runs
                 if run.name in ("run", "batch")}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            profiled = [pool.submit(subprocess.run, [KLOTSKI, "doctor", model], check=True,
                                    capture_output=True, env={**os.environ, **self.profiles})
                        for model in (self.folder / LARGE, *PROFILED.values())]
            self.expected = dict(zip(alike, pool.map(self.unlimited, alike.values())))
            for one in profiled:
                one.result()
            results = list(pool.map(self.check, runs))
        counts = collections.Counter((run.kind, result[0]) for run, result in zip(runs, results))
        for (kind, end), count in sorted(counts.items()):
            print(f"{kind:<14} {end:<10} {count:4}")
        faults = [wrong for _, wrong in results if wrong]
        self.assertEqual(len(faults), 0, "\n" + "\n".join(faults))
        if RUNS >= 100:
            for kind in kinds:
                for end in ("answered", "refused"):
                    self.assertGreater(counts[kind, end], 0, (kind, end))


@unittest.skipIf(SANITIZED, "a sanitizer takes memory and address space of its own")
class Documents(unittest.TestCase):
    """JSON that takes many times its size as a document, which is read before there is a plan."""
    LIMIT = 96 * MIB
    DENSE = "[" + "[]," * 10**6 + "0]"  # 3 MB that would take 100

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-documents-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.model = self.folder / "model"
        shutil.copytree(SOURCE / "models" / "tiny-mixtral", self.model)

    def write_row(self, extra="", of_body=""):
        (self.folder / "in.jsonl").write_text(
            '{"custom_id": "a", "method": "POST", "url": "/v1/completions", '
            f'"body": {{"prompt": "Once", "max_tokens": 2{of_body}}}{extra}}}\n')
        return ["batch", self.model, "-i", self.folder / "in.jsonl", "-o", self.folder / "out.jsonl",
                "--strategy", "klotski", "--micro-batch", "1", "--n-batches", "1"]  # measures nothing

    def run_text(self):
        return ["run", self.model, "-p", "Once", "-n", "2"]

    def execute(self, arguments, *more):
        return execute([str(KLOTSKI), *map(str, arguments), *more], self.folder, {})

    def answered(self, arguments):
        outcome = self.execute(arguments, "--ram", str(self.LIMIT))
        self.assertEqual(outcome.code, 0, outcome.stderr)
        self.assertLessEqual(outcome.peak, self.LIMIT)

    def refused(self, arguments, name):
        outcome = self.execute(arguments, "--ram", str(self.LIMIT))
        self.assertEqual(outcome.code, 4, outcome.stderr)
        self.assertLessEqual(outcome.peak, self.LIMIT)
        last = outcome.stderr.splitlines()[-1]
        self.assertIn(name, last)
        self.assertRegex(last, SHORTAGE)

    def add_to(self, name, text):
        file = self.model / name
        file.write_text("{" + text + "," + file.read_text().strip()[1:])

    def test_a_field_of_a_row_that_nothing_reads(self):
        self.answered(self.write_row(extra=f', "x": {self.DENSE}'))

    def test_a_field_of_a_request(self):
        self.refused(self.write_row(of_body=f', "metadata": {self.DENSE}'), "line 1")
        self.assertFalse((self.folder / "out.jsonl").exists())

    def test_a_long_line(self):
        arguments = self.write_row()
        with (self.folder / "in.jsonl").open("a") as file:  # in pieces: a child's peak is at least ours
            file.write('{"custom_id": "')
            for _ in range(48):
                file.write("x" * MIB)
            file.write('"}')
        self.refused(arguments, "in.jsonl")

    def test_keys_of_model_files_that_nothing_reads(self):
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            self.add_to(name, f'"x": {self.DENSE}')
        self.answered(self.run_text())

    def test_keys_of_model_files(self):
        for name, key in (("tokenizer.json", "added_tokens"), ("config.json", "x")):
            before = (self.model / name).read_text()
            self.add_to(name, f'"{key}": {self.DENSE}')
            self.refused(self.run_text(), name)
            (self.model / name).write_text(before)

    def test_limits_of_the_system(self):
        """Documents need memory to be destroyed as well."""
        for mebibytes in range(24, 64, 4):
            command = shlex.join(map(str, [KLOTSKI, *self.write_row(
                of_body=f', "metadata": [{"[]," * 200000}0]')]))
            outcome = execute(["sh", "-c", f"ulimit -v {mebibytes * 1024}; exec {command}"],
                              self.folder, {})
            self.assertIn(outcome.code, (4, 127, -9, -11), (mebibytes, outcome.stderr))
            if outcome.code == 4:
                self.assertIn("klotski: ", outcome.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
