#!/usr/bin/env python3
"""Training on sampled neighbourhoods of a made-up graph, three layers, fanouts 15, 10, 5, batches of 1,024.

  tools/bench/graph_training.py [--quick] [overlap] [memory]

overlap: the loop alone, which prepares a batch and computes with it, against a thread that prepares beside it; one thread each. With
         layers of 256, whose computing is nearly all of a step, and with layers of 4, where preparing is a larger part of it.
memory: what a run has resident behind each of 20 epochs, with two loader threads."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRAINYARD = SOURCE / "build/release/bin/trainyard"
CONFIG = SOURCE / "configs/synthetic_products.toml"
QUICK = "--quick" in sys.argv


def command(folder, *changes):
    sets = [word for change in (f"run.output_dir={folder}/run", 'logging.sinks=[{ type = "jsonl" }]', *changes) for word in ("--set", change)]
    return [TRAINYARD, "train", CONFIG, "-q", "--overwrite", *sets]


def records(folder, what):
    lines = (pathlib.Path(folder) / "run/metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["what"] == what]


def graph(nodes, edges):
    return f"vars.nodes={nodes}", f"vars.edges={edges}", "data.synthetic.features=128"


def steps(folder, workers, count, hidden):
    """Seconds a step, and those of them until its batch was there."""
    batch = 64 if QUICK else 1024
    size = graph(3000, 20_000) if QUICK else graph(169_343, 1_166_243)
    subprocess.run(command(folder, *size, f"data.workers={workers}", f"data.train.batch_size={batch}", f"trainer.max_duration={count}ba",
                           f"trainer.eval_interval={count}ba", "data.val.take=first 1", f"logging.interval={count // 4}ba", f"model.hidden={hidden}"), check=True)
    rates = [line["values"]["samples_per_second"] for line in records(folder, "train")][1:]
    step = batch * sum(1 / rate for rate in rates) / len(rates)
    result = json.loads((pathlib.Path(folder) / "run/result.json").read_text())
    data = next(plugin["seconds"] for plugin in result["plugins"] if plugin["kind"] == "dataset") / count
    return step, data


def overlap():
    for hidden in (256, 4):
        overlap_of(hidden, 8 if QUICK else 60)


def overlap_of(hidden, count):
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        alone, prepare = steps(folder, 0, count, hidden)
        beside, blocked = steps(folder, 1, count, hidden)
    compute = alone - prepare
    print(f"three layers of {hidden}, one thread: {1e3 * alone:.1f} ms a step, {1e3 * prepare:.1f} of them to prepare a batch, {1e3 * compute:.1f} to compute")
    print(f"a thread beside it: {1e3 * beside:.1f} ms a step, {1e3 * blocked:.1f} of them waiting for data ({100 * blocked / beside:.1f} %): "
          f"{beside / max(prepare, compute):.2f} x the longer part (bar 1.15)")


def memory():
    epochs = 3 if QUICK else 20
    size = graph(3000, 20_000) if QUICK else graph(30_000, 600_000)
    resident = {}
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        with subprocess.Popen(command(folder, *size, "data.workers=2", "model.hidden=32", "data.train.batch_size=512",
                                      f"trainer.max_duration={epochs}ep", "trainer.eval_interval=1ep", "data.val.take=first 512")) as run:
            while run.poll() is None:
                time.sleep(0.02)
                try:
                    status = pathlib.Path(f"/proc/{run.pid}/status").read_text()
                    epoch = len(records(folder, "eval"))
                    resident[epoch] = max(resident.get(epoch, 0), int(status.split("VmRSS:")[1].split()[0]) / 1024)
                except (OSError, IndexError, ValueError):
                    continue
        if run.returncode != 0:
            sys.exit(run.returncode)
    print("MiB resident, the most within each epoch: " + " ".join(f"{resident[epoch]:.0f}" for epoch in sorted(resident)))
    later = [resident[epoch] for epoch in sorted(resident)][2:]
    if len(later) > 1:
        print(f"from the third on: {100 * (max(later[len(later) // 2:]) / max(later[:len(later) // 2]) - 1):+.2f} % in the second half")


PARTS = {"overlap": overlap, "memory": memory}
for name in [word for word in sys.argv[1:] if word != "--quick"] or PARTS:
    if name not in PARTS:
        sys.exit(f"graph_training: {name} is none of {', '.join(PARTS)}")
    PARTS[name]()
