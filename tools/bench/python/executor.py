"""PyTorch's steps of the models of bench_executor: MODEL eager|compile|ipex fp32|bf16-mixed THREADS. Reads numbers of steps,
one a line, and says "done" behind each."""
import sys
import time

import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(int(sys.argv[4]))
torch.manual_seed(17)


class Block(nn.Module):
    """Two convolutions and the shortcut of zero channels (He et al., option A)."""

    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.grown = out - inside

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.grown:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.grown // 2, self.grown - self.grown // 2))
        return functional.relu(y + x)


def resnet20():
    blocks, inside = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for stage in range(3):
        for block in range(3):
            blocks.append(Block(inside, 16 << stage, 2 if stage and not block else 1))
            inside = 16 << stage
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time_, width = x.shape
        q, k, v = (each.view(batch, time_, self.heads, -1).transpose(1, 2) for each in self.qkv(self.ln1(x)).split(width, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, time_, width))
        return x + self.out(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=65, time_=128, width=128, layers=4, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(time_, width))
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(width)

    def forward(self, x):
        return functional.linear(self.ln(self.layers(self.wte(x) + self.wpe)), self.wte.weight)


class Lstm(nn.Module):
    def __init__(self, vocabulary=65, width=256, layers=2):
        super().__init__()
        self.wte, self.cells = nn.Embedding(vocabulary, width), nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.cells(self.wte(x))[0])


def mlp(*widths):
    layers = [part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def small(batch):
    return lambda: mlp(64, 128, 128, 10), (batch, 64), 10, "adam"


MODELS = {"lenet": (lenet, (128, 1, 28, 28), 10, "adamw"), "resnet20": (resnet20, (128, 3, 32, 32), 10, "sgd"),
          "gpt": (Gpt, (32, 128), 65, "adamw"), "lstm": (Lstm, (32, 128), 65, "adamw"), "mlp": (lambda: mlp(784, 256, 128, 10), (128, 784), 10, "adamw"),
          "small8": small(8), "small32": small(32), "small128": small(128)}
make, shape, classes, name = MODELS[sys.argv[1]]
model = make()
tokens = sys.argv[1] in ("gpt", "lstm")
batches = [(torch.randint(classes, shape) if tokens else torch.rand(shape), torch.randint(classes, shape if tokens else shape[:1])) for _ in range(4)]
optimizer = {"adamw": lambda p: torch.optim.AdamW(p, lr=0.001, weight_decay=0.01, fused=True), "adam": lambda p: torch.optim.Adam(p, lr=0.001, fused=True),
             "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True)}[name](model.parameters())
if sys.argv[2] == "ipex":
    import intel_extension_for_pytorch  # its optimizer is fused, too

    model, optimizer = intel_extension_for_pytorch.optimize(model, optimizer=optimizer, dtype=torch.bfloat16 if sys.argv[3] == "bf16-mixed" else torch.float32)


def loss_of(x, y):
    with torch.autocast("cpu", torch.bfloat16, enabled=sys.argv[3] == "bf16-mixed"):
        return functional.cross_entropy(model(x).flatten(0, -2), y.flatten())


if sys.argv[2] == "compile":
    loss_of = torch.compile(loss_of)
steps = 0
began = time.perf_counter()
for line in sys.stdin:
    for _ in range(int(line)):
        x, y = batches[steps % len(batches)]
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()
        steps += 1
    print("done", flush=True)
