#!/usr/bin/env python3
"""What the 8-bit codes of AdamW's averages cost on scikit-learn-like digits (data/optdigits), by map and by size of a block: the paper's
dynamic map, a linear one, and the dynamic one in which small squares become zero. In PyTorch, which shares no code with the plugins.

Run with a Python that has torch and NumPy: tools/bench/byte_maps.py [SEEDS | --quick]
--quick: one seed and one epoch, nothing is worth quoting.
With the optimizer.safetensors of a checkpoint of adamw: by how much its next steps are off where its averages go through 8 bits."""
import gzip
import json
import math
import pathlib
import struct
import sys

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"byte_maps: {error}", file=sys.stderr)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
torch.set_num_threads(1)


def rows(name):
    with gzip.open(ROOT / "data/optdigits" / name, "rt") as file:
        table = np.array([[float(cell) for cell in line.split(",")] for line in file if line[0].isdigit()], dtype=np.float32)
    return torch.tensor(table[:, :-1] / 16), torch.tensor(table[:, -1]).long()


def dynamic(parts):
    numbers = [0.0]
    for decade in range(7):
        borders = np.linspace(0.1, 1.0, parts * 2**decade + 1)
        numbers += list(10.0 ** (decade - 6) * (borders[:-1] + borders[1:]) / 2)
    return torch.tensor(numbers + [1.0])


MAPS = {"dynamic": (dynamic(1), dynamic(2)), "linear": (torch.arange(128) / 127, torch.arange(256) / 255)}


def rounded(values, magnitudes, block, lift):
    flat = values.flatten()
    size = block or len(flat)
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % size)).view(-1, size)
    scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-38)
    quotients = blocks / scale
    code = torch.bucketize(quotients.abs(), (magnitudes[:-1] + magnitudes[1:]) / 2)
    if lift:
        code = torch.where((quotients > 0) & (code == 0), 1, code)
    return (magnitudes[code] * quotients.sign() * scale).flatten()[:len(flat)].view_as(values)


def train(seed, name, block, lift, epochs):
    torch.manual_seed(seed)
    (x, y), (x_test, y_test) = rows("optdigits.tra.gz"), rows("optdigits.tes.gz")
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.05)
    step, steps, worst = 0, epochs * (len(x) // 64), 0.0
    for _ in range(epochs):
        for batch in torch.randperm(len(x))[:len(x) // 64 * 64].view(-1, 64):
            step += 1
            model.zero_grad()
            loss = loss_of(model(x[batch]), y[batch])
            loss.backward()
            worst = max(worst, loss.item()) if step > 100 else 0.0
            rate = 0.003 * (1 - step / (steps + 1))
            with torch.no_grad():
                for p, (m, v) in zip(model.parameters(), state):
                    m.mul_(0.9).add_(p.grad, alpha=0.1)
                    v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                    p.mul_(1 - rate * 0.01).sub_(rate / (1 - 0.9**step) * m / (v.sqrt() / math.sqrt(1 - 0.999**step) + 1e-8))
                    if name and p.numel() >= 4096:
                        m.copy_(rounded(m, MAPS[name][0], block, False))
                        v.copy_(rounded(v, MAPS[name][1], block, lift))
    with torch.no_grad():
        output = model(x_test)
    return float((output.argmax(1) == y_test).float().mean()), float(loss_of(output, y_test)), worst


WAYS = [(name, block, lift) for name in ("dynamic", "linear") for block in (256, 2048, 0) for lift in (True, False)]


def label(name, lift):
    return (name or "32 bits") + (", only zero becomes zero" if lift else "")


def errors(path):
    data = pathlib.Path(path).read_bytes()
    length, = struct.unpack_from("<Q", data)
    tensors = {name: torch.frombuffer(bytearray(data[8 + length:][slice(*entry["data_offsets"])]), dtype=torch.float32)
               for name, entry in json.loads(data[8:8 + length]).items() if entry.get("dtype") == "F32"}
    names = [name.partition("exp_avg/")[2] for name in tensors if "exp_avg/" in name and tensors[name].numel() >= 4096]
    print(f"{'map':34} {'block':>6} {'  '.join(names)}   |step in 8 bits - step| / |step|")
    for name, block, lift in WAYS:
        found = []
        for parameter in names:
            m, v = (next(each for full, each in tensors.items() if full.endswith(kind + parameter)) for kind in ("exp_avg/", "exp_avg_sq/"))
            step = m / (v.sqrt() + 1e-8)
            other = rounded(m, MAPS[name][0], block, False) / (rounded(v, MAPS[name][1], block, lift).sqrt() + 1e-8)
            found.append(float((other - step).norm() / step.norm()))
        print(f"{label(name, lift):34} {block or 'all':>6} {'  '.join(f'{each:10.4f}' for each in found)}")


def main():
    given = sys.argv[1] if len(sys.argv) > 1 else "5"
    quick = given == "--quick"
    if not quick and not given.isdigit():
        return errors(given)
    seeds, epochs = (range(1, 2), 1) if quick else (range(1, 1 + int(given)), 20)
    print(f"{'map':34} {'block':>6} {'accuracy':>9} {'loss':>8} {'worst loss after step 100':>26}   mean of {len(seeds)} seeds")
    for name, block, lift in [(None, 0, False), *WAYS]:
        found = np.array([train(seed, name, block, lift, epochs) for seed in seeds]).mean(0)
        print(f"{label(name, lift):34} {block or 'all':>6} {found[0]:9.4f} {found[1]:8.4f} {found[2]:26.3f}", flush=True)


if __name__ == "__main__":
    main()
