#!/usr/bin/env python3
"""Step time of two ranks, Trainyard against PyTorch's DistributedDataParallel on the same machine, in turns.

  tools/bench/ranks.py [--quick] [--python PYTHON]            the executor eager
  tools/bench/ranks.py compiled [--quick] [--python PYTHON]   compiled; also with gradients that leave behind the whole backward (as
                                                              a hook looks at them first), and two runs of one rank side by side,
                                                              which exchange nothing: what of the exchange is hidden

PYTHON: one that has torch (default: that of .deps/peers, as tools/bench/peers makes it). Where there is none, ours are timed
alone, and it ends with 77.

All train the same networks with AdamW on Gloo, one thread a rank, data in memory, at a rate so small that nothing is learned: in what
is learned by heart gradients are denormal numbers, with which processors compute a hundred times as slowly. A chunk is 50 steps; the 20th percentile
of the chunks of a turn counts, the smallest of the turns, and the median of the turns' ratios."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRAINYARD, FAULTY = ROOT / "build/release/bin/trainyard", ROOT / "build/release/tests/faulty"
PEERS = ROOT / ".deps/peers/bin/python"
STEPS = 50
CASES = {"eager": {"64-128-10, batch 64": ([64, 128, 10], 64), "784-512-512-10, batch 64": ([784, 512, 512, 10], 64),
                   "512-2048-2048-10, batch 32": ([512, 2048, 2048, 10], 32)},
         "compiled": {f"784-2048-2048-10, batch {batch}": ([784, 2048, 2048, 10], batch) for batch in (32, 64, 128)}}
BAR = {"eager": 0.95, "compiled": 0.9}
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
lr = 1e-5
[trainer]
max_duration = "{total}ba"
[logging]
interval = "{steps}ba"
[[logging.sinks]]
type = "jsonl"
[executor]
type = "{executor}"
"""
LOOKS = '[[hooks]]\ntype = "faulty"\n'  # at after_backward, and does nothing there


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


def started(folder, layers, batch, chunks, executor, ranks, looks):
    run = folder / "run.toml"
    folder.mkdir()
    run.write_text(RUN.format(folder=folder, layers=layers, features=layers[0], classes=layers[-1], batch=ranks * batch, total=chunks * STEPS,
                              steps=STEPS, executor=executor) + LOOKS * looks)
    words = (["--ranks", str(ranks)] if ranks > 1 else []) + (["--plugins", str(FAULTY)] if looks else [])
    return subprocess.Popen([TRAINYARD, "train", run, "-q", *words], cwd=folder)


def ours(layers, batch, chunks, executor, ranks=2, looks=False):
    """Milliseconds a step of two processes: of one run, or of two runs of one rank."""
    with tempfile.TemporaryDirectory() as name:
        folders = [pathlib.Path(name) / str(i) for i in range(2 // ranks)]
        runs = [started(folder, layers, batch, chunks, executor, ranks, looks) for folder in folders]
        if any([run.wait() for run in runs]):
            sys.exit("a run failed")
        rates = []
        for folder in folders:
            lines = map(json.loads, (folder / "run/metrics.jsonl").read_text().splitlines())
            rates += [line["values"]["samples_per_second"] for line in lines if line["what"] == "train"][1:]
    return 1e3 * percentile([ranks * batch / rate for rate in rates], 0.2)


def theirs(python, layers, batch, chunks):
    done = subprocess.run([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", HERE / "python/ddp.py",
                           ",".join(map(str, layers)), str(batch), str(chunks), str(STEPS)], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return 1e3 * percentile(json.loads(done.stdout.strip().splitlines()[-1])[1:], 0.2) / STEPS


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("executor", nargs="?", choices=("eager", "compiled"), default="eager")
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--python", default=PEERS if PEERS.exists() else sys.executable)
    given = arguments.parse_args()
    turns, chunks = (1, 4) if given.quick else (5, 12)
    has_torch = subprocess.run([given.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    contenders = {given.executor: lambda *case: ours(*case, given.executor)}
    if given.executor == "compiled":
        contenders["behind"] = lambda *case: ours(*case, given.executor, looks=True)
        contenders["apart"] = lambda *case: ours(*case, given.executor, ranks=1)
    if has_torch:
        contenders["DDP"] = lambda *case: theirs(given.python, *case)
    print(f"{'two ranks, ms a step':32} " + " ".join(f"{name:>10}" for name in contenders) +
          f" {'ratio':>7}   ratios of the turns (bar {BAR[given.executor]})" * has_torch)
    for name, (layers, batch) in list(CASES[given.executor].items())[:1 if given.quick else None]:
        taken = [{who: time(layers, batch, chunks) for who, time in contenders.items()} for _ in range(turns)]
        row = f"{name:32} " + " ".join(f"{min(each[who] for each in taken):10.3f}" for who in contenders)
        if has_torch:
            ratios = [each[given.executor] / each["DDP"] for each in taken]
            row += f" {statistics.median(ratios):7.2f}   " + " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        print(row, flush=True)
        if given.executor == "compiled":
            hidden = [(each["behind"] - each["compiled"]) / (each["behind"] - each["apart"]) for each in taken]
            print(f"{'':32} hidden of the exchange: {statistics.median(hidden):.0%} ({min(hidden):.0%} to {max(hidden):.0%})", flush=True)
    if not has_torch:
        print(f"{given.python} has no torch, so there is nothing to compare with: make it with tools/bench/peers, or name one by --python",
              file=sys.stderr)
        sys.exit(77)


if __name__ == "__main__":
    main()
