"""What the parts of a step cost on this machine, by runs of the real executable: for model.py."""
import json
import re

import links
import model
import training

LAYERS = (64, 256, 1024, 2048, 10)
TAKEN = 1024  # elements that a parameter has at least for a compressor to take it
DENSITIES = (0.001, 0.01, 0.1)
ONE_EACH = "[distributed]\nbucket_cap_mb = 0.001\n"


def fit(rows, times):
    """Two costs, not below 0, whose sums of products with the rows are the times, with the least squares of relative errors."""
    rows = [(a / t, b / t) for (a, b), t in zip(rows, times)]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] for row in rows), sum(row[1] for row in rows)
    area = aa * bb - ab * ab
    x, y = (a * bb - b * ab) / area, (b * aa - a * ab) / area
    if x < 0.0:
        return 0.0, b / bb
    if y < 0.0:
        return a / aa, 0.0
    return x, y


def sizes_of(layers):
    """Of the buckets: a bias or a matrix each, the last layer first."""
    return [size for a, b in list(zip(layers, layers[1:]))[::-1] for size in (b, a * b) if size >= TAKEN]


def exchanges(where, ranks, turns, densities, layers=LAYERS, of_turns=min):
    """Of `ranks` ranks with a link between each and the next: {(elements, density): seconds}, density None: dense. As hitopk
    measures it at its start, on each of its buckets; `of_turns` makes one of a list of seconds: the least."""
    taken, sizes = {}, sizes_of(layers)
    for _ in range(turns):
        for density in densities:
            table = training.hierarchical(density, auto_dense="measured", local_world_size=1)
            result = training.train(where, training.made_up(layers, 16 * ranks), table, ONE_EACH, duration="10ba", interval=1)
            if len(result.measured) != len(sizes):
                raise RuntimeError(f"hitopk measured {len(result.measured)} buckets of {len(sizes)}")
            for bucket, (dense, sparse) in result.measured.items():
                for key, took in (((sizes[bucket], None), dense), ((sizes[bucket], density), sparse)):
                    taken.setdefault(key, []).append(took / ranks)
    return {key: of_turns(values) for key, values in taken.items()}


def link_of(measured, ranks):
    """Of its dense exchanges."""
    dense = {elements: took for (elements, density), took in measured.items() if density is None}
    unit = 2 * (ranks - 1)
    return model.Link(*fit([(unit, unit * model.FLOAT * elements / ranks) for elements in dense], list(dense.values())))


def selection_of(measured, ranks, link):
    """Seconds an element that is looked at, and a pair that is added up: what the exchange of pairs leaves."""
    rows, times = [], []
    for (elements, density), took in measured.items():
        if density is None:
            continue
        k = model.kept(elements, density)
        left = took - link.all_gather(ranks, model.PAIR * k)
        if left > 0.1 * took:  # else it is the link's time, and an error of that
            rows.append((elements, ranks * k))
            times.append(left)
    return fit(rows, times) if len(rows) > 1 else (0.0, 0.0)


def computing(task, processes, quick):
    """Forward and backward of so many runs side by side, and how much one step differs from another: seconds, seconds, shares."""
    batch, chunk, chunks = int(re.search(r"batch_size = (\d+)", task)[1]), 20, 1 if quick else 4
    task = task.replace("batch_size = 1000", f"batch_size = {batch}")
    results = training.alone(processes, task, duration=f"{chunk * chunks}ba", evaluate=f"{chunk}ba", interval=1)
    took = [step for result in results for step in result.settled]
    typical = training.typical(took)
    images = training.A_FEW if quick else training.IMAGES_OF_TEST
    forward = min(result.evaluated(-(-images // batch)) for result in results)
    return min(forward, typical), max(0.0, typical - forward), sorted(step / typical for step in took)


def measure(rate, task, processes, quick=False):
    """model.Costs of this machine, with such links between nodes. `task`: training.images() with the batch of one rank."""
    turns, densities = (1, DENSITIES[1:2]) if quick else (3, DENSITIES)
    with links.Cluster(2, rate) as cluster:
        between = exchanges(cluster, 2, turns, densities)
    inside = exchanges(2, 2, turns, densities)
    near = link_of(inside, 2)
    select, add = selection_of(inside, 2, near)
    forward, backward, spread = computing(task, processes, quick)
    return model.Costs(inside=near, between=link_of(between, 2), forward=forward, backward=backward, select=select, add=add,
                       spread=tuple(spread))


def save(costs, path):
    path.write_text(json.dumps(costs.__dict__ | {"inside": costs.inside.__dict__, "between": costs.between.__dict__}, indent=1) + "\n")


def load(path):
    values = json.loads(path.read_text())
    return model.Costs(**values | {"inside": model.Link(**values["inside"]), "between": model.Link(**values["between"]),
                                   "spread": tuple(values["spread"])})


def report(costs):
    for name, link in (("within a node", costs.inside), ("between nodes", costs.between)):
        print(f"  link {name}: {1e6 * link.alpha:.0f} us a message, {1e-6 / link.beta if link.beta else float('inf'):.1f} MB/s")
    print(f"  forward {1e3 * costs.forward:.2f} ms, backward {1e3 * costs.backward:.2f} ms; 80 % of the steps of a rank are within "
          f"{training.percentile(costs.spread, 0.1):.2f} to {training.percentile(costs.spread, 0.9):.2f} of that")
    print(f"  selection {1e9 * costs.select:.2f} ns an element, {1e9 * costs.add:.2f} ns a pair that is added up")
