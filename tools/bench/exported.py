#!/usr/bin/env python3
"""Usual architectures as both exporters of PyTorch write them: whether the model `onnx` reads each and gives PyTorch's output, and whether it trains
under eager and compiled, with the same losses.

Run with a Python that has torch, torchvision and onnx: tools/bench/exported.py [--quick] [--times [--rounds 3]] [NAME...]
--quick: one network of each exporter. --times: in place of losses the time of a training step of the files by TorchScript (p20, one thread, several processes in turn) by PyTorch
eager in fp32, and under eager and compiled, with what compiled leaves to LibTorch."""
import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torchvision
    from tensat_exported import BIN, export, read
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    print(f"exported: {error}", file=sys.stderr)
    sys.exit(77)

RUN = """
schema = 1
[run]
name = "{executor}"
seed = 1
{strict}threads = {{ intra_op = 1, inter_op = 1 }}
[model]
type = "onnx"
file = "{file}"
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
{data}
train = {{ size = 64, batch_size = 16 }}
[optimizer]
type = "sgd"
lr = 0.05
[executor]
type = "{executor}"
[trainer]
max_duration = "{steps}ba"
[logging]
interval = "1ba"
[[logging.sinks]]
type = "jsonl"
"""
TOKENS = 'kind = "language"\nseq_len = 16\nvocabulary = 50'
IMAGES = 'kind = "classification"\nshape = [3, 32, 32]\nclasses = 10'
COLUMNS = 'kind = "classification"\nshape = [12]\nclasses = 3'


class Tagger(nn.Module):
    """An embedding of tokens, a body, and scores of the next one at each place."""

    def __init__(self, body, width, out):
        super().__init__()
        self.words, self.body, self.scores = nn.Embedding(50, width), body, nn.Linear(out, 50)

    def forward(self, x):
        y = self.body(self.words(x))
        return self.scores(y[0] if isinstance(y, tuple) else y)


class Bert(nn.Module):
    """BERT as it is usually written: words, places and segments, a mask of padding, and attention by reshapes."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.word, self.place, self.segment = nn.Embedding(50, width, padding_idx=0), nn.Embedding(16, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        linear = lambda a, b: nn.Linear(a, b)
        self.blocks = nn.ModuleList(nn.ModuleDict({**{name: linear(width, width) for name in ("q", "k", "v", "o")}, "up": linear(width, 4 * width),
                                                   "down": linear(4 * width, width), "first": nn.LayerNorm(width), "second": nn.LayerNorm(width)}) for _ in range(2))
        self.pool, self.scores = linear(width, width), linear(width, 50)

    def forward(self, x):
        samples, time = x.shape
        masked = (1.0 - (x != 0)[:, None, None, :].to(torch.float32)) * -10000.0
        h = self.norm(self.word(x) + self.place(torch.arange(time))[None] + self.segment(torch.zeros_like(x)))
        for block in self.blocks:
            q, k, v = (block[name](h).view(samples, time, self.heads, -1).permute(0, 2, 1, 3) for name in "qkv")
            weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + masked, -1)
            h = block["first"](h + block["o"]((weights @ v).permute(0, 2, 1, 3).reshape(samples, time, -1)))
            h = block["second"](h + block["down"](F.gelu(block["up"](h))))
        return self.scores(torch.tanh(self.pool(h)))


class UNet(nn.Module):
    """One way up by a transposed convolution, the other by interpolation."""

    def __init__(self):
        super().__init__()
        def twice(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        self.a, self.b, self.c, self.d, self.e = twice(3, 8), twice(8, 16), twice(16, 32), twice(32, 16), twice(24, 8)
        self.up, self.wide, self.out = nn.ConvTranspose2d(32, 16, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(8, 10, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        y = self.d(torch.cat([self.up(self.c(F.max_pool2d(b, 2))), b], 1))
        return self.out(self.e(torch.cat([self.wide(y), a], 1))).mean((2, 3))


class Tabular(nn.Module):
    """A token for each column and one of its own in front (Gorishniy et al., "Revisiting Deep Learning Models for Tabular Data", NeurIPS 2021)."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias, self.token = nn.Parameter(torch.randn(12, 16) * 0.3), nn.Parameter(torch.zeros(12, 16)), nn.Parameter(torch.randn(1, 1, 16) * 0.3)
        self.body, self.out = transformer(16, norm_first=True), nn.Linear(16, 3)

    def forward(self, x):
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), x[:, :, None] * self.weight + self.bias], 1)
        return self.out(self.body(tokens)[:, 0])


def transformer(width, **kwargs):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True, **kwargs), 2, enable_nested_tensor=False)


def mobilenet_v3():
    from torchvision.models.mobilenetv3 import InvertedResidualConfig as C, MobileNetV3
    return MobileNetV3([C(16, 3, 16, 16, True, "RE", 2, 1, 1), C(16, 3, 64, 24, False, "RE", 2, 1, 1), C(24, 5, 72, 24, True, "HS", 1, 1, 1)], 64, num_classes=10)


def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig as C
    return EfficientNet([C(1, 3, 1, 16, 16, 1, 1, 1), C(4, 3, 2, 16, 24, 2, 1, 1), C(4, 5, 2, 24, 32, 1, 1, 1)], 0.2, num_classes=10, last_channel=64)


def convnext():
    from torchvision.models.convnext import CNBlockConfig as C, ConvNeXt
    return ConvNeXt([C(16, 32, 1), C(32, None, 2)], num_classes=10)


NETWORKS = {
    "mobilenet_v2": (lambda: torchvision.models.MobileNetV2(10, 0.25, [[1, 8, 1, 1], [6, 16, 2, 2], [6, 24, 1, 2]]), IMAGES),
    "mobilenet_v3": (mobilenet_v3, IMAGES), "efficientnet": (efficientnet, IMAGES), "convnext": (convnext, IMAGES),
    "vit": (lambda: torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10), IMAGES),
    "encoder": (lambda: Tagger(transformer(32), 32, 32), TOKENS), "bert": (Bert, TOKENS), "unet": (UNet, IMAGES),
    "densenet": (lambda: torchvision.models.DenseNet(8, (2, 2), 16, num_classes=10), IMAGES),
    "lstm": (lambda: Tagger(nn.LSTM(16, 24, 2, batch_first=True), 16, 24), TOKENS),
    "rnn": (lambda: Tagger(nn.RNN(16, 24, 2, nonlinearity="relu", batch_first=True), 16, 24), TOKENS), "rnn_both": (lambda: Tagger(nn.RNN(16, 24, batch_first=True, bidirectional=True), 16, 48), TOKENS),
    "gru": (lambda: Tagger(nn.GRU(16, 24, batch_first=True, bidirectional=True), 16, 48), TOKENS), "tabular": (Tabular, COLUMNS)}


def inputs(data, samples):
    if data == TOKENS:
        return torch.randint(1, 50, (samples, 16))
    return torch.randn(samples, *((3, 32, 32) if data == IMAGES else (12,)))


def train(file, data, executor, work, steps, strict):
    """What the run said of each step, or why it does not train."""
    (work / "run.toml").write_text(RUN.format(file=file, data=data, executor=executor, steps=steps, strict='deterministic = "strict"\n' if strict else ""))
    done = subprocess.run([BIN / "trainyard", "train", "run.toml", "-q", "--overwrite"], cwd=work, text=True, capture_output=True)
    if done.returncode != 0:
        return (done.stderr or done.stdout).strip().split(".onnx: ")[-1]
    lines = [json.loads(line) for line in (work / "runs" / executor / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["what"] == "train"]


def losses(file, data, executor, work):
    lines = train(file, data, executor, work, 20, True)
    return lines if isinstance(lines, str) else [line["values"]["train/loss"] for line in lines]


STEPS, FIRST = 60, 10  # of a process; the first ones are not counted


def fifth(seconds):
    return sorted(seconds)[len(seconds) // 5]


def seconds_here(model, data):
    """A step of PyTorch eager, as the host has it: batches of 16, cross entropy over the last dimension, plain SGD."""
    torch.set_num_threads(1)
    model.train()
    optimizer, times = torch.optim.SGD(model.parameters(), lr=0.05), []
    batches = [inputs(data, 16) for _ in range(4)]
    classes = 50 if data == TOKENS else 10 if data == IMAGES else 3
    targets = torch.randint(0, classes, (16 * (16 if data == TOKENS else 1),))
    for step in range(STEPS):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(batches[step % 4]).flatten(0, -2), targets)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - begin)
    return fifth(times[FIRST:])


def seconds_under(executor, file, data, work):
    lines = train(file, data, executor, work, STEPS, False)
    if isinstance(lines, str):
        raise RuntimeError(lines)
    at = [line["seconds"] for line in lines[FIRST - 1:]]
    return fifth([b - a for a, b in zip(at, at[1:])])


def times(name, model, file, data, work, rounds):
    """The row of a network. PyTorch trains in this process, between the others."""
    found = {"PyTorch": [], "eager": [], "compiled": []}
    for turn in range(rounds):
        for who in list(found)[:: 1 if turn % 2 == 0 else -1]:
            found[who].append(seconds_here(model, data) if who == "PyTorch" else seconds_under(who, file, data, work))
    said = (work / "runs/compiled/run.log").read_text()
    left = sorted(re.findall(r"\((\w+)\)", " ".join(line for line in said.splitlines() if "by LibTorch" in line)))
    ratio = lambda who: statistics.median(a / b for a, b in zip(found[who], found["compiled"]))
    milliseconds = " | ".join(f"{1e3 * statistics.median(found[who]):.2f}" for who in found)
    print(f"| `{name}` | {milliseconds} | {ratio('PyTorch'):.2f}x | {ratio('eager'):.2f}x | {', '.join(left) or '-'} |", flush=True)
    return ratio("PyTorch"), ratio("eager")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    good, wrong, ratios = 0, 0, []
    print("| network | PyTorch eager, ms | eager, ms | compiled, ms | over PyTorch eager | over eager | by LibTorch |\n|---|---|---|---|---|---|---|" if given.times else
          "| network | exporter | against PyTorch | loss of the first and of the 20th step | compiled: largest difference of a loss |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name in given.names or (["gru"] if given.quick else NETWORKS):
            make, data = NETWORKS[name]
            torch.manual_seed(1)
            model = make().eval()
            with torch.no_grad():  # as after training: exporters make one parameter of those that are equal, and some heads begin with zeros
                for key, each in model.state_dict().items():
                    if each.is_floating_point():
                        each.add_(0.05 * (torch.rand_like(each) if "var" in key else torch.randn_like(each)))
            x = inputs(data, 5)
            with torch.no_grad():
                y = model(x)
            for dynamo in (False,) if given.times else (False, True):
                file = work / f"{name}.onnx"
                file.unlink(missing_ok=True)
                row = f"| `{name}` | {'dynamo' if dynamo else 'TorchScript'} "
                apart = export(model, inputs(data, 2), file, dynamo) or read(file, x, y, work)
                if isinstance(apart, str):
                    print(f"{row}| refused: {apart} | | |", flush=True)
                    continue
                if given.times:
                    ratios.append(times(name, model, file, data, work, given.rounds))
                    continue
                eager, compiled = losses(file, data, "eager", work), losses(file, data, "compiled", work)
                if isinstance(eager, str) or isinstance(compiled, str):
                    print(f"{row}| {apart:.1e} | does not train: {eager if isinstance(eager, str) else compiled} | |", flush=True)
                    wrong += 1
                    continue
                far = max(abs(a - b) for a, b in zip(eager, compiled))
                fine = apart <= 1e-4 and all(map(math.isfinite, eager)) and far <= 1e-3 and len(eager) == len(compiled) == 20
                good, wrong = good + fine, wrong + (not fine)
                print(f"{row}| {apart:.1e} | {eager[0]:.3f}, {eager[-1]:.3f} | {far:.1e}{'' if fine else ' WRONG'} |", flush=True)
    if given.times:
        print(f"{sum(a >= 1.5 for a, _ in ratios)} of {len(ratios)} are 1.5x of PyTorch eager, {sum(min(each) < 1.0 for each in ratios)} are slower than PyTorch or eager")
        return 0
    print(f"{good} files are read and train, {wrong} are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
