"""What the tests of exports share: run files of the models that they train, and how a static export is compiled."""
import subprocess

from support.host import SMALL

DATA = 'type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3'
MODEL = 'type = "mlp"\nlayers = [8, 16, 3]'
SEQUENTIAL = """type = "sequential"
layers = [
  { type = "conv2d", out = 4, kernel = 3, padding = 1, stride = 2 }, { type = "batch_norm", epsilon = 1e-3 }, { type = "elu", alpha = 0.7 },
  { type = "conv2d", out = 8, kernel = 3, groups = 2, bias = false }, { type = "leaky_relu", alpha = 0.2 }, { type = "dropout" },
  { type = "max_pool", kernel = 2, padding = 1 }, { type = "layer_norm" }, { type = "selu" }, { type = "average_pool", kernel = 2 },
  { type = "gelu" }, { type = "flatten" }, { type = "linear", out = 9 }, { type = "sigmoid" }, { type = "tanh" }, { type = "linear", out = 3, bias = false }]"""


def run(model, data=DATA):
    return SMALL.replace(MODEL, model).replace(DATA, data)


def images(*shape):
    return DATA.replace("[8]", str(list(shape)))


def built(folder, *flags):
    """Its programs, by the Makefile that lies there."""
    done = subprocess.run(["make", "-C", str(folder), "CXXFLAGS=-std=c++20 -O2 -Wall -Wextra", *flags], text=True, capture_output=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return folder
