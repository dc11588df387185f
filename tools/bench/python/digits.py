"""The training that all contenders of bench_whole do: data, model, and what a script prints at its end."""
import gzip
import json
import os
import time

import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
DATA = os.path.join(os.path.dirname(__file__), "../../../data/optdigits/optdigits.")
BATCH_SIZE = 64
LR, WEIGHT_DECAY = 0.003, 0.01


def tensors(split):
    with gzip.open(f"{DATA}{split}.gz", "rt") as file:
        rows = numpy.loadtxt(file, delimiter=",", skiprows=1, dtype=numpy.float32)
    return torch.from_numpy(rows[:, :-1] / 16), torch.from_numpy(rows[:, -1]).long()


def loader(split, batch_size, shuffle):
    return DataLoader(TensorDataset(*tensors(split)), batch_size=batch_size, shuffle=shuffle)


def model():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def report(began, steps, accuracy):
    print(json.dumps({"seconds": time.perf_counter() - began, "steps": steps, "accuracy": accuracy}))
