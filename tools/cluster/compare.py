#!/usr/bin/env python3
"""Ways to sum gradients over slow links between nodes: real trainings on an emulated cluster (links.py).

  tools/cluster/compare.py end_to_end [--seeds 5] [--epochs 2] [--only NAME,NAME] [--rate 1gbit]
      Fashion-MNIST on 2 nodes x 2 ranks: time of a step and accuracy of each way, the ways in turn for each seed. Without a rate:
      such that sending all gradients between the nodes takes 0.6 of what computing takes.
  tools/cluster/compare.py accuracy [--seeds 5] [--epochs 10] [--only NAME,NAME]
      Digits on 4 ranks, two a node, without slow links: the weights are those that slow links would give.
  tools/cluster/compare.py break_even [--rate 20mbit] [--turns 3]
      2 and 4 nodes, one rank each: from which density on sending all is faster, and whether auto_dense knows.

`--quick`: few steps, nothing is worth quoting."""
import argparse
import statistics

import links
import model
import simulate
import training

NODES, LOCAL, BATCH = 2, 2, 128
SHARE = 0.6  # of computing, that sending all between nodes is to take
WAYS = {
    "hierarchical": training.hierarchical(),
    "hitopk 0.01": training.hierarchical(0.01),
    "hitopk 0.01 no feedback": training.hierarchical(0.01, error_feedback=False),
    "hitopk 0.1": training.hierarchical(0.1),
    "hitopk 0.001": training.hierarchical(0.001),
    "hitopk 0.6": training.hierarchical(0.6),
    "flat": "",
    "topk 0.01": training.compressor("topk", density=0.01),
    "powersgd": training.compressor("powersgd", rank=1),
}
SCHEDULE = '[schedule]\ntype = "linear"\n'  # to nothing: what is left of a result's noise is that of the seed
# Of the break-even density, 1 / nodes.
FACTORS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.6, 2.0)
WIDE = (64, 512, 480, 10)  # one matrix has nearly all elements


def rate_for(share, quick):
    """At which an exchange of all gradients between the nodes takes that share of computing: of as many ranks side by side."""
    alone = training.alone(NODES * LOCAL, training.images(BATCH // (NODES * LOCAL), quick), duration="20ba" if quick else "120ba", interval=2)
    computing = training.typical([step for result in alone for step in result.settled])
    size = model.bytes_between(NODES, sum(simulate.PARAMETERS))
    print(f"computing: {1e3 * computing:.1f} ms a step, four ranks side by side; all gradients: {1e-6 * size:.2f} MB between the nodes")
    return f"{8e-6 * size / (share * computing):.0f}mbit"


# 97.5th percentiles of Student's t, by degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


def spread(values, digits):
    """The mean, with its 95 % interval where there are several seeds."""
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    half = STUDENT[min(len(values) - 2, len(STUDENT) - 1)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean} +- {half:.{digits}f}"


def ways_of(given):
    names = given.only.split(",") if given.only else list(WAYS)[:2 if given.quick else None]
    if unknown := [name for name in names if name not in WAYS]:
        raise ValueError(f"there is no way {unknown[0]}; there are: {', '.join(WAYS)}")
    return {name: WAYS[name] for name in names}


def one(where, task, table, seed, name, **how):
    """Milliseconds a step, accuracy and loss of a whole training."""
    result = training.train(where, task, table, SCHEDULE, seed=seed, evaluate=how["duration"], limit=1800, **how)
    last = result.evaluations[-1]
    figures = 1e3 * training.typical(result.steps), 100 * last["val/accuracy"], last["val/loss"]
    print(f"  seed {seed}: {name:26} {figures[0]:7.1f} ms a step, {figures[1]:6.2f} %, loss {figures[2]:.4f}", flush=True)
    return figures


def table_of(taken, timed):
    base = next(iter(taken.values()))
    print(f"{'mean, 95 % interval':26} {'accuracy, %':>24} {'against the first':>24} {'loss':>26} {'loss over the first':>24}"
          + (f" {'ms a step':>24} {'steps/s over the first':>24}" if timed else ""))
    for name, rows in taken.items():
        print(f"{name:26} {spread([row[1] for row in rows], 2):>24} {spread([row[1] - b[1] for b, row in zip(base, rows)], 2):>24} "
              f"{spread([row[2] for row in rows], 4):>26} {spread([row[2] / b[2] for b, row in zip(base, rows)], 2):>24}"
              + (f" {spread([row[0] for row in rows], 1):>24} {spread([b[0] / row[0] for b, row in zip(base, rows)], 2):>24}" if timed else ""))


def end_to_end(given):
    ways = ways_of(given)
    length = {"duration": "12ba", "interval": 2} if given.quick else {"duration": f"{given.epochs or 2}ep", "interval": 10}
    taken = {name: [] for name in ways}
    for seed in range(1, 1 + (1 if given.quick else given.seeds)):
        rate = given.rate or rate_for(SHARE, given.quick)  # each time: what else the machine has to do may change
        print(f"{NODES} nodes x {LOCAL} ranks, {rate} between nodes (emulated: a token bucket of the kernel)", flush=True)
        with links.Cluster(NODES, rate) as cluster:
            for name, table in ways.items():
                taken[name].append(one(cluster, training.images(BATCH, given.quick), table, seed, name, local=LOCAL, **length))
    table_of(taken, timed=True)


def accuracy(given):
    taken = {name: [] for name in ways_of(given)}
    for seed in range(1, 1 + (1 if given.quick else given.seeds)):
        for name in taken:
            table = WAYS[name] + (f"local_world_size = {LOCAL}\n" if "hitopk" in WAYS[name] else "")
            taken[name].append(one(NODES * LOCAL, training.DIGITS, table, seed, name, interval=10,
                                   duration="12ba" if given.quick else f"{given.epochs or 10}ep"))
    table_of(taken, timed=False)


def crossing(points, dense):
    """The density at which the line through the points is at `dense`: by least squares."""
    x, y = [density for density, _ in points], [took for _, took in points]
    slope, height = statistics.linear_regression(x, y)
    return (dense - height) / slope


def break_even(given):
    rate = given.rate or "20mbit"
    turns, chunks = (1, 3) if given.quick else (given.turns, 6)
    factors = FACTORS[1::6] if given.quick else FACTORS
    print(f"one rank a node, {rate} between nodes (emulated: a token bucket of the kernel)", flush=True)
    right, points = {"formula": 0, "measured": 0}, 0
    for nodes in (2,) if given.quick else (2, 4):
        task, even = training.made_up(WIDE, 4 * nodes), 1 / nodes
        took, chose = {}, {}

        def run(key, table):
            result = training.train(cluster, task, table, duration=f"{2 * (chunks + 1)}ba", interval=2)
            took[key] = min(took.get(key, 1e9), 1e3 * training.typical(result.steps))
            return result

        with links.Cluster(nodes, rate) as cluster:
            for _ in range(turns):
                run("dense", training.hierarchical())
                for factor in factors:
                    run(factor, training.hierarchical(factor * even))
            for factor in factors:
                result = training.train(cluster, task, training.hierarchical(factor * even, auto_dense="measured"), duration="10ba", interval=1)
                dense, sparse = max(result.measured.values())
                chose[factor] = dense <= sparse
        print(f"{nodes} nodes, sending all: {took['dense']:.1f} ms a step")
        for factor in factors:
            dense_is_faster = took["dense"] <= took[factor]
            picks = {"formula": factor >= 1.0, "measured": chose[factor]}
            points += 1
            for name, dense in picks.items():
                right[name] += dense == dense_is_faster
            print(f"  density {factor * even:.4f} ({factor:.2f} of 1 / {nodes}): {took[factor]:7.1f} ms, {took[factor] / took['dense']:.3f} of sending all; "
                  + ", ".join(f"{name}: {'all' if dense else 'pairs'}{'' if dense == dense_is_faster else ' (the slower)'}" for name, dense in picks.items()))
        found = crossing([(factor * even, took[factor]) for factor in factors if given.quick or 0.5 <= factor <= 1.6], took["dense"])
        print(f"  equal at a density of {found:.4f}: {found / even:.2f} of 1 / {nodes}", flush=True)
    for name, count in right.items():
        print(f"auto_dense = \"{name}\" takes the faster side in {count} of {points} points ({100 * count / points:.0f} %; bar 90)")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=("end_to_end", "accuracy", "break_even"))
    arguments.add_argument("--rate", help="between nodes, as tc takes it: 100mbit")
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--epochs", type=int, help="end_to_end: 2; accuracy: 10")
    arguments.add_argument("--only", help="some of: " + "; ".join(WAYS))
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--quick", action="store_true")
    given = arguments.parse_args()
    {"end_to_end": end_to_end, "accuracy": accuracy, "break_even": break_even}[given.what](given)


if __name__ == "__main__":
    training.main("compare", main)
