"""What tools/bench/resnet56_cuda.toml trains, by PyTorch on one batch that lies on the GPU: samples a second, eager and compiled.
--quick: few steps, to see that it works."""
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    torch = None
if torch is None or not torch.cuda.is_available():
    print("it takes a GPU, and PyTorch for it", file=sys.stderr)
    sys.exit(77)

BATCH, STEPS = 128, 4 if "--quick" in sys.argv else 128


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x):
        y = self.norms[1](self.second(functional.relu(self.norms[0](self.first(x)))))
        if self.more:
            x = functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return functional.relu(x + y)


def network():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    for inputs, outputs in ((16, 16), (16, 32), (32, 64)):
        layers += [Block(inputs if i == 0 else outputs, outputs, 2 if i == 0 and inputs != outputs else 1) for i in range(9)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()


def rate(compiled, half):
    images, classes = torch.randn(BATCH, 3, 32, 32, device="cuda"), torch.randint(0, 10, (BATCH,), device="cuda")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    forward = torch.compile(model, mode="reduce-overhead") if compiled else model

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = functional.cross_entropy(forward(images), classes)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()

    steps(20)
    began = time.perf_counter()
    steps(STEPS)
    return BATCH * STEPS / (time.perf_counter() - began)


for compiled in (False, True):
    for half in (False, True):
        print(f"{'compiled' if compiled else 'eager':8} {'bf16' if half else 'fp32'} {rate(compiled, half):8.0f} samples a second", flush=True)
