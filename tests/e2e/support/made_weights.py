"""Weights and inputs that are made of names, the same wherever they are made: NumPy's RandomState never changes."""
import zlib

import numpy as np


def normal(name, shape):
    return np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)


def made(name, shape):
    """Of such sizes that signals neither vanish nor grow; factors of norms and variances are around 1. Counts are integers."""
    if name.endswith("num_batches_tracked"):
        return np.array(7, np.int64)
    numbers = normal(name, shape)
    if name.endswith("running_var"):
        numbers = 0.5 + np.abs(numbers)
    elif len(shape) == 1 and name.endswith("weight"):
        numbers = 1 + 0.2 * numbers
    elif len(shape) == 1 or name.endswith("running_mean"):
        numbers = 0.2 * numbers
    else:
        numbers /= np.sqrt(np.prod(shape[1:]))
    return numbers.astype(np.float32)


def image(*shape):
    return normal(f"image {shape}", shape).astype(np.float32)


def tokens(samples, length, vocabulary):
    return np.random.RandomState(samples * length).randint(0, vocabulary, (samples, length))
