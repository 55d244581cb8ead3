#!/usr/bin/env python3
"""Times `klotski batch` and `LLM.generate` on the same rows in turn: `throughput.py [--model FOLDER] [--rows N] ...`.

To be run by the Python that has the package. Each run is a process of its own: it reads the rows from a file, plans by
the stored measurements of the machine, loads the model, generates and writes the answers; all of that counts. The start
of the interpreter with its imports, once a process, is told apart and does not count. The first pair of runs makes the
measurements and does not count. User and system CPU seconds depend less on what else the machine does than wall
seconds. Fails where texts differ or where Python's median takes more than `--most` times the program's CPU seconds."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

import klotski
from klotski import LLM, SamplingParams

PROGRAM = pathlib.Path(klotski.__file__).with_name("klotski")
MODEL = "L=8,H=768,F=1536,E=8,K=2"  # random weights, 0.6 GB
WORDS = "river bridge clock honey glass map stone light wind paper engine garden letter winter harbour music".split()


def write_rows(path, rows, max_tokens):
    chosen = random.Random(1)
    with open(path, "w", encoding="utf-8") as out:
        for number in range(rows):
            prompt = " ".join(chosen.choices(WORDS, k=chosen.randint(4, 16)))
            body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
            row = {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}
            out.write(json.dumps(row) + "\n")


def choices(arguments):
    """Options of the run by their names in Python; None leaves one to the plan."""
    named = {"ram": arguments.ram, "device": "cpu", "strategy": arguments.strategy, "micro_batch": arguments.micro_batch,
             "n_batches": arguments.n_batches}
    return {name: value for name, value in named.items() if value is not None}


def generate(source, output, model, options):
    """The run in Python, in a process of its own."""
    started = {"cpu": time.process_time(), "at": time.monotonic()}
    with open(source, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    params = SamplingParams(temperature=0, max_tokens=rows[0]["body"]["max_tokens"])
    with LLM(model, **options) as llm:
        outputs = llm.generate([row["body"]["prompt"] for row in rows], params, use_tqdm=False)
        at_once = llm.report()["sequences_at_once"]
    with open(output, "w", encoding="utf-8") as out:
        for row, answered in zip(rows, outputs):
            out.write(json.dumps({"id": row["custom_id"], "text": answered.outputs[0].text}) + "\n")
    print(json.dumps({"sequences_at_once": at_once, "started": started}))


def texts_of(path):
    """Texts by row, from a file of either side."""
    texts = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "response" in row:
                texts[row["custom_id"]] = row["response"]["body"]["choices"][0]["text"]
            else:
                texts[row["id"]] = row["text"]
    return texts


def timed(command):
    """Runs a command; its seconds and what it printed."""
    with tempfile.TemporaryFile() as said:
        begin = time.monotonic()
        process = subprocess.Popen([str(part) for part in command], stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}:\n{text}")
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "begin": begin}, text


def without_start(seconds, text):
    """Seconds of a run in Python, with those of the interpreter's start apart."""
    started = json.loads(text.splitlines()[-1])["started"]
    start = {"start_cpu": started["cpu"], "start_wall": started["at"] - seconds["begin"]}
    return {"wall": seconds["wall"] - start["start_wall"], "cpu": seconds["cpu"] - start["start_cpu"], **start}


def summary(runs):
    return {kind: {"median": round(statistics.median(run[kind] for run in runs), 3),
                   "least": round(min(run[kind] for run in runs), 3), "most": round(max(run[kind] for run in runs), 3)}
            for kind in runs[0] if kind != "begin"}


def commit():
    asked = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "--short", "HEAD"],
                           capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def compare(arguments, folder):
    model = arguments.model or folder / "model"
    if not arguments.model:
        subprocess.run([PROGRAM, "synth", MODEL, model], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    source = folder / "rows.jsonl"
    write_rows(source, arguments.rows, arguments.max_tokens)
    options = choices(arguments)
    flags = [part for name, value in options.items() for part in ("--" + name.replace("_", "-"), value)]
    batch = [PROGRAM, "batch", model, "-i", source, "-o", folder / "batch.jsonl", "--overwrite", "--progress", "none", *flags]
    python = [sys.executable, __file__, "--generate", json.dumps([str(source), str(folder / "python.jsonl"), str(model), options])]
    runs = {"batch": [], "python": []}
    for number in range(arguments.runs + 1):
        for side, command in (("batch", batch), ("python", python)):
            seconds, text = timed(command)
            if side == "python":
                seconds = without_start(seconds, text)
            if number == 0:
                print(f"{side}:\n{text}", flush=True)
                continue
            runs[side].append(seconds)
            print(f"{side:7} {seconds['cpu']:8.2f} s CPU {seconds['wall']:8.2f} s wall", flush=True)
    if texts_of(folder / "batch.jsonl") != texts_of(folder / "python.jsonl"):
        sys.exit("the texts differ")
    figures = {side: summary(of_side) for side, of_side in runs.items()}
    ratios = {kind: round(figures["python"][kind]["median"] / figures["batch"][kind]["median"], 4) for kind in ("cpu", "wall")}
    return {"what": f"klotski batch and LLM.generate in turn, {arguments.runs} runs each, without the interpreter's start",
            "command": " ".join(["tests/python/throughput.py", *sys.argv[1:]]), "commit": commit(),
            "repetitions": arguments.runs, "spread": "least and most of each side", "date": datetime.date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}", "model": str(arguments.model or MODEL),
            "rows": arguments.rows, "max_tokens": arguments.max_tokens, "options": options, "seconds": figures,
            "python_to_batch": ratios,
            "runs": {side: [{kind: round(run[kind], 3) for kind in ("cpu", "wall")} for run in of_side] for side, of_side in runs.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help=f"default: one of the shape {MODEL} is made")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--runs", type=int, default=5, help="of each side")
    parser.add_argument("--ram", default="2GiB")
    parser.add_argument("--strategy", help="default: the plan's choice, as of the next two")
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--n-batches", type=int)
    parser.add_argument("--most", type=float, default=1.02, help="CPU seconds of Python, in those of the program")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        generate(*json.loads(arguments.generate))
        return
    with tempfile.TemporaryDirectory(prefix="klotski-throughput-") as folder:
        figures = compare(arguments, pathlib.Path(folder))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"seconds": figures["seconds"], "python_to_batch": figures["python_to_batch"]}, indent=1))
    if figures["python_to_batch"]["cpu"] > arguments.most:
        sys.exit(f"Python takes more than {arguments.most} times the CPU seconds of the program")


if __name__ == "__main__":
    main()
