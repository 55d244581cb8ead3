#!/usr/bin/env python3
"""Models that come from the disk while they run: `pipeline_test.py KLOTSKI SOURCE_FOLDER [...]`."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, SANITIZED, SOURCE, takes_at_most

STRATEGIES = ("simple", "multi-batch", "hot-prefetch", "klotski", "activation-aware", "predictive")
SHAPE = "L=2,H=64,F=128,E=8,K=2,vocab=512"
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Pipeline(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-pipeline-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.input = self.folder / "in.jsonl"
        self.output = self.folder / "out.jsonl"

    def synth(self, shape=SHAPE):
        model = self.folder / "model"
        subprocess.run([KLOTSKI, "synth", shape, model], check=True, capture_output=True,
                       timeout=HANGS)
        return model

    def klotski(self, *arguments, code=0, **options):
        result = subprocess.run([KLOTSKI, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                capture_output=True, timeout=HANGS, **options)
        self.assertEqual(result.returncode, code, (arguments, result.stderr.decode()))
        return result.stdout.decode(errors="replace"), result.stderr.decode()

    def run_text(self, model, *arguments):
        return self.klotski("run", model, "-p", "Once upon a time", "-n", "12", "--ignore-end",
                            *arguments)[0]

    def write_rows(self, count, most_tokens=12):
        with self.input.open("w") as file:
            for i in range(count):
                body = {"prompt": f"Row {i}: once upon a time", "max_tokens": 1 + i % most_tokens}
                file.write(json.dumps({"custom_id": str(i), "method": "POST",
                                       "url": "/v1/completions", "body": body}) + "\n")

    def batch_command(self, model, *arguments):
        return ["batch", model, "-i", self.input, "-o", self.output, "--overwrite", "-n", "12",
                *arguments]

    def rows(self):
        """What each row came to, by its custom_id; every line must be whole."""
        text = self.output.read_text()
        self.assertTrue(text == "" or text.endswith("\n"))
        rows = [json.loads(line) for line in text.splitlines()]
        for row in rows:
            self.assertEqual(list(row), ["id", "custom_id", "response", "error"])
        self.assertEqual(len({row["custom_id"] for row in rows}), len(rows))
        return {row["custom_id"]: row for row in rows}

    def texts(self):
        return {name: row["response"]["body"]["choices"][0]["text"]
                for name, row in self.rows().items() if row["error"] is None}

    def batch(self, model, *arguments):
        message = self.klotski(*self.batch_command(model, *arguments))[1]
        return self.texts(), message

    def start_slow_batch(self, model):
        """A job whose every step waits for the disk, once it has written a row."""
        self.output.unlink(missing_ok=True)
        command = self.batch_command(model, "--disk-speed", "2MB", "--expert-slots", "2")
        process = subprocess.Popen([KLOTSKI, *command], stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + HANGS
        while not (self.output.exists() and self.output.stat().st_size > 0):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        return process


class Faults(Pipeline):
    def test_signals_leave_whole_rows(self):
        model = self.synth()
        self.write_rows(400)
        expected = self.batch(model)[0]
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)):
            process = self.start_slow_batch(model)
            process.send_signal(number)
            message = process.communicate(timeout=HANGS)[1].decode()
            self.assertEqual(process.returncode, code, message)
            texts = self.texts()
            self.assertTrue(0 < len(texts) < 400)
            self.assertLessEqual(texts.items(), expected.items())

    def test_a_second_signal_ends_at_once(self):
        model = self.synth()
        self.write_rows(400)

        def seconds_to_the_end():
            process = self.start_slow_batch(model)
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=HANGS), 143)
            self.rows()
            return time.monotonic() - started

        self.assertTrue(takes_at_most(10, seconds_to_the_end))

    def failed_rows(self, process, expected):
        """The rows that a job failed whose model was damaged, and its messages; every other row is as expected."""
        message = process.communicate(timeout=HANGS)[1].decode()
        self.assertEqual(process.returncode, 7, message)
        rows = self.rows()
        self.assertEqual(set(rows), set(expected))
        failed = [row for row in rows.values() if row["error"] is not None]
        self.assertGreater(len(failed), 0)
        self.assertLessEqual(self.texts().items(), expected.items())
        return failed, message

    def test_a_model_truncated_under_a_job(self):
        model = self.synth()
        self.write_rows(60)
        expected = self.batch(model)[0]
        process = self.start_slow_batch(model)
        weights = model / "model.safetensors"
        os.truncate(weights, weights.stat().st_size // 3)
        failed, message = self.failed_rows(process, expected)
        for row in failed:
            self.assertIsNone(row["response"])
            self.assertIn("model.safetensors", row["error"]["message"])
        self.assertIn(f"{len(failed)} failed", message)

    def test_a_model_rewritten_under_a_job(self):
        model = self.synth()
        self.write_rows(60)
        expected = self.batch(model)[0]
        process = self.start_slow_batch(model)
        with (model / "model.safetensors").open("r+b") as weights:  # the same file and size
            size = weights.seek(0, os.SEEK_END)
            weights.seek(size // 4)
            weights.write(os.urandom(size // 2))
        for row in self.failed_rows(process, expected)[0]:
            self.assertIn("model.safetensors': changed on disk", row["error"]["message"])

    def test_a_model_replaced_under_a_job(self):
        model = self.synth()
        self.write_rows(30)
        expected = self.batch(model)[0]
        process = self.start_slow_batch(model)
        weights = model / "model.safetensors"
        other = self.folder / "other.safetensors"
        other.write_bytes(os.urandom(weights.stat().st_size))
        other.rename(weights)  # the job reads on from the file that it opened
        message = process.communicate(timeout=HANGS)[1].decode()
        self.assertEqual(process.returncode, 0, message)
        self.assertEqual(self.texts(), expected)

    def test_a_model_truncated_under_a_run(self):
        model = self.synth()
        expected = self.run_text(model)
        process = subprocess.Popen(
            [KLOTSKI, "run", model, "-p", "Once upon a time", "-n", "12", "--ignore-end",
             "--disk-speed", "1MB", "--expert-slots", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        first = process.stdout.read(1)
        os.truncate(model / "model.safetensors", 5000)
        rest, message = process.communicate(timeout=HANGS)
        self.assertEqual(process.returncode, 3, message)
        self.assertIn(b"model.safetensors", message)
        said = (first + rest).decode(errors="replace").rstrip("\n").rstrip("\ufffd")
        self.assertTrue(expected.startswith(said), (expected, said))

    def test_a_disk_that_never_answers(self):
        model = self.synth()
        self.write_rows(20)
        expected = self.batch(model)[0]
        lost = ("--disk-speed", "1", "--stall-limit", "1")  # a byte a second
        for command in (["run", model, "-p", "Once upon a time", *lost], self.batch_command(model, *lost)):
            message = self.klotski(*command, code=6)[1]
            lines = [line for line in message.splitlines() if "no task has ended for" in line]
            self.assertEqual(len(lines), 2, message)  # before it is an error, and then
            for line in lines:
                self.assertIn("at work: [disk read load ", line)
            self.assertIn("after 1 s this is an error", lines[0])
            self.assertTrue(lines[1].startswith("klotski: "), lines[1])
        self.output.unlink(missing_ok=True)
        self.assertEqual(self.batch(model)[0], expected)


class Memory(Pipeline):
    SHAPE = "L=4,H=256,F=512,E=16,K=2,vocab=512"  # 50 MiB of experts

    def test_too_little_is_said_before_a_weight_is_read(self):
        model = self.synth()
        never_measured = {**os.environ, "KLOTSKI_CACHE": str(self.folder / "cache")}
        # At a byte a second nothing could be read.
        for arguments in (["run", model, "-p", "a"],
                          self.batch_command(model)):
            self.write_rows(3)
            message = self.klotski(*arguments, "--disk-speed", "1", "--ram", "1MiB", code=4,
                                   env=never_measured)[1]
            self.assertRegex(message, r"needs at least .* the limit is 1.0 MiB: .* too little")
            self.assertEqual(message.count("\n"), 1, message)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_the_peak_is_within_the_limit(self):
        model = self.synth(self.SHAPE)
        self.write_rows(80)
        expected, message = self.batch(model)
        ran = 0
        for mebibytes in (32, 36, 40, 48, 56, 64, 80):
            command = self.batch_command(model, "--ram", f"{mebibytes}MiB", "--verbose")
            result = subprocess.run([KLOTSKI, *command], capture_output=True, timeout=HANGS)
            message = result.stderr.decode()
            if result.returncode == 4:
                self.assertIn("too little", message)
                continue
            self.assertEqual(result.returncode, 0, message)
            ran += 1
            self.assertEqual(self.texts(), expected)
            number, unit = re.search(r"memory +peak ([\d.]+) (\w+)", message).groups()
            self.assertLessEqual(float(number) * UNITS[unit], mebibytes * 2**20, message)
        self.assertGreaterEqual(ran, 3)

    @unittest.skipIf(SANITIZED, "a sanitizer takes address space of its own")
    def test_little_address_space(self):
        model = self.synth()
        expected = self.run_text(model)
        codes = set()
        for mebibytes in range(20, 400, 20):
            limit = mebibytes * 2**20
            result = subprocess.run(
                [KLOTSKI, "run", model, "-p", "Once upon a time", "-n", "12", "--ignore-end"],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=HANGS,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
            if result.returncode == 127:  # the program itself was not loaded
                continue
            codes.add(result.returncode)
            self.assertIn(result.returncode, (0, 1, 4), (mebibytes, result.stderr))  # no crash
            if result.returncode == 0:
                self.assertEqual(result.stdout.decode(errors="replace"), expected)
        self.assertIn(4, codes)


class Sameness(Pipeline):
    def test_strategies_and_timing_do_not_change_the_text(self):
        model = self.synth()
        self.write_rows(30)
        expected_text = self.run_text(model)
        expected_rows = self.batch(model)[0]
        self.assertEqual(len(expected_rows), 30)
        for strategy in STRATEGIES:
            for more in ([], ["--stress", "3", "--expert-slots", "3"],
                         ["--stress", "4", "--n-batches", "3", "--micro-batch", "4"], ["--draft-tokens", "5"]):
                arguments = ["--strategy", strategy, *more]
                self.assertEqual(self.run_text(model, *arguments), expected_text, arguments)
                self.assertEqual(self.batch(model, *arguments)[0], expected_rows, arguments)

    def test_drafted_tokens_do_not_change_the_text(self):
        prompt = ["run", "tiny", "-p", "one two one two one two one two", "-n", "60", "--json"]
        plain = json.loads(self.klotski(*prompt)[0])
        self.assertEqual(plain["drafted_tokens"], 0)
        for flags in ([], ["--temperature", "0.8", "--seed", "3"], ["--device", "cpu", "--stress", "5"]):
            expected = json.loads(self.klotski(*prompt, *flags)[0])
            drafted = json.loads(self.klotski(*prompt, *flags, "--draft-tokens", "4")[0])
            self.assertEqual(drafted["text"], expected["text"], flags)
            self.assertLessEqual(drafted["accepted_tokens"], drafted["drafted_tokens"])
            if "--temperature" not in flags:
                self.assertGreater(drafted["drafted_tokens"], 0, flags)

    def test_spilled_keys_and_values_do_not_change_the_text(self):
        model = self.synth()
        self.write_rows(30)
        expected = self.batch(model)[0]
        spill = self.folder / "spill"
        spill.mkdir()
        trace = self.folder / "trace.json"
        for kibibytes in (16, 32, 64, 128, 256, 512, 1024):
            # A group of fixed size: the planner might choose one that fits into memory whole.
            command = self.batch_command(model, "--strategy", "klotski", "--micro-batch", "4",
                                         "--n-batches", "4", "--kv-limit", f"{kibibytes}KiB",
                                         "--kv-spill", spill, "--trace", trace)
            result = subprocess.run([KLOTSKI, *command], capture_output=True, timeout=HANGS)
            if result.returncode == 0:
                break
            self.assertEqual(result.returncode, 4, result.stderr)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.texts(), expected)
        self.assertIn("load KV", trace.read_text())
        self.assertEqual(list(spill.iterdir()), [])

    def test_correlation_tables(self):
        model = self.synth()
        expected = self.run_text(model)
        first, second = self.folder / "first", self.folder / "second"
        self.assertEqual(self.run_text(model, "--save-correlation", first), expected)
        table = json.loads(first.read_text())
        self.assertEqual([layer["experts"] for layer in table["layers"]], [8, 8])
        self.assertEqual(self.run_text(model, "--correlation", first, "--save-correlation", second),
                         expected)
        seen = lambda file: sum(sum(layer["popularity"])
                                for layer in json.loads(file.read_text())["layers"])
        self.assertEqual(seen(second), 2 * seen(first))
        second.write_text(first.read_text()[:-20])
        message = self.klotski("run", model, "-p", "a", "--correlation", second, code=3)[1]
        self.assertIn("second", message)


class Files(Pipeline):
    def test_trace_and_timeline(self):
        model = self.synth()
        self.write_rows(10)
        trace, drawing = self.folder / "trace.json", self.folder / "drawing.svg"
        self.batch(model, "--trace", trace, "--timeline", drawing, "--expert-slots", "4")
        events = json.loads(trace.read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        names = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
        self.assertLessEqual({"compute", "disk read"}, names)
        self.assertGreater(sum(event["ph"] == "X" for event in events), 50)
        processes = [event["args"]["name"] for event in events if event.get("name") == "process_name"]
        self.assertEqual(processes, [f"klotski {pathlib.Path(model).name}"])
        counters = {event["name"] for event in events if event["ph"] == "C"}
        self.assertLessEqual({"bytes: disk read", "loads waiting for their use"}, counters)
        arrows = [sorted(event["id"] for event in events if event["ph"] == phase) for phase in "sf"]
        self.assertEqual(arrows[0], arrows[1])
        self.assertGreater(len(arrows[0]), 5)
        picture = drawing.read_text()
        self.assertIn("<svg", picture[:200])
        # Batch plans by prediction: the plan lies beside what was measured, and a conclusion ends it.
        for part in (">measured, step ", ">planned, step ", "times as long as planned", "prefers-color-scheme:dark",
                     pathlib.Path(model).name + "; ", "buffers for"):
            self.assertIn(part, picture)

    def test_an_option_without_the_one_it_needs(self):
        model = self.synth()
        message = self.klotski("run", model, "-p", "a", "--attention-sinks", "4", code=2)[1]
        self.assertIn("--attention-window", message)

    def test_windows_larger_than_any_text(self):
        model = self.synth()
        expected = self.run_text(model)
        most = str(2**30)
        for window, sinks in ((most, "0"), (most, most), ("4", most)):
            self.assertEqual(self.run_text(model, "--attention-window", window,
                                           "--attention-sinks", sinks), expected)
        beyond = str(2**63 - 1)
        for option in ("--attention-window", "--attention-sinks"):
            self.klotski("run", model, "-p", "a", option, beyond, code=2)


class Measuring(Pipeline):
    def test_ablation(self):
        drawing = self.folder / "block.svg"
        report = json.loads(self.klotski(
            "bench", "tiny", "--ablation", "--expert-slots", "20",
            "--prompt-tokens", "8", "--generate", "2", "--timeline", drawing, "--json")[0])
        self.assertEqual([setting["strategy"] for setting in report["settings"]], list(STRATEGIES))
        for setting in report["settings"]:
            self.assertGreater(setting["tokens_per_second"], 0)
            self.assertIn("compute", setting["lanes"])
            self.assertGreater(setting["lanes"]["disk read"]["bytes"], 0)
            self.assertEqual(len(setting["prefetch_accuracy"]), 6)
            self.assertTrue((self.folder / f"block-{setting['strategy']}.svg").exists())

    def test_what_the_planner_chooses_is_compared_with_every_strategy(self):
        report = json.loads(self.klotski(
            "bench", "tiny", "--compare", "--sequences", "4", "--prompt-tokens", "8",
            "--generate", "2", "--json")[0])
        self.assertEqual([setting["setting"] for setting in report["settings"]],
                         [*STRATEGIES, "auto"])
        for flags in (["--ablation"], ["--sweep", "n"], ["--strategy", "klotski"]):
            self.klotski("bench", "tiny", "--compare", *flags, code=2)

    def test_results_name_commit_command_machine_repetitions_and_spread(self):
        file = self.folder / "with a space.json"
        flags = ["--sequences", "2", "--prompt-tokens", "8", "--generate", "2", "--strategy", "klotski"]
        self.klotski("bench", "tiny", *flags, "--repeat", "3", "--json-file", file)
        report = json.loads(file.read_text())
        self.assertRegex(report["commit"], r"^([0-9a-f]{7,}( with changes)?|unknown)$")
        self.assertEqual(report["command"], f"klotski bench tiny {' '.join(flags)} --repeat 3 --json-file '{file}'")
        self.assertRegex(report["machine"], r", \d+ threads, [0-9.]+ GiB RAM")
        self.assertEqual(report["repetitions"], 3)
        rates = report["settings"][0]["tokens_per_second_of_all_runs"]
        self.assertAlmostEqual(report["spread"], 100 * (max(rates) - min(rates)) / sorted(rates)[1])
        once = json.loads(self.klotski("bench", "tiny", *flags, "--json")[0])
        self.assertEqual((once["repetitions"], once["spread"]), (1, "one run"))

    def test_what_cannot_be_kept_is_said_once(self):
        flags = ["bench", "tiny", "--sequences", "2", "--prompt-tokens", "8", "--generate", "2", "--repeat", "2"]
        cache = {**os.environ, "KLOTSKI_CACHE": "/proc/no/such/folder"}
        said = self.klotski(*flags, env=cache)[1]
        self.assertEqual(said.count("not kept for the next time: '/proc/no/such/folder/"), 1, said)
        self.assertEqual(said.count("this run is not kept to learn from: '/proc/no/such/folder/"), 1, said)
        self.assertNotIn("; kept for", said)
        said = self.klotski(*flags, env={**os.environ, "KLOTSKI_CACHE": str(self.folder / "cache")})[1]
        self.assertEqual(said.count("; kept for the next time"), 1, said)
        self.assertNotIn("not kept", said)

    def test_the_group_is_chosen_where_nothing_is_fixed(self):
        report = json.loads(self.klotski("bench", "tiny", "--sequences", "24", "--prompt-tokens", "8",
                                         "--generate", "2", "--json")[0])
        setting, = report["settings"]
        self.assertEqual(setting["setting"], "auto")
        self.assertGreater(setting["predicted_tokens_per_second"], 0)
        self.assertGreater(setting["n_batches"] * setting["micro_batch"], 1)

    def test_sequences_follow_a_recorded_trace(self):
        text = self.folder / "text.txt"
        text.write_text("The river runs past the mill and the old stone bridge. " * 8)
        trace = self.folder / "routing.trace"
        self.klotski("trace", "tiny", "-f", text, "-o", trace)
        flags = ["--sequences", "2", "--prompt-tokens", "12", "--generate", "6", "--json"]
        of_text, of_trace = (
            json.loads(self.klotski("bench", "tiny", *flags, *source)[0])["settings"][0]
            for source in (["--text", text], ["--routing", trace]))
        # The model itself chooses these experts after these tokens, so that it does equal work.
        self.assertGreater(of_trace["tokens_per_second"], 0)
        self.assertEqual(set(of_text), set(of_trace))
        # Random weights of this routing shape follow the trace; other shapes are refused.
        shape = "L=6,H=64,F=64,E=8,K=2,heads=4,kv_heads=2,head_dim=16,vocab=4096"
        self.klotski("bench", "--synthetic", shape, *flags, "--routing", trace)
        error = self.klotski("bench", "--synthetic", shape.replace("E=8", "E=16"), *flags,
                             "--routing", trace, code=3)[1]
        self.assertIn("routed layers", error)
        self.klotski("bench", "tiny", "--routing", trace, "--text", text, code=2)
        self.klotski("bench", "tiny", "--routing", trace, "--follow-text", code=2)
        self.klotski("bench", "tiny", "--routing", trace, "--prompt-tokens", "5000", code=2)

    def test_tokens_do_not_depend_on_the_predictor(self):
        trace, network, eamc = (self.folder / name for name in ("t.trace", "network", "eamc.json"))
        self.klotski("trace", "tiny", "-o", trace, "--sequence-tokens", "64")
        self.klotski("train-predictor", trace, "-o", network, "--epochs", "1")
        common = ["run", "tiny", "-p", "The old stone bridge", "--max-tokens", "12",
                  "--expert-slots", "12", "--json"]
        expected = json.loads(self.klotski(*common)[0])["text"]
        for flags in (["--predictor", "token"], ["--predictor", "activation-aware", "--eamc", eamc],
                      ["--predictor", "path", "--predictor-file", network]):
            for rule in ("activation-aware", "plec", "furthest"):
                found = self.klotski(*common, *flags, "--eviction", rule)[0]
                self.assertEqual(json.loads(found)["text"], expected, (flags, rule))
        kept = json.loads(eamc.read_text())
        self.assertEqual((len(kept["prompt"]), len(kept["decode"])), (3, 3))
        traced = self.folder / "traced.json"
        self.klotski("trace", "tiny", "-o", trace, "--sequence-tokens", "64", "--predictor",
                     "activation-aware", "--eamc", traced)
        self.assertGreater(len(json.loads(traced.read_text())["prompt"]), 1)
        eamc.write_text("{}")
        self.klotski(*common, "--predictor", "activation-aware", "--eamc", eamc, code=3)
        self.klotski(*common, "--predictor", "path", code=2)
        self.klotski(*common, "--predictor", "correlation", "--eamc", eamc, code=2)

    def test_sweep(self):
        table = self.folder / "table.md"
        text = self.klotski("bench", "tiny", "--sweep", "n,batch", "--n-values", "1,2",
                            "--batch-values", "2", "--prompt-tokens", "4", "--generate", "2",
                            "--markdown", table)[0]
        self.assertIn("n=1 batch=2", text)
        self.assertIn("n=2 batch=2", text)
        self.assertEqual(table.read_text(), text)
        self.klotski("bench", "tiny", "--sweep", "n,batch", "--n-values", "1,x", code=2)

    def test_recorded_arrivals_are_replayed_under_every_strategy(self):
        traces = SOURCE / "tests" / "data" / "traces"
        table = self.folder / "table.md"
        report = json.loads(self.klotski(
            "bench", "tiny", "--arrivals", traces / "mooncake_conversation.jsonl", "--rate", "50", "--sequences", "12",
            "--length-scale", "0.012", "--ablation", "--expert-slots", "20", "--markdown", table, "--json")[0])
        self.assertEqual((report["requests"], report["cut_requests"]), (12, 1))
        self.assertAlmostEqual(report["offered_requests_per_second"], 50)
        self.assertEqual([setting["strategy"] for setting in report["settings"]], list(STRATEGIES))
        for setting in report["settings"]:
            for figure in ("first_token_seconds", "seconds_per_token"):
                self.assertGreater(setting[figure]["median"], 0)
                self.assertLessEqual(setting[figure]["median"], setting[figure]["p99"])
            self.assertLessEqual(setting["goodput_requests_per_second"], setting["requests_per_second"])
            self.assertGreater(setting["expert_misses"], 0)
        self.assertEqual(len(table.read_text().splitlines()), 5 + len(STRATEGIES))
        self.assertIn("12 requests of", table.read_text())
        azure = json.loads(self.klotski(
            "bench", "tiny", "--arrivals", traces / "azure_conv.csv", "--rate", "200", "--sequences", "5",
            "--length-scale", "0.05", "--first-within", "1000", "--token-within", "1000", "--json")[0])
        setting, = azure["settings"]
        self.assertEqual((setting["requests_within_target"], setting["prefix_tokens"]), (5, 0))

    def test_arrivals_exclude_prompts_of_one_length(self):
        trace = SOURCE / "tests" / "data" / "traces" / "azure_conv.csv"
        for flags in (["--compare"], ["--sweep", "n"], ["--prompt-tokens", "8"], ["--generate", "8"]):
            error = self.klotski("bench", "tiny", "--arrivals", trace, *flags, code=2)[1]
            self.assertIn(f"--arrivals and {flags[0]}: expected one of them", error)
        for flags in (["--rate", "1"], ["--length-scale", "1"], ["--token-within", "1"]):
            self.assertIn(f"{flags[0]}: expected --arrivals", self.klotski("bench", "tiny", *flags, code=2)[1])
        wrong = self.folder / "trace.csv"
        wrong.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,0\n")
        error = self.klotski("bench", "tiny", "--arrivals", wrong, code=2)[1]
        self.assertIn("line 2: expected GeneratedTokens from 1", error)

    def test_schedules_are_printed_and_simulated(self):
        for strategy in STRATEGIES:
            text = self.klotski("schedule", "tiny", "--print", "--passes", "1", "--strategy",
                                strategy, "--expert-slots", "12")[0]
            self.assertIn("disk read  load layer 0 expert", text)
            self.assertIn(f"{strategy}: pass 1 of", text.splitlines()[-1])

    def test_routing_traces(self):
        trace = self.folder / "routing"
        text = self.klotski("trace", "tiny", "-o", trace, "--sequence-tokens", "64")[0]
        self.assertIn("6 routed layers", text)
        self.assertTrue(trace.read_bytes().startswith(b"KLTRACE1"))
        self.klotski("trace", "tiny", "-o", self.folder / "absent" / "file", code=2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
