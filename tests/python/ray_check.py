#!/usr/bin/env python3
"""Rows over workers that are killed: `ray_check.py [--rows N] [--workers N] [--kills N]`.

Runs a batch with klotski.ray while workers are killed by SIGKILL at random moments, and compares what is written with
the files of one worker that nobody disturbs: every row once, byte for byte."""
import argparse
import json
import os
import pathlib
import random
import signal
import tempfile
import threading
import time

import klotski.ray
import ray
from klotski import SamplingParams
from ray._private.state import actors  # the public list of actors needs the dashboard

# Long enough answers that the last worker is killed before the rows are done, even on a fast machine.
PARAMS = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)


def kill_workers(kills, output, parts, killed, ended):
    """Kills a worker at random moments, spread over the parts that are to be written."""
    moments = sorted(random.uniform(0.05, 0.6) * parts for _ in range(kills))
    while moments and not ended.is_set():
        time.sleep(random.uniform(0, 0.02))
        if len(list(output.glob("part-*.jsonl"))) < moments[0]:
            continue
        workers = [actor["Pid"] for actor in actors().values()
                   if actor["State"] == "ALIVE" and "MapWorker" in actor["ActorClassName"]]
        if workers:
            try:
                os.kill(random.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(moments.pop(0))


def timed_batch(source, output, workers, rows_per_part):
    begin = time.monotonic()
    share = {"CPU": max(0.1, (os.cpu_count() or 1) / (workers + 1))}
    done = klotski.ray.batch(str(source), str(output), "tiny", workers, share, sampling_params=PARAMS, device="cpu",
                             rows_per_part=rows_per_part, progress=False)
    return done, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=2)
    arguments = parser.parse_args()
    ray.init(num_cpus=os.cpu_count(), logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    with tempfile.TemporaryDirectory(prefix="klotski-ray-") as folder:
        folder = pathlib.Path(folder)
        source = folder / "rows.jsonl"
        source.write_text("".join(json.dumps({"id": i, "prompt": f"Number {i} is"}) + "\n" for i in range(arguments.rows)))
        rows_per_part = max(1, arguments.rows // 100)
        parts = -(-arguments.rows // rows_per_part)
        killed, ended = [], threading.Event()
        killer = threading.Thread(target=kill_workers, daemon=True,
                                  args=(arguments.kills, folder / "killed", parts, killed, ended))
        (folder / "killed").mkdir()
        killer.start()
        done, seconds = timed_batch(source, folder / "killed", arguments.workers, rows_per_part)
        ended.set()
        killer.join()
        alone, alone_seconds = timed_batch(source, folder / "alone", 1, rows_per_part)
        names = sorted(path.name for path in (folder / "alone").iterdir())
        assert names == sorted(path.name for path in (folder / "killed").iterdir())
        for name in names:
            assert (folder / "alone" / name).read_bytes() == (folder / "killed" / name).read_bytes(), name
        written = [json.loads(line)["row"] for name in names if name.endswith(".jsonl")
                   for line in open(folder / "killed" / name, encoding="utf-8")]
        assert written == list(range(arguments.rows))
        assert alone == {"rows": arguments.rows, "failed": 0, "parts": parts}
        assert timed_batch(source, folder / "killed", 1, rows_per_part)[0]["parts"] == 0  # all are there
    assert len(killed) == arguments.kills, f"only {len(killed)} workers were killed"
    print(f"{arguments.rows} rows over {arguments.workers} workers, {len(killed)} killed: {seconds:.1f} s; one worker: "
          f"{alone_seconds:.1f} s; equal bytes")


if __name__ == "__main__":
    main()
