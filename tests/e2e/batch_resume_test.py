#!/usr/bin/env python3
"""Jobs of `klotski batch` that are killed, starved of space or changed, and run again:
`batch_resume_test.py KLOTSKI SOURCE_FOLDER [unittest arguments]`. KILL_CYCLES says how many processes are killed (60)."""
import fcntl
import gzip
import json
import os
import pathlib
import pty
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from program import HANGS, KLOTSKI, SANITIZED, TINY

ROWS_FAILED = 7  # exit code
CYCLES = int(os.environ.get("KILL_CYCLES", "20" if SANITIZED else "60"))
# Fixed: a choice among groups would take longer than the rows.
PLAN = ("--strategy", "klotski", "--micro-batch", "8", "--n-batches", "2")


def row(number, max_tokens=None, **body):
    return {"custom_id": f"row {number}", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": f"Number {number} is", "max_tokens": max_tokens or 1 + number % 23,
                     "temperature": 0.8, **({"seed": number} if number % 2 else {}),
                     **({"n": 2} if number % 11 == 5 else {}), **body}}


class Job(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-resume-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.input = self.folder / "in.jsonl"
        self.output = self.folder / "out.jsonl"
        self.journal = self.folder / "out.jsonl.journal"
        self.environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}

    def write(self, rows, **body):
        self.input.write_text("".join(json.dumps(row(i, **body)) + "\n" for i in range(rows)))

    def command(self, *arguments, model="tiny", output=None):
        return [KLOTSKI, "batch", model, "-i", self.input, "-o", output or self.output, *PLAN, *arguments]

    def start(self, *arguments, **options):
        process = subprocess.Popen(self.command(*arguments, **options), stderr=subprocess.PIPE,
                                   env=self.environment)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def run_job(self, *arguments, codes=(0, ROWS_FAILED), says="", text=None, **options):
        result = subprocess.run(self.command(*arguments, **options), capture_output=True, timeout=HANGS,
                                env=self.environment, input=text)
        message = result.stderr.decode()
        self.assertIn(result.returncode, codes, message)
        self.assertIn(says, message)
        return result

    def reference(self, *arguments):
        """The bytes of an undisturbed run."""
        output = self.folder / "reference.jsonl"
        self.run_job(*arguments, output=output)
        text = output.read_bytes()
        output.unlink()
        return text

    def stop_half_way(self, *arguments, number=signal.SIGKILL, **options):
        process = self.start(*arguments, **options)
        deadline = time.monotonic() + HANGS
        while not (self.journal.exists() and self.journal.stat().st_size > 4096):
            self.assertIsNone(process.poll(), process.stderr)
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        process.send_signal(number)
        message = process.communicate(timeout=HANGS)[1].decode()
        self.assertTrue(self.journal.exists(), "the job was to be stopped before its end")
        return message


class Resume(Job):
    def test_the_same_command_goes_on_to_the_same_bytes(self):
        self.write(300)
        expected = self.reference("--ordered")
        self.stop_half_way("--ordered")
        part = self.output.read_bytes()
        self.assertTrue(expected.startswith(part) and len(part) < len(expected))
        message = self.run_job("--ordered", says="going on with").stderr.decode()
        self.assertEqual(self.output.read_bytes(), expected)
        self.assertFalse(self.journal.exists())
        self.assertNotIn(" 0 of 300 rows are done", message)

    def test_an_interrupted_job_says_what_is_left_and_how_to_go_on(self):
        self.write(300)
        message = self.stop_half_way(number=signal.SIGTERM)
        self.assertRegex(message, r"interrupted with \d+ rows left, about .*; the same command goes on")
        self.run_job()
        self.assertEqual(len(self.output.read_text().splitlines()), 300)

    def test_another_input_model_or_option_is_refused(self):
        model = self.folder / "model"
        shutil.copytree(TINY, model)
        self.write(300)
        text = self.input.read_text()
        self.stop_half_way("-n", "9", model=model)
        before = self.output.read_bytes()
        self.write(301)
        self.run_job("-n", "9", model=model, codes=[2], says="another input")
        self.input.write_text(text)
        self.run_job("-n", "8", model=model, codes=[2], says="another --max-tokens: expected '9', found '8'")
        self.run_job("-n", "9", "--ordered", model=model, codes=[2], says="another --ordered")
        weights = max(model.glob("*.safetensors"))
        bytes_of_weights = weights.read_bytes()
        weights.write_bytes(bytes_of_weights[:-1] + bytes([bytes_of_weights[-1] ^ 1]))
        self.run_job("-n", "9", model=model, codes=[2], says="another model")
        self.assertEqual(self.output.read_bytes(), before)
        weights.write_bytes(bytes_of_weights)
        self.run_job("-n", "9", model=model)
        self.assertEqual(len(self.output.read_text().splitlines()), 300)

    def test_two_processes_on_one_output(self):
        self.write(300)
        process = self.start()
        while not self.journal.exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        self.run_job(codes=[2], says="another process is at work on this job")
        self.run_job("--overwrite", codes=[2], says="another process is at work on this job")
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=HANGS)
        self.assertEqual(process.returncode, ROWS_FAILED)

    def test_a_damaged_journal_costs_rows_and_a_foreign_one_is_refused(self):
        self.write(300)
        expected = self.reference("--ordered")
        for damage in ("cut", "flip", "zeros"):
            self.stop_half_way("--ordered")
            journal = bytearray(self.journal.read_bytes())
            if damage == "cut":
                del journal[-7:]
            elif damage == "flip":
                journal[len(journal) // 2] ^= 16
            else:
                journal += bytes(100)
            self.journal.write_bytes(journal)
            self.run_job("--ordered")
            self.assertEqual(self.output.read_bytes(), expected, damage)
            self.output.unlink()
        self.journal.write_text("a shopping list")
        self.run_job("--ordered", codes=[2], says="is no whole journal")
        self.assertEqual(self.journal.read_text(), "a shopping list")

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
    def test_a_full_disk_pauses_the_job(self):
        self.write(600, user="x" * 100)
        expected = self.reference("--ordered")
        disk = self.folder / "disk"
        disk.mkdir()
        script = """
            mount -t tmpfs -o size=2m none "$DISK" || exit 99
            head -c 1900k /dev/zero > "$DISK/ballast"
            "$@" 2> "$DISK/../messages" & job=$!
            until grep -q "waiting: the job goes on" "$DISK/../messages"; do
              kill -0 $job || exit 98
              sleep 0.05
            done
            rm "$DISK/ballast"
            wait $job; code=$?
            cp "$DISK/out" "$DISK/../whole"
            exit $code"""
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no file system can be mounted here")
        command = self.command("--ordered", output=disk / "out")
        result = subprocess.run(["unshare", "-m", "bash", "-c", script, "-", *command], timeout=HANGS,
                                env={**self.environment, "DISK": str(disk)}, capture_output=True, check=False)
        if result.returncode == 99:
            self.skipTest(f"no file system can be mounted here: {result.stderr.decode()}")
        self.assertEqual(result.returncode, ROWS_FAILED)
        self.assertEqual((self.folder / "whole").read_bytes(), expected)
        self.assertIn("No space left", (self.folder / "messages").read_text())


class Files(Job):
    def test_compressed_input_and_standard_streams(self):
        self.write(40)
        expected = self.reference("--ordered")
        plain = self.input.read_bytes()
        result = self.run_job("--ordered", output="-")
        self.assertEqual(result.stdout, expected)
        self.input.write_bytes(gzip.compress(plain))
        self.assertEqual(self.run_job("--ordered", output="-").stdout, expected)
        self.input.write_bytes(gzip.compress(plain)[:-9])
        self.run_job(codes=[2], says="damaged or incomplete gzip")
        self.input = "-"
        self.assertEqual(self.run_job("--ordered", output="-", text=plain).stdout, expected)
        self.run_job("--ordered", text=gzip.compress(plain))
        self.assertEqual(self.output.read_bytes(), expected)

    def test_failed_rows_in_a_file_of_their_own(self):
        self.write(40)
        errors = self.folder / "errors.jsonl"
        self.run_job("--errors", errors, codes=[ROWS_FAILED], says="  line 6: n: only 1 is supported")
        failed = [json.loads(line)["custom_id"] for line in errors.read_text().splitlines()]
        self.assertEqual(sorted(failed), ["row 16", "row 27", "row 38", "row 5"])
        done = [json.loads(line)["response"]["status_code"] for line in self.output.read_text().splitlines()]
        self.assertEqual(done, [200] * 36)
        self.run_job("--errors", errors, codes=[2], says="--overwrite")

    def test_overwriting_keeps_the_old_file_until_the_new_one_is_whole(self):
        self.write(300)
        expected = self.reference("--ordered")
        self.output.write_text("old")
        self.stop_half_way("--ordered", "--overwrite")
        self.assertEqual(self.output.read_text(), "old")
        self.run_job("--ordered", "--overwrite")
        self.assertEqual(self.output.read_bytes(), expected)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.jsonl", "out.jsonl"])

    def test_the_output_is_checked_before_anything_else(self):
        self.write(3)
        self.output.write_text("old")
        self.run_job(model="no such model", codes=[2], says="--overwrite")

    def test_progress_for_programs_and_without_a_terminal(self):
        self.write(100, max_tokens=60)
        lines = self.run_job("--progress", "json").stderr.decode().splitlines()
        figures = [json.loads(line) for line in lines if line.startswith("{")]
        self.assertEqual(figures[-1]["event"], "done")
        self.assertEqual((figures[-1]["rows_done"], figures[-1]["share"]), (100, 1.0))
        shares = [line["share"] for line in figures]
        self.assertEqual(shares, sorted(shares))
        quiet = self.run_job("--overwrite", "--progress", "none").stderr.decode()
        self.assertNotIn("batch ", quiet)
        self.assertNotIn("\033", quiet)
        self.run_job("--progress", "loud", codes=[2], says="--progress: expected auto, json or none")


class Terminal(Job):
    def test_one_line_fits_the_window_and_ctrl_c_stops(self):
        self.write(3000, max_tokens=60)
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)

        def set_columns(columns):
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

        set_columns(40)
        process = subprocess.Popen(self.command(), stdin=slave, stdout=slave, stderr=slave, env=self.environment,
                                   start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.addCleanup(process.kill)
        text = ""

        def lines():
            return [line.split("\r")[0] for line in text.split("\r\033[K")[1:]]

        def read_until(condition):
            nonlocal text
            deadline = time.monotonic() + HANGS
            while not condition():
                self.assertLess(time.monotonic(), deadline, text)
                if select.select([master], [], [], 0.1)[0]:
                    text += os.read(master, 65536).decode()

        read_until(lambda: len(lines()) > 10)
        narrow = lines()[:-1]
        self.assertTrue(all(line.startswith("batch ") and len(line) < 40 for line in narrow), narrow)
        set_columns(80)
        read_until(lambda: len(lines()) > len(narrow) + 10)
        wide = lines()[len(narrow) + 2:-1]
        self.assertTrue(all(len(line) < 80 for line in wide), wide)
        self.assertGreater(max(map(len, wide)), 40)
        os.write(master, b"\x03")
        read_until(lambda: "the same command goes on" in text)
        self.assertEqual(process.wait(HANGS), 128 + signal.SIGINT)
        self.assertNotIn("\033[3", text)  # no colours, NO_COLOR or not


class Cycles(Job):
    """Kills processes at random moments until they are through."""

    def cycle(self, arguments, most_seconds, random_moments):
        process = self.start(*arguments)
        try:
            process.wait(timeout=random_moments.uniform(0, most_seconds))
            self.assertIn(process.returncode, (0, ROWS_FAILED), process.stderr.read())
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=HANGS)
            return True
        finally:
            process.stderr.close()

    def test_killed_at_random_moments(self):
        seed = int(os.environ.get("KILL_SEED", random.randrange(1 << 30)))
        random_moments = random.Random(seed)
        print(f"KILL_SEED={seed}", file=sys.stderr)
        self.write(100)
        begun = time.monotonic()
        ordered = self.reference("--ordered")
        most_seconds = time.monotonic() - begun  # until a process is killed
        killed = jobs = 0
        while killed < CYCLES:
            in_order = jobs % 2 == 0
            overwrite = jobs % 4 >= 2
            arguments = (["--ordered"] if in_order else []) + (["--overwrite"] if overwrite else [])
            if overwrite:
                self.output.write_text("old")
            while self.cycle(arguments, most_seconds, random_moments):
                killed += 1
                most_seconds *= 1.1  # jobs shall get through, and not too often
                if not self.journal.exists():
                    break  # killed after its end, or before its beginning
                if in_order and not overwrite and self.output.exists():
                    self.assertTrue(ordered.startswith(self.output.read_bytes()), f"KILL_SEED={seed}")
            if not self.output.exists() or self.output.read_bytes() == b"old":
                continue
            most_seconds *= 0.7
            text = self.output.read_bytes()
            if in_order:
                self.assertEqual(text, ordered, f"KILL_SEED={seed}")
            else:
                self.assertEqual(sorted(text.splitlines()), sorted(ordered.splitlines()), f"KILL_SEED={seed}")
            self.assertFalse(self.journal.exists())
            self.output.unlink()
            jobs += 1
        print(f"{killed} processes killed, {jobs} jobs complete", file=sys.stderr)
        self.assertGreater(jobs, 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
