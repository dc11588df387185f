"""Writes packed_activations.json: gradients of a small network whose activations are kept in 8 bits between forward and backward, by
PyTorch 2.11 with torch.autograd.graph.saved_tensors_hooks and codes by NumPy."""
import json
import pathlib

import numpy
import torch
from torch.autograd.graph import saved_tensors_hooks

BATCH, BLOCK = 9, 64
SEED = 11  # one with which some outputs of both ReLUs are below half a step
torch.manual_seed(SEED)
torch.set_num_threads(1)
raised = []  # positive values that rounding alone would have made 0


def rounded(values, scheme, keeps_positive):
    """Flat float32 values after a round trip through codes of 8 bits, each block with its own scale."""
    one = numpy.float32
    result = numpy.empty_like(values)
    for begin in range(0, len(values), BLOCK):
        x = values[begin:begin + BLOCK]
        low, high = min(x.min(), one(0)), max(x.max(), one(0))
        scale = one(high / one(255)) - one(low / one(255)) if scheme == "affine" else max(high, -low) / one(127)
        inverse = one(1) / scale if scale > 0 else one(0)
        zero = int(min(numpy.rint(-low * inverse), 254)) if scheme == "affine" else 0
        codes = numpy.rint(x * inverse).astype(int) + zero
        if keeps_positive:
            raised.append(int(((x > 0) & (codes <= zero)).sum()))
            codes = numpy.where((x > 0) & (codes <= zero), zero + 1, codes)
        codes = codes.clip(0, 255) if scheme == "affine" else codes.clip(-127, 127)
        result[begin:begin + BLOCK] = (codes - zero).astype(one) * scale
    return result


class Store:
    """Tensors of a pass, each rounded once; what is no activation, by its place in memory or its first dimension, stays whole."""

    def __init__(self, scheme, whole):
        self.scheme, self.whole, self.kept = scheme, {each.data_ptr() for each in whole}, {}

    def hooks(self, keeps_positive=False):
        def pack(tensor):
            if self.scheme is None or tensor.dtype != torch.float32 or tensor.shape[0] != BATCH or tensor.data_ptr() in self.whole:
                return tensor
            if tensor.data_ptr() not in self.kept:
                flat = rounded(tensor.detach().contiguous().numpy().ravel(), self.scheme, keeps_positive)
                self.kept[tensor.data_ptr()] = tensor, torch.from_numpy(flat)
            return self.kept[tensor.data_ptr()][1].reshape(tensor.shape)
        return saved_tensors_hooks(pack, lambda packed: packed)


def numbers(tensor):
    return {"shape": list(tensor.shape), "values": [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]}


layers = torch.nn.ModuleDict({
    "c1": torch.nn.Conv2d(2, 4, 3, padding=1), "bn1": torch.nn.BatchNorm2d(4), "c2": torch.nn.Conv2d(4, 5, 3, padding=1),
    "fc1": torch.nn.Linear(5 * 3 * 3, 12), "fc2": torch.nn.Linear(12, 6), "fc3": torch.nn.Linear(6, 3)})
torch.nn.init.uniform_(layers["bn1"].weight, 0.5, 1.5)
x, gradient = torch.randn(BATCH, 2, 6, 6), torch.randn(BATCH, 3)
golden = {"block": BLOCK, "input": numbers(x), "output_gradient": numbers(gradient),
          "parameters": {f"{layer}.{name}": numbers(value) for layer, module in layers.items() for name, value in module.named_parameters()}}
for scheme in (None, "affine", "absmax"):
    layers.zero_grad()
    store = Store(scheme, [x])
    with store.hooks():
        y = layers["bn1"](layers["c1"](x))
    with store.hooks(keeps_positive=True):
        y = torch.relu(y)
    with store.hooks():
        y = torch.nn.functional.gelu(layers["c2"](torch.nn.functional.max_pool2d(y, 2)))
        y = torch.tanh(layers["fc1"](y.flatten(1)))
        y = layers["fc2"](y)
    with store.hooks(keeps_positive=True):
        y = torch.relu(y)
    with store.hooks():
        y = layers["fc3"](y)
    y.backward(gradient)
    golden[scheme or "whole"] = {f"{layer}.{name}": numbers(value.grad) for layer, module in layers.items()
                                 for name, value in module.named_parameters()}
    assert scheme is None or (sum(raised[:-1]) > 0 and raised[-1] > 0), raised
    raised.clear()
    golden[f"{scheme or 'whole'}_tensors"] = len(store.kept)
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
