#!/usr/bin/env python3
"""Training steps with the transform tensat and without, under eager and compiled, of blocks of six networks that PyTorch exports (transformer encoder, MobileNet, ConvNeXt,
Inception, NasRNN, SqueezeNet) and the model `onnx` reads, and of shipped run files. What is read is first held against PyTorch's output. Each contender is a process, several
in turn; a time is that of a step, the 20th percentile of chunks of steps, and a ratio the median of those of the turns. Choices and files of a call are kept in --work, so that another call has the same graphs.

Run with a Python that has torch, torchvision and onnx: tools/bench/tensat_exported.py [--quick] [--rounds 5] [--export] [--losses N] [NAME...]
--quick: one small network, short; nothing is worth quoting. --export: says of each exporter what is read, and measures nothing. --losses N: N steps with and without, and the
largest difference of the losses, in place of times."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    import torch
    import torchvision
    from torch import nn
except ImportError as error:
    print(f"tensat_exported: {error}", file=sys.stderr)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
RUN = """
schema = 1
[run]
name = "exported"
seed = 1
[model]
type = "onnx"
file = "{file}"
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = {shape}
classes = 10
train = {{ size = {size}, batch_size = {batch}, drop_last = true }}
[optimizer]
type = "sgd"
lr = 0.001
"""
CHUNKS, FIRST = 12, 2  # of a process; those ahead are not counted
SECONDS = 0.5  # of steps, a process: machines change their speed over tens of seconds


class Pooled(nn.Module):
    """The mean over what `over` names, and ten numbers of it."""

    def __init__(self, body, width, over):
        super().__init__()
        self.body, self.over, self.out = body, over, nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.body(x).mean(self.over))


class Recurrent(nn.Module):
    """NasRNN as TASO and TENSAT have it: eight products of the input and eight of the state, added in pairs, over some steps."""

    def __init__(self, hidden, steps):
        super().__init__()
        make = lambda: nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(8))
        self.of_input, self.of_state, self.steps, self.out = make(), make(), steps, nn.Linear(hidden, 10)

    def forward(self, x):
        state = torch.tanh(x)
        for _ in range(self.steps):
            sums = [a(x) + b(state) for a, b in zip(self.of_input, self.of_state)]
            gate = [torch.sigmoid(each) if i % 2 == 0 else torch.tanh(each) for i, each in enumerate(sums)]
            left, right = gate[0] * gate[1] + gate[2] * gate[3], gate[4] * gate[5] + gate[6] * gate[7]
            state = torch.tanh(left * right)
        return self.out(state)


class Queries(nn.Module):
    """Three layers of one input, as attention has them."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.q(x) * self.k(x) + self.v(x))


def encoder(width=64, layers=2):
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
    return Pooled(nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), width, 1)


def mobilenet():
    from torchvision.models.mobilenetv2 import InvertedResidual
    return Pooled(nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), InvertedResidual(16, 24, 2, 6), InvertedResidual(24, 24, 1, 6), InvertedResidual(24, 32, 2, 6),
                                InvertedResidual(32, 32, 1, 6)), 32, (2, 3))


def convnext():
    from torchvision.models.convnext import CNBlock
    return Pooled(nn.Sequential(nn.Conv2d(3, 48, 4, 4), CNBlock(48, 1.0, 0.0), CNBlock(48, 1.0, 0.0)), 48, (2, 3))


def inception():
    from torchvision.models.inception import InceptionA
    return Pooled(nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), InceptionA(64, 32), InceptionA(256, 64)), 288, (2, 3))


def squeezenet():
    from torchvision.models.squeezenet import Fire
    return Pooled(nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2), Fire(64, 16, 64, 64), Fire(128, 16, 64, 64)), 128, (2, 3))


NETWORKS = {"encoder": (encoder, [32, 64], 8), "mobilenet": (mobilenet, [3, 56, 56], 8), "convnext": (convnext, [3, 56, 56], 8), "inception": (inception, [3, 35, 35], 4),
            "nasrnn": (lambda: Recurrent(512, 5), [512], 1), "squeezenet": (squeezenet, [3, 56, 56], 8),
            "qkv": (lambda: Queries(128), [128], 32)}
SHIPPED = {"digits_mlp": [], "fashion_mnist_mlp": [], "fashion_mnist_cnn": [], "fashion_mnist_two_conv": [], "fashion_mnist_resnet20": ["data.train.batch_size=32"],
           "shakespeare_gpt": ["data.train.batch_size=8", "schedule.warmup=0ba"], "shakespeare_lstm": ["data.train.batch_size=8", "schedule.warmup=0ba"]}
CONTENDERS = [(executor, tensat) for executor in ("eager", "compiled") for tensat in (False, True)]


def export(model, x, file, dynamo):
    """Returns why it failed, or nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if dynamo:
                torch.onnx.export(model, (x,), file, input_names=["x"], output_names=["y"], dynamic_shapes=({0: torch.export.Dim("n")},), dynamo=True, external_data=False,
                                  verbose=False)
            else:
                torch.onnx.export(model, (x,), file, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, dynamo=False)
    except Exception as error:
        return f"not exported: {str(error).splitlines()[0]}"
    return None


def read(file, x, y, folder):
    """The largest difference of what Trainyard gives to y, relative to the largest number, or why nothing came out."""
    given, found = folder / "x.pb", folder / "y.safetensors"
    given.write_bytes(onnx.numpy_helper.from_array(x.numpy()).SerializeToString())
    done = subprocess.run([BIN / "onnx_outputs"], input=f"{file}\tbatch\t{found}\t{given}\n", text=True, capture_output=True)
    if done.stdout.strip() != "ok":
        return done.stdout.strip().split(".onnx: ")[-1] or done.stderr.strip()
    raw = found.read_bytes()
    head = struct.unpack("<Q", raw[:8])[0]
    place = json.loads(raw[8:8 + head])["output"]
    begin, end = place["data_offsets"]
    output = np.frombuffer(raw[8 + head + begin:8 + head + end], np.float32).reshape(place["shape"])
    return float(np.abs(output - y.numpy()).max() / np.abs(y.numpy()).max()) if output.shape == tuple(y.shape) else f"gives {output.shape}"


def exported(name, folder):
    """The files of a network that are read as PyTorch computes it; says what became of each."""
    make, shape, batch = NETWORKS[name]
    torch.manual_seed(1)
    model = make().eval()
    with torch.no_grad():  # as after training: exporters make one parameter of those that are equal
        for key, each in model.state_dict().items():
            if each.dim() == 1:
                each.add_(0.1 * (torch.rand_like(each) if "var" in key else torch.randn_like(each)))
    x = torch.randn(batch + 3, *shape)
    with torch.no_grad():
        y = model(x)
    good = []
    for dynamo in (False, True):
        file = folder / f"{name}-{'dynamo' if dynamo else 'traced'}.onnx"
        apart = export(model, torch.randn(2, *shape), file, dynamo) or read(file, x, y, folder)
        count = len(onnx.load(file).graph.node) if file.exists() else 0
        fine = isinstance(apart, float) and apart < 1e-4
        good += [file] if fine else []
        print(f"{name}, dynamo={dynamo}: {count} nodes, " + (f"differs by {apart:.1e}" + ("" if fine else ", TOO MUCH") if isinstance(apart, float) else f"REFUSED: {apart}"), flush=True)
    return good


class Subject:
    """A network with its data."""

    def __init__(self, name, work, file=None):
        self.name, self.work = name, work
        if file is None:
            self.toml, self.sets = ROOT / f"configs/{name}.toml", [f"run.output_dir={work}/run", "trainer.eval_interval=1000000ba", *SHIPPED[name]]
            return
        _, shape, batch = NETWORKS[name]
        self.toml, self.sets = work / f"{name}.toml", [f"run.output_dir={work}/run"]
        self.toml.write_text(RUN.format(file=file, shape=shape, batch=batch, size=batch * 64))

    def run(self, executor, tensat, threads, steps, chunk):
        """Lines of metrics, and what tensat and compiled said."""
        text = f'\nextends = ["{self.toml}"]\nschema = 1\n[executor]\ntype = "{executor}"\n[trainer]\nmax_duration = "{steps}ba"\n[logging]\ninterval = "{chunk}ba"\n'
        text += '[[logging.sinks]]\ntype = "jsonl"\n' + ('[[transforms]]\ntype = "tensat"\n' if tensat else "")
        file = self.work / "run.toml"
        file.write_text(text)
        sets = [*self.sets, f"run.threads={{intra_op={threads},inter_op=1}}"]
        shutil.rmtree(self.work / "run", ignore_errors=True)
        done = subprocess.run([BIN / "trainyard", "train", file, "-q", *(word for each in sets for word in ("--set", each))], text=True, capture_output=True,
                              env={**os.environ, "XDG_CACHE_HOME": str(self.work / "cache"), "NO_COLOR": "1"})
        if done.returncode != 0:
            raise RuntimeError(" ".join((done.stderr or done.stdout).split())[:300])
        lines = [json.loads(line) for line in (self.work / "run/metrics.jsonl").read_text().splitlines()]
        log = (self.work / "run/run.log").read_text().splitlines()
        return [line for line in lines if line["what"] == "train"], [line for line in log if "tensat:" in line or "compiled:" in line]

    def seconds(self, executor, tensat, threads, steps, chunk):
        lines, said = self.run(executor, tensat, threads, steps, chunk)
        at = [line["seconds"] for line in lines[FIRST - 1:]]
        return [(b - a) / chunk for a, b in zip(at, at[1:])], said


def measure(subject, rounds, seconds):
    for threads in (1, 2):
        try:
            first, _ = subject.seconds("eager", False, threads, 8, 1)
            chunk = max(1, round(seconds / CHUNKS / min(first)))
            times, said = {who: [] for who in CONTENDERS}, {}
            for turn in range(rounds):
                for who in CONTENDERS if turn % 2 == 0 else CONTENDERS[::-1]:
                    found, said[who] = subject.seconds(*who, threads, chunk * (CHUNKS + FIRST), chunk)
                    times[who].append(sorted(found)[len(found) // 5])
        except RuntimeError as error:
            print(f"{subject.name}, {threads} threads: REFUSED: {error}", flush=True)
            continue
        for executor in ("eager", "compiled"):
            plain, other = times[executor, False], times[executor, True]
            taken = any("another graph is taken" in line for line in said[executor, True])
            ratio = statistics.median(a / b for a, b in zip(plain, other))
            print(f"{subject.name}, {threads} threads, {executor}: {1e6 * statistics.median(plain):.0f} us, with tensat {1e6 * statistics.median(other):.0f}: {ratio:.2f}x "
                  f"({'another graph' if taken else 'the same graph, so that this is noise'})", flush=True)
            for line in said[executor, True]:
                print("   ", line.split(": ", 1)[-1][:400], flush=True)


def compare_losses(subject, steps):
    for executor in ("eager", "compiled"):
        try:
            a, b = ([line["values"]["train/loss"] for line in subject.run(executor, tensat, 1, steps, 1)[0]] for tensat in (False, True))
        except RuntimeError as error:
            print(f"{subject.name}, {executor}: REFUSED: {error}", flush=True)
            continue
        print(f"{subject.name}, {executor}: losses of {len(a)} steps are apart by {max(abs(x - y) / abs(x) for x, y in zip(a, b)):.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join([*NETWORKS, *SHIPPED])}; all where there are none")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--losses", type=int, default=0)
    parser.add_argument("--work", type=pathlib.Path)
    given = parser.parse_args()
    names = given.names or (["squeezenet"] if given.quick else [*NETWORKS, *SHIPPED])
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as temporary:
        work = (given.work or pathlib.Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for name in names:
            files = exported(name, work) if name in NETWORKS else [None]
            if given.export or not files:
                continue
            subject = Subject(name, work, files[0])
            if given.losses:
                compare_losses(subject, given.losses)
            else:
                measure(subject, 1 if given.quick else given.rounds, 0.3 if given.quick else SECONDS)


if __name__ == "__main__":
    sys.exit(main())
