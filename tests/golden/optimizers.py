"""Writes optimizers.json: 20 steps of every optimizer on a fixed problem in double precision, from torch.optim's
plain (unfused) loops, and for LARS, LAMB and row-wise Adagrad from their published equations. Run with torch 2.11."""
import fnmatch
import json
import math
import pathlib

import torch

torch.set_default_dtype(torch.float64)
STEPS = 20
NAMES = ["fc.weight", "fc.bias"]
# The gradient of a parameter w is scale * (w - goal) + 0.3 sin(w): a curved bowl around `goal`.
generator = torch.Generator().manual_seed(7)
PROBLEM = {
    name: {key: torch.randn(shape, generator=generator) for key in ("start", "goal", "scale")}
    for name, shape in (("fc.weight", (4, 3)), ("fc.bias", (3,)))
}
PROBLEM["fc.bias"]["start"].zero_()  # norm 0: the trust ratio's special case
for entry in PROBLEM.values():
    entry["scale"] = entry["scale"].abs() + 0.1
SKIPPED = (0, 1, 5, 9)  # steps in which the bias has no gradient, for cases with "gaps"


def gradient(name, w):
    entry = PROBLEM[name]
    return entry["scale"] * (w - entry["goal"]) + 0.3 * torch.sin(w)


class Lars:
    """You et al. 2017, algorithm 1, as in the MLPerf reference (classic momentum)."""

    def __init__(self, params, lr, weight_decay=0.0, momentum=0.9, nesterov=False, trust=0.001, eps=0.0, adapt="matrices"):
        self.params, self.wd, self.mu, self.nesterov, self.trust, self.eps, self.adapt = (
            params, weight_decay, momentum, nesterov, trust, eps, adapt)
        self.param_groups = [{"lr": lr}]
        self.buffers = {}

    @torch.no_grad()
    def step(self):
        lr = self.param_groups[0]["lr"]
        for p in self.params:
            if p.grad is None:
                continue
            w, g = math.sqrt(float((p * p).sum())), math.sqrt(float((p.grad * p.grad).sum()))
            ratio = 1.0
            if w > 0 and g > 0 and (self.adapt == "all" or p.dim() >= 2):
                ratio = self.trust * w / (g + self.wd * w + self.eps)
            update = ratio * lr * (p.grad + self.wd * p)
            self.buffers[p] = self.mu * self.buffers.get(p, 0.0) + update
            p -= self.mu * self.buffers[p] + update if self.nesterov else self.buffers[p]


class Lamb:
    """You et al. 2020, algorithm 2, phi the identity."""

    def __init__(self, params, lr, weight_decay=0.0, betas=(0.9, 0.999), eps=1e-6, debias=True, adapt="all"):
        self.params, self.wd, self.betas, self.eps, self.debias, self.adapt = (
            params, weight_decay, betas, eps, debias, adapt)
        self.param_groups = [{"lr": lr}]
        self.state = {}

    @torch.no_grad()
    def step(self):
        lr = self.param_groups[0]["lr"]
        for p in self.params:
            if p.grad is None:
                continue
            m, v, t = self.state.get(p, (0.0, 0.0, 0))
            b1, b2 = self.betas
            m, v, t = b1 * m + (1 - b1) * p.grad, b2 * v + (1 - b2) * p.grad**2, t + 1
            self.state[p] = (m, v, t)
            mm, vv = (m / (1 - b1**t), v / (1 - b2**t)) if self.debias else (m, v)
            r = mm / (torch.sqrt(vv) + self.eps) + self.wd * p
            w, n = math.sqrt(float((p * p).sum())), math.sqrt(float((r * r).sum()))
            ratio = w / n if w > 0 and n > 0 and (self.adapt == "all" or p.dim() >= 2) else 1.0
            p -= lr * ratio * r


class RowwiseAdagrad:
    """RWSAdagrad of facebookresearch/dlrm: a matrix has one sum a row, of the mean of the squared gradient."""

    def __init__(self, params, lr, lr_decay=0.0, weight_decay=0.0, initial_accumulator=0.0, eps=1e-10, tables=("*",)):
        self.params, self.decay, self.wd, self.eps = params, lr_decay, weight_decay, eps
        self.rows = any(fnmatch.fnmatch("fc.weight", pattern) for pattern in tables)
        self.param_groups = [{"lr": lr}]
        self.sums = {p: torch.full((len(p), 1) if p.dim() == 2 and self.rows else p.shape, initial_accumulator) for p in params}
        self.steps = dict.fromkeys(params, 0)

    @torch.no_grad()
    def step(self):
        for p in self.params:
            if p.grad is None:
                continue
            rate = self.param_groups[0]["lr"] / (1 + self.steps[p] * self.decay)
            self.steps[p] += 1
            g = p.grad + self.wd * p
            by_row = self.sums[p].shape != p.shape
            self.sums[p] += (g * g).mean(1, keepdim=True) if by_row else g * g
            p -= rate * g / (torch.sqrt(self.sums[p]) + self.eps)


PLAIN = {"foreach": False, "fused": False}
MAKERS = {
    "sgd": lambda params, **o: torch.optim.SGD(params, **o, **PLAIN),
    "sgd8": lambda params, **o: torch.optim.SGD(params, **o, **PLAIN),  # parameters so small are not packed
    "adam": lambda params, **o: torch.optim.Adam(params, **o, **PLAIN),
    "lazy_adam": lambda params, exact=True, **o: torch.optim.Adam(params, **o, **PLAIN),  # of dense gradients
    "adamw": lambda params, **o: torch.optim.AdamW(params, **o, **PLAIN),
    "adamw8": lambda params, **o: torch.optim.AdamW(params, **o, **PLAIN),  # neither
    "adagrad": lambda params, initial_accumulator=0.0, **o: torch.optim.Adagrad(
        params, initial_accumulator_value=initial_accumulator, **o, **PLAIN),
    "rmsprop": lambda params, **o: torch.optim.RMSprop(params, **o, foreach=False),
    "lars": Lars,
    "lamb": Lamb,
    "rowwise_adagrad": RowwiseAdagrad,
}
CASES = [
    ("sgd", {"lr": 0.1}, False),
    ("sgd", {"lr": 0.1, "weight_decay": 0.05}, True),
    ("sgd", {"lr": 0.1, "momentum": 0.9}, False),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}, True),
    ("sgd", {"lr": 0.1, "momentum": 0.8, "nesterov": True}, False),
    ("sgd8", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}, True),
    ("adam", {"lr": 0.05}, False),
    ("adam", {"lr": 0.05, "weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-4}, True),
    ("adam", {"lr": 0.05, "amsgrad": True, "betas": [0.5, 0.6]}, False),
    ("lazy_adam", {"lr": 0.05}, False),
    ("lazy_adam", {"lr": 0.05, "weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-4, "exact": False}, True),
    ("adamw", {"lr": 0.05, "weight_decay": 0.0}, False),
    ("adamw", {"lr": 0.05, "weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-4}, True),
    ("adamw", {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True, "betas": [0.5, 0.6]}, False),
    ("adamw8", {"lr": 0.05, "weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-4}, True),
    ("adagrad", {"lr": 0.1}, False),
    ("adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.05, "initial_accumulator": 0.2, "eps": 1e-3}, True),
    ("rmsprop", {"lr": 0.02}, False),
    ("rmsprop", {"lr": 0.02, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.05}, True),
    ("rmsprop", {"lr": 0.02, "momentum": 0.8}, True),
    ("rmsprop", {"lr": 0.02, "centered": True}, False),
    ("rmsprop", {"lr": 0.02, "centered": True, "momentum": 0.5, "weight_decay": 0.05}, False),
    ("lars", {"lr": 2.0}, False),
    ("lars", {"lr": 1.0, "momentum": 0.8, "nesterov": True, "trust": 0.02, "eps": 1e-3, "weight_decay": 0.05}, True),
    ("lars", {"lr": 2.0, "trust": 0.01, "adapt": "all"}, False),
    ("lamb", {"lr": 0.05}, False),
    ("lamb", {"lr": 0.05, "weight_decay": 0.1, "betas": [0.8, 0.95], "eps": 1e-3, "adapt": "matrices"}, True),
    ("lamb", {"lr": 0.05, "weight_decay": 0.1, "debias": False}, False),
    ("rowwise_adagrad", {"lr": 0.1}, False),
    ("rowwise_adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.05, "initial_accumulator": 0.2, "eps": 1e-3}, True),
    ("rowwise_adagrad", {"lr": 0.1, "tables": ["fc.w*"]}, True),
]


def run(plugin, options, gaps):
    params = {name: PROBLEM[name]["start"].clone().requires_grad_() for name in NAMES}
    optimizer = MAKERS[plugin](list(params.values()), **options)
    trace = []
    for step in range(STEPS):
        for name, p in params.items():
            missing = gaps and name == "fc.bias" and step in SKIPPED
            p.grad = None if missing else gradient(name, p.detach())
        for group in optimizer.param_groups:
            group["lr"] = options["lr"] * (1 - step / (2 * STEPS))
        optimizer.step()
        if step in (0, 1, STEPS - 1):
            trace.append({"step": step + 1, "params": {n: p.detach().flatten().tolist() for n, p in params.items()}})
    return {"plugin": plugin, "options": options, "gaps": gaps, "trace": trace}


problem = {n: {"shape": list(e["start"].shape)} | {k: v.flatten().tolist() for k, v in e.items()} for n, e in PROBLEM.items()}
head = {"steps": STEPS, "skipped": SKIPPED, "problem": problem}
lines = ",\n".join(json.dumps(run(*case)) for case in CASES)
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
