"""Runs of the dataset corrupted, and what the network sees in them."""
import json
import struct

import numpy
from safetensors.numpy import load_file

from support.host import SMALL, KilledTest

RUN = SMALL.replace('"synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
                    '"corrupted"\nof = [{ type = "idx", images = "images", labels = "labels", classes = 3SCALE }]\nOPTIONS').replace(
    "size = 64, ", "").replace("size = 32, ", "")


def idx(values):
    return struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape) + values.astype(numpy.uint8).tobytes()


class CorruptedTest(KilledTest):
    def images(self, pixels):
        """Writes them, bytes [count, channels, height, width], and labels."""
        self.shape = pixels.shape[1:]
        self.write("images", idx(pixels))
        self.write("labels", idx(numpy.arange(len(pixels)) % 3))

    def text(self, name, severity=3, scale="", **options):
        if name is not None:
            options["corruptions"] = [name] if isinstance(name, str) else name
        options["severity"] = severity if isinstance(severity, list) else [severity]
        said = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        size = int(numpy.prod(self.shape))
        return RUN.replace("SCALE", scale).replace("OPTIONS", said).replace("[8, 16, 3]", f"[{size}, 4, 3]")

    def seen(self, name, severity=3, *words, split="val", **options):
        """What the network sees of a split, [count, channels, height, width]."""
        text = self.text(name, severity, **options)
        self.write("run.toml", text if split == "train" else text.replace("batch_size = 16, shuffle", "batch_size = 1, shuffle"))
        self.host("predict", "run.toml", "--weights", "initial", "--split", split, "--inputs", "true", "--out", "seen.safetensors", *words)
        return load_file(self.folder / "seen.safetensors")["input/0"]

    def flat(self, count, *channels, side=32):
        """Images of one colour."""
        colour = numpy.array(channels, dtype=numpy.uint8)[None, :, None, None]
        self.images(numpy.broadcast_to(colour, (count, len(channels), side, side)))

    def some(self, count, channels, side=16):
        """Images with something at every place, smooth and not; the last pixels are grey and black."""
        random = numpy.random.default_rng(5)
        y, x = numpy.mgrid[:side, :side]
        waves = [127 + 90 * numpy.sin(0.4 * x + 0.3 * (c + 1) * y + i) for i in range(count) for c in range(channels)]
        pixels = numpy.array(waves).reshape(count, channels, side, side) + random.integers(-30, 30, (count, channels, side, side))
        pixels = numpy.clip(pixels, 0, 255).astype(numpy.uint8)
        pixels[:, :, -1, -4:] = [[[90, 91, 0, 255]]]
        self.images(pixels)
        return pixels / 255
