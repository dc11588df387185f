#!/usr/bin/env python3
"""Whole training steps of the executor partitioned in two clusters against the best of one and two threads of eager, and against compiled, on networks with branches and on a
chain (tools/bench/plugins/model/branches.cpp). Each contender is a process of some hundred milliseconds, several in turn; a time is that of a step, the least and the 20th
percentile of chunks of ten steps.

  cmake --build build/release --target bench_plugin_branches
  tools/bench/partitioned.py [--quick] [--rounds 3] [--algorithm heft] [NAME...]"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINYARD = ROOT / "build/release/bin/trainyard"
PLUGINS = ROOT / "build/release/bench/plugins"
CHUNK, FIRST = 10, 50  # steps; those ahead are traced and tried
RUN = """
schema = 1
[run]
name = "partitioned"
seed = 1
output_dir = "{folder}/run"
threads = {{ intra_op = {threads}, inter_op = 1 }}
[model]
type = "branches"
form = "{form}"
width = {width}
count = {count}
depth = {depth}
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = {shape}
classes = 10
train = {{ size = {size}, batch_size = {batch}, drop_last = true }}
[optimizer]
type = "sgd"
lr = 0.001
[trainer]
max_duration = "{steps}ba"
[logging]
interval = "{chunk}ba"
[[logging.sinks]]
type = "jsonl"
[executor]
{executor}
"""
CASES = {f"towers, width {width}, batch {batch}": dict(form="towers", width=width, batch=batch, count=8, depth=4, shape=[width])
         for width in (64, 128, 256) for batch in (8, 32, 128)}
CASES |= {"inception, 2 blocks of 4 branches, batch 8": dict(form="inception", width=16, batch=8, count=1, depth=2, shape=[8, 14, 14]),
          "inception, 2 blocks of 4 branches, batch 32": dict(form="inception", width=16, batch=32, count=1, depth=2, shape=[8, 14, 14]),
          "trunk with 8 heads, width 64, batch 32": dict(form="heads", width=64, batch=32, count=8, depth=3, shape=[64]),
          "chain of 32, width 64, batch 32": dict(form="chain", width=64, batch=32, count=8, depth=4, shape=[64]),
          "chain of 32, width 256, batch 128": dict(form="chain", width=256, batch=128, count=8, depth=4, shape=[256])}
QUICK = ("towers, width 64, batch 32", "chain of 32, width 64, batch 32")


def contenders(algorithm):
    cut = f'type = "partitioned"\nalgorithm = "{algorithm}"'
    return {"eager, 1 thread": (1, 'type = "eager"'), "eager, 2 threads": (2, 'type = "eager"'), "partitioned": (2, cut), "compiled, 1 thread": (1, 'type = "compiled"')}


def seconds(case, threads, executor, steps, choices):
    """Of a step, in each chunk; and what the executor said. The first run tries the ways, and leaves its choice to the others."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        file = pathlib.Path(folder) / "run.toml"
        file.write_text(RUN.format(folder=folder, threads=threads, executor=executor, steps=steps, chunk=CHUNK, size=case["batch"] * 64, **case))
        subprocess.run([TRAINYARD, "train", file, "-q", "--plugins", PLUGINS], check=True, env={**os.environ, "XDG_CACHE_HOME": choices})
        run = pathlib.Path(folder) / "run"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        said = [line for line in (run / "run.log").read_text().splitlines() if " partitioned: " in line]
    times = [case["batch"] / line["values"]["samples_per_second"] for line in lines if line["what"] == "train" and line["step"] > FIRST + CHUNK]
    return times, said


def swap(rounds):
    """From METIS to WB-Libra and back, by the times of the steps around: what the step of the swap and those behind it, in which nodes are traced and the graph is cut,
    took beyond what a step takes. The bar is one step and the time of the cut, which the log has."""
    for name in ("towers, width 64, batch 32", "towers, width 256, batch 32"):
        case = CASES[name]
        for round in range(rounds):
            at = {60: "wb_libra", 120: "metis"}
            executor = 'type = "partitioned"\nwhen = "always"\nalgorithm = "metis"\n' + "".join(
                f'[[swap]]\nat = "{step}ba"\nslot = "executor"\ntype = "partitioned"\noptions = {{ when = "always", algorithm = "{to}" }}\n' for step, to in at.items())
            with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
                file = pathlib.Path(folder) / "run.toml"
                file.write_text(RUN.format(folder=folder, threads=1, executor=executor, steps=180, chunk=1, size=case["batch"] * 64, **case))
                subprocess.run([TRAINYARD, "train", file, "-q", "--plugins", PLUGINS], check=True)
                run = pathlib.Path(folder) / "run"
                lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
                cuts = re.findall(r"cut by (\w+) in ([\d.]+) ms", (run / "run.log").read_text())
            took = {line["step"]: 1e3 * case["batch"] / line["values"]["samples_per_second"] for line in lines if line["what"] == "train"}
            for step, to in at.items():
                usual = sorted(took[i] for i in range(step - 30, step))[15]
                more = sum(max(0.0, took[i] - usual) for i in range(step, step + 10) if i in took)
                made = float(dict(cuts[1:])[to])
                print(f"{name}, swap to {to}: {more:.1f} ms beyond ten steps, a step takes {usual:.1f} ms, the cut {made:.1f} ms: "
                      f"{'met' if more <= usual + made else 'missed'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of cases; all where there are none")
    parser.add_argument("--quick", action="store_true", help="two cases, one short round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--algorithm", default="heft")
    parser.add_argument("--swap", action="store_true", help="what a swap of the algorithm in a run costs, in place of all else")
    given = parser.parse_args()
    if given.swap:
        return swap(given.rounds)
    for name, case in CASES.items():
        if given.names and not any(part in name for part in given.names) or given.quick and name not in QUICK:
            continue
        times, said = {}, []
        work = case["batch"] * case["width"] ** 2 * case["count"] * case["depth"] * (400 if case["form"] == "inception" else 1)
        steps = FIRST + CHUNK * (3 if given.quick else max(6, min(60, int(3e10 / work / CHUNK))))
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as choices:
            for _ in range(1 if given.quick else given.rounds):
                for who, (threads, executor) in contenders(given.algorithm).items():
                    found, told = seconds(case, threads, executor, steps, choices)
                    times.setdefault(who, []).extend(found)
                    said = said or told
        least = {who: min(each) for who, each in times.items()}
        p20 = {who: sorted(each)[len(each) // 5] for who, each in times.items()}
        best = min(("eager, 1 thread", "eager, 2 threads"), key=p20.get)
        print(f"{name}: {p20[best] / p20['partitioned']:.2f}x of {best} (minima {min(least['eager, 1 thread'], least['eager, 2 threads']) / least['partitioned']:.2f}x), "
              f"{p20['compiled, 1 thread'] / p20['partitioned']:.2f}x of compiled; us: "
              + ", ".join(f"{who} {1e6 * p20[who]:.0f}" for who in times), flush=True)
        for line in said:
            print("   ", line.split(" partitioned: ", 1)[1])


if __name__ == "__main__":
    sys.exit(main())
