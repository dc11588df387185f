#!/usr/bin/env python3
"""Step time of two ranks, Trainyard against PyTorch's DistributedDataParallel on the same machine, in turns.

  tools/bench/ranks.py [--quick] [--python PYTHON]   PYTHON: one that has torch (default: this one)

Both train the same networks with AdamW on Gloo, one thread a rank, data in memory. A chunk is 50 steps; the 20th percentile
of the chunks of a turn counts, the smallest of the turns, and the median of the turns' ratios."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRAINYARD = HERE.parents[1] / "build/release/bin/trainyard"
STEPS = 50
CASES = {"64-128-10, batch 64": ([64, 128, 10], 64), "784-512-512-10, batch 64": ([784, 512, 512, 10], 64),
         "512-2048-2048-10, batch 32": ([512, 2048, 2048, 10], 32)}
RUN = """
schema = 1
[run]
name = "ranks"
seed = 17
output_dir = "{folder}/run"
threads = {{ intra_op = 1, inter_op = 1 }}
[model]
type = "mlp"
layers = {layers}
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [{features}]
classes = {classes}
train = {{ size = 4096, batch_size = {batch}, shuffle = true, drop_last = true }}
[optimizer]
type = "adamw"
lr = 1e-3
[trainer]
max_duration = "{total}ba"
[logging]
interval = "{steps}ba"
[[logging.sinks]]
type = "jsonl"
"""


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


def ours(layers, batch, chunks):
    """Milliseconds a step."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run.toml"
        run.write_text(RUN.format(folder=folder, layers=layers, features=layers[0], classes=layers[-1], batch=2 * batch,
                                  total=chunks * STEPS, steps=STEPS))
        subprocess.run([TRAINYARD, "train", run, "-q", "--ranks", "2"], check=True, cwd=folder)
        lines = map(json.loads, (pathlib.Path(folder) / "run/metrics.jsonl").read_text().splitlines())
        rates = [line["values"]["samples_per_second"] for line in lines if line["what"] == "train"]
    return 1e3 * percentile([2 * batch / rate for rate in rates[1:]], 0.2)


def theirs(python, layers, batch, chunks):
    done = subprocess.run([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", HERE / "python/ddp.py",
                           ",".join(map(str, layers)), str(batch), str(chunks), str(STEPS)], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return 1e3 * percentile(json.loads(done.stdout.strip().splitlines()[-1])[1:], 0.2) / STEPS


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--python", default=sys.executable)
    given = arguments.parse_args()
    turns, chunks = (1, 4) if given.quick else (5, 12)
    has_torch = subprocess.run([given.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    if not has_torch:
        print(f"{given.python} has no torch, so there is nothing to compare with; --python names one that has")
    print(f"{'two ranks, ms a step':32} {'Trainyard':>10} {'DDP':>10} {'ratio':>7}   ratios of the turns (bar 0.95)")
    for name, (layers, batch) in list(CASES.items())[:1 if given.quick else None]:
        if not has_torch:
            print(f"{name:32} {min(ours(layers, batch, chunks) for _ in range(turns)):10.3f}", flush=True)
            continue
        pairs = [(ours(layers, batch, chunks), theirs(given.python, layers, batch, chunks)) for _ in range(turns)]
        ratios = [a / b for a, b in pairs]
        print(f"{name:32} {min(a for a, _ in pairs):10.3f} {min(b for _, b in pairs):10.3f} {statistics.median(ratios):7.2f}   "
              + " ".join(f"{ratio:.2f}" for ratio in sorted(ratios)), flush=True)


if __name__ == "__main__":
    main()
