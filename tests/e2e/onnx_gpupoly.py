"""Whether gpupoly's bounds hold, judged by onnxruntime: random networks of all operators that it takes, with random
attributes, over random boxes. Every value of a network at points of a box has to lie within the bounds of that value,
and the bounds of a box that is a point have to be near its output. No search for counterexamples takes part.

TRAINYARD_LONGER=1 tries 2,200 networks at a million points (half a minute)."""
import collections
import json
import os
import random
import re
import subprocess
import sys
import unittest

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}; tools/test makes an environment that has it")
    sys.exit(77)

from support.host import BUILD, HostTest

LONGER = bool(os.environ.get("TRAINYARD_LONGER"))
NETWORKS, POINTS = (2200, 96) if LONGER else (160, 32)
SHAPES = (2,), (3,), (6,), (3, 4), (1, 2, 2), (1, 3, 3), (2, 3, 4), (1, 5, 4), (2, 4, 4), (3, 5, 5)
BATCH, MOST = 6, 150  # samples that shapes are found with; elements of a value
# Nodes as they are: bounds are of each value, and no node may be computed together with another.
PLAIN = onnxruntime.SessionOptions()
PLAIN.log_severity_level = 4
PLAIN.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
PLAIN.intra_op_num_threads = PLAIN.inter_op_num_threads = 1
OURS = AttributeError, KeyError, NameError, TypeError  # mistakes of this file, not of what it drew
# What may be refused of these networks, by the node's name: by gpupoly, and by the model `onnx`.
REFUSED = re.compile(r'node "n\d+" \(Slice\): step -1 is not supported|'
                     r'node "n\d+" \((MaxPool|AveragePool)\): (one of its windows lies in the padding alone'
                     r"|padding \d+ is more than half of the window|.* is smaller than the window)")


def model(nodes, shapes, weights, outputs, batch="batch"):
    """`shapes`: {input: shape of a sample}."""
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "made", [value(name, [batch, *shape]) for name, shape in shapes.items()],
                              [value(name, None) for name in outputs],
                              [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def outputs(proto, inputs):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), PLAIN, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


class Network:
    """One in the making: its nodes, and what each value is for a few samples."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes, self.weights, self.values, self.operators = [], {}, {}, collections.Counter()
        self.folded = {}  # constants that nodes make of constants
        self.batch = self.rng.choice(("batch", "batch", "batch", 1))  # of the file that gpupoly reads
        shape = self.rng.choice(SHAPES)
        self.shape = shape
        self.center = (self.numbers.normal(size=shape) + self.rng.choice((0, 0, 0, 1, -3))).astype(np.float32)
        self.values["x"] = self.center + 0.3 * self.numbers.normal(size=(BATCH, *shape)).astype(np.float32)
        self.last = "x"

    def weight(self, array, dtype=np.float32, folds=True):
        """A constant; where it `folds`, perhaps one that a node makes of another."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array, dtype)
        if not folds or dtype is not np.float32 or self.rng.random() > 0.1:
            return name
        self.folded["c" + name] = -self.weights[name]
        self.nodes.append(helper.make_node("Neg", [name], ["c" + name], name=f"n{len(self.nodes)}"))
        self.operators["constant"] += 1
        return "c" + name

    def normal(self, *shape, fan=1, folds=True):
        return self.weight(self.numbers.normal(size=shape) / np.sqrt(fan), folds=folds)

    def integers(self, *numbers):
        return self.weight(numbers, np.int64)

    def node(self, op, inputs, count=1, **attributes):
        """Its outputs, one or a list; raises what onnxruntime says, and ValueError where they are empty or large."""
        names = [f"v{len(self.values) + i}" for i in range(count)]
        made = helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", **attributes)
        given = {name: self.values[name] for name in inputs if name in self.values}
        found = outputs(model([made], {name: array.shape[1:] for name, array in given.items()},
                              {name: array for name, array in {**self.weights, **self.folded}.items() if name in inputs}, names), given)
        fits = lambda array: 0 < array.size <= MOST * BATCH and len(array) == BATCH and np.isfinite(array).all()
        if not all(map(fits, found)):
            raise ValueError(f"{op}: nothing, or too much")
        self.nodes.append(made)
        self.operators[op] += 1
        self.values.update(zip(names, found))
        return names[0] if count == 1 else names

    def grow(self, kinds=()):
        """One operator more, or none where onnxruntime does not take what was drawn."""
        x = self.values[self.last]
        kinds = kinds or ALWAYS + {2: VECTORS, 4: IMAGES}.get(x.ndim, ())
        known = list(self.nodes), dict(self.weights), dict(self.values), self.operators.copy(), dict(self.folded)
        try:
            self.last = self.rng.choice(kinds)(self, self.last, x.shape[1:])
        except Exception as error:  # of onnxruntime's many kinds
            if isinstance(error, OURS):
                raise
            self.nodes, self.weights, self.values, self.operators, self.folded = known

    def finish(self):
        shape = self.values[self.last].shape[1:]
        if len(shape) != 1:
            self.last = self.node("Flatten", [self.last])
        count = self.values[self.last].shape[1]
        self.last = self.node("Gemm", [self.last, self.normal(count, 3, fan=count), self.normal(3)])
        if self.rng.random() < 0.2:  # the output has a reader, of which nothing comes
            self.node("Relu", [self.last])
        used = set()
        for node in reversed(self.nodes):
            if node.output[0] == self.last or any(name in used for name in node.output):
                used.update(node.input)
        self.used = [name for node in self.nodes for name in node.output
                     if name not in self.folded and (name in used or name == self.last)]

    def proto(self, every=False):
        return model(self.nodes, {"x": self.shape}, self.weights, self.used if every else [self.last], "batch" if every else self.batch)


# Operators. Each takes the network, a value and the shape of its samples, and gives the value that it makes.

def placed(n, kernel, most):
    """Where windows lie: strides, and padding of each side less than `most`, or by a rule, by which onnxruntime crops
    and our graph does not where strides are longer than windows."""
    if n.rng.random() < 0.3:
        rule = n.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        return {"auto_pad": rule, "strides": [n.rng.randint(1, k) for k in kernel]}
    return {"pads": [n.rng.randrange(0, k) for k in (*most, *most)], "strides": sizes(n, 3)}


def pool(n, op, x, **attributes):
    """Padding by a rule is onnxruntime's own affair where there are dilations, too."""
    kernel = sizes(n, 3)
    where = placed(n, kernel, kernel)
    if "auto_pad" in where:
        attributes.pop("dilations", None)
    ceil = n.rng.randrange(2) if "pads" in where else 0
    return n.node(op, [x], kernel_shape=kernel, ceil_mode=ceil, **where, **attributes)


def sizes(n, most):
    return [n.rng.randint(1, most) for _ in range(2)]


def conv(n, x, shape):
    group = n.rng.choice([g for g in range(1, shape[0] + 1) if shape[0] % g == 0])
    out, kernel = group * n.rng.randint(1, 2), sizes(n, 3)
    into = shape[0] // group
    inputs = [x, n.normal(out, into, *kernel, fan=into * kernel[0] * kernel[1])]
    if n.rng.random() < 0.7:
        inputs.append(n.normal(out))
    return n.node("Conv", inputs, group=group, dilations=sizes(n, 2), **placed(n, kernel, (3, 3)))


def average_pool(n, x, shape):
    return pool(n, "AveragePool", x, count_include_pad=n.rng.randrange(2))


def max_pool(n, x, shape):
    return pool(n, "MaxPool", x, dilations=sizes(n, 2))


def global_average_pool(n, x, shape):
    return n.node("GlobalAveragePool", [x])


def gemm(n, x, shape):
    out, turned = n.rng.randint(1, 6), n.rng.randrange(2)
    matrix = n.normal(out, *shape, fan=shape[0]) if turned else n.normal(*shape, out, fan=shape[0])
    bias = n.rng.choice(([], [n.normal(out)], [n.normal(1, out)], [n.normal(1)], [n.normal()]))
    factors = {"alpha": n.rng.uniform(-2, 2), "beta": n.rng.uniform(-2, 2)} if n.rng.random() < 0.5 else {}
    return n.node("Gemm", [x, matrix, *bias], transB=turned, **factors)


def matmul(n, x, shape):
    return n.node("MatMul", [x, n.normal(*shape, n.rng.randint(1, 6), fan=shape[0])])


def relu(n, x, shape):
    return n.node("Relu", [x])


def batch_norm(n, x, shape):
    c = shape[0]
    inputs = [x, *(n.normal(c, folds=False) for _ in range(3)), n.weight(n.numbers.uniform(0.2, 2, c), folds=False)]
    return n.node("BatchNormalization", inputs, epsilon=n.rng.choice((1e-5, 1e-2)))


def layer_norm(n, x, shape):
    axis = 1 if len(shape) == 3 else n.rng.randint(1, len(shape))
    over = shape[axis - 1:]
    inputs = [x, n.normal(*over)]
    if n.rng.random() < 0.5:
        inputs.append(n.normal(*over))
    return n.node("LayerNormalization", inputs, axis=axis, epsilon=n.rng.choice((1e-5, 1e-1)))


def elementwise(n, x, shape):
    op = n.rng.choice(("Add", "Sub", "Mul", "Div"))
    wide = [1 if n.rng.random() < 0.4 else size for size in shape]
    constant = n.rng.choice(((), (1,), wide, [1, *wide], shape[-1:]))
    array = n.numbers.normal(size=constant)
    other = n.weight(np.where(array < 0, -0.5, 0.5) + array if op == "Div" else array)
    return n.node(op, [x, other] if op == "Div" or n.rng.random() < 0.5 else [other, x])


def negate(n, x, shape):
    return n.node("Neg", [x])


def nothing(n, x, shape):
    return n.node(n.rng.choice(("Identity", "Dropout")), [x])


def add(n, x, shape):
    """A branch, and a value with it; branches grow side by side."""
    branch = n.rng.choice((relu, negate, elementwise))(n, x, shape)
    if n.rng.random() < 0.3:
        return n.node("Add", [x, x])
    return n.node("Add", n.rng.sample([x, branch], 2))


def concat(n, x, shape):
    branches = [n.rng.choice((relu, negate, elementwise))(n, x, shape) for _ in range(n.rng.randint(1, 3))]
    return n.node("Concat", n.rng.sample([x, *branches], 1 + len(branches)), axis=n.rng.randint(1, len(shape)))


def split(n, x, shape):
    axis = n.rng.choice([i + 1 for i, size in enumerate(shape) if size > 1])
    size = shape[axis - 1]
    ends = sorted(n.rng.sample(range(1, size), min(size - 1, n.rng.randint(1, 3)))) + [size]
    lengths = [end - begin for begin, end in zip([0, *ends], ends)]
    parts = n.node("Split", [x, n.integers(*lengths)], len(lengths), axis=axis)
    return n.node("Concat", parts[::-1], axis=axis) if n.rng.random() < 0.5 else n.rng.choice(parts)


def flatten(n, x, shape):
    return n.node("Flatten", [x])


def reshape(n, x, shape):
    total = int(np.prod(shape))
    first = n.rng.choice([k for k in range(1, total + 1) if total % k == 0])
    second = n.rng.choice([k for k in range(1, total // first + 1) if total // first % k == 0])
    return n.node("Reshape", [x, n.integers(0, *n.rng.choice(([-1], [first, -1], [first, second, -1])))])


def transpose(n, x, shape):
    return n.node("Transpose", [x], perm=[0, *n.rng.sample(range(1, len(shape) + 1), len(shape))])


def cut(n, x, shape):
    axis = n.rng.randint(1, len(shape))
    begin, end, step = n.rng.choice(((0, 2, 1), (1, 100, 1), (0, 100, 2), (-2, 100, 1), (-3, -1, 1), (-1, -100, -1)))
    return n.node("Slice", [x, n.integers(begin), n.integers(end), n.integers(axis), n.integers(step)])


def pad(n, x, shape):
    mode, inputs = "constant", []
    if len(shape) > 1:
        mode = n.rng.choice(("constant", "constant", "constant", "reflect", "edge", "wrap"))
    size = lambda: n.rng.choice((-1, 0, 1, 1, 2)) if mode == "constant" else n.rng.randrange(2)
    sides = [size() for _ in range(2 * len(shape))]
    if mode != "constant":  # which our graph has behind the second dimension only
        sides[0] = sides[len(shape)] = 0
    if mode == "constant" and n.rng.random() < 0.8:
        inputs.append(n.weight(np.float32(n.rng.choice((0, 1, 2, 0.5, -0.5, -1, 3, -7.25)))))
    return n.node("Pad", [x, n.integers(0, *sides[:len(shape)], 0, *sides[len(shape):]), *inputs], mode=mode)


def squeeze(n, x, shape):
    if 1 in shape and len(shape) > 1:
        return n.node("Squeeze", [x, n.integers(shape.index(1) + 1)])
    return n.node("Unsqueeze", [x, n.integers(n.rng.randint(1, len(shape) + 1))])


IMAGES = (conv, conv, conv, average_pool, average_pool, max_pool, max_pool, global_average_pool, batch_norm)
VECTORS = (gemm, gemm, matmul, batch_norm)
ALWAYS = (relu, relu, elementwise, elementwise, negate, nothing, add, concat, split, flatten, reshape, transpose, cut,
          pad, pad, squeeze, layer_norm)
OPERATORS = ("constant Add AveragePool BatchNormalization Concat Conv Div Dropout Flatten Gemm GlobalAveragePool Identity "
             "LayerNormalization MatMul MaxPool Mul Neg Pad Relu Reshape Slice Split Squeeze Sub Transpose "
             "Unsqueeze").split()


def made(seed):
    for attempt in range(100):
        network = Network(seed * 100 + attempt)
        network.seed = seed
        if len(network.shape) == 3 and network.rng.random() < 0.3:  # little that would hide what lines around maxima do
            for kinds in ((conv, nothing), (max_pool,)):
                network.grow(kinds)
        else:
            for _ in range(network.rng.randint(1, 8)):
                network.grow()
        try:
            network.finish()
            outputs(network.proto(every=True), {"x": network.values["x"]})
        except Exception as error:  # shapes that onnxruntime infers otherwise than it computes, numbers that overflow
            if isinstance(error, OURS):
                raise
        else:
            return network


SWITCHES = "area", "best_of_depth", "early_termination", "unstable_only", "windows"


def boxes_of(network):
    """Boxes and settings of a network: a point, and some around it."""
    rng, boxes = network.rng, []
    radii = ((1e-4, 1e-3, 1e-2), (0.03, 0.1, 0.3), (0.1, 0.5, 1.0), (1e-3, 0.1, 0.3))
    for radius in (0.0, *map(rng.choice, radii)):
        size = network.numbers.uniform(0, 1, network.shape)
        size *= network.numbers.uniform(size=network.shape) < rng.choice((0.3, 1.0))
        rows = np.concatenate([np.eye(3), network.numbers.normal(size=(1, 3))])
        boxes.append({"lower": np.float32(network.center - radius * size),
                      "upper": np.float32(network.center + radius * size),
                      "forms": np.concatenate([rows, -rows]),
                      "soundness": rng.choice((1, 2, 3, 3, 3, 4)),
                      "method": rng.choice(("ibp", "crown", "deeppoly", "deeppoly")),
                      "memory": rng.choice((1, 4096, 1 << 30)),
                      **{name: rng.random() < 0.7 for name in SWITCHES}})
    return boxes


def points_of(network, box):
    """Corners, points on sides, and points between."""
    share = network.numbers.uniform(-0.7, 1.7, (POINTS, *network.shape)).clip(0, 1).astype(np.float32)
    return (box["lower"] + share * (box["upper"] - box["lower"])).clip(box["lower"], box["upper"])


class Bounds:
    """Answers of bin/gpupoly_bounds."""

    def __init__(self, folder):
        self.folder = folder
        self.program = subprocess.Popen([BUILD / "bin" / "gpupoly_bounds"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def of(self, network, boxes):
        path = self.folder / "net.onnx"
        onnx.save(network.proto(), path)
        plain = [{**box, "lower": box["lower"].ravel().tolist(), "upper": box["upper"].ravel().tolist(),
                  "forms": box["forms"].tolist()} for box in boxes]
        self.program.stdin.write(json.dumps({"model": str(path), "shape": network.shape, "boxes": plain}) + "\n")
        self.program.stdin.flush()
        line = self.program.stdout.readline()
        if not line:
            raise AssertionError(f"gpupoly_bounds ended with {self.program.wait()} at seed {network.seed}")
        return json.loads(line)

    def close(self):
        self.program.stdin.close()
        self.program.stdout.close()
        self.program.wait()


def array(numbers, none):
    return np.array([none if number is None else number for number in numbers])


class Soundness(HostTest):
    def setUp(self):
        super().setUp()
        self.bounds = Bounds(self.folder)
        self.addCleanup(self.bounds.close)
        self.counts, self.refused = collections.Counter(), collections.Counter()

    def check(self, seed):
        """What is wrong with the bounds of one network, in words."""
        network = made(seed)
        boxes = boxes_of(network)
        found = self.bounds.of(network, boxes)
        if "refused" in found:
            self.refused[found["refused"]] += 1
            return [] if REFUSED.search(found["refused"]) else [f"seed {seed}: {found['refused']}"]
        self.counts.update(network.operators)
        inputs = [points_of(network, box) for box in boxes]
        everything = outputs(network.proto(every=True), {"x": np.concatenate(inputs)})
        wrong = []
        for i, (box, answer) in enumerate(zip(boxes, found["boxes"])):
            wrong += self.check_box(network, i, box, answer, [part[i * POINTS:(i + 1) * POINTS] for part in everything])
        return wrong[:1]  # what follows it is wrong by it

    def check_box(self, network, number, box, answer, parts):
        self.counts["points"] += POINTS
        nodes = {name: node for node in network.nodes for name in node.output}
        exact, wrong = box["soundness"] >= 3, []
        # Of a variance near 0 a program in single precision, which may take it as a difference, says nothing.
        point = number == 0 and not (exact and "LayerNormalization" in network.operators)

        def compare(what, values, low, up):
            self.counts["numbers"] += values.size
            size = 1 + np.abs(values).max(0)
            slack = 0 if exact else 1e-4 * size
            outside = (values < low - slack) | (values > up + slack)
            if outside.any():
                settings = {key: value for key, value in box.items() if not isinstance(value, np.ndarray)}
                wrong.append(f"seed {network.seed}, box {number}, {what}: {int(outside.sum())} of {values.size} "
                             f"outside, by {np.maximum(low - values, values - up).max():.3g}; {settings}")
            if point and not (up - low <= 0.1 * size).all():
                wrong.append(f"seed {network.seed}, {what}: bounds of a point are {(up - low).max():.3g} apart")

        for name, values in zip(network.used, parts):
            if nodes[name].op_type in ("Identity", "Dropout"):
                continue
            if name not in answer["values"]:
                wrong.append(f"seed {network.seed}: no bounds of {name} ({nodes[name].op_type})")
                continue
            compare(f"{nodes[name].op_type} {nodes[name].name}", values.reshape(POINTS, -1).astype(np.float64),
                    array(answer["values"][name]["low"], -np.inf), array(answer["values"][name]["up"], np.inf))
        rows = parts[network.used.index(network.last)].astype(np.float64) @ box["forms"].T
        low, half = array(answer["forms"], -np.inf), len(answer["forms"]) // 2
        sums = 1e-12 * (1 + np.abs(rows).max(0))
        compare("forms", rows, low - sums, -np.roll(low, half) + sums)
        return wrong

    def test_every_value_lies_within_its_bounds(self):
        drawn = random.SystemRandom().randrange(1 << 30)
        wrong = []
        for seed in [*range(NETWORKS * 3 // 4), *range(drawn, drawn + NETWORKS // 4)]:
            wrong += self.check(seed)
        kinds = ", ".join(f"{op} {self.counts[op]}" for op in OPERATORS)
        print(f"{self.counts['points']:,} points, {self.counts['numbers']:,} numbers; "
              f"refused {self.refused.total()} of {NETWORKS}; {kinds}")
        self.assertEqual(wrong[:20], [])
        self.assertLess(self.refused.total(), NETWORKS // 5)
        self.assertEqual([op for op in OPERATORS if self.counts[op] == 0], [])


class Verdicts(HostTest):
    def verdict(self, nodes, shape, weights, assertion, box):
        made = model(nodes, {"x": shape}, weights, ["y"])
        size = outputs(made, {"x": np.zeros((1, *shape), np.float32)})[0].shape[1]
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", size]))
        onnx.save(made, self.folder / "net.onnx")
        inputs = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} {box[0]}))(assert (<= X_{i} {box[1]}))\n"
                         for i in range(int(np.prod(shape))))
        self.write("p.vnnlib", inputs + "".join(f"(declare-const Y_{i} Real)\n" for i in range(size)) + assertion)
        done = self.host("gpupoly", "net.onnx", "--property", "p.vnnlib", "--restarts", 0, "--format", "json")
        return json.loads(done.stdout)["facts"]["verdict"]

    def test_no_property_holds_that_every_input_violates(self):
        """By a mean whose padding lies at the far ends, and by what a Pad fills in."""
        flat = helper.make_node("Flatten", ["p"], ["y"])
        pool = helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1])
        self.assertEqual(self.verdict([pool, flat], (1, 3, 3), {}, "(assert (>= Y_3 0.5))", (0.9, 1)), "unknown")
        self.assertEqual(self.verdict([pool, flat], (1, 3, 3), {}, "(assert (<= Y_3 0.5))", (0.9, 1)), "unsat")
        fill = {"sides": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "fill": np.float32(0.5)}
        padded = [helper.make_node("Pad", ["x", "sides", "fill"], ["p"]), flat]
        self.assertEqual(self.verdict(padded, (1, 2, 2), fill, "(assert (>= Y_0 0.25))", (0.9, 1)), "unknown")


if __name__ == "__main__":
    unittest.main()
