#!/usr/bin/env python3
"""The executor wavelet on two cores: a VGG-like network on made-up images of 28 x 28, float32, and one of equal layers.

  tools/bench/wavelet.py [--quick] [parts] [memory] [overlap] [budget] [speed] [overhead] [hidden] [model]

parts: what the peak of one wave is made of. memory: the most bytes that both waves have at once, by allocator events, half a
cycle apart against in phase, with as many samples in flight: with the bound on the peak that is the default, and by time
alone. overlap: from the trace of layer events, how exact the offset is, and how long the one wave is backward
while the other is forward. budget: the largest micro-batch with which two waves stay within 1.3 times what one has, apart
against in phase. speed: samples a second of the three ways of updating against the plain loop on two threads. overhead:
waves = 1 against the plain loop. hidden: samples a second of two ranks, a core each, joined by a slow link (tools/cluster/links.py), at
which an exchange of all gradients takes so much of what computing takes: waves against the plain loop, whose gradients leave
behind backward, or while it runs, with one micro-batch, which is best for it. model: samples a second of two ranks, a core each, that have
a stage of the network each: rounds of waves, and rolling ones, against rounds of a single wave, and against as many waves one after the
other with one update."""
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TOOLS / "cluster"))
import links  # noqa: E402
import training  # noqa: E402

TRAINYARD = TOOLS.parent / "build/release/bin/trainyard"
QUICK = "--quick" in sys.argv
PASSES = 8 if QUICK else 16  # micro-batches a step
CONV = '{{ type = "conv2d", out = {}, kernel = 3, padding = 1 }}, {{ type = "relu" }}'
POOL = '{ type = "max_pool", kernel = 2 }'
NETWORKS = {"VGG-like": [*[CONV.format(16)] * 4, POOL, *[CONV.format(32)] * 2, POOL], "equal layers": [CONV.format(16)] * 6}
ANY = {"peak": 2.0, "memory_budget": 0.0}  # memory bounds nothing
RUN = """
schema = 1
[run]
name = "wavelet"
seed = 1
output_dir = "{folder}/run"
threads = {{ intra_op = {threads}, inter_op = 1 }}
[model]
type = "sequential"
layers = [{layers}, {{ type = "flatten" }}, {{ type = "linear", out = 10 }}]
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [1, 28, 28]
classes = 10
train = {{ size = {size}, batch_size = {batch}, micro_batch_size = {micro}, drop_last = true }}
[optimizer]
type = "sgd"
lr = 0.01
[trainer]
max_duration = "{steps}ba"
[logging]
interval = "1ba"
[[logging.sinks]]
type = "jsonl"
[executor]
type = "{executor}"
{options}
"""


def train(micro, executor="wavelet", steps=4, passes=PASSES, threads=2, network="VGG-like", **options):
    """Its records and the trace, where there is one."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        file = pathlib.Path(folder) / "run.toml"
        file.write_text(RUN.format(folder=folder, threads=threads, size=max(512, micro * passes), batch=micro * passes, micro=micro,
                                   steps=steps, executor=executor, layers=", ".join(NETWORKS[network]), options="\n".join(f"{k} = {json.dumps(v)}" for k, v in options.items())))
        subprocess.run([TRAINYARD, "train", file, "-q"], check=True)
        run = pathlib.Path(folder) / "run"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        trace = run / "timeline.csv"
        rows = list(csv.DictReader(trace.open())) if trace.exists() else []
        return [line["values"] for line in lines if line["what"] == "train"], rows


def traced(micro, **options):
    return train(micro, timeline=True, **{"memory_budget": 0.0, **options})[1]


def peak(rows, first=PASSES):
    """Without the first step, in which the cycle is not known."""
    begin = next(i for i, row in enumerate(rows) if row["what"] == "start" and int(row["pass"]) >= first)
    return max(int(row["bytes"]) for row in rows[begin:] if row["what"] == "take")


def parts():
    """A wave that is alone: of one micro-batch a step, the last step."""
    for network in NETWORKS:
        rows = traced(64, passes=1, steps=3, network=network)
        begin = max(i for i, row in enumerate(rows) if row["what"] == "start")
        base, at, points, most = int(rows[begin]["bytes"]), int(rows[begin]["nanoseconds"]), [], 0
        for row in rows[begin:]:
            if row["pass"]:
                points.append([row["what"], (int(row["nanoseconds"]) - at) * 1e-6, int(row["bytes"]) - base, 0])
            points[-1][3] = max(points[-1][3], int(row["bytes"]) - base)
        turn = next(point for point in points if point[0] == "turn")
        most = max(points, key=lambda point: point[3])
        print(f"{network}: {turn[2] / 1e6:.2f} MB at the turn, {most[3] / 1e6:.2f} MB at most, between {most[0]} at {most[1]:.1f} of "
              f"{points[-1][1]:.1f} ms, with {most[2] / 1e6:.2f} MB, and the next point; {points[-1][2] / 1e6:.2f} MB of gradients at the end")
        for what, ms, bytes, high in points:
            print(f"  {what:5} {ms:7.2f} ms {bytes / 1e6:7.2f} MB, up to {high / 1e6:6.2f}")


def memory():
    cases = {"by the bound": {}, "by time alone": ANY, "in phase": {"offset": 0.0, **ANY}}
    for network in NETWORKS:
        for micro in (8,) if QUICK else (16, 64):
            found = {name: [] for name in cases}
            for _ in range(1 if QUICK else 5):
                for name, options in cases.items():
                    rows = traced(micro, network=network, **options)
                    found[name].append((peak(rows), peak(rows, 0)))
            for name in list(cases)[:2]:
                for i, of in enumerate(("", " with the first step")):
                    ratios = [apart[i] / together[0] for apart, together in zip(found[name], found["in phase"])]
                    print(f"{network}, micro-batches of {micro}, {name}{of}: {statistics.median(ratios):.3f} of in phase, "
                          f"from {min(ratios):.3f} to {max(ratios):.3f} (bar 0.72)")


def overlap():
    rows = traced(8 if QUICK else 64, steps=4 if QUICK else 8, **ANY)
    begins, ends, cycles, turns = {}, {}, [], []
    forward, backward, both, whole = set(), set(), 0, 0
    marks = [row for row in rows if row["pass"]]
    for row, after in zip(marks, marks[1:]):
        wave, number, at = row["wave"], int(row["pass"]), int(row["nanoseconds"])
        if row["what"] == "start":
            begins[number] = at
            forward.add(wave)
        elif row["what"] == "turn":
            turns.append(at - begins[number])
            forward.discard(wave)
            backward.add(wave)
        elif row["what"] == "end":
            cycles.append(at - begins[number])
            backward.discard(wave)
        if number < PASSES:
            continue
        time = int(after["nanoseconds"]) - at
        whole += time * len(forward)
        both += time * sum(any(other != wave for other in backward) for wave in forward)
    cycle = statistics.median(cycles)
    errors = sorted((begins[i] - begins[i - 1]) / (cycle / 2) - 1 for i in begins if i >= PASSES and i % PASSES)
    within = sum(abs(error) <= 0.1 for error in errors) / len(errors)
    print(f"a pass takes {cycle * 1e-6:.1f} ms, forward {statistics.median(turns) / cycle:.2f} of it; {len(errors)} passes begin half a cycle "
          f"{statistics.median(errors):+.3f} behind the other (tenths {errors[len(errors) // 10]:+.3f} to {errors[-len(errors) // 10]:+.3f}), "
          f"{100 * within:.0f} % within 10 %")
    print(f"the other wave is backward during {100 * both / whole:.0f} % of the time that a wave is forward (bar 60 %)")


def budget():
    """Bytes grow with the samples: found by halving."""
    alone = peak(traced(32, passes=1), 1)
    bound = 1.3 * alone

    def largest(**options):
        low, high = 8, 64
        while high - low > 1:
            middle = (low + high) // 2
            if peak(traced(middle, **options)) <= bound:
                low = middle
            else:
                high = middle
        return low

    cases = {"with a bound of 1.25 peaks": {"peak": 1.25}, "with the bound of the default": {}, "by time alone": ANY}
    together = largest(offset=0.0, **ANY)
    print(f"one wave has {alone / 1e6:.1f} MB with 32 samples; within 1.3 of that two have {together} samples each in phase")
    for name, options in cases.items():
        apart = largest(**options)
        print(f"half a cycle apart {name}: {apart}, {apart / together:.2f} x (bar 1.45)")


def rate(values):
    """Over all steps but the first: those that only begin something take no time, and others the time of two."""
    return statistics.harmonic_mean([value["samples_per_second"] for value in values[1:]])


def turns(cases, micro=32, passes=8):
    rates = {name: [] for name in cases}
    for _ in range(1 if QUICK else 7):
        for name, options in cases.items():
            rates[name].append(rate(train(micro, steps=4 if QUICK else 8, passes=passes, **options)[0]))
    return rates


def speed():
    rates = turns({"eager": {"executor": "eager"}, "joint": {}, "joint, a bound of 1.25 peaks": {"peak": 1.25}, "joint, by time alone": ANY,
                   "in phase": {"offset": 0.0, **ANY}, "stale1": {"sync": "stale1"}, "replica": {"sync": "replica"}})
    for name, each in rates.items():
        print(f"{name}: {statistics.median(a / b for a, b in zip(each, rates['eager'])):.3f} x the samples a second of eager on two threads")


def overhead():
    rates = turns({"eager": {"executor": "eager", "threads": 1}, "waves = 1": {"waves": 1, "threads": 1}}, micro=4)
    ratio = statistics.median(b / a for a, b in zip(rates["waves = 1"], rates["eager"]))
    print(f"waves = 1 takes {ratio:.3f} x the time of eager (bar 1.02)")


LAYERS = (*[256] * 13, 10)  # of about equal cost, and with as many gradients
ROWS = 4096  # of a rank and step: a slow link, whose work for the processors is small beside computing
SHARES = (0.4, 1.0)  # of computing, that an exchange of all gradients takes
WAVES = '[executor]\ntype = "wavelet"\nmemory_budget = 0\npeak = 2.0\n'  # their network has small activations
LATE = '[[hooks]]\ntype = "idle"\n'  # it looks at gradients ahead of the sum: they leave behind backward
WAYS = {"behind backward": (1, LATE), "while backward runs": (1, ""), "joint": (2, WAVES), "joint, in phase": (2, WAVES + "offset = 0.0\n"),
        "stale1": (2, WAVES + 'sync = "stale1"\n')}


def ranks_step(rate, micros, more):
    """Seconds a step of two ranks, each on a core of its own: of six in a row, as some are longer for what the next is shorter."""
    task = training.made_up(LAYERS, 2 * ROWS).replace("size = 4096", f"size = {8 * ROWS}")
    task = task.replace("drop_last", f"micro_batch_size = {ROWS // micros}, drop_last")
    with links.Cluster(2, rate) as cluster, tempfile.TemporaryDirectory(prefix="trainyard-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "run.toml").write_text(training.text(task, more, "[distributed]\nbucket_cap_mb = 0.25\n", folder=folder, duration="18ba", interval=6))
        words = ["sh", "-c", 'exec taskset -c "$RANK" "$@"', "sh", TRAINYARD, "train", folder / "run.toml", "-q"]
        training.launch(cluster, 1, [*words, "--plugins", TOOLS.parent / "build/release/bench/plugins"], None, {"NO_COLOR": "1", "OMP_NUM_THREADS": "1"})
        return min(training.Result(folder / "run", 2 * ROWS).steps)


def hidden():
    """A rank's threads share its core: where this has precedence over others, they have it by weight, and not each until it waits."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.nice(-20)
    turns = range(1 if QUICK else 3)
    computing = min(ranks_step(None, *WAYS["behind backward"]) for _ in turns)
    size = 4 * sum(a * b + b for a, b in zip(LAYERS, LAYERS[1:]))
    print(f"{1e3 * computing:.1f} ms a step over a link without a limit; gradients: {1e-6 * size:.2f} MB")
    for share in SHARES:
        rate = f"{8e-6 * size / (share * computing):.0f}mbit"
        took = {name: 1e9 for name in WAYS}
        for _ in turns:
            for name, way in WAYS.items():
                took[name] = min(took[name], ranks_step(rate, *way))
        print(f"an exchange takes {share} of that ({rate}):")
        for name, each in took.items():
            others = ", ".join(f"{took[other] / each:.2f} x {other}" for other in list(WAYS)[:2])
            print(f"  {name:20} {1e3 * each:6.1f} ms a step, {each / computing:.2f} of that; {others}", flush=True)


WAVE = 1024  # samples; a stage of half of LAYERS takes some 10 ms forward
CARD = {2: 4 / 3, 4: 8 / 5}  # gain of so many waves, a backward being two forwards (card, section 2.3)


def stages_rate(how, waves, sync="round", micros=1):
    """Samples a second of steps of so many micro-batches, each of so many waves, or itself one: the best of some stretches of four steps."""
    batch = WAVE * micros * (waves if sync == "round" else 1)
    task = training.made_up(LAYERS, batch).replace("{ size = 4096", f"{{ size = {4 * batch}")
    task = task.replace("drop_last", f"micro_batch_size = {batch // micros // 2}, drop_last")  # of each rank, if it had a part of the batch
    more = f'[executor]\ntype = "wavelet"\nsync = "{sync}"\nwaves = {waves}\n'
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "run.toml").write_text(training.text(task, more, folder=folder, duration="20ba" if batch > WAVE else "44ba", interval=4))
        places = [{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": "29571", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"} for rank in (0, 1)]
        training.together([[*how, "taskset", "-c", rank, TRAINYARD, "train", folder / "run.toml", "-q"] for rank in (0, 1)], places, folder, 300)
        return batch / min(training.Result(folder / "run", batch).steps)


def model():
    """Where this has precedence over others, ranks are timed with it, and with the core by weight, and the faster counts: with it, threads
    that exchange wait until computing does; by weight, others use a core that waits."""
    hows = [[]] if os.sched_getscheduler(0) == os.SCHED_OTHER else [[], ["chrt", "-o", "0", "nice", "-n", "-20"]]
    ways = {"one wave": (1,), "2 waves": (2,), "4 waves": (4,), "2 in turn": (1, "round", 2), "4 in turn": (1, "round", 4),
            "2 rolling": (2, "rolling"), "4 rolling": (4, "rolling")}
    for _ in range(1 if QUICK else 3):
        rates = {name: max(stages_rate(how, *way) for how in hows) for name, way in ways.items()}
        print(f"one wave: {rates['one wave']:.0f} samples a second, {1e3 * WAVE / rates['one wave']:.1f} ms a wave")
        for waves, gain in CARD.items():
            times = {name: rates[f"{waves} {name}"] / rates["one wave"] for name in ("waves", "in turn", "rolling")}
            print(f"  rounds of {waves} waves: {times['waves']:.3f} x one wave (bar {0.9 * gain:.2f}), {times['waves'] / times['in turn']:.3f} x "
                  f"{waves} in turn with one update; rolling {times['rolling']:.3f} x one wave", flush=True)


for name in [word for word in sys.argv[1:] if not word.startswith("--")] or ["parts", "memory", "overlap", "budget", "speed", "overhead", "hidden", "model"]:
    globals()[name]()
