#!/usr/bin/env python3
"""Runs the klotski program as users do: `cli_test.py KLOTSKI SOURCE_FOLDER [unittest arguments]`."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, SANITIZED, SOURCE, TINY, processor_seconds, takes_at_most

MODELS = SOURCE / "tests" / "data" / "models"
REFERENCE = json.loads((TINY / "reference.json").read_text())


def run(*arguments, stdin=b"", timeout=HANGS, **options):
    return subprocess.run([KLOTSKI, *arguments], input=stdin, capture_output=True, timeout=timeout,
                          **options)


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-e2e-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def ok(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result.stdout.decode()

    def refused(self, code, *arguments, says="", **options):
        """The program ends with `code` and one clear line on standard error."""
        started = processor_seconds()
        result = run(*arguments, **options)
        message = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, code, (arguments, message))
        self.assertEqual(message.count("\n"), 1, message)
        self.assertTrue(message.startswith("klotski: "), message)
        self.assertLess(len(message), 1200)
        self.assertIn(says, message)
        self.assertLess(processor_seconds() - started, 20 if SANITIZED else 3)
        return message

    def copy_of_tiny(self):
        copy = self.folder / "model"
        shutil.copytree(TINY, copy)
        return copy


class Devices(Cli):
    def test_a_device_that_is_not_there_is_refused_and_auto_does_without(self):
        found = json.loads(run("doctor", "--json").stdout)["devices"]
        if found["found"]:
            self.skipTest("this machine has a device")
        arguments = ("run", str(TINY), "-p", "Once", "-n", "2")
        self.refused(5, *arguments, "--device", "gpu", says=found["why_none"])
        self.refused(5, *arguments, "--device", "3")
        self.refused(2, *arguments, "--device", "neither", says="auto, cpu, gpu")
        self.assertEqual(run(*arguments).stdout, run(*arguments, "--device", "cpu").stdout)


class Synthetic(Cli):
    SHAPE = "L=2,H=64,F=96,E=4,K=2,vocab=512"

    def test_generated_weights_are_those_that_synth_writes(self):
        written = self.folder / "written"
        self.assertEqual(run("synth", self.SHAPE, str(written)).returncode, 0)
        options = ("-p", "Once upon a time", "-n", "8", "--ignore-end")
        expected = run("run", str(written), *options)
        found = run("run", "--synthetic", self.SHAPE, *options)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(found.stdout, expected.stdout)

    def test_a_schedule_generates_no_weights(self):
        """Of these 48 GiB, were they generated, even the fastest processor would not be done in time."""
        before = processor_seconds()
        text = self.ok("schedule", "--synthetic", "L=16,H=1024,F=1024,E=512,K=2,vocab=512", "--ram", "1GiB",
                       "--passes", "1", "--device", "cpu")
        self.assertRegex(text, r"klotski: pass 1 of .* takes")
        self.assertLess(processor_seconds() - before, 20)

    def test_one_model_is_named(self):
        self.refused(2, "info", says="neither")
        self.refused(2, "schedule", says="neither")
        self.refused(2, "info", str(TINY), "--synthetic", self.SHAPE, says="both")
        self.refused(2, "info", str(TINY), "--synthetic-seed", "3", says="--synthetic SHAPE")


class Run(Cli):
    def test_continues_as_the_reference_does(self):
        for prompt in REFERENCE["prompts"]:
            text = self.ok("run", "tiny", "-p", prompt["prompt"], "-n", "48", "--precision", "f32")
            self.assertEqual(text, prompt["text"] + "\n")

    def test_finds_the_bundled_model_from_anywhere(self):
        text = self.ok("run", "tiny", "-p", "Once upon a time", "-n", "4", cwd=self.folder)
        link = self.folder / "elsewhere"
        link.symlink_to(KLOTSKI)
        linked = subprocess.run([link, "run", "tiny", "-p", "Once upon a time", "-n", "4"],
                                cwd="/", capture_output=True, check=True)
        self.assertEqual(linked.stdout.decode(), text)

    def test_prompt_from_a_file_and_from_standard_input(self):
        path = self.folder / "prompt.txt"
        path.write_text("Once upon a time")
        text = self.ok("run", "tiny", "-f", path, "-n", "8")
        self.assertEqual(self.ok("run", "tiny", "-f", "-", "-n", "8", stdin=b"Once upon a time"), text)
        self.assertEqual(self.ok("run", "tiny", "-p", "Once upon a time", "-n", "8"), text)

    def test_json_says_how_it_ended(self):
        report = json.loads(self.ok("run", "tiny", "-p", "My fellow citizens,", "-n", "5", "--json"))
        self.assertEqual(report["finish_reason"], "length")
        self.assertEqual(report["completion_tokens"], 5)
        self.assertEqual(report["prompt_tokens"], 6)
        report = json.loads(self.ok("run", "tiny", "-p", "My fellow citizens,", "--stop", " same",
                                    "--json"))
        self.assertEqual(report["text"], " I have been in the")
        self.assertEqual(report["finish_reason"], "stop")

    def test_stop_token(self):
        first, second = REFERENCE["prompts"][0]["greedy"][:2]
        self.assertNotEqual(first, second)
        report = json.loads(self.ok("run", "tiny", "-p", REFERENCE["prompts"][0]["prompt"],
                                    "--stop-id", str(second), "--json"))
        self.assertEqual(report["completion_tokens"], 2)

    def test_a_seed_repeats_and_another_differs(self):
        sampled = [self.ok("run", "tiny", "-p", "The", "-n", "30", "--temperature", "1.2",
                           "--top-k", "50", "--seed", seed) for seed in ("1", "1", "2")]
        self.assertEqual(sampled[0], sampled[1])
        self.assertNotEqual(sampled[0], sampled[2])

    def test_interactive_goes_on_after_a_line_that_is_too_long(self):
        model = self.copy_of_tiny()
        (model / "chat_template.jinja").unlink()
        result = run("run", model, "-n", "4", stdin=b"word " * 3000 + b"\nOnce upon a time\n")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.decode(), " of the day,\n")
        self.assertIn(b"context", result.stderr)

    def test_interactive_without_a_template_continues_lines(self):
        model = self.copy_of_tiny()
        (model / "chat_template.jinja").unlink()
        text = self.ok("run", model, "-n", "4", stdin=b"Once upon a time\n\nThe end\n")
        self.assertEqual(text.count("\n"), 2)
        self.assertTrue(text.startswith(" of the day,"))

    def test_chat_with_a_template(self):
        model = self.copy_of_tiny()
        template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
        (model / "chat_template.jinja").write_text(template)
        self.assertTrue(self.ok("run", model, "--chat", "-p", "Hello", "-n", "5"))
        self.assertEqual(self.ok("run", model, "-n", "3", stdin=b"Hello\nAgain").count("\n") >= 2, True)
        (model / "chat_template.jinja").unlink()
        self.refused(2, "run", model, "--chat", "-p", "x", says="no chat template")

    def test_chat_with_the_bundled_model(self):
        self.assertTrue(self.ok("run", "tiny", "--chat", "-p", "Hello", "-n", "5"))
        self.assertGreaterEqual(self.ok("run", "tiny", "-n", "3", stdin=b"Hello\nAgain").count("\n"), 2)

    def test_a_template_that_raises(self):
        model = self.copy_of_tiny()
        (model / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
        self.refused(3, "run", model, "--chat", "-p", "x", says="roles must alternate")

    def test_signals_end_a_run(self):
        def seconds_to_the_end(number, code):
            # A read of the disk in every step: this would take most of a minute.
            process = subprocess.Popen([KLOTSKI, "run", "tiny", "-p", "The", "-n", "900", "--ignore-end",
                                        "--expert-slots", "2", "--disk-speed", "20MB"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.read(8)  # the program is generating
            process.send_signal(number)
            started = time.monotonic()
            process.communicate(timeout=HANGS)
            self.assertEqual(process.returncode, code)
            return time.monotonic() - started

        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            self.assertTrue(takes_at_most(20 if SANITIZED else 2, lambda: seconds_to_the_end(number, code)))

    @staticmethod
    def catches(process, number):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return int(caught, 16) >> (number - 1) & 1 == 1

    def test_signal_while_waiting_for_input(self):
        process = subprocess.Popen([KLOTSKI, "run", "tiny"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not self.catches(process, signal.SIGTERM):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        time.sleep(0.2)  # the program may be reading by now
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=HANGS), 143)
        process.communicate()

    def test_weights_with_nan_end_in_an_error_not_in_a_token(self):
        model = self.copy_of_tiny()
        shard = json.loads((model / "model.safetensors.index.json").read_text())["weight_map"][
            "model.norm.weight"]
        data = bytearray((model / shard).read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        begin, end = json.loads(data[8:8 + size])["model.norm.weight"]["data_offsets"]
        data[8 + size + begin:8 + size + end] = b"\xc0\x7f" * ((end - begin) // 2)
        (model / shard).write_bytes(data)
        self.refused(3, "run", model, "-p", "x", says="NaN")


class Verify(Cli):
    def test_every_fixture_and_the_bundled_model(self):
        for folder in (*sorted(p for p in MODELS.iterdir() if (p / "config.json").exists()), TINY):
            for precision in ((), ("--precision", "f32"), ("--precision", "bf16")):
                text = self.ok("verify", folder, "--reference", folder / "reference.json",
                               *precision)
                self.assertIn("prompts agree", text)
                self.assertIn("(f32: " if "f32" in precision else "(bf16: ", text)

    def test_the_report_names_the_precision_and_its_rules(self):
        arguments = ("verify", TINY, "--reference", TINY / "reference.json", "--json")
        report = json.loads(self.ok(*arguments))
        self.assertEqual((report["precision"], report["passed"], report["f32_passed"]),
                         ("bf16", True, True))
        self.assertEqual([report[key] for key in ("logit_tolerance", "margin", "tie",
                                                  "least_share")], [2e-2, 5e-2, 2e-2, 0.98])
        self.assertGreaterEqual(report["share"], 0.98)
        for key in ("clear", "clear_agreed"):
            self.assertEqual(report[key], sum(prompt[key] for prompt in report["prompts"]))
        for prompt in report["prompts"]:
            self.assertEqual(prompt["clear"], prompt["clear_agreed"] + prompt["ties"])
            self.assertEqual(prompt["wrong_tokens"], 0)
        report = json.loads(self.ok(*arguments, "--precision", "f32"))
        self.assertEqual((report["precision"], report["share"]), ("f32", 1.0))
        self.assertEqual([report[key] for key in ("logit_tolerance", "margin", "tie",
                                                  "least_share")], [1e-4, 1e-3, 0.0, 1.0])

    def test_the_reference_kernels_can_be_asked_for(self):
        folder = MODELS / "olmoe"
        text = self.ok("verify", folder, "--reference", folder / "reference.json", "--kernels",
                       "reference")
        self.assertIn("prompts agree", text)

    def test_a_wrong_reference_fails(self):
        reference = json.loads((MODELS / "olmoe" / "reference.json").read_text())
        reference["prompts"][0]["last_logits"][3] += 0.1
        path = self.folder / "reference.json"
        path.write_text(json.dumps(reference))
        for precision in ("bf16", "f32"):
            arguments = ("verify", MODELS / "olmoe", "--reference", path, "--precision", precision)
            result = run(*arguments, "--json")
            self.assertEqual(result.returncode, 1)
            report = json.loads(result.stdout)
            self.assertFalse(report["passed"])
            self.assertFalse(report["f32_passed"])
            self.assertEqual([p["passed"] for p in report["prompts"]], [False, True, True, True])
            result = run(*arguments)
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"WRONG", result.stdout)

    def test_a_wrong_token_fails(self):
        reference = json.loads((TINY / "reference.json").read_text())
        reference["prompts"][2]["greedy"][-1] ^= 1
        reference["prompts"][2]["margins"][-1] = 0.5
        path = self.folder / "reference.json"
        path.write_text(json.dumps(reference))
        result = run("verify", TINY, "--reference", path, "--precision", "f32")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"unexplained 1", result.stdout)
        # Rounding may have moved experts before this token, which says nothing of the run in f32.
        result = run("verify", TINY, "--reference", path)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"WRONG", result.stdout)

    def test_bad_reference_files(self):
        path = self.folder / "reference.json"
        self.refused(3, "verify", "tiny", "--reference", path, says="reference.json")
        for text in ("", "{}", '{"prompts":[{"input_ids":[99999]}]}'):
            path.write_text(text)
            self.refused(3, "verify", "tiny", "--reference", path, says="reference.json")


class Info(Cli):
    def test_counts_and_bytes(self):
        info = json.loads(self.ok("info", "tiny", "--json"))
        self.assertEqual(info["architecture"], "mixtral")
        self.assertEqual((info["layers"], info["experts"], info["experts_per_token"]), (6, 8, 2))
        self.assertEqual(info["bytes"]["total"], 2 * info["parameters"]["total"])
        self.assertEqual(info["bytes"]["one_expert"], 3 * 192 * 256 * 2)
        self.assertEqual(info["tokenizer_tokens"], 4096)
        self.assertTrue(info["chat_template"])
        self.assertIn("8 a layer, 2 a token", self.ok("info", TINY))

    def test_a_model_without_a_tokenizer_is_still_described(self):
        info = json.loads(self.ok("info", MODELS / "qwen2_moe", "--json"))
        self.assertFalse(info["tokenizer"])
        self.assertEqual(info["shared_expert_width"], 128)


class Perplexity(Cli):
    def of(self, *arguments, **options):
        return json.loads(self.ok("perplexity", TINY, "--json", *arguments, **options))

    def test_a_text_is_foretold_alike_in_both_precisions(self):
        exact, rounded = (self.of("--precision", precision) for precision in ("f32", "bf16"))
        self.assertEqual(exact["tokens"], rounded["tokens"])
        self.assertLess(abs(exact["perplexity"] - rounded["perplexity"]), 0.005 * exact["perplexity"])

    def test_sequences_are_foretold_by_themselves(self):
        text = b"One and two and three and four and five and six and seven and eight."
        whole = self.of("-f", "-", stdin=text)
        cut = self.of("-f", "-", "--sequence-tokens", "4", stdin=text)
        self.assertEqual(whole["sequences"], 1)
        self.assertEqual(whole["tokens"] + whole["sequences"], cut["tokens"] + cut["sequences"])
        self.assertGreater(cut["perplexity"], whole["perplexity"])

    def test_a_text_without_a_second_token_is_refused(self):
        self.refused(2, "perplexity", TINY, "-f", "-", says="expected at least 2", stdin=b"")


class Compact(Cli):
    def test_a_model_with_compact_experts_is_smaller_and_described(self):
        before = json.loads(self.ok("info", "tiny", "--json"))
        out = self.folder / "out"
        said = self.ok("compact", "tiny", out)
        self.assertIn("144 matrices compact, 0 left as they were", said)
        after = json.loads(self.ok("info", out, "--json"))
        self.assertEqual(after["parameters"], before["parameters"])
        self.assertEqual(after["weight_type"], "BF16")
        self.assertEqual(after["compact"]["matrices"], 144)
        self.assertEqual(after["compact"]["bytes"], after["bytes"]["experts"])
        self.assertEqual(after["compact"]["bytes_as_bf16"], before["bytes"]["experts"])
        # Rows of 192 and of 256 columns: a header of 32 bytes, 96 for every 64 columns.
        self.assertEqual(after["bytes"]["one_expert"], 2 * 256 * (32 + 3 * 96) + 192 * (32 + 4 * 96))
        self.assertEqual(after["bytes"]["dense"], before["bytes"]["dense"])
        weights = out / "model.safetensors"
        self.assertGreater(weights.stat().st_size, after["bytes"]["total"])
        self.assertLess(weights.stat().st_size, after["bytes"]["total"] + (1 << 16))
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((out / name).read_bytes(), (TINY / name).read_bytes())
        self.assertIn("compact       144 of 144 matrices", self.ok("info", out))
        self.assertEqual(os.listdir(self.folder), ["out"])

    def test_an_interrupted_one_removes_its_files_and_says_so(self):
        model, out = self.folder / "model", self.folder / "out"
        self.ok("synth", "L=2,H=1024,F=4096,E=8,K=2", model)
        process = subprocess.Popen([KLOTSKI, "compact", model, out], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (self.folder / ".out.klotski-partial").exists():
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=HANGS)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("stopped; the files written so far are removed\n", said)
        self.assertEqual(os.listdir(self.folder), ["model"])

    def test_a_compact_model_says_what_the_plain_one_does(self):
        out = self.folder / "out"
        self.ok("compact", "tiny", out)
        text = self.ok("verify", out, "--reference", TINY / "reference.json", "--device", "cpu")
        prompts = len(REFERENCE["prompts"])
        self.assertIn(f"{prompts} of {prompts} prompts agree", text)
        arguments = ("-p", "Once upon a time", "-n", "48", "--temperature", "0", "--device", "cpu")
        self.assertEqual(self.ok("run", out, *arguments), self.ok("run", "tiny", *arguments))

    def test_what_is_not_copied_is_named(self):
        model = self.copy_of_tiny()
        (model / "original").mkdir()
        (model / "old.gguf").write_text("x")
        result = run("compact", model, self.folder / "out")
        self.assertEqual(result.returncode, 0, result.stderr)
        said = result.stderr.decode()
        self.assertIn("not copied: old.gguf (other weights)\n", said)
        self.assertIn("not copied: original (a folder)\n", said)

    def test_is_what_synth_writes_for_a_compact_shape(self):
        shape = "L=2,H=256,F=192,E=4,K=2"
        for name in ("plain", "compact"):
            self.ok("synth", shape + (",compact" if name == "compact" else ""), self.folder / name)
        self.ok("compact", self.folder / "plain", self.folder / "made")
        files = [{path.name: path.read_bytes() for path in (self.folder / name).iterdir()}
                 for name in ("compact", "made")]
        self.assertEqual(files[0], files[1])
        self.assertIn(" as BF16", self.ok("info", "--synthetic", shape + ",compact"))

    def test_refusals(self):
        out = self.folder / "out"
        self.refused(2, "compact", MODELS / "olmoe", out, says="144 no smaller when compact")
        self.refused(2, "compact", "tiny", TINY, says="new or empty folder")
        self.refused(3, "compact", self.folder / "none", out)
        self.refused(2, "compact", "tiny", says="OUT")
        self.refused(2, "synth", "L=1,H=256,F=192,E=4,K=2,compact", out, "--dtype", "f16", says="F16")
        self.assertEqual(os.listdir(self.folder), [])
        self.ok("compact", "tiny", out)
        self.refused(2, "compact", out, self.folder / "again", says="144 compact already")


class Plan(Cli):
    @classmethod
    def setUpClass(cls):
        cls.cache = pathlib.Path(tempfile.mkdtemp(prefix="klotski-plan-"))
        cls.addClassCleanup(shutil.rmtree, cls.cache, ignore_errors=True)
        cls.environment = {**os.environ, "KLOTSKI_CACHE": str(cls.cache)}

    def plan(self, *arguments):
        return self.ok("plan", str(TINY), *arguments, env=self.environment)

    def test_a_group_is_chosen_and_what_it_takes_is_predicted(self):
        found = json.loads(self.plan("--json", "--workload", "prompt=20,gen=5,sequences=12"))
        self.assertEqual(found["work"], {"sequences": 12, "prompt_tokens": 20, "generated_tokens": 5})
        policy, predicted = found["policy"], found["predicted"]
        self.assertLessEqual(policy["micro_batch"], 12)
        self.assertGreater(predicted["tokens_per_second"], 0)
        self.assertAlmostEqual(predicted["tokens_per_second"] * predicted["seconds"], 60, places=3)
        self.assertGreaterEqual(predicted["passes"], 5)
        rates = [group["tokens_per_second"] for group in found["groups"]]
        self.assertGreaterEqual(rates[0], 0.99 * max(rates))
        self.assertLessEqual(sum(line["bytes"] for line in found["memory"]), found["limit_bytes"])
        self.assertTrue(list(self.cache.iterdir()), "the measured rates are kept")

    def test_flags_are_constraints(self):
        found = json.loads(self.plan("--json", "--micro-batch", "3", "--n-batches", "2", "--ram", "1GiB"))
        self.assertEqual((found["policy"]["micro_batch"], found["policy"]["micro_batches"]), (3, 2))
        self.assertEqual(found["limit_bytes"], 1 << 30)
        text = self.plan("--micro-batch", "3", "--hot-experts", "1000")
        for word in ("predicted", "binding", "twice the memory", "inequalities", "x 3 sequences", "4-bit experts"):
            self.assertIn(word, text)

    def test_strategies_are_compared_and_reasons_given(self):
        found = json.loads(self.plan("--json", "--expert-slots", "20"))
        self.assertEqual({group["strategy"] for group in found["groups"]},
                         {"simple", "multi-batch", "hot-prefetch", "klotski", "activation-aware"})
        reasons = {reason["what"]: reason for reason in found["reasons"]}
        for what in ("group", "strategy", "hot experts", "KV cache", "attention", "expert"):
            self.assertTrue(reasons[what]["chosen"] and reasons[what]["why"], what)
        fixed = json.loads(self.plan("--json", "--expert-slots", "20", "--strategy", "multi-batch"))
        self.assertEqual(fixed["policy"]["strategy"], "multi-batch")

    def test_a_plan_explains_what_seems_to_contradict_it(self):
        """A choice that is predicted faster, changes that slow things down, an n that does not hold the inequalities, and
        a disk that binds an expert but not the pass."""
        for flags in (("--expert-slots", "8"), ("--expert-slots", "20", "--micro-batch", "2"),
                      ("--expert-slots", "40", "--workload", "prompt=20,gen=5,sequences=12")):
            found, text = json.loads(self.plan("--json", *flags)), self.plan(*flags)
            chosen = found["predicted"]["tokens_per_second"]
            for change in found["relief"]:
                if change["change"] != "4-bit experts":  # a rough prediction of its own
                    self.assertGreaterEqual(change["tokens_per_second"], chosen, change)
            faster = any(group["tokens_per_second"] > chosen for group in found["groups"])
            self.assertEqual("of choices within 1 % of the fastest" in text, faster)
            self.assertIn("\nthe papers' models explain the plan; simulated runs decided it\n", text)
            group = int(re.search(r"inequalities of a group of (\d+)", text)[1])
            from_n = re.search(r"all hold from n = (\d+)(.*)", text)
            if from_n and int(from_n[1]) > group:
                self.assertIn(f"n = {group} is the fastest that memory and the work allow", from_n[2])
            if not from_n:
                self.assertIn("micro-batches hides all transfers", text)
            binding = re.search(r"binding +(.*), over prefill and decode together", text)[1]
            if ": link binds" in text and binding != "disk read":
                self.assertIn(f"in whole passes {binding} is the busier lane", text)

    def test_a_page_shows_roofs_a_layer_and_what_stays(self):
        page = self.folder / "plan.html"
        self.plan("--html", str(page), "--expert-slots", "20")
        text = page.read_text()
        self.assertTrue(text.startswith("<!DOCTYPE html>"))
        self.assertGreaterEqual(text.count("<svg"), 3)
        for word in ("predicted", "P2", "expert"):
            self.assertIn(word, text)

    def test_a_synthetic_model_is_planned_though_it_comes_from_no_disk(self):
        page = self.folder / "synthetic.html"
        shape = ("plan", "--synthetic", "L=3,H=64,F=64,E=4,K=2", "--expert-slots", "6",
                 "--workload", "prompt=16,gen=4,sequences=8")
        text = self.ok(*shape, "--html", str(page), env=self.environment)
        for word in ("predicted", "inequalities", "twice the memory"):
            self.assertIn(word, text)
        self.assertNotIn("the disk binds", text)
        self.assertIn("predicted", page.read_text())
        found = json.loads(self.ok(*shape, "--json", env=self.environment))
        self.assertGreater(found["predicted"]["tokens_per_second"], 0)

    def test_what_cannot_be_planned(self):
        for workload in ("", "prompt", "prompt=", "prompt=0", "prompt=1x", "tokens=3", "gen=1,,gen=2",
                         "sequences=99999999999999999999"):
            self.refused(2, "plan", str(TINY), "--workload", workload, says="--workload")
        self.refused(2, "plan", str(TINY), "--workload", "prompt=1000000", says="room for")
        self.refused(4, "plan", str(TINY), "--ram", "2MiB", says="memory",
                     env=self.environment)


class OutputFiles(Cli):
    # Refused before anything else is looked at: the model is none.
    def test_what_cannot_be_written_is_refused_at_once(self):
        file = self.folder / "file"
        file.touch()
        options = (("plan", "--html"), ("bench", "--json-file"), ("bench", "--markdown"), ("run", "--trace"),
                   ("run", "--timeline"), ("run", "--save-correlation"), ("trace", "-o"), ("train-predictor", "-o"))
        for command, option in options:
            for path in (self.folder / "no" / "such", self.folder, file / "below", "", "/dev/full"):
                self.refused(2, command, "no-such-model", option, str(path), says=option)
            self.refused(3, command, "no-such-model", option, str(file), says="no-such-model")


class Doctor(Cli):
    def doctor(self, **variables):
        environment = {k: v for k, v in os.environ.items() if k != "KLOTSKI_CPU"}
        return json.loads(self.ok("doctor", "--json", env={**environment, **variables}))

    def test_says_what_was_chosen_and_why(self):
        found = self.doctor()
        kernels = found["kernels"]
        self.assertEqual(kernels["available"][0], "portable")
        self.assertEqual(kernels["chosen"], kernels["available"][-1])
        self.assertFalse(kernels["forced"])
        self.assertFalse(self.doctor(KLOTSKI_CPU="")["kernels"]["forced"])
        for name in kernels["available"]:
            forced = self.doctor(KLOTSKI_CPU=name)["kernels"]
            self.assertEqual((forced["chosen"], forced["forced"]), (name, True))
            self.assertEqual(forced["bf16"], "bf16" in name)
        text = self.ok("doctor", env={**os.environ, "KLOTSKI_CPU": "portable"})
        self.assertIn("portable (KLOTSKI_CPU)", text)
        self.assertIn(kernels["available"][-1], text)

    def test_counts_processors_and_memory(self):
        found = self.doctor()
        cpus = found["cpus"]
        self.assertEqual(cpus["allowed"], len(os.sched_getaffinity(0)))
        self.assertLessEqual(cpus["threads"], cpus["allowed"])
        self.assertLessEqual(cpus["allowed"], cpus["machine"])
        one = min(os.sched_getaffinity(0))
        bound = json.loads(self.ok("doctor", "--json",
                                   preexec_fn=lambda: os.sched_setaffinity(0, {one})))
        self.assertEqual((bound["cpus"]["allowed"], bound["cpus"]["threads"]), (1, 1))
        memory = found["memory"]
        bounds = [memory[k] for k in ("machine", "control_groups", "address_space", "data")]
        self.assertEqual(memory["available"], min(b for b in bounds if b is not None))
        self.assertIn(found["disk_reads"], ("io_uring", "threads"))

    @unittest.skipIf(SANITIZED, "a sanitizer needs all the address space")
    def test_a_limit_on_memory_is_named(self):
        limit = 1 << 30
        for kind, name in ((resource.RLIMIT_AS, "address_space"), (resource.RLIMIT_DATA, "data")):
            found = json.loads(self.ok("doctor", "--json", preexec_fn=lambda: resource.setrlimit(
                kind, (limit, limit))))
            self.assertLess(found["memory"][name], limit)
            self.assertLessEqual(found["memory"]["available"], found["memory"][name])

    def test_an_instruction_set_that_is_not_there(self):
        environment = {**os.environ, "KLOTSKI_CPU": "abacus"}
        for arguments in (("doctor",), ("doctor", "--json"), ("run", "tiny", "-p", "x", "-n", "1")):
            message = self.refused(2, *arguments, says="KLOTSKI_CPU", env=environment)
            self.assertIn("abacus", message)
            for name in self.doctor()["kernels"]["available"]:
                self.assertIn(name, message)
        self.refused(2, "doctor", "tiny", "extra")

    def test_a_models_profile_is_measured_once(self):
        environment = {**os.environ, "KLOTSKI_CACHE": str(self.folder / "cache")}
        measured = json.loads(self.ok("doctor", "tiny", "--json", env=environment))["profile"]
        self.assertFalse(measured["cached"])
        self.assertGreater(measured["memory_bytes_per_second"], 1e6)
        self.assertGreater(min(rate["bytes_per_second"] for rate in measured["disk"]), 0)
        self.assertGreater(measured["disk_bytes_per_second"], 0)
        self.assertEqual([kind["layers"] for kind in measured["layers"]], [6])
        for product in measured["layers"][0]["products"]:
            self.assertGreater(product["operations_per_second"], 0)
            self.assertAlmostEqual(product["operations_per_second"] / product["bytes_per_second"],
                                   product["rows"])  # bf16: two operations for two bytes
        again = json.loads(self.ok("doctor", TINY, "--json", env=environment))["profile"]
        self.assertTrue(again["cached"])
        self.assertEqual(again["layers"], measured["layers"])
        text = self.ok("doctor", "tiny", env=environment)
        for part in ("cached", "memory reads", "disk GB/s", "as the engine reads", "expert arranged", "attention"):
            self.assertIn(part, text)
        self.refused(3, "doctor", "/absent", env=environment)

    def test_advises_what_to_change(self):
        def few():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

        advice = json.loads(self.ok("doctor", "--json", preexec_fn=few))["advice"]
        self.assertTrue(any("64.0 KiB of memory may be locked" in line for line in advice), advice)
        self.assertIn("advice", self.ok("doctor", preexec_fn=few))
        found = self.doctor()
        self.assertEqual(any("io_uring is refused" in line for line in found["advice"]),
                         found["disk_reads"] == "threads")

    def test_lists_devices_or_says_why_not(self):
        devices = self.doctor()["devices"]
        text = self.ok("doctor")
        self.assertEqual(devices["why_none"] is None, bool(devices["found"]))
        for number, device in enumerate(devices["found"]):
            self.assertEqual(device["index"], number)
            self.assertGreater(device["memory_bytes"], 0)
            self.assertIn(f'{number}: {device["name"]}, capability {device["capability"]}', text)
        if not devices["found"]:
            self.assertIn(f'none: {devices["why_none"]}', text)

    def test_knows_nodes_and_displays(self):
        topology = self.doctor()["topology"]
        nodes = topology["numa_nodes"]
        if not nodes:
            self.skipTest("this machine does not say")
        self.assertEqual(len({cpu for node in nodes for cpu in node["cpus"]}),
                         sum(len(node["cpus"]) for node in nodes))
        self.assertTrue(any(node["may_run"] for node in nodes))
        text = self.ok("doctor")
        self.assertIn(f"NUMA nodes    {nodes[0]['id']}: processors", text)
        for device in topology["display_devices"]:
            self.assertTrue(device["class"].startswith("03"))
            self.assertIn(device["address"], text)

    def test_tells_how_runs_went_beside_their_plans(self):
        cache = self.folder / "cache"
        environment = {**os.environ, "KLOTSKI_CACHE": str(cache)}
        history = json.loads(self.ok("doctor", "--json", env=environment))["history"]
        self.assertEqual((history["runs"], history["tokens_per_second"]), (0, None))
        self.assertFalse(cache.exists())

        def figures(seconds):
            return {"seconds": seconds, "prefill_seconds": seconds / 2, "decode_seconds": seconds / 2,
                    "prompt_tokens": 10, "generated_tokens": 20,
                    "lanes": [{"lane": "compute", "busy_seconds": seconds, "bytes": 0}]}

        run_of = {"format": 1, "when": "2030-01-31T23:59:59Z", "command": "bench", "model": "m",
                  "machine": history["machine"], "strategy": "klotski", "micro_batch": 1,
                  "micro_batches": 1, "ram_bytes": 0, "sequences": 1,
                  "planned": figures(1.0), "measured": figures(2.0)}
        lines = [json.dumps(run_of)] * 5 + ["broken", json.dumps({**run_of, "machine": "other"})]
        cache.mkdir()
        (cache / "history.jsonl").write_text("\n".join(lines))
        found = json.loads(self.ok("doctor", "--json", env=environment))
        self.assertEqual(found["history"]["runs"], 5)
        self.assertEqual(found["history"]["tokens_per_second"]["median"], 0.5)
        self.assertEqual(found["history"]["busy_seconds"], [{"lane": "compute", "median": 2.0}])
        advice = [line for line in found["advice"] if "slower than when it was measured" in line]
        self.assertEqual(len(advice), 1, found["advice"])
        self.assertIn(str(cache), advice[0])
        text = self.ok("doctor", env=environment)
        self.assertIn("5 runs of this machine", text)
        self.assertIn(advice[0], text)


class WithHub(Cli):
    def cache(self, root):
        """The standard layout: blobs, a snapshot of links to them, a ref."""
        repository = root / "models--some-org--tiny"
        snapshot = repository / "snapshots" / ("a" * 40)
        (repository / "blobs").mkdir(parents=True)
        (repository / "refs").mkdir()
        snapshot.mkdir(parents=True)
        (repository / "refs" / "main").write_text("a" * 40)
        for number, file in enumerate(sorted(TINY.iterdir())):
            shutil.copy(file, repository / "blobs" / f"blob{number}")
            (snapshot / file.name).symlink_to(f"../../blobs/blob{number}")
        return snapshot

    def environment(self, **variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_", "HUGGING"))}
        return {**kept, **{k: str(v) for k, v in variables.items()}}


class HubCache(WithHub):
    def test_every_place_is_searched(self):
        self.cache(self.folder / "hub")
        self.cache(self.folder / "huggingface" / "hub")
        self.cache(self.folder / ".cache" / "huggingface" / "hub")
        for variables in (dict(HF_HUB_CACHE=self.folder / "hub"), dict(HF_HOME=self.folder),
                          dict(XDG_CACHE_HOME=self.folder), dict(HOME=self.folder)):
            info = json.loads(self.ok("info", "some-org/tiny", "--json",
                                      env=self.environment(**variables)))
            self.assertEqual(info["layers"], 6)
            self.assertTrue(info["tokenizer"])

    def test_a_model_that_is_not_there(self):
        self.refused(3, "info", "no-org/no-model", says="no-org/no-model",
                     env=self.environment(HF_HOME=self.folder))

    def test_a_link_out_of_the_cache_is_refused(self):
        snapshot = self.cache(self.folder / "hub")
        secret = self.folder / "secret"
        shutil.copy(TINY / "config.json", secret)
        (snapshot / "config.json").unlink()
        (snapshot / "config.json").symlink_to(secret)
        self.refused(3, "info", "some-org/tiny", says="config.json",
                     env=self.environment(HF_HUB_CACHE=self.folder / "hub"))


class List(WithHub):
    def listed(self, *folders, **variables):
        rows = json.loads(self.ok("list", "--json", *folders, env=self.environment(**variables)))
        return {row["name"]: row for row in rows}

    def test_models_of_the_cache_and_of_folders(self):
        self.cache(self.folder / "hub")
        elsewhere = self.folder / "elsewhere"
        shutil.copytree(TINY, elsewhere / "copy")
        found = self.listed(elsewhere, HF_HUB_CACHE=self.folder / "hub")
        self.assertEqual(set(found), {"tiny", "some-org/tiny", str(elsewhere / "copy")})
        for row in found.values():
            self.assertEqual((row["family"], row["runs"]), ("mixtral", True))
            self.assertEqual(row["bytes"], json.loads(self.ok("info", "tiny", "--json"))["bytes"]["total"])
        text = self.ok("list", env=self.environment(HF_HUB_CACHE=self.folder / "hub"))
        self.assertRegex(text, r"some-org/tiny +mixtral +1\d\.\d MiB +all weights in V?RAM\n")

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_how_a_model_runs_follows_from_the_limits(self):
        environment = self.environment(HF_HUB_CACHE=self.folder / "none")
        seen = ""
        for mebibytes in range(8, 200, 2):
            text = self.ok("list", "--ram", f"{mebibytes}MiB", "--device", "cpu", env=environment)
            seen += "n" if re.search(r"no: .*too little", text) else "s" if re.search(
                r"\d+ % of the experts in RAM, the others come from disk", text) else "a"
            if seen[-1] == "a":
                self.assertIn("all weights in RAM", text)
                break
        self.assertRegex(seen, "^n+s+a$")

    def test_hostile_folders(self):
        hub = self.folder / "hub"
        snapshot = self.cache(hub)
        (hub / "models--a--b").write_text("no folder")
        (hub / "models--a--c" / "refs").mkdir(parents=True)
        (hub / "models--a--c" / "refs" / "main").write_text("../../..")
        (hub / "models--bad\x1b[31m--name").mkdir()
        (hub / "circle").symlink_to(hub)
        given = self.folder / "given"
        for name, content in (("gpt", b'{"model_type":"gpt2"}'), ("broken", b"{" * 10000), ("zero", b"")):
            (given / name).mkdir(parents=True)
            (given / name / "config.json").write_bytes(content)
        (given / "pipe").mkdir()
        os.mkfifo(given / "pipe" / "config.json")
        (given / "circle").symlink_to(given)
        (given / "huge.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 16)
        (given / "odd\x1b[31m\xff.gguf").write_bytes(b"")
        started = processor_seconds()
        result = run("list", given, env=self.environment(HF_HUB_CACHE=hub))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn(b"\x1b", result.stdout)
        self.assertIn(b"some-org/tiny", result.stdout)
        self.assertGreaterEqual(result.stdout.count(b"no: "), 6, result.stdout)
        self.assertLess(processor_seconds() - started, 20)
        self.refused(2, "list", given / "absent", says="expected a folder")
        self.assertTrue(snapshot.exists())


class BadModels(Cli):
    def test_what_is_no_model(self):
        self.refused(3, "info", self.folder / "absent", says="absent")
        self.refused(3, "info", self.folder, says="config.json")
        self.refused(3, "info", "/dev/zero")
        self.refused(3, "info", "")
        self.refused(3, "info", b"\xff\xfe-model", says="\\xff")
        self.refused(3, "info", "two\nlines", says="two\\nlines")
        self.refused(3, "info", "x" * 5000)

    def test_a_truncated_shard(self):
        model = self.copy_of_tiny()
        shard = sorted(model.glob("*.safetensors"))[1]
        os.truncate(shard, shard.stat().st_size - 1)
        self.refused(3, "run", model, "-p", "x", says=shard.name)

    def test_a_missing_shard(self):
        model = self.copy_of_tiny()
        shard = sorted(model.glob("*.safetensors"))[1]
        shard.unlink()
        self.refused(3, "info", model, says=shard.name)

    def test_an_index_that_points_out_of_the_folder(self):
        model = self.copy_of_tiny()
        index = model / "model.safetensors.index.json"
        text = index.read_text()
        for name in ("../model-00001-of-00003.safetensors", "/etc/passwd", "a/b.safetensors"):
            index.write_text(text.replace("model-00001-of-00003.safetensors", name))
            self.refused(3, "info", model)

    def test_an_unsupported_family(self):
        model = self.copy_of_tiny()
        config = json.loads((model / "config.json").read_text())
        config["model_type"] = "gpt2"
        (model / "config.json").write_text(json.dumps(config))
        self.assertIn("qwen3_moe", self.refused(3, "run", model, "-p", "x", says="model_type"))

    def test_a_broken_tokenizer(self):
        model = self.copy_of_tiny()
        for text in (b"", b"{}", b'{"model":{"type":"Magic"}}', b"\xff" * 100, b"[" * 100000):
            (model / "tokenizer.json").write_bytes(text)
            self.refused(3, "run", model, "-p", "x", says="tokenizer.json")

    def test_a_link_out_of_the_folder(self):
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            model = self.copy_of_tiny()
            (model / name).unlink(missing_ok=True)
            (model / name).symlink_to("/etc/hostname")
            self.refused(3, "run", model, "-p", "x", says=name)
            shutil.rmtree(model)

    def test_a_fifo_instead_of_a_file(self):
        model = self.copy_of_tiny()
        (model / "config.json").unlink()
        os.mkfifo(model / "config.json")
        self.refused(3, "info", model, says="config.json")

    def test_too_little_memory_is_said_before_loading(self):
        self.refused(4, "run", "tiny", "-p", "x", "-n", "900", "--ram", "8MiB", says="too little")
        self.refused(4, "run", "tiny", "-p", "x", "-n", "900", "--kv-limit", "4KiB",
                     says="too little")
        if SANITIZED:
            return  # a sanitizer reserves more address space than any limit here
        self.refused(4, "run", "tiny", "-p", "x", "-n", "900", says="too little",
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (50 << 20, 50 << 20)))


class Usage(Cli):
    def test_wrong_flags(self):
        for arguments in (
                (), ("fly",), ("run",), ("run", "tiny", "--fly"), ("run", "tiny", "-n"),
                ("run", "tiny", "-n", "3", "-n", "4", "-p", "x"), ("run", "tiny", "-p"),
                ("run", "tiny", "extra", "-p", "x"), ("verify", "tiny"),
                ("verify", "tiny", "--reference", "x", "--precision", "f8"),
                ("verify", "tiny", "--reference", "x", "--kernels", "slow"),
                ("run", "tiny", "-p", "a", "-f", "b"), ("run", "tiny", "-p", ""),
                ("run", "tiny", "-p", "x", "--stop", ""), ("run", "tiny", "-f", "/absent/file"),
                ("run", "tiny", "-f", "/"), ("tokenize",), ("template",),
                ("run", "tiny", "--json"), ("run", "tiny", "-p", "x", "--system", "y"),
                ("run", "tiny", "-p", "x", "--chat", "--parse-special")):
            self.refused(2, *arguments)

    def test_wrong_numbers(self):
        for value in ("-1", "0", "1e99", "nan", "inf", "0x10", "", " 5", "5 ", "5.5", "1,000",
                      "99999999999999999999"):
            self.refused(2, "run", "tiny", "-p", "x", "-n", value, says="-n")
        for value in ("-1", "nan", "inf", "1e999", "0x1p3", "", "cold", "101"):
            self.refused(2, "run", "tiny", "-p", "x", "--temperature", value, says="--temperature")
        for flag in ("--top-p", "--min-p"):
            self.refused(2, "run", "tiny", "-p", "x", flag, "1.01", says=flag)
        self.refused(2, "run", "tiny", "-p", "x", "--seed", "-1", says="--seed")
        self.refused(2, "run", "tiny", "-p", "x", "--stop-id", "x", says="--stop-id")

    def test_a_long_argument(self):
        self.refused(2, "run", "tiny", "-p", "x", "-n", "9" * 100_000)
        self.refused(2, "run", "tiny", "--" + "x" * 100_000)
        self.refused(3, "run", "y" * 100_000, "-p", "x")

    def test_a_prompt_longer_than_the_model(self):
        self.refused(2, "run", "tiny", "-p", "word " * 2000, says="positions")

    def test_the_nearest_command_option_or_model_is_named(self):
        self.refused(2, "rnu", says="did you mean run?")
        self.refused(2, "fly", says="no such command (see klotski --help)")
        self.refused(2, "no/such.gguf", says="klotski run 'no/such.gguf'")
        self.refused(2, str(TINY), says="klotski run")
        self.refused(2, "tiny", "-p", "x", says="klotski run 'tiny'")
        self.refused(2, "run", "tiny", "--tempreature=1", "-p", "x", says="did you mean --temperature?")
        self.refused(2, "x" * 100_000)

    def test_help_of_a_command(self):
        self.assertEqual(self.ok("help"), self.ok("--help"))
        self.assertEqual(self.ok("help", "run"), self.ok("run", "--help"))
        self.refused(2, "help", "fly", says="no such command")
        usual, experiments = self.ok("help", "run").split("Options for experiments:")
        for option in ("--ram", "--temperature", "--verbose", "--plan"):
            self.assertIn(option, usual)
        for option in ("--stress", "--expert-slots", "--disk-speed", "--synthetic"):
            self.assertNotIn(option + " ", usual)
            self.assertIn(option, experiments)

    def test_options_that_a_command_cannot_honour(self):
        file = self.folder / "file"
        for option in ("--trace", "--timeline", "--save-correlation"):
            for command in ("schedule", "plan"):
                self.refused(2, command, TINY, option, file, says=option)
        for option, value in (("--warm-up", "sample"), ("--disk-speed", "1GB"), ("--predictor", "token"),
                              ("--kernels", "reference"), ("--stress", "1"), ("--eamc", file)):
            self.refused(2, "schedule", TINY, option, value, says=option)
        for command in (("perplexity", TINY), ("trace", TINY, "-o", file), ("bench", TINY),
                        ("verify", TINY, "--reference", TINY / "reference.json")):
            self.refused(2, *command, "--warm-up", "sample", says="--warm-up")
        self.assertFalse(file.exists())
        self.refused(2, "run", TINY, "-p", "x", "--device", "cpu", "--vram", "1GiB", says="--vram")

    def test_more_memory_than_the_machine_has_gets_a_remark(self):
        result = run("run", "tiny", "-p", "Once", "-n", "2", "--ram", "100TiB", "--device", "cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"--ram 102400.00 GiB: the machine has ", result.stderr)
        self.assertEqual(run("run", "tiny", "-p", "Once", "-n", "2", "--ram", "200MiB").stderr, b"")

    def test_help_and_version(self):
        self.assertIn("klotski", self.ok("--version"))
        for command in ("run", "verify", "info", "tokenize", "template", "doctor"):
            self.assertIn(command, self.ok("--help"))
            self.assertIn("--help", self.ok(command, "--help"))


class Streams(Cli):
    def shell(self, command, **options):
        return subprocess.run(["bash", "-c", command.format(klotski=KLOTSKI)], capture_output=True,
                              timeout=HANGS, **options)

    def test_a_full_disk_or_closed_output_is_an_error(self):
        for redirect in (">/dev/full", ">&-"):
            for command in ("doctor", "info tiny", "run tiny -p x -n 4", "verify tiny --reference "
                            f"{TINY}/reference.json"):
                result = self.shell("{klotski} " + command + " " + redirect)
                self.assertEqual(result.returncode, 1, (command, redirect))
                errors = [x for x in result.stderr.splitlines() if x.startswith(b"klotski: ")]
                self.assertEqual(len(errors), 1)  # besides progress, where the work takes long

    def test_a_reader_that_went_away(self):
        result = self.shell("{klotski} run tiny -p The -n 900 --ignore-end | head -c 10 >/dev/null; "
                            "exit ${{PIPESTATUS[0]}}")
        self.assertEqual(result.returncode, 1)

    def test_closed_standard_input_and_error(self):
        self.assertEqual(self.shell("{klotski} info tiny <&- 2>&-").returncode, 0)
        self.assertEqual(self.shell("{klotski} run tiny -n 3 <&-").returncode, 0)
        self.assertEqual(self.shell("{klotski} info /absent 2>&-").returncode, 3)

    def test_odd_environments(self):
        expected = self.ok("run", "tiny", "-p", "Once", "-n", "4")
        for variables in ("LANG=C LC_ALL=C", "LANG=xx_YY.UTF-8", "TZ=Mars/Olympus", "-u HOME",
                          "NO_COLOR=1", "-i"):
            result = self.shell("env " + variables + " {klotski} run tiny -p Once -n 4")
            self.assertEqual((result.returncode, result.stdout.decode()), (0, expected), variables)
        result = self.shell("ulimit -n 32; {klotski} run tiny -p Once -n 4")
        self.assertEqual(result.stdout.decode(), expected)
        result = self.shell("ulimit -s 256; {klotski} run tiny -p Once -n 4")
        if not SANITIZED:
            self.assertEqual(result.stdout.decode(), expected)


class Tokenize(Cli):
    def test_lines_in_lines_out(self):
        rows = [{"text": p["prompt"]} for p in REFERENCE["prompts"]] + [{"text": ""}, {"text": "</s>"}]
        out = self.ok("tokenize", TINY, stdin="\n".join(map(json.dumps, rows)).encode())
        results = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(results), len(rows))
        for prompt, result in zip(REFERENCE["prompts"], results):
            self.assertEqual(result["ids"], prompt["input_ids"][1:])
            self.assertEqual(result["decoded"], prompt["prompt"])
        self.assertEqual(results[-2], {"ids": [], "ids_with_special": [], "decoded": ""})
        self.assertEqual(results[-1]["ids"], [2])

    def test_links_out_of_the_folder_are_refused(self):
        o200k = SOURCE / "tests" / "data" / "tokenizers" / "gpt-oss-o200k"
        out = self.folder / "out"
        out.mkdir()
        for linked in ("o200k_base.tiktoken.gz", "o200k_harmony.json"):
            model = self.folder / f"linked-{linked}"
            shutil.copytree(o200k, model)
            shutil.move(model / linked, out / linked)
            (model / linked).symlink_to(out / linked)
            self.refused(3, "tokenize", model, says="expected a file of the model folder, found a link")

    def test_bad_lines(self):
        for line in (b"{", b"[]", b"{}", b'{"text":1}', b'{"text":"\xff"}', b'{"text":"a","text":"b"}'):
            self.refused(2, "tokenize", TINY, stdin=line + b"\n", says="line 1")
        self.refused(3, "tokenize", self.folder, says="tokenizer")


class Template(Cli):
    def render(self, source, **data):
        path = self.folder / "template.jinja"
        path.write_text(source)
        return run("template", path, stdin=json.dumps({"messages": [], **data}).encode())

    def test_variables_reach_the_template(self):
        result = self.render(
            "{{ bos_token }}|{{ messages[0].content }}|{{ tools is none }}|{{ add_generation_prompt }}|"
            "{{ extra }}|{{ strftime_now('%d %b %Y %H:%M') }}|{{ documents is none }}",
            messages=[{"role": "user", "content": "häé"}], tools=[], add_generation_prompt=True,
            bos_token="<s>", eos_token="</s>", kwargs={"extra": [1, 2.5]}, now="2025-01-15 12:34:56")
        self.assertEqual(result.stdout.decode(), "<s>|häé|True|True|[1, 2.5]|15 Jan 2025 12:34|True")

    def test_a_templates_own_error(self):
        result = self.render("{{ raise_exception('only user roles') }}")
        self.assertEqual(result.returncode, 3)
        self.assertIn(b"only user roles", result.stderr)

    def test_errors_have_a_line(self):
        for source in ("a\n{% if x %}", "a\n{{ x | no_such_filter }}", "a\n{% include 'x' %}"):
            result = self.render(source)
            self.assertEqual(result.returncode, 3, source)
            self.assertIn(b"template.jinja:2", result.stderr)
            self.assertEqual(result.stderr.count(b"\n"), 1)

    def test_budgets(self):
        for source in ("{% for i in range(10**9) %}{% endfor %}", "{{ 'a' * 10**12 }}",
                       "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                       "{{ " + "(" * 10000 + "1" + ")" * 10000 + " }}",
                       "{{ range(10**12) | list | length }}"):
            started = processor_seconds()
            self.assertEqual(self.render(source).returncode, 3, source[:50])
            self.assertLess(processor_seconds() - started, 60 if SANITIZED else 10)

    def test_no_way_out_of_the_sandbox(self):
        for source in ("{{ ''.__class__ }}", "{{ messages.__class__.__mro__ }}", "{{ cycler.__init__ }}",
                       "{{ self.__dict__ }}", "{% import 'os' as os %}", "{{ messages.append(1) }}",
                       "{{ ''.format.__globals__ }}"):
            result = self.render(source)
            self.assertTrue(result.returncode == 3 or result.stdout == b"", (source, result.stdout))

    def test_bad_input(self):
        path = self.folder / "template.jinja"
        path.write_text("x")
        for data in (b"", b"[]", b"{}", b'{"messages":1}', b'{"messages":[],"kwargs":1}',
                     b'{"messages":[],"now":"noon"}', b"[" * 100_000):
            self.refused(2, "template", path, stdin=data)
        self.refused(3, "template", self.folder / "absent")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
