"""PyTorch, as its tutorials write a training. EPOCHS, then any of: fused (the fused AdamW), premade (no DataLoader:
the batches of an epoch are made once, and only steps are timed)."""
import sys
import time

import torch
from torch.nn import functional

import digits

epochs, choices = int(sys.argv[1]), sys.argv[2:]
model = digits.model()
optimizer = torch.optim.AdamW(model.parameters(), lr=digits.LR, weight_decay=digits.WEIGHT_DECAY,
                              fused="fused" in choices or None)
train = digits.loader("tra", digits.BATCH_SIZE, shuffle=True)
test = digits.loader("tes", 256, shuffle=False)
if "premade" in choices:
    train = list(train)

steps = 0
began = time.perf_counter()
for _ in range(epochs):
    for x, y in train:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        steps += 1
with torch.no_grad():
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
digits.report(began, steps, right / len(test.dataset))
