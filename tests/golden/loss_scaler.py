"""Writes loss_scaler.json: scale, decision and unscaled gradient of torch.amp.GradScaler, step by step, on scripted
patterns of overflow; and what torch.nn.utils.clip_grad_norm_ and clip_grad_value_ make of gradients. torch 2.11."""
import json
import math
import pathlib

import torch

GRADIENTS = [0.3, -1.7, 2e-4, 0.5]  # of the loss itself, in single precision
CASES = {
    "growth, overflow by infinity and by NaN, growth again": {
        "options": {"initial": 65536.0, "growth": 2.0, "backoff": 0.5, "interval": 4},
        "steps": [None] * 5 + [math.inf] + [None] * 3 + [math.nan, math.inf] + [None] * 9 + [-math.inf] + [None] * 4,
    },
    "never beyond the largest float": {
        "options": {"initial": 2.0**126, "growth": 2.0, "backoff": 0.5, "interval": 1},
        "steps": [None] * 3 + [math.inf] + [None] * 3,
    },
    "factors that are no powers of two": {
        "options": {"initial": 1000.0, "growth": 1.7, "backoff": 0.3, "interval": 2},
        "steps": [None, None, math.inf, None, None, None, None, math.inf, math.inf, None, None],
    },
}


def trace(options, steps):
    scaler = torch.amp.GradScaler("cpu", init_scale=options["initial"], growth_factor=options["growth"],
                                  backoff_factor=options["backoff"], growth_interval=options["interval"])
    weights = [torch.zeros(len(GRADIENTS), requires_grad=True), torch.zeros(1, requires_grad=True)]
    optimizer = torch.optim.SGD(weights, lr=1.0)
    for overflow in steps:
        scale = scaler.scale(torch.tensor(1.0)).item()
        weights[0].grad = torch.tensor(GRADIENTS) * scale
        weights[1].grad = torch.tensor([1.0 * scale if overflow is None else overflow])
        given = [w.grad.tolist() for w in weights]
        before = [w.detach().clone() for w in weights]
        scaler.unscale_(optimizer)
        unscaled = [w.grad.tolist() for w in weights]
        scaler.step(optimizer)
        taken = any(not torch.equal(a, b.detach()) for a, b in zip(before, weights))
        scaler.update()
        yield {"given": given, "unscaled": unscaled, "taken": taken, "scale": scaler.get_scale()}


def clipped(rule, bound):
    generator = torch.Generator().manual_seed(3)
    weights = [torch.zeros(shape, requires_grad=True) for shape in ((3, 4), (5,), ())]
    for w in weights:
        w.grad = torch.randn(w.shape, generator=generator)
    case = {"type": rule, "max": bound, "shapes": [list(w.shape) for w in weights],
            "given": [w.grad.flatten().tolist() for w in weights]}
    if rule == "norm":
        case["norm"] = torch.nn.utils.clip_grad_norm_(weights, bound).item()
    else:
        torch.nn.utils.clip_grad_value_(weights, bound)
    return {**case, "clipped": [w.grad.flatten().tolist() for w in weights]}


result = {
    "scaler": [{"name": name, "options": case["options"], "trace": list(trace(case["options"], case["steps"]))}
               for name, case in CASES.items()],
    "clip": [clipped("norm", 1.0), clipped("norm", 100.0), clipped("value", 0.5)],
}


def plain(value):
    """JSON has no infinity and no NaN: they go as text."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


lines = [f'"{key}": [\n' + ",\n".join(json.dumps(plain(each)) for each in value) + "\n]" for key, value in result.items()]
pathlib.Path(__file__).with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
