#!/usr/bin/env python3
"""Simulates steps of many ranks from what their parts cost (model.py), and says how far that is from real ranks.

  tools/cluster/simulate.py check [--rate 1gbit] [--turns 3]   measures the costs here, predicts 2 x 1 and 2 x 2 ranks, and runs them
  tools/cluster/simulate.py scale [--rate 25gbit]   8 to 1,024 ranks, eight a node

`--costs FILE` keeps what was measured there, and takes it from there the next time. `--quick`: few steps, nothing is worth quoting."""
import argparse
import dataclasses
import pathlib

import costs
import links
import model
import training

BATCH = 32  # of a rank
# Of training.IMAGES, in the network's order.
PARAMETERS = (800, 32, 51200, 64, 960000, 600, 6000, 10)
LEAST = 1024  # min_compress_elements
DENSITY = 0.01
METHODS = {"flat": (None, ""), "topk": (DENSITY, training.compressor("topk", density=DENSITY)),
           "hierarchical": (None, training.hierarchical()), "hitopk": (DENSITY, training.hierarchical(DENSITY))}


def networks(parameters):
    return {method: model.network(parameters, least=None if method == "flat" else LEAST) for method in METHODS}


def real(cluster, local, turns, chunks, quick):
    """Milliseconds of a step by method: the 20th percentile of a turn, the least of the turns, which are made in turn."""
    best = {}
    for _ in range(turns):
        for method, (_, table) in METHODS.items():
            result = training.train(cluster, training.images(BATCH * cluster.nodes * local, quick), table, local=local, duration=f"{5 * chunks}ba")
            best[method] = min(best.get(method, 1e9), 1e3 * training.typical(result.steps))
    return best


def check(given, measured):
    turns, chunks = (1, 3) if given.quick else (given.turns, 12)
    print(f"two nodes, {given.rate} between them (emulated: a token bucket of the kernel), {BATCH} images a rank")
    print(f"{'ranks':>7} {'method':>14} {'real, ms':>9} {'predicted':>10} {'error':>7}")
    for local in (1,) if given.quick else (1, 2):
        forward, backward, spread = costs.computing(training.images(BATCH, given.quick), 2 * local, given.quick)
        here = dataclasses.replace(measured, forward=forward, backward=backward, spread=(1.0,))
        with links.Cluster(2, given.rate) as cluster:
            took = real(cluster, local, turns, chunks, given.quick)
        for method, network in networks(PARAMETERS).items():
            predicted = 1e3 * model.step_time(here, network, 2, local, method, METHODS[method][0])
            print(f"{f'2 x {local}':>7} {method:>14} {took[method]:9.1f} {predicted:10.1f} {100 * (predicted / took[method] - 1):6.0f}%", flush=True)


def scale(given, measured):
    beta = 1 / links.bytes_per_second(given.rate)
    here = dataclasses.replace(measured, between=dataclasses.replace(measured.between, beta=beta))
    steps = 1 if given.quick else 10
    own = 1e3 * (here.forward + here.backward)
    print(f"simulated: {given.local} ranks a node, {given.rate} between nodes, {own:.1f} ms of computing a step, {sum(PARAMETERS) / 1e6:.2f} million "
          f"parameters; ms a step (where the host sums in rings of all ranks alone)")
    print(f"{'ranks':>6} " + " ".join(f"{method:>18}" for method in METHODS))
    ranks = 8
    while ranks <= 1024:
        row = []
        for method, network in networks(PARAMETERS).items():
            took, rings = (1e3 * model.step_time(here, network, max(1, ranks // given.local), min(ranks, given.local), method, METHODS[method][0],
                                                 steps, rings=rings) for rings in (False, True))
            row.append(f"{took:9.1f} ({rings:6.1f})")
        print(f"{ranks:6} " + " ".join(f"{cell:>18}" for cell in row), flush=True)
        ranks *= 2


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=("check", "scale"))
    arguments.add_argument("--rate", help="between nodes, as tc takes it (check: 1gbit; scale: 25gbit)")
    arguments.add_argument("--local", type=int, default=8, help="ranks of a node, for scale")
    arguments.add_argument("--costs", type=pathlib.Path)
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--quick", action="store_true")
    given = arguments.parse_args()
    given.rate = given.rate or ("1gbit" if given.what == "check" else "25gbit")
    links.bytes_per_second(given.rate)
    if given.costs and given.costs.exists():
        measured = costs.load(given.costs)
    else:
        measured = costs.measure(given.rate if given.what == "check" else "1gbit", training.images(BATCH, given.quick), 2, given.quick)
        if given.costs:
            costs.save(measured, given.costs)
    print("measured here:")
    costs.report(measured)
    (check if given.what == "check" else scale)(given, measured)


if __name__ == "__main__":
    training.main("simulate", main)
