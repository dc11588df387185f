#!/usr/bin/env python3
"""Trains an MLP 64-512-512-10 on 1,797 handwritten digits with numpy, writes its weights, inputs and activations in the fixed-point format Q3.12 as
files of 16-bit values, and has `bench_codec lengths` pack them.
  tools/bench/fixed_point.py
  --quick      two epochs, to see that it works"""
import gzip
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


SOURCE = pathlib.Path(__file__).resolve().parents[2]
BENCH = SOURCE / "build/release/bin/bench_codec"
DIGITS = SOURCE / "data/optdigits/optdigits.tes.gz"


def train(x, labels, epochs, batch=200, lr=1e-3):
    random = numpy.random.default_rng(1)
    sizes = [64, 512, 512, 10]
    weights = [random.uniform(-1, 1, (a, b)).astype(numpy.float32) * (6 / (a + b)) ** 0.5 for a, b in zip(sizes, sizes[1:])]
    m, v = [numpy.zeros_like(w) for w in weights], [numpy.zeros_like(w) for w in weights]
    step = 0
    for _ in range(epochs):
        order = random.permutation(len(x))
        for at in range(0, len(x), batch):
            some = order[at:at + batch]
            layers = [x[some]]
            for w in weights[:-1]:
                layers.append(numpy.maximum(layers[-1] @ w, 0))
            scores = layers[-1] @ weights[-1]
            chances = numpy.exp(scores - scores.max(1, keepdims=True))
            chances /= chances.sum(1, keepdims=True)
            chances[numpy.arange(len(some)), labels[some]] -= 1
            back = chances / len(some)
            step += 1
            for i in reversed(range(3)):
                gradient = layers[i].T @ back
                back = (back @ weights[i].T) * (layers[i] > 0)
                m[i] = 0.9 * m[i] + 0.1 * gradient
                v[i] = 0.999 * v[i] + 0.001 * gradient ** 2
                weights[i] -= lr * (m[i] / (1 - 0.9 ** step)) / (numpy.sqrt(v[i] / (1 - 0.999 ** step)) + 1e-8)
    return weights


def main():
    table = numpy.array([line.split(",") for line in gzip.open(DIGITS, "rt").read().splitlines()[1:]], dtype=numpy.float32)
    x, labels = table[:, :64] / 16, table[:, 64].astype(int)
    weights = train(x, labels, 2 if "--quick" in sys.argv else 25)
    layers = [x]
    for w in weights[:-1]:
        layers.append(numpy.maximum(layers[-1] @ w, 0))
    right = ((layers[-1] @ weights[-1]).argmax(1) == labels).mean()
    print(f"{100 * right:.1f} % of the training digits are right", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        def write(name, values):
            numpy.clip(numpy.rint(values * 4096), -32768, 32767).astype(numpy.int16).tofile(pathlib.Path(folder) / name)
        for i, w in enumerate(weights):
            write(f"weights_{i}.i16", w.T)
        for i, layer in enumerate(layers):
            write(f"{'activations' if i else 'inputs'}_{i}.u16", layer)
        subprocess.run([BENCH, "lengths"], check=True, env={**os.environ, "TRAINYARD_CODEC_FILES": folder})


main()
