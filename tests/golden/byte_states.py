"""Writes byte_states.json: the maps of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (arXiv 2110.02861), and
steps of AdamW and SGD whose averages stand in 8 bits, from the paper's definitions: in NumPy, a code found among all 256 of its map.
Two things differ from the paper, as plugins/optimizer says: the signed map has -1 beside 1, and only zero is stored as the unsigned
zero. Run with .deps/venv/bin/python."""
import json
import pathlib

import numpy as np

COUNT, BLOCK, STEPS = 5000, 256, 12
F = np.float32


def magnitudes(in_least_decade):
    """Seven decades, each divided evenly; a number lies in the middle of its part. Section 1.3 of the paper, and its figure 2: the
    count of zeros ahead of the first set bit is the decade, the bits after it the fraction."""
    numbers = []
    for decade in range(7):
        borders = np.linspace(0.1, 1.0, in_least_decade * 2**decade + 1)
        numbers += list(10.0 ** (decade - 6) * (borders[:-1] + borders[1:]) / 2)
    return numbers


SIGNED = np.array([0.0] + magnitudes(1)[:-1] + [1.0], dtype=F)
SIGNED = np.concatenate([-SIGNED[:0:-1], SIGNED])  # codes -127 to 127
UNSIGNED = np.array([0.0] + magnitudes(2) + [1.0], dtype=F)
assert len(SIGNED) == 255 and len(UNSIGNED) == 256


def packed(values, signed):
    codes, scales = np.zeros(len(values), dtype=np.int64), []
    for begin in range(0, len(values), BLOCK):
        block = values[begin:begin + BLOCK]
        scale = np.abs(block).max()
        scales.append(scale)
        quotients = block / scale if scale > 0 else block * 0
        table = SIGNED if signed else UNSIGNED
        nearest = np.abs(quotients[:, None].astype(np.float64) - table[None, :]).argmin(1)
        codes[begin:begin + BLOCK] = nearest - 127 if signed else np.where(quotients > 0, np.maximum(nearest, 1), 0)
    return codes, np.array(scales, dtype=F)


def unpacked(codes, scales, signed):
    return (SIGNED[codes + 127] if signed else UNSIGNED[codes]) * np.repeat(scales, BLOCK)[:len(codes)]


def problem():
    i = np.arange(COUNT, dtype=np.float64)
    return np.sin(0.37 * i).astype(F), np.cos(1.1 * i).astype(F), np.exp(5.0 * np.sin(0.7 * i)).astype(F)


def gradient(w, goal, scale, step):
    return (scale * (w - goal) * F(1 + step % 3)).astype(F)


def of_adamw8(lr, weight_decay, betas, eps):
    w, goal, scale = problem()
    m, v = packed(w * 0, True), packed(w * 0, False)
    for step in range(1, STEPS + 1):
        g = gradient(w, goal, scale, step)
        mean = F(betas[0]) * unpacked(*m, True) + F(1 - betas[0]) * g
        square = F(betas[1]) * unpacked(*v, False) + F(1 - betas[1]) * g * g
        w = (w * F(1 - lr * weight_decay) - F(lr / (1 - betas[0]**step)) * mean
             / (np.sqrt(square) / F(np.sqrt(1 - betas[1]**step)) + F(eps))).astype(F)
        m, v = packed(mean, True), packed(square, False)
    return w, {"exp_avg": m, "exp_avg_sq": v}


def of_sgd8(lr, weight_decay, momentum, dampening=0.0, nesterov=False):
    w, goal, scale = problem()
    b = packed(w * 0, True)
    for step in range(1, STEPS + 1):
        g = gradient(w, goal, scale, step) + F(weight_decay) * w
        buffer = g if step == 1 else F(momentum) * unpacked(*b, True) + F(1 - dampening) * g
        w = (w - F(lr) * (g + F(momentum) * buffer if nesterov else buffer)).astype(F)
        b = packed(buffer, True)
    return w, {"momentum_buffer": b}


CASES = [
    ("adamw8", of_adamw8, {"lr": 0.01, "weight_decay": 0.1, "betas": [0.9, 0.99], "eps": 1e-8}),
    ("sgd8", of_sgd8, {"lr": 1e-4, "weight_decay": 0.05, "momentum": 0.9, "dampening": 0.3}),
    ("sgd8", of_sgd8, {"lr": 1e-4, "weight_decay": 0.05, "momentum": 0.8, "nesterov": True}),
]


def run(plugin, function, options):
    w, slots = function(**options)
    shown = {name: {"codes": [int(c) for c in codes[::7]], "scales": [float(s) for s in scales]}
             for name, (codes, scales) in slots.items()}
    return {"plugin": plugin, "options": options, "weights": [float(x) for x in w[::7]], "slots": shown}


whole = {"count": COUNT, "steps": STEPS, "every": 7, "signed": [float(x) for x in SIGNED[127:]],
         "unsigned": [float(x) for x in UNSIGNED], "cases": [run(*case) for case in CASES]}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(whole) + "\n")
