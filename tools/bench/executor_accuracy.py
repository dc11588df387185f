#!/usr/bin/env python3
"""Whole trainings of run files with the executors eager and compiled, a few seeds each: what the last evaluation says.
With --halves: with compiled in single precision and with bfloat16 (kernels = "counted", so that it is taken where it is not faster).

  tools/bench/executor_accuracy.py [--halves] [--seeds N] [--duration D] FILE...

"within seeds": the means are no further apart than twice the deviation of the mean that the seeds give (of both)."""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

TRAINYARD = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/trainyard"


def last(file, seed, executor, precision, duration):
    """Metrics of the last evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        sets = [f"run.output_dir={folder}/run", f"run.seed={seed}", f"executor.type={executor}", f"trainer.precision={precision}"]
        sets += [f"trainer.max_duration={duration}"] if duration else []
        sets += ['executor.kernels="counted"'] if precision != "fp32" else []
        words = [word for each in sets for word in ("--set", each)]
        subprocess.run([TRAINYARD, "train", "-q", file, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = (pathlib.Path(folder) / "run/metrics.jsonl").read_text().splitlines()
        values = {}
        for line in map(json.loads, lines):
            values.update({key: value for key, value in line.get("values", {}).items() if key.startswith("val/")})
        return values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--duration", default="")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    ways = [("compiled", "fp32"), ("compiled", "bf16-mixed")] if options.halves else [("eager", "fp32"), ("compiled", "fp32")]
    names = ("fp32", "bf16-mixed") if options.halves else ("eager", "compiled")
    for file in options.files:
        found = {way: [last(file, seed, *way, options.duration) for seed in range(1, options.seeds + 1)] for way in ways}
        for metric in found[ways[0]][0]:
            a, b = ([each[metric] for each in found[way]] for way in ways)
            bar = 2 * math.sqrt((statistics.variance(a) + statistics.variance(b)) / options.seeds)
            apart = abs(statistics.mean(a) - statistics.mean(b))
            print(f"{pathlib.Path(file).stem} {metric}: {names[0]} {statistics.mean(a):.4f}, {names[1]} {statistics.mean(b):.4f}, "
                  f"apart {apart:.4f} of {bar:.4f} allowed: {'within seeds' if apart <= bar else 'NOT within seeds'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
