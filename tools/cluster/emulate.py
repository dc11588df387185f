#!/usr/bin/env python3
"""Trains a run file on an emulated cluster: nodes of this machine with slow links between them (links.py says what is emulated).

  tools/cluster/emulate.py --nodes 2 --local 2 --rate 100mbit RUN.toml [WORDS]   WORDS: further ones of `trainyard train`

Without a run file: a small one, made up. Prints what each node has sent. `--quick`: the small one for a few steps."""
import argparse
import pathlib
import tempfile
import time

import links
import training


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=2)
    arguments.add_argument("--local", type=int, default=2, help="ranks of each node")
    arguments.add_argument("--rate", default="100mbit", help="of each node's card, out and in, as tc takes it")
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("run", nargs="?", type=pathlib.Path)
    given, words = arguments.parse_known_args()
    if given.nodes < 1 or given.local < 1:
        raise ValueError("there is no cluster of less than one node with one rank")
    with links.Cluster(given.nodes, given.rate) as cluster, tempfile.TemporaryDirectory(prefix="trainyard-cluster-") as folder:
        run = given.run
        if run is None:
            run = pathlib.Path(folder) / "run.toml"
            run.write_text(training.text(training.made_up((64, 256, 256, 10), 8 * given.nodes * given.local), training.hierarchical(0.01),
                                         folder=folder, duration="10ba" if given.quick else "200ba"))
        before, began = [cluster.sent(node) for node in range(given.nodes)], time.monotonic()
        training.launch(cluster, given.local, [training.TRAINYARD, "train", run.resolve(), "-q", *words], None, {"OMP_NUM_THREADS": "1"},
                        limit=1e9)
        took = time.monotonic() - began
        print(f"{given.nodes} nodes x {given.local} ranks, {given.rate} between nodes (emulated: a token bucket of the kernel): {took:.1f} s")
        for node in range(given.nodes):
            sent = cluster.sent(node) - before[node]
            print(f"  node {node} sent {1e-6 * sent:.3f} MB: at that rate {sent / links.bytes_per_second(given.rate):.2f} s")


if __name__ == "__main__":
    training.main("emulate", main)
