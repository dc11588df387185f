#!/usr/bin/env python3
"""Hyperband over the digits MLP with R = 27: configurations as members of one run (plugins/executor/hfta) against one run after another, on
one core.

  tools/bench/hyperband.py [--quick] [fp32] [fp64]

Prints the seconds of each, and whether rungs, the best and all values are the same. --quick: R = 3."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRAINYARD = SOURCE / "build/release/bin/trainyard"
LONGEST = "3ep" if "--quick" in sys.argv else "27ep"
TOGETHER = (1, 8, 27)

STUDY = """schema = 1
[study]
type = "hyperband"
run = "run.toml"
metric = "val/accuracy"
min_budget = "1ep"
max_budget = "{longest}"
together = {together}
space = [
  {{ key = "optimizer.lr", low = 1e-4, high = 1e-1, log = true }},
  {{ key = "optimizer.weight_decay", low = 0.0, high = 0.3 }},
]
"""


def run_file(precision):
    text = (SOURCE / "configs/digits_mlp.toml").read_text().replace("../data", str(SOURCE / "data"))
    for was, is_now in (('warmup = "5%"', 'warmup = "1ep"'), ('eval_interval = "5ep"', f'precision = "{precision}"')):
        assert was in text, was
        text = text.replace(was, is_now)
    return text


def study(folder, together):
    """Seconds, and the study as it says itself."""
    name = f"together_{together}"
    (folder / f"{name}.toml").write_text(STUDY.format(longest=LONGEST, together=together))
    began = time.monotonic()
    done = subprocess.run([TRAINYARD, "study", f"{name}.toml", "--out", "out", "--jobs", "1", "--format", "json"], cwd=folder, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}, check=True)
    return time.monotonic() - began, json.loads(done.stdout), (folder / f"out/{name}/table.md").read_text()


def main():
    for precision in [word for word in sys.argv[1:] if not word.startswith("-")] or ["fp32", "fp64"]:
        with tempfile.TemporaryDirectory(prefix="trainyard-") as place:
            folder = pathlib.Path(place)
            (folder / "run.toml").write_text(run_file(precision))
            found = {together: study(folder, together) for together in TOGETHER}
        alone, _, table = found[1]
        print(f"{precision}, R = {LONGEST}, one after another: {alone:.1f} s, {len(found[1][1]['trials'])} runs")
        for together in TOGETHER[1:]:
            seconds, said, own = found[together]
            print(f"  together = {together}: {seconds:.1f} s, {alone / seconds:.2f} times as fast, {len(said['trials'])} runs; "
                  f"{'the same table' if own == table else 'another table'}")
            for a, b in [pair for pair in zip(table.splitlines(), own.splitlines()) if pair[0] != pair[1]][:1]:
                print(f"    {a}\n    {b}")


if __name__ == "__main__":
    main()
