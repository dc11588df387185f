"""ONNX files as the model `onnx` reads them, against what others say of them: ONNX's own backend tests, onnxruntime, and a network of ours
with the same weights. `--write` makes plugins/model/onnx/OPERATORS.md anew."""
import collections
import os
import pathlib
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import unittest

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"skipped: {error}; tools/test makes an environment that has it")
    sys.exit(77)

from support.host import BUILD, DATA, SMALL, SOURCE, HostTest

GOLDEN = DATA / "golden/onnx_backend/onnx_backend.tar.gz"
QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level = 4
PAGE = SOURCE / "plugins/model/onnx/OPERATORS.md"


class Reader:
    """Answers of bin/onnx_outputs: an output, or a line that says why there is none."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.jobs = []

    def add(self, model, inputs, mode="batch"):
        """`model`: a file or a ModelProto; `inputs`: arrays."""
        number = len(self.jobs)
        if not isinstance(model, (str, os.PathLike)):
            path = self.folder / f"{number}.onnx"
            onnx.save(model, path)
            model = path
        files = []
        for i, array in enumerate(inputs):
            files.append(self.folder / f"{number}.{i}.pb")
            files[-1].write_bytes(numpy_helper.from_array(np.asarray(array)).SerializeToString())
        self.jobs.append((str(model), mode, str(self.folder / f"{number}.safetensors"), *map(str, files)))

    def answers(self, timeout=300):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        done = subprocess.run([BUILD / "bin" / "onnx_outputs"], input="".join("\t".join(job) + "\n" for job in self.jobs), text=True,
                              errors="replace", capture_output=True, timeout=timeout, preexec_fn=limit)
        said = done.stdout.splitlines()
        if done.returncode != 0 or len(said) != len(self.jobs):
            raise AssertionError(f"ended with {done.returncode} at {self.jobs[len(said)][0]}: {done.stderr}")
        return [load_file(job[2])["output"] if line == "ok" and job[1] != "import" else line for job, line in zip(self.jobs, said)]


def equal(found, expected, tolerance=1e-5):
    """Whether all numbers are the same but for `tolerance` of the largest."""
    if isinstance(found, str) or found.shape != expected.shape:
        return False
    scale = max(1.0, float(np.nanmax(np.abs(expected), initial=0.0)))
    return np.allclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def golden(folder):
    """Name, model file, inputs and output of ONNX's backend tests."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(folder, filter="data")
    tensor = lambda path: numpy_helper.to_array(onnx.load_tensor(str(path)))
    cases = []
    for path in sorted(pathlib.Path(folder).rglob("model.onnx")):
        data = path.parent / "test_data_set_0"
        try:
            cases.append((path.parent.name, path, [tensor(p) for p in sorted(data.glob("input_*.pb"))],
                          tensor(sorted(data.glob("output_*.pb"))[0])))
        except Exception:  # sequences
            cases.append((path.parent.name, path, [], None))
    return cases


def judged(folder):
    """Of each backend test: its operators, and "equal" or why not."""
    cases = golden(folder)
    reader = Reader(folder)
    for _, path, inputs, _ in cases:
        reader.add(path, inputs, "fixed")
    result = {}
    for (name, path, _, expected), found in zip(cases, reader.answers()):
        operators = sorted({node.op_type for node in onnx.load(path).graph.node})
        if isinstance(found, str):
            said = found.split("model.onnx: ")[-1].split(";")[0]
        else:
            said = "equal" if equal(found, expected) else "DIFFERENT"
        result[name] = (operators, said)
    return result


def known_operators():
    text = (SOURCE / "plugins/model/onnx/rules.cpp").read_text()
    table = text[text.index("constexpr Row table[]"):]
    return sorted(line.split('"')[1] for line in table.splitlines() if line.strip().startswith('{"'))


def page(results, sweep):
    """The text of OPERATORS.md."""
    tests = collections.Counter(op for operators, said in results.values() if said == "equal" for op in operators)
    made = collections.Counter(name.split(",")[0] for name in sweep)
    equal_ones = sum(said == "equal" for _, said in results.values())
    command = "Command: `python3 tests/e2e/onnx_files.py --write`\n"
    lines = ["# Operators of ONNX that the model `onnx` reads",
             f"Those of `golden/onnx_backend` in the shared data; outputs are equal to ONNX's own in {equal_ones} of {len(results)} tests, and to",
             "onnxruntime's in all models that are made of each operator, of opsets 7 to 23, with three samples in a batch.", "", command,
             "| operator | backend tests | made models |", "|---|---|---|"]
    lines += [f"| {name} | {tests[name]} | {made[name]} |" for name in known_operators()]
    lines += ["", "Refused backend tests:", "", command, "| test | why |", "|---|---|"]
    lines += [f"| {name} | {said} |" for name, (_, said) in sorted(results.items()) if said != "equal"]
    return "\n".join(lines) + "\n"


# Models of one operator, or a few, made for every opset.

def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, weights=(), opset=17, outputs=("y",), sparse=()):
    """`inputs`: {name: array}, with "batch" in front; `weights`: {name: array}."""
    values = [value(name, ["batch", *array.shape[1:]], helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in inputs.items()]
    made = helper.make_graph(nodes, "made", values, [value(name, None) for name in outputs],
                             [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(weights).items()],
                             sparse_initializer=list(sparse))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(8 if opset < 21 else 10, 10))


class Made:
    """A model in the making: random, but the same at every call."""

    def __init__(self, name, opset):
        self.random = np.random.default_rng(abs(hash_of(name)))
        self.opset, self.nodes, self.weights = opset, [], {}
        self.inputs = {}

    def array(self, *shape, low=-2.0, high=2.0):
        return self.random.uniform(low, high, shape).astype(np.float32)

    def input(self, *shape, **bounds):
        self.inputs[f"x{len(self.inputs)}"] = self.array(3, *shape, **bounds)
        return f"x{len(self.inputs) - 1}"

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def integers(self, *numbers):
        return self.weight(np.array(numbers, np.int64))

    def node(self, op, inputs, outputs=("y",), **attributes):
        self.nodes.append(helper.make_node(op, inputs, list(outputs), name=f"n{len(self.nodes)}", **attributes))

    def proto(self):
        return model(self.nodes, self.inputs, self.weights, self.opset)


def hash_of(text):
    result = 0
    for c in text:
        result = (result * 131 + ord(c)) % (1 << 31)
    return result


def unary(op, low=-2.0, high=2.0, since=7, **attributes):
    return [(since, lambda m: m.node(op, [m.input(4, 5, low=low, high=high)], **attributes))]


def pair(op, low=-2.0, high=2.0):
    return [(7, lambda m: m.node(op, [m.input(4, 5, low=low, high=high), m.input(4, 5, low=low, high=high)])),
            (7, lambda m: m.node(op, [m.input(4, 5, low=low, high=high), m.weight(m.array(5, low=low, high=high))])),
            (7, lambda m: m.node(op, [m.weight(m.array(4, 1, low=low, high=high)), m.input(4, 5, low=low, high=high)]))]


def listed(op, *lists, attribute="axes", until=13, count=1):
    """`lists`: (shape, numbers, attributes); an attribute until opset `until`, then an input."""
    def make(shape, numbers, attributes):
        def build(m):
            if m.opset < until:
                m.node(op, [m.input(*shape)], **{attribute: numbers}, **attributes)
            else:
                m.node(op, [m.input(*shape), m.integers(*numbers)], **attributes)
        return (7, build)
    return [make(*each) for each in lists]


def conv(m, *spatial, channels=4, out=6, kernel, group=1, bias=True, **attributes):
    x = m.input(channels, *spatial)
    inputs = [x, m.weight(m.array(out, channels // group, *kernel))] + ([m.weight(m.array(out))] if bias else [])
    m.node("Conv", inputs, group=group, kernel_shape=list(kernel), **attributes)


def transposed(m, *spatial, channels=4, out=6, kernel, group=1, bias=True, **attributes):
    x = m.input(channels, *spatial)
    inputs = [x, m.weight(m.array(channels, out // group, *kernel))] + ([m.weight(m.array(out))] if bias else [])
    m.node("ConvTranspose", inputs, group=group, kernel_shape=list(kernel), **attributes)


def recurrent(op, m, directions, bias, initial, output, direction="forward", **attributes):
    hidden, features, gates, states = 4, 3, *{"LSTM": (4, "hc"), "GRU": (3, "h"), "RNN": (1, "h")}[op]
    m.node("Transpose", [m.input(5, features)], ["t"], perm=[1, 0, 2])
    inputs = ["t", m.weight(m.array(directions, gates * hidden, features)), m.weight(m.array(directions, gates * hidden, hidden)),
              m.weight(m.array(directions, 2 * gates * hidden)) if bias else ""]
    if initial:
        for state in states:
            m.node("Transpose", [m.input(directions, hidden)], [state], perm=[1, 0, 2])
        inputs += ["", *states]
    while inputs[-1] == "":
        inputs.pop()
    names = [""] * (1 + len(states))
    names[output] = "last"
    m.node(op, inputs, names, hidden_size=hidden, direction="bidirectional" if directions == 2 else direction, **attributes)
    m.node("Transpose", ["last"], perm=[2, 0, 1, 3] if output == 0 else [1, 0, 2])


def truths(op, *inputs, since):
    """`inputs`: of (m); what comes of them is cast to numbers."""
    def build(m):
        m.node(op, [each(m) for each in inputs], ["t"])
        m.node("Cast", ["t"], to=TensorProto.FLOAT)
    return (since, build)


def compared(op, since):
    ids = lambda m: cast_to(m, m.input(4, 5), TensorProto.INT64)
    return [truths(op, ids, ids, since=since), truths(op, ids, lambda m: m.integers(1, 0, -1, 1, 0), since=since)]


def cast_to(m, x, to):
    m.node("Cast", [x], [f"cast{len(m.nodes)}"], to=to)
    return m.nodes[-1].output[0]


def both(op):
    positive = lambda m: cast_to(m, cast_to(m, m.input(4, 5), TensorProto.INT64), TensorProto.BOOL)
    return [truths(op, positive, positive, since=9)]


def where(m):
    m.node("Where", [cast_to(m, cast_to(m, m.input(4, 5), TensorProto.INT64), TensorProto.BOOL), m.input(4, 1), m.weight(np.float32(-1e3))])


def mod(m):
    m.node("Mod", [cast_to(m, m.input(4, 5, low=-9, high=9), TensorProto.INT64), m.integers(3, -3, 4, -4, 5)], ["r"])
    m.node("Cast", ["r"], to=TensorProto.FLOAT)


def counted(*numbers, kind=np.int64):
    def build(m):
        m.node("Range", [m.weight(kind(each)) for each in numbers], ["r"])
        m.node("Add", [m.input(4, 5), cast_to(m, "r", TensorProto.FLOAT)])
    return (11, build)


def resized(mode, scales=None, sizes=None, **attributes):
    def build(m):
        x = m.input(2, 4, 5)
        if scales:
            m.node("Resize", [x, m.weight(np.zeros(0, np.float32)), m.weight(np.array([1, 1, *scales], np.float32))], mode=mode, **attributes)
            return
        m.node("Shape", [x], ["s"])
        m.node("Slice", ["s", m.integers(0), m.integers(2), m.integers(0)], ["lead"])
        m.node("Concat", ["lead", m.integers(*sizes)], ["sizes"], axis=0)
        m.node("Resize", [x, m.weight(np.zeros(0, np.float32)), m.weight(np.zeros(0, np.float32)), "sizes"], mode=mode, **attributes)
    return (11, build)


def batch_of(m, x):
    m.node("Shape", [x], ["s"])
    m.node("Gather", ["s", m.integers(0)], ["batch"], axis=0)
    return "batch"


def token_in_front(m):
    """What PyTorch writes for cls.expand(x.shape[0], -1, -1)."""
    x = m.input(4, 5)
    m.node("Concat", [batch_of(m, x), m.integers(-1, -1)], ["wanted"], axis=0)
    m.node("Equal", ["wanted", m.integers(-1, -1, -1)], ["free"])
    m.node("ConstantOfShape", [m.integers(3)], ["ones"], value=numpy_helper.from_array(np.array([1], np.int64)))
    m.node("Where", ["free", "ones", "wanted"], ["sizes"])
    m.node("Expand", [m.weight(m.array(1, 1, 5)), "sizes"], ["token"])
    m.node("Concat", ["token", x], axis=1)


def zeros_for_ids(m):
    """States that begin with zeros, a sample each, behind an embedding."""
    m.inputs["ids"] = m.random.integers(0, 7, (3, 5)).astype(np.int64)
    m.node("Concat", [m.integers(4), batch_of(m, "ids")], ["dims"], axis=0)
    m.node("ConstantOfShape", ["dims"], ["c"], value=numpy_helper.from_array(np.array([1.5], np.float32)))
    m.node("Transpose", ["c"], ["turned"], perm=[1, 0])
    m.node("Gather", [m.weight(m.array(7, 4)), "ids"], ["e"])
    m.node("ReduceMean", ["e", m.integers(1)] if m.opset >= 18 else ["e"], ["mean"], keepdims=0, **({} if m.opset >= 18 else {"axes": [1]}))
    m.node("Mul", ["mean", "turned"])


def own_places(*places):
    """What PyTorch's newer exporter writes for a change of strides: all numbers in a row, and for each sample the places of its own."""
    def build(m):
        x = m.input(2, 3)
        m.node("Squeeze", [batch_of(m, x)] + ([m.integers(0)] if m.opset >= 13 else []), ["count"], **({} if m.opset >= 13 else {"axes": [0]}))
        m.node("Range", [m.weight(np.int64(0)), "count", m.weight(np.int64(1))], ["numbers"])
        m.node("Mul", ["numbers", m.weight(np.int64(6))], ["first"])
        m.node("Unsqueeze", ["first"] + ([m.integers(1, 2)] if m.opset >= 13 else []), ["turned"], **({} if m.opset >= 13 else {"axes": [1, 2]}))
        m.node("Add", [m.weight(np.array([places], np.int64)), "turned"], ["places"])
        m.node("Reshape", [x, m.integers(-1)], ["row"])
        m.node("Gather", ["row", "places"])
    return (11, build)


def batch_times_heads(m):
    """[batch, 4, 6] to [batch * 2, 4, 3] and back."""
    x = m.input(4, 6)
    m.node("Mul", [batch_of(m, x), m.integers(2)], ["rows"])
    m.node("Concat", ["rows", m.integers(4, 3)], ["dims"], axis=0)
    m.node("Reshape", [x, "dims"], ["apart"])
    m.node("Softmax", ["apart"], ["soft"], axis=-1)
    m.node("Div", ["rows", m.integers(2)], ["again"])
    m.node("Concat", ["again", m.integers(-1)], ["back"], axis=0)
    m.node("Reshape", ["soft", "back"])


def from_shape(m):
    """What PyTorch writes for x.view(x.size(0), -1)."""
    x = m.input(4, 5, 2)
    m.node("Shape", [x], ["s"])
    m.node("Gather", ["s", m.weight(np.array(0, np.int64))], ["b"], axis=0)
    if m.opset < 13:
        m.node("Unsqueeze", ["b"], ["u"], axes=[0])
    else:
        m.node("Unsqueeze", ["b", m.integers(0)], ["u"])
    m.node("Concat", ["u", m.integers(-1)], ["dims"], axis=0)
    m.node("Reshape", [x, "dims"])


def rows_and_back(m):
    """[batch, 4, 5] to rows, a product, and back by the shape that it had."""
    x = m.input(4, 5)
    m.node("Shape", [x], ["s"])
    m.node("Slice", ["s", m.integers(0), m.integers(2), m.integers(0)] if m.opset >= 10 else ["s"], ["lead"],
           **({} if m.opset >= 10 else {"starts": [0], "ends": [2], "axes": [0]}))
    m.node("Reshape", [x, m.integers(-1, 5)], ["rows"])
    m.node("MatMul", ["rows", m.weight(m.array(5, 7))], ["product"])
    m.node("Concat", ["lead", m.integers(7)], ["dims"], axis=0)
    m.node("Reshape", ["product", "dims"])


def constant(m):
    m.node("Constant", [], ["c"], value=numpy_helper.from_array(m.array(4, 5)))
    m.node("Add", [m.input(4, 5), "c"])


def constant_of_shape(m):
    m.node("ConstantOfShape", [m.integers(4, 5)], ["c"], value=numpy_helper.from_array(np.array([1.5], np.float32)))
    m.node("Mul", [m.input(4, 5), "c"])


def cast(m):
    m.node("Cast", [m.input(4, 5)], ["i"], to=TensorProto.INT64)
    m.node("Cast", ["i"], to=TensorProto.FLOAT)


def split(m):
    x = m.input(4, 6)
    if m.opset < 13:
        m.node("Split", [x], ["a", "b"], axis=2, split=[2, 4])
    else:
        m.node("Split", [x, m.integers(2, 4)], ["a", "b"], axis=2)
    m.node("Concat", ["b", "a"], axis=-1)


def split_evenly(m):
    m.node("Split", [m.input(4, 6)], ["a", "b", "c"], axis=-1, **({"num_outputs": 3} if m.opset >= 18 else {}))
    m.node("Sub", ["c", "a"])


def clip(m):
    if m.opset < 11:
        m.node("Clip", [m.input(4, 5)], min=-0.5, max=1.0)
    else:
        m.node("Clip", [m.input(4, 5), m.weight(np.float32(-0.5)), m.weight(np.float32(1.0))])


def clip_above(m):
    if m.opset < 11:
        m.node("Clip", [m.input(4, 5)], max=0.25)
    else:
        m.node("Clip", [m.input(4, 5), "", m.weight(np.float32(0.25))])


def pad(mode, numbers, *shape):
    def make(m):
        if m.opset < 11:
            m.node("Pad", [m.input(*shape)], mode=mode, pads=list(numbers), **({"value": 1.5} if mode == "constant" else {}))
        else:
            m.node("Pad", [m.input(*shape), m.integers(*numbers)] + ([m.weight(np.float32(1.5))] if mode == "constant" else []), mode=mode)
    return (7, make)


def slices(starts, ends, axes, steps=None):
    def make(m):
        if m.opset < 10:
            m.node("Slice", [m.input(6, 7)], starts=starts, ends=ends, axes=axes)
        else:
            m.node("Slice", [m.input(6, 7), m.integers(*starts), m.integers(*ends), m.integers(*axes)] +
                   ([m.integers(*steps)] if steps else []))
    return (10 if steps else 7, make)


def softmax(op, axis):
    return (7, lambda m: m.node(op, [m.input(4, 5, 2)], **({} if axis is None else {"axis": axis})))


def norm(m):
    m.node("BatchNormalization", [m.input(4, 5, 2), *(m.weight(m.array(4)) for _ in range(3)), m.weight(m.array(4, low=0.5))], epsilon=1e-3)


def embedding(m):
    m.inputs["ids"] = m.random.integers(0, 7, (3, 5)).astype(np.int64)
    m.node("Gather", [m.weight(m.array(7, 4)), "ids"])


def attention(m, causal, mask, flat):
    if flat:
        shapes = {"q_num_heads": 4, "kv_num_heads": 2}
        inputs = [m.input(5, 12), m.input(6 if not causal else 5, 6), m.input(6 if not causal else 5, 8)]
    else:
        shapes = {}
        inputs = [m.input(2, 5, 3), m.input(2, 6 if not causal else 5, 3), m.input(2, 6 if not causal else 5, 4)]
    if mask:
        inputs.append(m.weight(m.array(5, 6)))
    m.node("Attention", inputs, is_causal=int(causal), **shapes)


SWEEP = {
    **{op: unary(op) for op in "Abs Ceil Cos Elu Erf Exp Floor HardSigmoid LeakyRelu Neg Relu Selu Sigmoid Sign Sin Softplus Softsign Tanh Identity".split()
       if op not in ("Erf", "Sign")},
    "Erf": unary("Erf", since=9), "Sign": unary("Sign", since=9),
    "HardSwish": unary("HardSwish", since=14), "Mish": unary("Mish", since=18),
    "Gelu": unary("Gelu", since=20) + unary("Gelu", since=20, approximate="tanh"),
    "Log": unary("Log", low=0.1), "Sqrt": unary("Sqrt", low=0.1), "Reciprocal": unary("Reciprocal", low=0.5),
    "LeakyRelu": unary("LeakyRelu", alpha=0.3) + unary("LeakyRelu"), "Elu": unary("Elu", alpha=0.7),
    "HardSigmoid": unary("HardSigmoid", alpha=0.3, beta=0.4) + unary("HardSigmoid"),
    "Add": pair("Add"), "Sub": pair("Sub"), "Mul": pair("Mul") + [(10, batch_times_heads)], "Div": pair("Div", low=0.5), "Pow": pair("Pow", low=0.3),
    "Sum": [(8, lambda m: m.node("Sum", [m.input(4, 5), m.weight(m.array(5)), m.input(4, 5)])), (8, lambda m: m.node("Sum", [m.input(3)]))],
    "Max": [(8, lambda m: m.node("Max", [m.input(4, 5), m.weight(m.array(5)), m.input(4, 5)]))],
    "Min": [(8, lambda m: m.node("Min", [m.input(4, 5), m.weight(m.array(5)), m.input(4, 5)]))],
    "PRelu": [(7, lambda m: m.node("PRelu", [m.input(4, 5, 2), m.weight(m.array(4, 1, 1))])),
              (7, lambda m: m.node("PRelu", [m.input(4, 5, 2), m.weight(m.array(1))]))],
    "Conv": [(7, lambda m: conv(m, 9, kernel=(3,), strides=[2], pads=[1, 0])),
             (7, lambda m: conv(m, 8, 7, kernel=(3, 2), dilations=[2, 1], pads=[1, 1, 1, 1], bias=False)),
             (7, lambda m: conv(m, 8, 7, kernel=(3, 3), group=2, auto_pad="SAME_UPPER", strides=[2, 2])),
             (7, lambda m: conv(m, 8, 7, kernel=(2, 2), group=4, out=8, auto_pad="SAME_LOWER")),
             (7, lambda m: conv(m, 5, 6, 4, kernel=(2, 3, 2), pads=[1, 0, 1, 0, 1, 1]))],
    "ConvTranspose": [(7, lambda m: transposed(m, 5, kernel=(3,), strides=[2], output_padding=[1])),
                      (7, lambda m: transposed(m, 5, 4, kernel=(3, 2), strides=[2, 3], pads=[1, 0, 0, 1], group=2)),
                      (7, lambda m: transposed(m, 3, 4, 3, kernel=(2, 2, 2), dilations=[1, 2, 1], bias=False))],
    "MaxPool": [(7, lambda m: m.node("MaxPool", [m.input(3, 9)], kernel_shape=[3], strides=[2], pads=[1, 0])),
                (10, lambda m: m.node("MaxPool", [m.input(3, 9, 8)], kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)),
                (10, lambda m: m.node("MaxPool", [m.input(3, 9, 8)], kernel_shape=[3, 2], dilations=[2, 1], pads=[1, 0, 1, 1])),
                (10, lambda m: m.node("MaxPool", [m.input(2, 4, 6)], kernel_shape=[1, 2], strides=[3, 3], pads=[0, 0, 0, 1], ceil_mode=1)),
                (7, lambda m: m.node("MaxPool", [m.input(2, 5, 6, 4)], kernel_shape=[2, 2, 2], auto_pad="SAME_UPPER"))],
    "AveragePool": [(7, lambda m: m.node("AveragePool", [m.input(3, 9)], kernel_shape=[3], pads=[1, 1])),
                    (7, lambda m: m.node("AveragePool", [m.input(3, 9, 8)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 0, 1])),
                    (7, lambda m: m.node("AveragePool", [m.input(3, 9, 8)], kernel_shape=[3, 3], pads=[1, 0, 0, 1], count_include_pad=1)),
                    (10, lambda m: m.node("AveragePool", [m.input(2, 4, 6)], kernel_shape=[1, 2], strides=[3, 3], pads=[0, 0, 0, 1], ceil_mode=1)),
                    (7, lambda m: m.node("AveragePool", [m.input(2, 5, 6, 4)], kernel_shape=[2, 3, 2], strides=[1, 2, 1]))],
    "GlobalAveragePool": [(7, lambda m: m.node("GlobalAveragePool", [m.input(3, 5, 4)]))],
    "GlobalMaxPool": [(7, lambda m: m.node("GlobalMaxPool", [m.input(3, 5, 4)]))],
    "BatchNormalization": [(7, norm)],
    "InstanceNormalization": [(7, lambda m: m.node("InstanceNormalization", [m.input(4, 5, 3), m.weight(m.array(4)), m.weight(m.array(4))], epsilon=1e-3))],
    "GroupNormalization": [(21, lambda m: m.node("GroupNormalization", [m.input(6, 5, 3), m.weight(m.array(6)), m.weight(m.array(6))], num_groups=3))],
    "LayerNormalization": [(17, lambda m: m.node("LayerNormalization", [m.input(4, 5), m.weight(m.array(5)), m.weight(m.array(5))])),
                           (17, lambda m: m.node("LayerNormalization", [m.input(4, 5), m.weight(m.array(4, 5))], axis=1, epsilon=1e-2))],
    "LRN": [(7, lambda m: m.node("LRN", [m.input(7, 3, 4)], size=3, alpha=0.5, beta=0.6, bias=1.5)),
            (7, lambda m: m.node("LRN", [m.input(7, 3, 4)], size=5, alpha=0.5))],
    "Gemm": [(11, lambda m: m.node("Gemm", [m.input(5), m.weight(m.array(6, 5)), m.weight(m.array(6))], transB=1)),
             (11, lambda m: m.node("Gemm", [m.input(5), m.weight(m.array(5, 6))], alpha=0.5)),
             (7, lambda m: m.node("Gemm", [m.input(5), m.weight(m.array(5, 6)), m.weight(m.array(1, 6))], alpha=0.5, beta=2.0))],
    "MatMul": [(7, lambda m: m.node("MatMul", [m.input(4, 5), m.weight(m.array(5, 6))])),
               (7, lambda m: m.node("MatMul", [m.input(4, 5), m.input(5, 3)])),
               (7, lambda m: m.node("MatMul", [m.weight(m.array(2, 4)), m.input(4, 5)]))],
    "Flatten": [(7, lambda m: m.node("Flatten", [m.input(4, 5)])), (7, lambda m: m.node("Flatten", [m.input(4, 5)], axis=2))],
    "Reshape": [(7, lambda m: m.node("Reshape", [m.input(4, 5), m.integers(-1, 10, 2)])),
                (7, lambda m: m.node("Reshape", [m.input(4, 5), m.integers(0, 0, 5, 1)])), (10, rows_and_back)],
    "Shape": [(7, from_shape)],
    "Transpose": [(7, lambda m: m.node("Transpose", [m.input(4, 5)], perm=[0, 2, 1]))],
    "Concat": [(7, lambda m: m.node("Concat", [m.input(4, 5), m.input(4, 2)], axis=2))],
    "Split": [(7, split), (7, split_evenly)],
    "Slice": [slices([1, -3], [5, 100], [1, 2]), slices([1, 0], [6, 7], [1, -1], [2, 3])],
    "Gather": [(7, embedding), (7, lambda m: m.node("Gather", [m.input(4, 5), m.integers(2, 0, 3)], axis=2))],
    "Equal": compared("Equal", 7), "Greater": compared("Greater", 9), "Less": compared("Less", 9),
    "GreaterOrEqual": compared("GreaterOrEqual", 12), "LessOrEqual": compared("LessOrEqual", 12), "And": both("And"), "Or": both("Or"),
    "Not": [truths("Not", lambda m: cast_to(m, cast_to(m, m.input(4, 5), TensorProto.INT64), TensorProto.BOOL), since=9)],
    "Where": [(9, where)], "Range": [own_places([0, 1], [2, 3], [4, 5]), own_places([5, 0, 3]), counted(2, 7, 1), counted(9, -1, -2), counted(0.5, 1.0, 0.1, kind=np.float32)],
    "Mod": [(10, mod), (10, lambda m: m.node("Mod", [m.input(4, 5, low=-9, high=9), m.weight(m.array(5, low=0.5))], fmod=1))],
    "Resize": [resized("nearest", scales=(2, 3), coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
               resized("nearest", sizes=(7, 3), coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
               resized("linear", scales=(2, 1.5), coordinate_transformation_mode="half_pixel"),
               resized("linear", sizes=(7, 9), coordinate_transformation_mode="pytorch_half_pixel"),
               resized("linear", sizes=(3, 8), coordinate_transformation_mode="align_corners")],
    "Expand": [(9, token_in_front), (8, lambda m: m.node("Expand", [m.input(4, 1), m.integers(1, 1, 6)]))],
    "Tile": [(7, lambda m: m.node("Tile", [m.input(4, 2), m.integers(1, 2, 3)]))],
    "Squeeze": listed("Squeeze", ((1, 4), [1], {}), ((4, 1), [2], {})),
    "Unsqueeze": listed("Unsqueeze", ((4, 5), [1], {}), ((4, 5), [1, 3], {})),
    "ReduceSum": listed("ReduceSum", ((4, 5), [1], {}), ((4, 5), [1, 2], {"keepdims": 0})),
    **{op: listed(op, ((4, 5), [2], {}), ((4, 5), [1, -1], {"keepdims": 0}), until=18) for op in ("ReduceMean", "ReduceMax", "ReduceMin")},
    "Pad": [pad("constant", [0, 0, 1, 0, 0, 2], 4, 5), pad("reflect", [0, 0, 0, 1, 0, 0, 0, 2], 2, 4, 5), pad("edge", [0, 0, 1, 1, 0, 0, 0, 2], 2, 4, 5)],
    "Clip": [(7, clip), (7, clip_above)],
    "Softmax": [softmax("Softmax", axis) for axis in (None, 1, 2, -1)], "LogSoftmax": [softmax("LogSoftmax", axis) for axis in (None, 1, -1)],
    "Constant": [(7, constant)], "ConstantOfShape": [(9, constant_of_shape), (9, zeros_for_ids)], "Cast": [(7, cast)],
    "Dropout": [(7, lambda m: m.node("Dropout", [m.input(4, 5)]))],
    "LSTM": [(7, lambda m: recurrent("LSTM", m, 1, True, False, 0)), (7, lambda m: recurrent("LSTM", m, 2, False, True, 1)), (7, lambda m: recurrent("LSTM", m, 2, True, True, 2))],
    "GRU": [(7, lambda m: recurrent("GRU", m, 1, True, False, 0, linear_before_reset=1)), (7, lambda m: recurrent("GRU", m, 2, False, True, 1, linear_before_reset=1)),
            (7, lambda m: recurrent("GRU", m, 2, True, False, 0, linear_before_reset=1)), (7, lambda m: recurrent("GRU", m, 2, True, True, 0)),
            (7, lambda m: recurrent("GRU", m, 1, True, True, 1, "reverse")), (7, lambda m: recurrent("GRU", m, 1, False, False, 0))],
    "RNN": [(7, lambda m: recurrent("RNN", m, 1, True, False, 0)), (7, lambda m: recurrent("RNN", m, 1, True, True, 0, "reverse", activations=["Relu"])),
            (7, lambda m: recurrent("RNN", m, 2, False, True, 1, activations=["Tanh", "Tanh"])), (7, lambda m: recurrent("RNN", m, 2, True, True, 0, activations=["Relu", "Relu"]))],
    "Attention": [(23, lambda m: attention(m, False, False, False)), (23, lambda m: attention(m, True, False, True)), (23, lambda m: attention(m, False, True, True))],
}
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 20, 21, 23)


def sweep():
    """Name to made model: every operator, in its oldest opset and in four others."""
    result = {}
    for op, makers in SWEEP.items():
        for number, (since, build) in enumerate(makers):
            fits = [opset for opset in OPSETS if opset >= since]
            for opset in sorted({fits[0], fits[-1], *(each for each in (10, 11, 13, 18) if each >= since)}):
                made = Made(f"{op}{number}", opset)
                build(made)
                result[f"{op}, {number}, opset {opset}"] = made
    return result


def runtime_output(path_or_bytes, inputs):
    session = onnxruntime.InferenceSession(path_or_bytes, QUIET, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs)))[0]


class OnnxTest(HostTest):
    def numbers(self):
        """Metrics of the run, without its speed."""
        return {name: number for name, number in self.result()["metrics"].items() if name != "samples_per_second"}

    def reader(self):
        return Reader(self.folder)


@unittest.skipUnless(GOLDEN.exists(), f"needs {GOLDEN}")
class Operators(OnnxTest):
    def test_backend_tests_give_what_onnx_says(self):
        results = judged(self.folder)
        self.assertEqual(len(results), 68)
        self.assertEqual([name for name, (_, said) in results.items() if said == "DIFFERENT"], [])
        self.assertEqual(sum(said == "equal" for _, said in results.values()), 58)

    def test_the_page_says_what_is(self):
        self.assertEqual(PAGE.read_text(), page(judged(self.folder), sweep()))


class Runtime(OnnxTest):
    def test_made_models_of_each_operator(self):
        """All rows of the table; three samples, while the file says nothing of how many."""
        self.assertEqual(sorted(SWEEP), known_operators())
        models, reader = sweep(), self.reader()
        for made in models.values():
            reader.add(made.proto(), made.inputs.values())
        wrong = []
        for (name, made), found in zip(models.items(), reader.answers()):
            expected = runtime_output(made.proto().SerializeToString(), made.inputs.values())
            if not equal(found, expected):
                wrong.append(f"{name}: {found if isinstance(found, str) else np.abs(found - expected).max() if found.shape == expected.shape else (found.shape, expected.shape)}")
        self.assertEqual(wrong, [])

    def test_files_that_were_made_for_one_sample(self):
        """Their Reshapes say 1 where the batch is; five samples at once give what each alone gives."""
        rng = np.random.default_rng(2)
        weights = {"w": rng.normal(size=(20, 6)).astype(np.float32)}
        for dims in ([1, -1], [1, 20], [-1, 20], [0, 20], [1, 4, 5]):
            with self.subTest(dims):
                nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "dims"], ["f"])]
                nodes += [helper.make_node("Flatten", ["f"], ["g"]), helper.make_node("MatMul", ["g", "w"], ["y"])]
                proto = model(nodes, {"x": np.zeros((1, 4, 5), np.float32)}, {**weights, "dims": np.array(dims, np.int64)})
                proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
                batch = rng.normal(size=(5, 4, 5)).astype(np.float32)
                reader = self.reader()
                reader.add(proto, [batch])
                (found,) = reader.answers()
                self.assertNotIsInstance(found, str, found)
                each = [runtime_output(proto.SerializeToString(), [batch[i:i + 1]]) for i in range(5)]
                self.assertTrue(equal(found, np.concatenate(each)))

    def test_made_networks(self):
        """Chains of layers by chance, 150 of them."""
        reader, protos = self.reader(), []
        for seed in range(150):
            m = network(seed)
            protos.append((m.proto().SerializeToString(), list(m.inputs.values())))
            reader.add(m.proto(), m.inputs.values())
        for number, (found, (proto, inputs)) in enumerate(zip(reader.answers(), protos)):
            with self.subTest(number):
                self.assertNotIsInstance(found, str, found)
                self.assertTrue(equal(found, runtime_output(proto, inputs), 1e-4))

    @unittest.skipUnless((DATA / "verify/eran").exists(), "needs verify/ of the shared data")
    def test_networks_of_others(self):
        """The nets of MNIST and CIFAR-10 on five random samples in a batch; those of ACAS Xu, which take no batch, on one."""
        files = [DATA / "verify/abcrown/cifar_base_kw.onnx", DATA / "verify/nnenum/mnist-net_256x2.onnx"]
        with tarfile.open(DATA / "verify/eran/acasxu_nets_onnx.tar.gz") as archive:
            archive.extractall(self.folder / "acas", filter="data")
        files += sorted((self.folder / "acas").rglob("*.onnx"))
        self.assertEqual(len(files), 47)
        reader, rng, batches = self.reader(), np.random.default_rng(4), []
        for path in files:
            dims = [d.dim_value for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
            batched = len(dims) > 1
            batches.append(rng.uniform(0, 1, (5, *dims[1:]) if batched else dims).astype(np.float32))
            reader.add(path, [batches[-1]], "batch" if batched else "fixed")
        for path, batch, found in zip(files, batches, reader.answers()):
            with self.subTest(path.name):
                self.assertNotIsInstance(found, str, found)
                samples = [batch[i:i + 1] for i in range(5)] if batch.ndim > 1 else [batch]
                each = [runtime_output(str(path), [sample]).reshape(-1) for sample in samples]
                self.assertTrue(equal(found.reshape(len(each), -1), np.stack(each), 1e-5))

    @unittest.skipUnless((DATA / "compiler/model_graphs").exists(), "needs compiler/model_graphs of the shared data")
    def test_large_networks_with_the_outputs_beside_them(self):
        for name in ("bvlc_alexnet", "inception_v1", "resnet50", "squeezenet", "vgg19"):
            with self.subTest(name):
                folder = DATA / "compiler/model_graphs"
                expected = numpy_helper.to_array(onnx.load_tensor(str(folder / f"light_{name}_output_0.pb")))
                reader = self.reader()
                # The input that gave it is not there; its weights are constant, so that random ones are compared with onnxruntime's.
                batch = np.random.default_rng(1).uniform(0, 1, (1, 3, 224, 224)).astype(np.float32)
                reader.add(folder / f"light_{name}.onnx", [batch], "fixed")
                (found,) = reader.answers()
                self.assertNotIsInstance(found, str, found)
                self.assertEqual(found.shape, expected.shape)
                proto = onnx.load(folder / f"light_{name}.onnx")
                inputs = {each.name for each in proto.graph.input} - {each.name for each in proto.graph.initializer}
                session = onnxruntime.InferenceSession(proto.SerializeToString(), QUIET, providers=["CPUExecutionProvider"])
                feed = {each.name: batch for each in session.get_inputs() if each.name in inputs and each.shape == [1, 3, 224, 224]}
                self.assertTrue(equal(found, session.run(None, feed)[0], 1e-4))


def network(seed):
    """A network of layers drawn by chance: images, then rows."""
    rng = random.Random(seed)
    m = Made(f"network {seed}", rng.choice(OPSETS[2:]))
    m.weights = {}
    scaled = lambda *shape: m.weight(m.array(*shape) / np.float32(np.sqrt(np.prod(shape[1:]))))
    channels, side = rng.choice((1, 3, 4)), rng.choice((6, 8, 9))
    at, count = m.input(channels, side, side), 0

    def add(op, inputs, **attributes):
        nonlocal at, count
        count += 1
        m.node(op, inputs, [f"v{count}"], **attributes)
        at = f"v{count}"

    for _ in range(rng.randint(1, 4)):
        layer = rng.choice(("conv", "conv", "residual", "pool", "norm", "activation", "branch"))
        if layer == "conv":
            out = rng.choice((2, 4, 8))
            add("Conv", [at, scaled(out, channels, 3, 3), m.weight(m.array(out))], pads=[1, 1, 1, 1])
            channels = out
        elif layer == "residual":
            before = at
            add("Conv", [at, scaled(channels, channels, 3, 3)], pads=[1, 1, 1, 1])
            add("Add", [before, at])
        elif layer == "pool" and side >= 4:
            add(rng.choice(("MaxPool", "AveragePool")), [at], kernel_shape=[2, 2], strides=[2, 2])
            side //= 2
        elif layer == "norm":
            add("BatchNormalization", [at, *(m.weight(m.array(channels)) for _ in range(3)), m.weight(m.array(channels, low=0.5))])
        elif layer == "branch":
            first = at
            add("Sigmoid", [first])
            second = at
            add("Concat", [first, second], axis=1)
            channels *= 2
        else:
            add(rng.choice(("Relu", "Tanh", "LeakyRelu", "Elu", "Softplus")), [at])
    if rng.random() < 0.4:
        add("GlobalAveragePool", [at])
        side = 1
    width = channels * side * side
    if rng.random() < 0.5:
        add("Flatten", [at])
    else:
        add("Reshape", [at, m.integers(rng.choice((0, -1)), width)])
    for _ in range(rng.randint(1, 3)):
        out = rng.choice((3, 5, 10))
        if rng.random() < 0.5:
            add("Gemm", [at, scaled(out, width), m.weight(m.array(out))], transB=1)
        else:
            add("MatMul", [at, m.weight(m.array(width, out) / np.float32(np.sqrt(width)))])
            add("Add", [at, m.weight(m.array(out))])
        width = out
        add(rng.choice(("Relu", "Tanh", "Identity")), [at])
    m.node(rng.choice(("Softmax", "LogSoftmax", "Identity")), [at])
    return m


def small_net(**more):
    """[batch, 8] to [batch, 3]."""
    rng = np.random.default_rng(5)
    weights = {"a.weight": rng.normal(size=(16, 8)), "a.bias": rng.normal(size=16), "b.weight": rng.normal(size=(3, 16)), "b.bias": rng.normal(size=3)}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    nodes = [helper.make_node("Gemm", ["x", "a.weight", "a.bias"], ["h"], name="a", transB=1), helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("Gemm", ["r", "b.weight", "b.bias"], ["y"], name="b", transB=1)]
    return model(nodes, {"x": np.zeros((1, 8), np.float32)}, weights, **more)


RUN = SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "onnx"\nfile = "net.onnx"')


class Trained(OnnxTest):
    def same_as_ours(self, ours, nodes, norm=None):
        """Weights of a network of ours that has not moved, in a file; both then train for two epochs, to the same bits."""
        self.train(ours.replace('type = "adamw"\nlr = 0.01', 'type = "sgd"\nlr = 1e-30'), "--overwrite")
        self.host("export", "run.toml", "--file", "start.safetensors")
        start = load_file(self.folder / "start.safetensors")
        for name, start_value in (("running_mean", 0), ("running_var", 1)):
            if norm:  # these have moved
                start[f"{norm}.{name}"] = np.full_like(start[f"{norm}.{name}"], start_value)
        onnx.save(model(nodes, {"x": np.zeros((1, 8), np.float32)}, start), self.folder / "net.onnx")
        self.train(ours, "--overwrite")
        expected = self.numbers()
        self.host("export", "run.toml", "--file", "ours.safetensors")
        self.train(RUN, "--overwrite")
        self.assertEqual(self.numbers(), expected)
        self.host("export", "run.toml", "--file", "theirs.safetensors")
        one, other = load_file(self.folder / "ours.safetensors"), load_file(self.folder / "theirs.safetensors")
        self.assertEqual(sorted(one), sorted(other))
        for name in one:
            self.assertEqual(one[name].tobytes(), other[name].tobytes(), name)
            self.assertNotEqual(one[name].tobytes(), start[name].tobytes(), name)

    def test_it_trains_as_the_same_network_of_ours(self):
        linear = lambda name, x, y: helper.make_node("Gemm", [x, f"{name}.weight", f"{name}.bias"], [y], transB=1)
        self.same_as_ours(SMALL, [linear("fc1", "x", "h"), helper.make_node("Relu", ["h"], ["r"]), linear("fc2", "r", "y")])

    def test_statistics_of_batch_normalization_are_no_parameters(self):
        layers = '[{ type = "linear", out = 16, name = "a" }, { type = "batch_norm", name = "n", momentum = 0.5, epsilon = 0.0000152587890625 }, { type = "relu" }, { type = "linear", out = 3, name = "b" }]'
        linear = lambda name, x, y: helper.make_node("Gemm", [x, f"{name}.weight", f"{name}.bias"], [y], transB=1)
        norm = helper.make_node("BatchNormalization", ["h", "n.weight", "n.bias", "n.running_mean", "n.running_var"], ["m"], epsilon=2.0**-16, momentum=0.5)
        self.same_as_ours(SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', f'type = "sequential"\nlayers = {layers}'),
                          [linear("a", "x", "h"), norm, helper.make_node("Relu", ["m"], ["r"]), linear("b", "r", "y")], "n")

    def test_initializers_that_were_equal_by_chance_are_apart_again(self):
        """Exporters hand equal ones on by Identities: scales, biases and statistics that have not moved. A weight of other numbers is shared."""
        rng = np.random.default_rng(3)
        uniform = {"n.weight": np.ones, "n.bias": np.zeros, "n.running_mean": np.zeros, "n.running_var": np.ones}
        weights = {"in": rng.normal(size=(8, 16)), "square": rng.normal(size=(16, 16)) / 4, "out": rng.normal(size=(16, 3)) / 4, **{name: make(16) for name, make in uniform.items()}}
        nodes = [helper.make_node("Identity", [name], [f"again.{name}"]) for name in [*uniform, "square"]]
        chain = [("MatMul", ["in"]), ("BatchNormalization", list(uniform)), ("Relu", []), ("MatMul", ["square"]), ("BatchNormalization", [f"again.{name}" for name in uniform]),
                 ("Relu", []), ("MatMul", ["again.square"]), ("MatMul", ["out"])]
        value = "x"
        for i, (op, inputs) in enumerate(chain):
            nodes.append(helper.make_node(op, [value, *inputs], [f"v{i}" if i + 1 < len(chain) else "y"]))
            value = f"v{i}"
        onnx.save(model(nodes, {"x": np.zeros((1, 8), np.float32)}, {name: each.astype(np.float32) for name, each in weights.items()}), self.folder / "net.onnx")
        self.train(RUN)
        self.host("export", "run.toml", "--file", "trained.safetensors")
        trained = load_file(self.folder / "trained.safetensors")
        self.assertEqual(sorted(trained), sorted([*weights, *(f"again.{name}" for name in uniform)]))
        for name in uniform:
            self.assertGreater(np.abs(trained[name] - weights[name]).max(), 0.0, name)
            self.assertGreater(np.abs(trained[f"again.{name}"] - trained[name]).max(), 0.0, name)

    def test_patterns_of_what_does_not_train(self):
        onnx.save(small_net(), self.folder / "net.onnx")
        self.train(RUN, "--set", 'model.fixed=["a.*"]')
        self.host("export", "run.toml", "--file", "after.safetensors")
        after = load_file(self.folder / "after.safetensors")
        before = {each.name: numpy_helper.to_array(each) for each in small_net().graph.initializer}
        self.assertEqual({name for name in before if before[name].tobytes() != after[name].tobytes()}, {"b.weight", "b.bias"})

    def test_an_output_ahead_of_the_last(self):
        proto = small_net()
        proto.graph.node.append(helper.make_node("Softmax", ["y"], ["p"]))
        proto.graph.node.append(helper.make_node("Mystery", ["p"], ["q"]))  # nobody needs it
        del proto.graph.output[:]
        proto.graph.output.append(value("q", None))
        onnx.save(proto, self.folder / "net.onnx")
        self.train(RUN, "--set", "model.output=p")
        with_softmax = self.numbers()
        self.train(RUN, "--overwrite", "--set", "model.output=y")
        without = self.numbers()
        self.assertNotEqual(with_softmax, without)
        onnx.save(small_net(), self.folder / "net.onnx")
        self.train(RUN, "--overwrite")
        self.assertEqual(self.numbers(), without)

    def test_data_of_another_shape(self):
        rng = np.random.default_rng(5)
        proto = model([helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("Gemm", ["f", "w"], ["y"], transB=1)],
                      {"x": np.zeros((1, 2, 4), np.float32)}, {"w": rng.normal(size=(3, 8)).astype(np.float32)})
        onnx.save(proto, self.folder / "net.onnx")
        self.write("run.toml", RUN)
        said = self.host("train", "run.toml", "-q", code=2).stderr
        self.assertIn("set reshape_input = true", said)
        self.train(RUN, "--overwrite", "--set", "model.reshape_input=true")


class Files(OnnxTest):
    """What a file may hold besides weights in floats, and what is refused; in the real host."""

    def trained(self, proto, code=0, **how):
        onnx.save(proto, self.folder / "net.onnx", **how)
        self.write("run.toml", RUN)
        return self.host("train", "run.toml", "-q", "--overwrite", code=code).stderr

    def metrics(self, proto, **how):
        self.trained(proto, **how)
        return self.numbers()

    def test_weights_in_other_files_and_sparse_ones(self):
        expected = self.metrics(small_net())
        self.assertEqual(self.metrics(small_net(), save_as_external_data=True, location="weights.bin", size_threshold=0), expected)
        for linear in (True, False):
            proto = small_net()
            index = next(i for i, each in enumerate(proto.graph.initializer) if each.name == "a.weight")
            array = numpy_helper.to_array(proto.graph.initializer[index])
            del proto.graph.initializer[index]
            places = np.arange(array.size) if linear else np.argwhere(np.ones_like(array))
            proto.graph.sparse_initializer.append(helper.make_sparse_tensor(
                numpy_helper.from_array(array.reshape(-1), "a.weight"), numpy_helper.from_array(places.astype(np.int64), "places"), array.shape))
            self.assertEqual(self.metrics(proto), expected)
        proto = small_net()  # floats in their own field, not as bytes
        for tensor in proto.graph.initializer:
            array = numpy_helper.to_array(tensor)
            tensor.ClearField("raw_data")
            tensor.float_data.extend(array.reshape(-1).tolist())
        self.assertEqual(self.metrics(proto), expected)

    def test_external_data_that_is_not_there_or_outside(self):
        onnx.save(small_net(), self.folder / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
        for change, words in (
                (lambda entry: entry.update(location="../weights.bin"), "needs a file in the folder of the model"),
                (lambda entry: entry.update(location="/etc/passwd"), "needs a file in the folder of the model"),
                (lambda entry: entry.update(location="none.bin"), "none.bin cannot be read"),
                (lambda entry: entry.update(offset="100000"), "has not 512 bytes from byte 100000 on"),
                (lambda entry: entry.update(offset="-4"), "needs a number of bytes"),
                (lambda entry: entry.update(length="4"), "has 4 bytes of external data")):
            with self.subTest(words):
                proto = onnx.load(self.folder / "net.onnx", load_external_data=False)
                entry = {each.key: each.value for each in proto.graph.initializer[0].external_data}
                change(entry)
                del proto.graph.initializer[0].external_data[:]
                for key, text in entry.items():
                    proto.graph.initializer[0].external_data.add(key=key, value=text)
                (self.folder / "changed.onnx").write_bytes(proto.SerializeToString())
                self.write("run.toml", RUN.replace("net.onnx", "changed.onnx"))
                self.assertIn(words, self.host("train", "run.toml", "-q", "--overwrite", code=4).stderr)

    def test_what_is_refused_is_named(self):
        def typed(dtype):
            proto = small_net()
            array = numpy_helper.to_array(proto.graph.initializer[0])
            proto.graph.initializer[0].CopyFrom(helper.make_tensor("a.weight", dtype, array.shape, array.reshape(-1).tolist()))
            return proto

        def node(op, **attributes):
            proto = small_net()
            proto.graph.node[1].CopyFrom(helper.make_node(op, ["h"], ["r"], name="middle", **attributes))
            return proto

        def headless(op, *others):
            proto = small_net()
            proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 16]), "wanted"))
            proto.graph.node[1].CopyFrom(helper.make_node(op, ["", *others], ["q"], name="middle"))
            proto.graph.node.insert(2, helper.make_node("Add", ["h", "q"], ["r"], name="sum"))
            return proto

        def outputs():
            proto = small_net()
            proto.graph.output.append(value("r", None))
            return proto

        branch = helper.make_graph([helper.make_node("Relu", ["h"], ["b"])], "branch", [], [value("b", None)])
        domain = small_net()
        domain.graph.node[1].domain = "com.microsoft"
        short = small_net()
        short.graph.initializer[0].raw_data = short.graph.initializer[0].raw_data[4:]
        listed = small_net()
        listed.graph.initializer[0].CopyFrom(helper.make_tensor("a.weight", TensorProto.FLOAT, [16, 8], [1.0] * 128))
        del listed.graph.initializer[0].float_data[5:]
        huge = small_net()
        huge.graph.node.insert(0, helper.make_node("ConstantOfShape", ["one"], ["c"], name="first"))
        huge.graph.node.insert(1, helper.make_node("Tile", ["c", "many"], ["t"], name="huge"))
        huge.graph.node[-1].input[2] = "t"
        huge.graph.initializer.extend(numpy_helper.from_array(np.array([number], np.int64), name) for name, number in (("one", 1), ("many", 10**11)))
        order = small_net()
        order.graph.node[0].input[2] = "r"
        narrow = small_net()
        narrow.graph.initializer[3].CopyFrom(numpy_helper.from_array(np.zeros(4, np.float32), "b.bias"))
        inputs = small_net()
        inputs.graph.node[1].CopyFrom(helper.make_node("Add", ["h", "z"], ["r"], name="middle"))
        inputs.graph.input.append(value("z", ["batch", 16]))
        for proto, code, words in (
                (typed(TensorProto.FLOAT16), 4, 'tensor "a.weight" holds float16'), (typed(TensorProto.BFLOAT16), 4, 'tensor "a.weight" holds bfloat16'),
                (node("QuantizeLinear"), 2, 'node "middle" (QuantizeLinear): this operator is not known'),
                (node("If", then_branch=branch, else_branch=branch), 2, 'node "middle" (If): this operator is not known'),
                (node("Relu", slope=1.0), 2, 'node "middle" (Relu): does not take attribute `slope`'),
                (node("LeakyRelu", alpha=1), 2, 'node "middle" (LeakyRelu): attribute `alpha` is an integer'),
                (short, 4, 'tensor "a.weight" of shape [16, 8] of float has 508 bytes'),
                (listed, 4, 'tensor "a.weight" of shape [16, 8] of float has 5 numbers'),
                (huge, 2, 'node "huge" (Tile): makes a constant of shape [100000000000]'),
                (outputs(), 2, 'has 2 outputs ("y", "r"): name one by option output'), (domain, 2, 'is of the domain "com.microsoft"'),
                (order, 2, 'node "a" (Gemm): reads "r", which no node before it'), (narrow, 2, 'node "b" (Gemm): bias b.bias [4]'),
                (small_net(opset=5), 2, "is of opset 5, needs one of 6 to 23"), (small_net(opset=24), 2, "is of opset 24"),
                (inputs, 2, 'has 2 inputs ("x", "z"), the data gives 1'),
                *((headless(op, *others), 2, f'node "middle" ({op}): lacks an input') for op, *others in
                  (("Shape",), ("Reshape", "wanted"), ("Expand", "wanted"), ("Softmax",), ("PRelu", "wanted")))):
            with self.subTest(words):
                self.assertIn(words, self.trained(proto, code))

    def test_a_network_for_other_data(self):
        onnx.save(small_net(), self.folder / "net.onnx")
        self.write("run.toml", RUN.replace("shape = [8]", "shape = [9]"))
        self.assertIn('input "x" has shape [?, 8] with the batch in front, the data gives [batch, 9]', self.host("train", "run.toml", "-q", code=2).stderr)
        self.write("run.toml", RUN.replace("classes = 3", "classes = 4"))
        self.assertIn("gives 3 numbers a sample, the data has 4 classes", self.host("train", "run.toml", "-q", "--overwrite", code=2).stderr)
        self.write("net.onnx", "no model")
        self.write("run.toml", RUN)
        self.assertIn("net.onnx: byte 0", self.host("train", "run.toml", "-q", "--overwrite", code=4).stderr)


class Mutations(OnnxTest):
    def test_damaged_files(self):
        """500 files with bytes changed, taken out, put in, or cut off: each is read or refused by one line, with little memory."""
        rng = random.Random(11)
        sources = [small_net().SerializeToString(), network(3).proto().SerializeToString(), network(8).proto().SerializeToString(),
                   *(made.proto().SerializeToString() for made in list(sweep().values())[::9])]
        if (DATA / "compiler/model_graphs").exists():
            sources += [(DATA / f"compiler/model_graphs/light_{name}.onnx").read_bytes() for name in ("bvlc_alexnet", "squeezenet")]
        reader = self.reader()
        for number in range(500):
            data = bytearray(rng.choice(sources))
            proto = onnx.load_from_string(bytes(data))
            for _ in range(rng.choice((1, 1, 2, 5))):
                at, kind = rng.randrange(len(data)), rng.randrange(5)
                if kind == 0:
                    data[at] ^= 1 << rng.randrange(8)
                elif kind == 1:
                    data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
                elif kind == 2:
                    del data[at:at + rng.randint(1, 9)]
                elif kind == 3:
                    data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 9)))
                else:
                    del data[max(at, 1):]
            path = self.write(f"m{number}.onnx", bytes(data))
            known = {each.name for each in proto.graph.initializer}
            shapes = [[d.dim_value or 3 for d in each.type.tensor_type.shape.dim] for each in proto.graph.input if each.name not in known]
            reader.add(path, [np.zeros(shape, np.float32) for shape in shapes if shape], "import")
        said = collections.Counter("read" if line == "ok" else "refused" for line in reader.answers(timeout=120))
        self.assertEqual(said.total(), 500)
        self.assertGreater(said["refused"], 250)
        self.assertGreater(said["read"], 20)

    def test_damaged_files_in_the_host(self):
        rng = random.Random(12)
        self.write("run.toml", RUN)
        whole = small_net().SerializeToString()
        for number in range(12):
            data = bytearray(whole)
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            if number % 2:
                del data[rng.randrange(len(data)):]
            self.write("net.onnx", bytes(data))
            done = subprocess.run(self.command("train", "run.toml", "-q", "--overwrite"), cwd=self.folder, capture_output=True, text=True, timeout=60)
            self.assertIn(done.returncode, (0, 2, 3, 4, 5), done.stderr)
            if done.returncode:
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


if __name__ == "__main__":
    if "--write" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            PAGE.write_text(page(judged(folder), sweep()))
    else:
        unittest.main()
