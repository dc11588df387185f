"""Writes dropouts.json: what torch.nn's dropouts make of a unit that is kept, and of one that is dropped. Run with
torch 2.11."""
import json
import pathlib

import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(5)


def of_units(module, x):
    """What each unit becomes where it is kept, and where it is dropped, from many draws."""
    kept = torch.zeros_like(x)
    dropped = torch.zeros_like(x)
    for _ in range(400):
        leaf = x.clone().requires_grad_()
        y = module(leaf)
        y.sum().backward()
        kept = torch.where(leaf.grad != 0, y.detach(), kept)
        dropped = torch.where(leaf.grad == 0, y.detach(), dropped)
    return kept, dropped


cases = [
    ("standard", {"p": 0.3}, nn.Dropout(0.3), (3, 5), False),
    ("spatial", {"p": 0.4}, nn.Dropout1d(0.4), (3, 4, 5), True),
    ("spatial", {"p": 0.4}, nn.Dropout2d(0.4), (3, 4, 2, 3), True),
    ("spatial", {"p": 0.25}, nn.Dropout3d(0.25), (2, 3, 2, 2, 2), True),
    ("alpha", {"p": 0.1}, nn.AlphaDropout(0.1), (3, 5), False),
    ("alpha", {"p": 0.35}, nn.AlphaDropout(0.35), (3, 5), False),
    ("alpha", {"p": 0.2, "feature": True}, nn.FeatureAlphaDropout(0.2), (3, 4, 2, 3), True),
]
result = []
for plugin, options, module, shape, channels in cases:
    x = torch.randn(shape)
    kept, dropped = of_units(module, x)
    result.append({"plugin": plugin, "options": options, "shape": list(shape), "channels": channels,
                   "x": x.flatten().tolist(), "kept": kept.flatten().tolist(),
                   "dropped": dropped.flatten().tolist()})
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in result) + "\n]\n")
