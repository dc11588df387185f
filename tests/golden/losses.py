"""Writes losses.json: values and gradients of the losses, from torch.nn.functional. Run with torch 2.11."""
import json
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(11)


def randn(*shape):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def classes(count, *shape):
    return torch.randint(count, shape, generator=generator)


def last_axis(f):
    """torch wants classes on axis 1, the run's outputs have them last."""
    return lambda output, target, **options: f(output.movedim(-1, 1), target, **options)


padded = classes(5, 3, 4)
padded[0, 1:] = 4
cases = [
    ("cross_entropy", {}, randn(6, 5), classes(5, 6), last_axis(F.cross_entropy), {}),
    ("cross_entropy", {"label_smoothing": 0.1}, randn(6, 5), classes(5, 6), last_axis(F.cross_entropy), None),
    ("cross_entropy", {}, randn(3, 4, 5), classes(5, 3, 4), last_axis(F.cross_entropy), {}),
    ("cross_entropy", {"ignore_index": 4}, randn(3, 4, 5), padded, last_axis(F.cross_entropy), None),
    ("cross_entropy", {"ignore_index": 4, "label_smoothing": 0.2}, randn(3, 4, 5), padded, last_axis(F.cross_entropy), None),
    ("bce_with_logits", {}, randn(7), classes(2, 7), lambda o, t: F.binary_cross_entropy_with_logits(o, t.to(o)), {}),
    ("bce_with_logits", {}, randn(4, 3), torch.rand((4, 3), generator=generator), F.binary_cross_entropy_with_logits, {}),
    ("bce_with_logits", {"pos_weight": 3.0}, randn(7), classes(2, 7),
     lambda o, t: F.binary_cross_entropy_with_logits(o, t.to(o), pos_weight=torch.tensor(3.0)), {}),
    ("mse", {}, randn(5), randn(5), F.mse_loss, {}),
    ("mse", {}, randn(5, 2), randn(5, 2), F.mse_loss, {}),
    ("mae", {}, randn(5), randn(5), F.l1_loss, {}),
    ("mae", {}, randn(5, 2), randn(5, 2), F.l1_loss, {}),
    ("huber", {}, randn(5), randn(5), F.huber_loss, {}),
    ("huber", {"delta": 0.3}, randn(5, 2), 3 * randn(5, 2), F.huber_loss, None),
]
result = []
for plugin, options, output, target, function, arguments in cases:
    output.requires_grad_()
    loss = function(output, target, **(options if arguments is None else arguments))
    loss.backward()
    result.append({
        "plugin": plugin, "options": options, "shape": list(output.shape), "output": output.detach().flatten().tolist(),
        "target_shape": list(target.shape), "integers": not target.is_floating_point(), "target": target.flatten().tolist(),
        "loss": loss.item(), "gradient": output.grad.flatten().tolist(),
    })
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in result) + "\n]\n")
