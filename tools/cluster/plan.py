#!/usr/bin/env python3
"""What the tool srifty predicts of two ranks over slow links, against real trainings on an emulated cluster (links.py).

  tools/cluster/plan.py [--rates 100mbit,1gbit] [--batches 32,128] [--turns 2]

Each network is profiled on one rank, two such profilings side by side as two ranks will be; each link is measured with other
sizes than the networks have, and nothing is fitted to a training of two ranks. Real steps are the 20th percentile of a
training, the least of the turns, which go round over all set-ups; so is the prediction of two profiles.

`--quick`: few set-ups, nothing is worth quoting."""
import argparse
import datetime
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

import costs
import links
import training

NETWORKS = {"wide": (256, 1024, 1024, 10), "deep": (128, 512, 512, 512, 512, 512, 10), "heavy ends": (2048, 256, 256, 2048)}
RANKS = 2


def origin():
    return {"as_of": str(datetime.datetime.now(datetime.timezone.utc).date()), "source": "tools/cluster/plan.py on this machine"}


def points_of(measured):
    """Of costs.exchanges: bytes, and seconds of a sum by two ranks."""
    return [{"bytes": 4 * elements, "p50_s": took, "p90_s": took} for (elements, density), took in sorted(measured.items(), key=str)
            if density is None]


def links_file(folder, rate, turns):
    with links.Cluster(RANKS, rate) as cluster:
        measured = costs.exchanges(cluster, RANKS, turns, [0.01])
    path = folder / f"{rate}.json"
    path.write_text(json.dumps({"format": "trainyard.links/1", "name": rate, **origin(),
                                "worlds": [{"ranks": RANKS, "points": points_of(measured)}]}))
    return path


def run_file(folder, name, layers, batch):
    home = folder / f"{name.replace(' ', '_')}-{batch}"
    home.mkdir()
    path = home / "run.toml"
    path.write_text(training.text(training.made_up(layers, batch), folder=home, duration="60ba"))
    return path


def profile(folder, name, layers, batch):
    """Two files of one rank's share of the batch, measured side by side."""
    files = [run_file(folder / side, name, layers, batch) for side in ("left", "right")]
    words = [training.TRAINYARD, "srifty"]
    training.together([[*words, path, "--weights", "initial", "--device", "here"] for path in files], [{"OMP_NUM_THREADS": "1"}] * 2, folder, 300)
    return [(path, path.parent / "run/tools/srifty/here.profile.json") for path in files]


def predicted(folder, run, profiled, linked, batch, machines):
    """Seconds of a step on so many machines of one rank."""
    prices = folder / "prices.csv"
    lines = [f"# {key}: {value}" for key, value in origin().items()]
    prices.write_text("\n".join([*lines, "type,accelerator,count,price_usd_h,net_gbit_s,link", f"node,here,1,1,1,{linked.stem}", ""]))
    words = [training.TRAINYARD, "srifty", run, "--weights", "initial", "--catalogue", prices, "--profiles", json.dumps([str(profiled)]), "--links",
             json.dumps([str(linked)]), "--batch", batch, "--max_machines", machines, "--bucket_mb", "[25.0]", "--show", "0", "--format", "json"]
    done = subprocess.run(list(map(str, words)), text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    (row,) = [row for row in json.loads(done.stdout)["rows"] if row["ranks"] == machines]
    return 1e-3 * row["step ms p50"]


def real(rate, layers, batch, bucket=25.0):
    with links.Cluster(RANKS, rate) as cluster:
        result = training.train(cluster, training.made_up(layers, batch), f"[distributed]\nbucket_cap_mb = {bucket}\n", duration="60ba")
    return training.typical(result.steps)


def told(name, errors):
    absolute = sorted(map(abs, errors))
    print(f"{name:10} mean error {100 * statistics.mean(absolute):5.1f} %, bias {100 * statistics.mean(errors):+6.1f} %, "
          f"90th percentile {100 * absolute[math.ceil(0.9 * len(absolute)) - 1]:5.1f} %")


def compare(rates, batches, turns, networks):
    with tempfile.TemporaryDirectory(prefix="trainyard-plan-") as name:
        folder = pathlib.Path(name)
        for side in ("left", "right"):
            (folder / side).mkdir()
        linked = {rate: links_file(folder, rate, turns) for rate in rates}
        profiled = {(network, batch): profile(folder, network, NETWORKS[network], batch // RANKS) for network in networks for batch in batches}
        setups = [(network, batch, rate) for network in networks for batch in batches for rate in rates]
        taken = {setup: [] for setup in setups}
        for _ in range(turns):
            for network, batch, rate in setups:
                taken[network, batch, rate].append(real(rate, NETWORKS[network], batch))
        ours, linear, noise = [], [], []
        print(f"{'network':11} {'batch':>5} {'link':>8} {'real ms':>8} {'ours':>8} {'linear':>8}")
        for network, batch, rate in setups:
            files = profiled[network, batch]
            steps = [min(predicted(folder, run, file, linked[rate], samples, machines) for run, file in files)
                     for samples, machines in ((batch, RANKS), (batch // RANKS, 1))]
            best = min(taken[network, batch, rate])
            ours.append(steps[0] / best - 1.0)
            linear.append(steps[1] / best - 1.0)
            noise += [took / best - 1.0 for took in taken[network, batch, rate] if took != best]
            print(f"{network:11} {batch:5} {rate:>8} {1e3 * best:8.2f} {1e3 * steps[0]:8.2f} {1e3 * steps[1]:8.2f}", flush=True)
        told("ours", ours)
        told("linear", linear)
        if noise:
            print(f"noise      of a repeat over the least: median {100 * statistics.median(noise):.1f} %")


def work():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="100mbit,1gbit")
    parser.add_argument("--batches", default="32,128")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        return compare(["1gbit"], [32], 1, ["wide"])
    compare(given.rates.split(","), [int(each) for each in given.batches.split(",")], given.turns, list(NETWORKS))


if __name__ == "__main__":
    training.main("plan.py", work)
