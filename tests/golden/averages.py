"""Writes averages.json: exponential and equal averages by torch.optim.swa_utils.AveragedModel (use_buffers=True) over a
fixed sequence of weights, in double precision. Run with torch 2.11."""
import json
import pathlib

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_default_dtype(torch.float64)
torch.manual_seed(5)
model = torch.nn.BatchNorm1d(3)  # weight, bias; running_mean, running_var, num_batches_tracked
FIELDS = ["weight", "bias", "running_mean", "running_var"]
averaged = {
    "ema": AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True),
    "swa": AveragedModel(model, use_buffers=True),
}
steps = []
for _ in range(8):
    with torch.no_grad():
        for name in FIELDS:
            getattr(model, name).copy_(torch.randn(3))
    for average in averaged.values():
        average.update_parameters(model)
    steps.append({
        "weights": {name: getattr(model, name).tolist() for name in FIELDS},
        **{kind: {name: getattr(average.module, name).tolist() for name in FIELDS} for kind, average in averaged.items()},
    })
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text("[\n" + ",\n".join(json.dumps(step) for step in steps) + "\n]\n")
