"""Weights of dense networks in ONNX files, read without a library: what an `mlp` of the same shape takes."""
import numpy as np


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _fields(data):
    """Number and content of each field of a protocol-buffer message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            size, at = {1: (8, at), 5: (4, at)}.get(key & 7) or _varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def _tensor(data):
    dims, name, values = [], "", None
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            dims.append(value)
        elif field == 1:
            at = 0
            while at < len(value):
                dim, at = _varint(value, at)
                dims.append(dim)
        elif field in (4, 9):
            values = np.frombuffer(value, np.float32)
        elif field == 8:
            name = value.decode()
    return name, values.reshape(dims) if values is not None and values.size == np.prod(dims) else None


def dense_weights(path):
    """fc1.weight [out, in], fc1.bias, fc2.weight, ... of a chain of Gemm (transB), or MatMul and Add, and Relu."""
    (graph,) = [value for field, value in _fields(path.read_bytes()) if field == 7]
    tensors = dict(_tensor(value) for field, value in _fields(graph) if field == 5)
    found, layer = {}, 0
    for node in (list(_fields(value)) for field, value in _fields(graph) if field == 1):
        inputs = [value.decode() for field, value in node if field == 1]
        (op,) = [value.decode() for field, value in node if field == 4]
        constant = [tensors[name] for name in inputs if name in tensors]
        if op in ("Gemm", "MatMul"):
            layer += 1
            turned = op == "MatMul" and inputs[1] in tensors
            found[f"fc{layer}.weight"] = np.ascontiguousarray(constant[0].T if turned else constant[0])
        if op in ("Gemm", "Add"):
            found[f"fc{layer}.bias"] = constant[-1].reshape(-1).copy()
    return found
