#!/usr/bin/env python3
"""What the tool srifty predicts of steps on clusters of this machine, against real trainings.

  tools/cluster/plan.py [--keep FOLDER] [--networks wide,gpt] [--rates 100mbit,1gbit,none] [--batches 16,48,128]
                        [--buckets 1,4,25] [--turns 3]
  tools/cluster/plan.py --keep FOLDER --choices 50     of a folder with all measurements: what is chosen under limits, and what was best

Clusters: one machine of one core, one of two, and two of one core each with an emulated link between them (links.py). Each network
is profiled on one rank, two such profilings side by side where two ranks will be, with batches of a rank of 4, 8, 16, 32 and 64; each
link is measured with other sizes than the networks have. All steps are predicted before the first is trained, so that nothing is
fitted to a training of two ranks. A real step is the median of a training, and that the median of the turns, which go round over all
set-ups. Beside it: linear scaling (a rank's own step), and sums of gradients that do not overlap with backward.

--keep goes on where it stood. --quick: few set-ups, nothing is worth quoting."""
import argparse
import datetime
import itertools
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import costs
import links
import model
import training

RANKS, PROFILED, OF_RANK = 2, 32, (4, 8, 16, 32, 64)  # samples
ALONE, BOTH = "one core", "two cores"                 # clusters of one machine, which have no link
# Of links: a bucket each of 4, 12, 32, 64, 120 and 128 KiB, and of 1, 2, 4 and 12 MiB.
LINK_LAYERS = (32, 256, 64, 512, 512, 1024, 1024, 3072, 10)
CLASSES = '[data]\ntype = "synthetic"\nkind = "classification"\n'
WORDS = '[data]\ntype = "synthetic"\nkind = "language"\nvocabulary = 64\nseq_len = 32\n'
CLICKS = '[data]\ntype = "ctr"\nrows = [10, 46, 209, 956, 4373, 20000]\nfeatures = 13\n'
DRAWN = "train = {{ size = {size}, batch_size = {batch}, shuffle = true, drop_last = true }}\n"


def perceptrons(*layers):
    return f'[model]\ntype = "mlp"\nlayers = {list(layers)}\n{CLASSES}shape = [{layers[0]}]\nclasses = {layers[-1]}\n'


def images(shape, text):
    return f"[model]\n{text}\n{CLASSES}shape = {list(shape)}\nclasses = 10\n"


VGG = "\n".join(["type = \"sequential\"", *(
    f"[[model.layers]]\n{layer}" for layer in (
        'type = "conv2d"\nout = 16\nkernel = 3\npadding = 1', 'type = "relu"', 'type = "conv2d"\nout = 32\nkernel = 3\npadding = 1',
        'type = "relu"', 'type = "max_pool"\nkernel = 2', 'type = "conv2d"\nout = 64\nkernel = 3\npadding = 1', 'type = "relu"',
        'type = "max_pool"\nkernel = 2', 'type = "flatten"', 'type = "linear"\nout = 128', 'type = "relu"', 'type = "linear"\nout = 10'))])
NETWORKS = {
    "wide": perceptrons(256, 1024, 1024, 10),
    "deep": perceptrons(128, 512, 512, 512, 512, 512, 10),
    "linear": perceptrons(2048, 512),
    "lenet": images((1, 28, 28), 'type = "lenet"\nchannels = [32, 64]\nhidden = [600]'),
    "vgg": images((3, 16, 16), VGG),
    "resnet": images((3, 16, 16), 'type = "resnet"\ndepth = 14\nwidth = 16'),
    "lstm": f'[model]\ntype = "lstm"\nn_layer = 1\nembedding = 64\nhidden = 256\n{WORDS}',
    "gpt": f'[model]\ntype = "gpt"\nn_layer = 2\nn_head = 4\nd_model = 128\n{WORDS}',
    "dlrm": f'[model]\ntype = "dlrm"\ndim = 16\nbottom = [64]\ntop = [128, 64]\ntables = [10, 46, 209, 956, 4373, 20000]\n{CLICKS}',
}


def task(network, batch):
    drawn = DRAWN.format(size=max(1024, 2 * batch), batch=batch)
    return NETWORKS[network] + drawn


def loss(network):
    return 'type = "bce_with_logits"' if network == "dlrm" else 'type = "cross_entropy"'


def origin():
    return {"as_of": str(datetime.datetime.now(datetime.timezone.utc).date()), "source": "tools/cluster/plan.py on this machine"}


def is_link(where):
    return where not in (ALONE, BOTH)


def threads(where):
    return 2 if where == BOTH else 1


class Kept:
    """What was measured, in a folder; a file each, so that a second start goes on."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, name, make):
        """The JSON of a file, which `make` is asked for where it is not there yet."""
        path = self.folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = make()
            path.with_suffix(".new").write_text(json.dumps(made) + "\n")
            path.with_suffix(".new").rename(path)
        return json.loads(path.read_text())


def link_file(kept, rate, turns):
    def make():
        with links.Cluster(RANKS, None if rate == "none" else rate) as cluster:
            measured = costs.exchanges(cluster, RANKS, turns, [0.01], LINK_LAYERS, of_turns=sorted)
        points = [{"bytes": 4 * elements, "p50_s": statistics.median(took), "p90_s": training.percentile(took, 0.9)}
                  for (elements, density), took in sorted(measured.items(), key=str) if density is None]
        return {"format": "trainyard.links/1", "name": rate, **origin(), "worlds": [{"ranks": RANKS, "points": points}]}
    kept.of(f"{rate}.links.json", make)
    return kept.folder / f"{rate}.links.json"


def profiles(kept, network):
    """Files of a rank beside another, of one alone, and of one with two threads."""
    def profile(device, wanted):
        with tempfile.TemporaryDirectory(prefix="trainyard-profile-") as name:
            homes = [pathlib.Path(name) / str(number) for number in range(RANKS if device == "node" else 1)]
            for home in homes:
                home.mkdir()
                (home / "run.toml").write_text(training.text(task(network, PROFILED), folder=home, threads=wanted, loss=loss(network), interval=1))
            words = ["--weights", "initial", "--device", device, "--batches", json.dumps(OF_RANK)]
            training.together([[training.TRAINYARD, "srifty", home / "run.toml", *words] for home in homes],
                              [{"OMP_NUM_THREADS": str(wanted)}] * len(homes), name, 300)
            return json.loads((homes[0] / f"run/tools/srifty/{device}.profile.json").read_text())

    for device, wanted in (("node", 1), ("alone", 1), ("both", 2)):
        kept.of(f"{network}/{device}.profile.json", lambda device=device, wanted=wanted: profile(device, wanted))
    return [kept.folder / network / f"{device}.profile.json" for device in ("node", "alone", "both")]


def price_of(rate):
    """Of a machine of one core with such a link, an hour."""
    return 1.0 + {"100mbit": 0.1, "1gbit": 0.4, "none": 1.0}.get(rate, 0.2)


def catalogue(kept, rates):
    """Prices that go by cores and link. Of machines that were measured alone two have no link to speak of."""
    path = kept.folder / "prices.csv"
    rows = ["one,alone,1,1,1e-6,", "two,both,1,1.9,1e-6,", *(f"at {rate},node,1,{price_of(rate)},1,{rate}" for rate in rates)]
    path.write_text("\n".join([*(f"# {key}: {value}" for key, value in origin().items()),
                               "type,accelerator,count,price_usd_h,net_gbit_s,link", *rows, ""]))
    return path


def ask(kept, network, rates, batch, buckets, *words):
    """What the verb says: the JSON, and the rows of all clusters."""
    run = kept.folder / network / "run.toml"
    run.write_text(training.text(task(network, PROFILED), folder=kept.folder / network, loss=loss(network)))
    said = [training.TRAINYARD, "srifty", run, "--weights", "initial", "--catalogue", catalogue(kept, rates),
            "--profiles", json.dumps([str(path) for path in profiles(kept, network)]),
            "--links", json.dumps([str(kept.folder / f"{rate}.links.json") for rate in rates]), "--batch", batch, "--max_machines", RANKS,
            "--bucket_mb", json.dumps(buckets), "--show", "0", "--format", "json", *words]
    done = subprocess.run(list(map(str, said)), text=True, capture_output=True)
    if done.returncode not in (0, 2) or not done.stdout:  # 2: no cluster keeps the limits
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def name_of(where):
    return {ALONE: "1 x one", BOTH: "1 x two"}.get(where, f"{RANKS} x at {where}")


def predict(kept, network, batch, rates, buckets):
    """Seconds by bucket and cluster, and those of two ranks without a link and without overlap."""
    made = {}
    for bucket in buckets:
        steps = {row["cluster"]: 1e-3 * row["step ms p50"] for row in ask(kept, network, rates, batch, [bucket])["rows"]}
        (alone,) = {row["step ms p50"] for row in ask(kept, network, rates, batch // RANKS, [bucket])["rows"] if row["cluster"] == f"1 x at {rates[0]}"}
        sizes = [int(each["bytes"]) // 4 for each in json.loads((kept.folder / network / "node.profile.json").read_text())["gradients"]]
        laid = model.network(sizes, bucket * 2**20)
        for where in (ALONE, BOTH, *rates):
            ours = steps[name_of(where)]
            linear = 1e-3 * alone if is_link(where) else ours
            apart = linear
            if is_link(where):
                measured = json.loads((kept.folder / f"{where}.links.json").read_text())["worlds"][0]["points"]
                apart += sum(along(measured, 4 * elements) for elements in (*laid.buckets, laid.rest))
            made[f"{where}, {bucket}"] = {"ours": ours, "linear": linear, "apart": apart}
    return made


def along(points, size):
    """Seconds of a sum between two that were measured, linear in the bytes; of a smaller one the smallest's, beyond them a line."""
    points = sorted((point["bytes"], point["p50_s"]) for point in points)
    if size <= points[0][0]:
        return points[0][1]
    (a, x), (b, y) = next(((low, high) for low, high in zip(points, points[1:]) if size <= high[0]), points[-2:])
    return x + (y - x) * (size - a) / (b - a)


def real(network, batch, where, bucket, expected):
    """Median seconds of a step, of a training of about a second."""
    steps = int(min(max(1.0 / expected, 10), 300))
    how = {"duration": f"{steps}ba", "interval": 1, "threads": threads(where), "loss": loss(network)}
    table = f"[distributed]\nbucket_cap_mb = {bucket}\n"
    if not is_link(where):
        result = training.train(1, task(network, batch), table, **how)
    else:
        with links.Cluster(RANKS, None if where == "none" else where) as cluster:
            result = training.train(cluster, task(network, batch), table, **how)
    return statistics.median(result.steps[1:])


def told(name, errors):
    absolute = sorted(map(abs, errors))
    print(f"  {name:12} mean error {100 * statistics.mean(absolute):6.1f} %, bias {100 * statistics.mean(errors):+7.1f} %, "
          f"90th percentile {100 * absolute[math.ceil(0.9 * len(absolute)) - 1]:6.1f} %")


def ranked(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    places = [0] * len(values)
    for place, index in enumerate(order):
        places[index] = place
    return places


def judge(rows, title):
    print(f"{title}: {len(rows)} set-ups")
    for way in ("ours", "linear", "apart"):
        told(way, [row[way] / row["real"] - 1 for row in rows])
    repeats = [took / row["real"] - 1 for row in rows if len(row["taken"]) > 1 for took in row["taken"]]
    if repeats:
        print(f"  noise        of a repeat: median {100 * statistics.median(map(abs, repeats)):.1f} %")
    if len(rows) > 2:
        print(f"  rank correlation {statistics.correlation(ranked([row['ours'] for row in rows]), ranked([row['real'] for row in rows])):.3f}")


def measure(kept, given):
    for rate in given.rates:
        link_file(kept, rate, given.turns + 2)
    for network in given.networks:
        profiles(kept, network)
    predicted = {(network, batch): kept.of(f"{network}/{batch}.predicted.json", lambda n=network, b=batch: predict(kept, n, b, given.rates, given.buckets))
                 for network in given.networks for batch in given.batches}
    links_of = [(rate, bucket) for rate in given.rates for bucket in given.buckets]
    setups = [(network, batch, where, bucket) for network in given.networks for batch in given.batches
              for where, bucket in [(ALONE, given.buckets[-1]), (BOTH, given.buckets[-1]), *links_of]]
    order = random.Random(1)
    for turn in range(given.turns):
        order.shuffle(setups)  # so that no set-up has the same neighbours in every turn
        for number, (network, batch, where, bucket) in enumerate(setups):
            expected = predicted[network, batch][f"{where}, {bucket}"]["ours"]
            kept.of(f"{network}/{batch}-{where}-{bucket}-{turn}.real.json", lambda: real(network, batch, where, bucket, expected))
            if sys.stderr.isatty():
                print(f"\rturn {turn + 1} of {given.turns}: {number + 1} of {len(setups)} ", end="", file=sys.stderr, flush=True)
    return [row_of(kept, given.turns, predicted, *setup) for setup in sorted(setups)]


def row_of(kept, turns, predicted, network, batch, where, bucket):
    taken = [json.loads((kept.folder / network / f"{batch}-{where}-{bucket}-{turn}.real.json").read_text()) for turn in range(turns)]
    return {"network": network, "batch": batch, "where": where, "bucket": bucket, "taken": taken, "real": statistics.median(taken),
            **predicted[network, batch][f"{where}, {bucket}"]}


def show(rows):
    print(f"{'network':8} {'batch':>5} {'cluster':>10} {'bucket':>6} {'real ms':>9} {'ours':>9} {'linear':>9} {'apart':>9}")
    for row in rows:
        print(f"{row['network']:8} {row['batch']:5} {row['where']:>10} {row['bucket']:6} " +
              " ".join(f"{1e3 * row[each]:9.2f}" for each in ("real", "ours", "linear", "apart")))
    for network in dict.fromkeys(row["network"] for row in rows):
        judge([row for row in rows if row["network"] == network and is_link(row["where"])], f"{network}, two ranks")
    for rate in dict.fromkeys(row["where"] for row in rows):
        judge([row for row in rows if row["where"] == rate], str(rate))
    judge([row for row in rows if is_link(row["where"])], "all of two ranks")


def clusters_of(rates):
    """What the catalogue can be rented as: {name: (where it was measured, price an hour)}. A machine with a link that is alone is one of one core."""
    made = {name_of(ALONE): (ALONE, 1.0), name_of(BOTH): (BOTH, 1.9)}
    for rate in rates:
        made |= {f"1 x at {rate}": (ALONE, price_of(rate)), name_of(rate): (rate, RANKS * price_of(rate))}
    return made


def choose(kept, given, rows):
    """Under limits that are drawn between the least and the most of a measured cluster: what the verb chooses, against what was best."""
    chance, clusters, epochs = random.Random(2), clusters_of(given.rates), 1000
    within = violated = refused = 0
    cheapest = []  # what a rule does that takes the lowest price an hour
    for number in range(given.choices):
        network, batch = chance.choice(given.networks), chance.choice(given.batches)
        objective = chance.choice(["min_cost", "min_time"])
        mine = {(row["where"], row["bucket"]): row["real"] for row in rows if (row["network"], row["batch"]) == (network, batch)}
        hours = {(name, bucket): epochs * max(1024, 2 * PROFILED) / batch * took / 3600
                 for name, (where, _) in clusters.items() for (place, bucket), took in mine.items() if place == where}
        cost = {key: hours[key] * clusters[key[0]][1] for key in hours}
        goal, other, limit = (cost, hours, "--max_hours") if objective == "min_cost" else (hours, cost, "--max_cost")
        bound = chance.uniform(1.02 * min(other.values()), max(other.values()))
        facts = ask(kept, network, given.rates, batch, given.buckets, "--objective", objective, limit, bound, "--epochs", epochs)["facts"]
        if facts["chosen"] not in clusters:
            refused += 1
            print(f"{number:3} {network:8} {batch:4} {objective} {limit} {bound:8.4f}: {facts['chosen']}")
            continue
        chosen = facts["chosen"]
        key = (chosen, facts["bucket_cap_mb"] if is_link(clusters[chosen][0]) else given.buckets[-1])
        best = min(value for each, value in goal.items() if other[each] <= bound)
        is_over, regret = other[key] > bound, goal[key] / best - 1
        violated += is_over
        within += not is_over and regret <= 0.05
        least = (name_of(ALONE), given.buckets[-1])
        cheapest.append(other[least] <= bound and goal[least] / best <= 1.05)
        print(f"{number:3} {network:8} {batch:4} {objective} {limit} {bound:8.4f}: {chosen}, {key[1]:g} MiB; "
              f"{f'over by {100 * (other[key] / bound - 1):.1f} %' if is_over else f'regret {100 * regret:.1f} %'}")
    print(f"within 5 % of the best: {within} of {given.choices}; limit not kept: {violated}; told that nothing keeps it: {refused}; "
          f"the cheapest an hour is within 5 % in {sum(cheapest)}")


def listed(kind):
    return lambda text: [kind(each) for each in text.split(",")]


def work():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--networks", type=listed(str), default=list(NETWORKS))
    parser.add_argument("--rates", type=listed(str), default=["100mbit", "1gbit", "none"])
    parser.add_argument("--batches", type=listed(int), default=[16, 48, 128])
    parser.add_argument("--buckets", type=listed(float), default=[1.0, 4.0, 25.0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--choices", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.keep, given.networks, given.rates, given.batches, given.buckets, given.turns = None, ["wide"], ["1gbit"], [16], [25.0], 1
        given.choices = min(given.choices, 1)
    with tempfile.TemporaryDirectory(prefix="trainyard-plan-") as name:
        kept = Kept((given.keep or pathlib.Path(name)).resolve())
        rows = measure(kept, given)
        choose(kept, given, rows) if given.choices else show(rows)


if __name__ == "__main__":
    training.main("plan.py", work)
