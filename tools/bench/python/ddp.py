"""What bench_ranks.py compares with: PyTorch's DistributedDataParallel on Gloo, data ready in memory, nothing logged.
LAYERS (64,128,10) BATCH (of a rank) CHUNKS STEPS (of a chunk). Rank 0 prints the seconds of each chunk."""
import json
import sys
import time

import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

layers, batch, chunks, steps = [int(n) for n in sys.argv[1].split(",")], *map(int, sys.argv[2:])
torch.set_num_threads(1)
torch.manual_seed(17)
distributed.init_process_group("gloo")
parts = []
for i, o in zip(layers, layers[1:]):
    parts += [torch.nn.Linear(i, o), torch.nn.ReLU()]
model = DistributedDataParallel(torch.nn.Sequential(*parts[:-1]), gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
x, y = torch.randn(4096, layers[0]), torch.randint(layers[-1], (4096,))
seconds = []
for chunk in range(chunks):
    began = time.perf_counter()
    for step in range(steps):
        at = (chunk * steps + step) * batch % (4096 - batch)
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(x[at:at + batch]), y[at:at + batch]).backward()
        optimizer.step()
    seconds.append(time.perf_counter() - began)
if distributed.get_rank() == 0:
    print(json.dumps(seconds))
distributed.destroy_process_group()
