#!/usr/bin/env python3
"""The acceptance table of `trainyard ops` on this machine, which should be quiet:

  tools/bench/ops.py curves        the sweeps over channels and sizes beside a timer of PyTorch's own (TRAINYARD_TORCH_PYTHON: a Python that has it)
  tools/bench/ops.py repeat        two processes: how far the least times differ
  tools/bench/ops.py pages         sizes 112 and batch 8 with pages that are kept and that are given back
  tools/bench/ops.py noise         a busy loop beside the sweep, on each core
  tools/bench/ops.py model         1,200 convolutions at random, 300 held out; then adaptive rounds
  tools/bench/ops.py networks      20 networks at random and three of published shape: predicted and measured passes
  tools/bench/ops.py advice        10 networks of odd widths: times before and after
  tools/bench/ops.py cost          all that the tool does by default
  --quick                          few and short, to see that it works"""
import csv
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = SOURCE / "build/release/bin/trainyard"
QUICK = "--quick" in sys.argv
FAST = ["--rounds", "2", "--round_ms", "0.01"] if QUICK else []

RUN = """schema = 1
[run]
name = "{name}"
seed = 1
threads = {{ intra_op = 1, inter_op = 1 }}
[model]
{model}
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [3, {size}, {size}]
classes = 10
train = {{ size = 256, batch_size = {batch} }}
[optimizer]
type = "sgd"
lr = 0.1
[trainer]
max_duration = "1ep"
{layers}"""

# A sweep by a timer that shares nothing with the tool: PyTorch, its own loops, its own shuffle.
PEER = """
import ctypes, json, random, sys, time, torch
libc = ctypes.CDLL("libc.so.6")
libc.mallopt(-3, 1 << 30), libc.mallopt(-1, 1 << 30)
torch.set_num_threads(1)
torch.set_grad_enabled(False)
calls = []
for size, cin, cout in json.loads(sys.argv[1]):
    x, w, b = torch.randn(1, cin, size, size), torch.randn(cout, cin, 3, 3), torch.randn(cout)
    call = lambda x=x, w=w, b=b: torch.nn.functional.conv2d(x, w, b, padding=1)
    call(), call()
    begin = time.perf_counter()
    call()
    calls.append((call, max(1, int(2e-3 / (time.perf_counter() - begin)))))
least = [1e9] * len(calls)
for _ in range(int(sys.argv[2])):
    for i in random.sample(range(len(calls)), len(calls)):
        begin = time.perf_counter()
        for _ in range(calls[i][1]):
            calls[i][0]()
        least[i] = min(least[i], (time.perf_counter() - begin) / calls[i][1])
print(json.dumps([1e6 * each for each in least]))
"""


class Runs:
    """A folder with a run, of which the tool is asked."""

    def __init__(self):
        self.kept = tempfile.TemporaryDirectory(prefix="trainyard-ops-")
        self.folder = pathlib.Path(self.kept.name)

    def write(self, name, layers="", size=16, batch=1, model='type = "sequential"'):
        (self.folder / f"{name}.toml").write_text(RUN.format(name=name, layers=layers, size=size, batch=batch, model=model))

    def ask(self, *words, name="run", database="rows.csv", sweeps=(), check=True):
        command = [PROGRAM, "ops", f"{name}.toml", "--weights", "initial", "--database", database, "--sweeps", json.dumps(list(sweeps)), *FAST, *words, "--format", "json"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if check and done.returncode:
            sys.exit(done.stderr)
        return json.loads(done.stdout), done.stderr

    def rows(self, database, sweep):
        with open(self.folder / database) as file:
            return [row for row in csv.DictReader(line for line in file if not line.startswith("#")) if row["sweep"] == sweep]


def layer(kind, **options):
    return f'[[model.layers]]\ntype = "{kind}"\n' + "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())


def conv(out, kernel=3, stride=1, groups=1):
    return layer("conv2d", out=out, kernel=kernel, stride=stride, padding=kernel // 2, groups=groups)


SMALL = conv(8) + layer("flatten") + layer("linear", out=10)


def curves():
    python = os.environ.get("TRAINYARD_TORCH_PYTHON")
    if not python:
        print("TRAINYARD_TORCH_PYTHON is not set: nothing to hold the curves against")
        return
    runs = Runs()
    runs.write("run", SMALL)
    names = ("cout", "cin", "size")
    report, _ = runs.ask("--network", "false", sweeps=names)
    for row in report["rows"]:
        print(f"{row['sweep']}: {row['pattern']}")
    for name in names:
        rows = runs.rows("rows.csv", name)
        shapes = [[int(row["size"]), int(row["cin"]), int(row["cout"])] for row in rows]
        peer = json.loads(subprocess.run([python, "-c", PEER, json.dumps(shapes), "2" if QUICK else "9"], capture_output=True, text=True, check=True).stdout)
        ours = [float(row["min_us"]) for row in rows]
        ratios = sorted(a / b for a, b in zip(ours, peer))
        print(f"{name}: over PyTorch's time: median {statistics.median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}")
        jumps = lambda times: [int(rows[i][name]) for i in range(1, len(times)) if times[i] > 1.1 * times[i - 1] and
                               statistics.median(times[i:i + 3]) > 1.1 * statistics.median(times[max(0, i - 3):i])]
        drops = lambda times: [int(rows[i][name]) for i in range(1, len(times)) if times[i - 1] > 1.05 * times[i] and
                               statistics.median(times[max(0, i - 3):i]) > 1.05 * statistics.median(times[i:i + 3])]
        print(f"{name}: jumps of PyTorch's timer {jumps(peer)}, drops {drops(peer)}")
    print(f"processor time / wall time: {report['facts']['processor time / wall time, one thread']:.4f}; quiet: {report['facts']['quiet']}")


def repeat():
    runs = Runs()
    runs.write("run", SMALL)
    names = ["cout", "kernel", "activation", "linear_cout"]
    for database in ("a.csv", "b.csv"):
        report, _ = runs.ask("--network", "false", database=database, sweeps=names)
        print("quiet:", report["facts"]["quiet"])
    for name in names:
        off = [abs(float(a["min_us"]) / float(b["min_us"]) - 1.0) for a, b in zip(runs.rows("a.csv", name), runs.rows("b.csv", name))]
        print(f"{name}: least times differ by {100 * statistics.mean(off):.1f} % (mean), {100 * max(off):.1f} % (most)")


def pages():
    runs = Runs()
    runs.write("run", SMALL)
    runs.ask("--network", "false", sweeps=["pages_kept", "pages_given_back"])
    for name in ("pages_kept", "pages_given_back"):
        time_of = {(row["size"], row["batch"]): float(row["min_us"]) / (int(row["size"]) ** 2 * int(row["batch"])) for row in runs.rows("rows.csv", name)}
        print(f"{name}: size 112 over 56, a pixel: {time_of['112', '1'] / time_of['56', '1']:.3f}; batch 8 over 1, a sample: {time_of['28', '8'] / time_of['28', '1']:.3f}")


def noise():
    runs = Runs()
    runs.write("run", SMALL)
    names = ["kernel", "activation"]
    runs.ask("--network", "false", database="quiet.csv", sweeps=names)
    for cores in (os.cpu_count() - 1, os.cpu_count()):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
        try:
            report, _ = runs.ask("--network", "false", database=f"busy{cores}.csv", sweeps=names)
        finally:
            for each in busy:
                each.kill()
        off = [float(a["min_us"]) / float(b["min_us"]) - 1.0 for name in names for a, b in zip(runs.rows(f"busy{cores}.csv", name), runs.rows("quiet.csv", name))]
        print(f"{cores} busy of {os.cpu_count()} cores: quiet {report['facts']['quiet']}, least times {100 * min(off):.1f} to {100 * max(off):.1f} % off")


def model():
    runs = Runs()
    runs.write("run", SMALL)
    for rounds in (0, 3):
        words = ["--samples", "100" if QUICK else "1200", "--held_out", "30" if QUICK else "300", "--adaptive_rounds", str(0 if QUICK else rounds)]
        report, _ = runs.ask(*words, "--network", "false", sweeps=["cout", "samples"])
        for name, value in report["facts"].items():
            if name.startswith(("model", "multiply", "quiet")):
                print(f"adaptive rounds {rounds}: {name}: {value if isinstance(value, bool) else round(value, 3)}")


def at_random(seed):
    """A network of three to six convolutions, as users write them."""
    draw = random.Random(seed)
    layers, channels = "", draw.choice([8, 12, 16, 24, 32])
    for i in range(draw.randint(3, 6)):
        stride = draw.choice([1, 1, 2])
        layers += conv(channels, draw.choice([1, 3, 3, 5]), stride)
        layers += (layer("batch_norm") if draw.random() < 0.5 else "") + layer("relu")
        channels = min(96, int(channels * draw.choice([1, 1.5, 2])))
    return layers + layer("global_average_pool") + layer("flatten") + layer("linear", out=10)


def published():
    pool = layer("max_pool", kernel=2)
    block = lambda out: conv(out) + layer("relu") + conv(out) + layer("relu") + pool
    vgg = block(32) + block(64) + layer("flatten") + layer("linear", out=128) + layer("relu") + layer("linear", out=10)
    mobile = conv(16) + layer("relu")
    for channels, out in ((16, 32), (32, 64), (64, 64)):
        mobile += conv(channels, groups=channels) + layer("batch_norm") + layer("relu") + conv(out, 1) + layer("batch_norm") + layer("relu")
    mobile += layer("global_average_pool") + layer("flatten") + layer("linear", out=10)
    return {"vgg": (vgg, 'type = "sequential"'), "mobile": (mobile, 'type = "sequential"'), "resnet20": ("", 'type = "resnet"\ndepth = 20')}


def networks():
    runs = Runs()
    nets = {f"random{i}": (at_random(i), 'type = "sequential"') for i in range(1 if QUICK else 20)} | ({} if QUICK else published())
    ratios = {"forward": [], "training": []}
    for name, (layers, kind) in nets.items():
        runs.write(name, layers, size=32, batch=8, model=kind)
        report, _ = runs.ask("--network_samples", "40" if QUICK else "300", name=name, sweeps=["cout"])
        facts = report["facts"]
        for phase, values in ratios.items():
            values.append(facts[f"network, predicted / measured {phase}"])
        print(f"{name}: predicted / measured {ratios['forward'][-1]:.3f} forward, {ratios['training'][-1]:.3f} training; nodes by themselves / whole "
              f"{facts['network, nodes by themselves / forward']:.3f}, {facts['network, nodes by themselves / training']:.3f}; "
              f"{facts['network, nodes without a prediction']} nodes without a prediction", flush=True)
    for phase, values in ratios.items():
        print(f"{phase}: {100 * sum(abs(each - 1) <= 0.1 for each in values) / len(values):.0f} % within a tenth")


def advice():
    runs = Runs()
    draw = random.Random(7)
    for i in range(1 if QUICK else 10):
        widths = [draw.randrange(17, 80, 2) for _ in range(3)]
        convs = "".join(conv(width) + layer("relu") for width in widths)
        tail = layer("global_average_pool") + layer("flatten") + layer("linear", out=10)
        runs.write("before", convs + tail, size=16, batch=16)
        report, _ = runs.ask(name="before", sweeps=["kernel"])
        facts = report["facts"]
        for kind, takes in (("wider", lambda new, old: new > old), ("narrower", lambda new, old: new < old)):
            changed, gain = list(widths), 0.0
            for text in facts["advice"]:
                new, old, saved = re.search(r": (\d+) channels in place of (\d+) .*?(-?[\d.]+) %", text).groups()
                new, old = int(new), int(old)
                if takes(new, old) and old in changed:
                    changed[changed.index(old)] = new
                    gain += float(saved)
            if changed == widths:
                print(f"{widths}: nothing {kind}")
                continue
            runs.write("after", "".join(conv(width) + layer("relu") for width in changed) + tail, size=16, batch=16)
            again, _ = runs.ask(name="after", sweeps=["kernel"])
            speed = facts["network, training us"] / again["facts"]["network, training us"]
            print(f"{widths} to {changed}: {kind}: predicted {1 / (1 - gain / 100):.2f} times, measured {speed:.2f} times", flush=True)
        print(f"{widths}: layers in bf16 would save {100 * facts['layers in bf16 save']:.0f} %")


def cost():
    runs = Runs()
    runs.write("run", SMALL)
    begin = time.time()
    report, _ = runs.ask(*(["--samples", "100", "--held_out", "5"] if QUICK else []), sweeps=["kernel", "samples"] if QUICK else ["all"])
    print(f"all sweeps, samples and the network: {time.time() - begin:.0f} s")
    for each in report["facts"]["findings"]:
        print(each)
    for row in report["rows"]:
        print(f"{row['sweep']}: {row['points']} points, {row['pattern']}")
    for name, value in report["facts"].items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if not word.startswith("-")]
    parts = {each.__name__: each for each in (curves, repeat, pages, noise, model, networks, advice, cost)}
    if not asked or set(asked) - set(parts):
        sys.exit(__doc__)
    for word in asked:
        parts[word]()
