#!/usr/bin/env python3
"""Two ranks of which one has half a core: what `[distributed] shares` gains over equal parts of a batch, and that the weights are those of one rank.

  tools/cluster/unequal.py [--turns 5] [--shares 2,1] [--networks wide,resnet,gpt]     networks of plan.py

Each rank is bound to a core, and on the second core another process computes all the time, so that the kernel gives the rank half of it.
Samples a second are the median of a training's steps; ways go round, and the median of the turns counts.

`--quick`: one short turn, nothing is worth quoting."""
import argparse
import array
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

import plan
import training

BATCH = 96


def train(network, shares, steps, speeds_differ=True):
    """Samples a second, and the bytes of the weights."""
    table = f"[distributed]\nshares = {shares}\n" if shares else ""
    ranks = len(shares) if shares else 1
    with tempfile.TemporaryDirectory(prefix="trainyard-unequal-") as name:
        folder = pathlib.Path(name)
        (folder / "run.toml").write_text(training.text(plan.task(network, BATCH), table, folder=folder, duration=f"{steps}ba", interval=1))
        places = [{**place, "OMP_NUM_THREADS": "1"} for place in training.places(ranks, ranks, "127.0.0.1")]
        words = [training.TRAINYARD, "train", folder / "run.toml", "-q"]
        other = subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", "while True: pass"]) if speeds_differ else None
        try:
            training.together([["taskset", "-c", str(rank), *words] for rank in range(ranks)], places, folder, 600)
        finally:
            if other:
                other.kill()
                other.wait()
        result = training.Result(folder / "run", BATCH)
        return BATCH / statistics.median(result.steps[1:]), (folder / "run/model.safetensors").read_bytes()


def furthest(a, b):
    """The largest difference of two files of the same float tensors, relative to the largest number."""
    def numbers(text):
        (size,) = struct.unpack("<Q", text[:8])  # of the header, behind which all numbers are
        return array.array("f", text[8 + size:])

    one, other = numbers(a), numbers(b)
    return max(abs(x - y) for x, y in zip(one, other, strict=True)) / max(map(abs, one))


def work():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--shares", type=lambda text: [int(each) for each in text.split(",")], default=[2, 1])
    parser.add_argument("--networks", type=plan.listed(str), default=["wide", "resnet", "gpt"])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise RuntimeError("two cores are needed, a rank each")
    networks, turns, steps = (given.networks[:1], 1, 10) if given.quick else (given.networks, given.turns, 60)
    for network in networks:
        taken = {"equal": [], "shared": []}
        for _ in range(turns):
            for way, shares in (("equal", [1, 1]), ("shared", given.shares)):
                taken[way].append(train(network, shares, steps)[0])
        equal, shared = (statistics.median(taken[way]) for way in ("equal", "shared"))
        alone, several = train(network, None, 20, False)[1], train(network, given.shares, 20)[1]
        print(f"{network}: {shared:.0f} samples/s of shares {given.shares}, {equal:.0f} of equal ones: {shared / equal:.2f}; "
              f"weights after 20 steps within {furthest(alone, several):.1e} of one rank's", flush=True)


if __name__ == "__main__":
    training.main("unequal.py", work)
