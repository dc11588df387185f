"""Recurrent networks of `export --to static`: the programs give what `predict` gives, and onnxruntime for the ONNX export, of weights as they are
and in terms, whose bytes are those of their numbers."""
import random
import re
import subprocess
import sys
import unittest

try:
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper, save
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"skipped: {error}; tools/test makes an environment that has it")
    sys.exit(77)

from support.exported_runs import built, images, run
from support.host import HostTest

QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level = 4
PRIMES = [11, 13, 17, 19, 23, 29]
OTHERS = [12, 14, 16, 18, 20, 24]


def doped(layer, structure, alone=False):
    return (f'[[transforms]]\ntype = "doped"\nlayers = ["{layer}"]\ntarget_cf = 6\nstructure = "{structure}"\n'
            + ("alone = true\n" if alone else "sparse = { every = 1 }\n"))


def pruned(layer):
    return f'[[transforms]]\ntype = "prune"\nlayers = ["{layer}"]\nratio = 0.9\nsparse = {{ every = 1 }}\n'


# What becomes of two layers, which sizes are drawn of, and the length of a sample.
NETWORKS = {
    "dense, kp": (doped("lstm2", "kp"), PRIMES, 5),
    "lmf": (doped("lstm*", "lmf"), OTHERS, 7),
    "hmd": (doped("lstm*", "hmd"), PRIMES, 1),
    "pruned, kp alone": (pruned("lstm1") + doped("lstm2", "kp", True), OTHERS, 4),
    "lmf alone, pruned": (doped("lstm1", "lmf", True) + pruned("lstm2"), PRIMES, 2),
    "pruned, hmd alone": (pruned("lstm1") + doped("lstm2", "hmd", True), PRIMES, 3),
}


def language(sizes, vocabulary, length):
    embedding, first, second = sizes
    layers = (f'type = "sequential"\nlayers = [{{ type = "embedding", out = {embedding} }}, {{ type = "lstm", name = "lstm1", out = {first} }},'
              f' {{ type = "lstm", name = "lstm2", out = {second} }}, {{ type = "linear", out = {vocabulary} }}]')
    text = run(layers, f'type = "synthetic"\nkind = "language"\nseq_len = {length}\nvocabulary = {vocabulary}')
    return text.replace("lr = 0.01", "lr = 0.05")


class Recurrent(HostTest):
    def assert_close(self, found, expected):
        self.assertEqual(np.size(found), np.size(expected))
        self.assertGreater(float(np.abs(expected).max()), 0.1)
        self.assertLessEqual(float(np.abs(np.ravel(found) - np.ravel(expected)).max()) / max(1.0, float(np.abs(expected).max())), 1e-5)

    def predicted(self, *words):
        """The inputs and what the host says of them."""
        self.host("predict", "run.toml", "--inputs", "true", "--out", "said.safetensors", *words)
        said = load_file(self.folder / "said.safetensors")
        return said["input/0"], said["output"]

    def program(self, *words):
        self.host("export", "run.toml", "--to", "static", "--file", "net", *words)
        return built(self.folder / "net")

    def of_program(self, inputs):
        done = subprocess.run([self.folder / "net/predict"], input=inputs.tobytes(), capture_output=True, check=True)
        return np.frombuffer(done.stdout, np.float32)

    def of_onnxruntime(self, inputs):
        session = onnxruntime.InferenceSession(str(self.folder / "net.onnx"), QUIET, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: inputs})[0]

    def test_networks_of_drawn_sizes(self):
        drawn = random.Random(11)
        for name, (transforms, among, length) in NETWORKS.items():
            sizes, vocabulary = drawn.sample(among, 3), drawn.choice(PRIMES)
            with self.subTest(name, sizes=sizes, vocabulary=vocabulary):
                self.train(language(sizes, vocabulary, length) + transforms, "--overwrite")
                inputs, expected = self.predicted()
                self.host("export", "run.toml", "--to", "onnx", "--file", "net.onnx")
                self.program()
                found = self.of_program(inputs)
                self.assert_close(found, expected)
                self.assert_close(found, self.of_onnxruntime(inputs))
                one = self.of_program(inputs[:1])
                self.assertEqual(one.tobytes(), found[:one.size].tobytes())  # nothing is left of the sample before
                self.assert_close(one, self.of_onnxruntime(inputs[:1]))
                self.check_bytes(transforms)
                subprocess.run(["rm", "-r", self.folder / "net"], check=True)

    def check_bytes(self, transforms):
        """Of the two files: four for each number that is not 0, two for its column and two for each row where they are of a sparse matrix."""
        numbers = stored = rows = 0
        for each, values in load_file(self.folder / "runs/small/model.safetensors").items():
            sparse = each.endswith(".sparse") or any(each.startswith(f"{layer}.weight") for layer in re.findall(r'type = "prune"\nlayers = \["(\w+)"\]', transforms))
            alive = int(np.count_nonzero(values)) if sparse else values.size
            numbers, stored, rows = numbers + alive, stored + (alive if sparse else 0), rows + (values.shape[-2] if sparse else 0)
        size = sum((self.folder / "net" / file).stat().st_size for file in ("weights.bin", "places.bin") if (self.folder / "net" / file).exists())
        self.assertLessEqual(size, 1.02 * (4 * numbers + 2 * stored + 2 * rows))
        notes = re.findall(r"// (lstm\d.weight_..): (\d+) numbers as (\d+), (\d+) bytes as (\d+)\n", (self.folder / "net/network.hpp").read_text())
        layers = [layer for layer in ("lstm1", "lstm2") if f'"{layer}"' in transforms or "lstm*" in transforms]
        self.assertEqual([note[0] for note in notes], [f"{layer}.weight_{of}" for layer in layers for of in ("ih", "hh")])
        for _, before, after, before_bytes, after_bytes in notes:
            self.assertEqual(int(before_bytes), 4 * int(before))
            self.assertLess(int(after), int(before) / 5.5)
            self.assertLess(int(after_bytes), int(before_bytes) / 3)

    def test_tokens_that_no_row_has(self):
        self.train(language([5, 7, 3], 11, 4))
        self.program()
        for tokens, said in (([0, 1, 2, 11], b"sample 1 has the number 11, which no row"), ([0, -1, 2, 3], b"sample 1 has the number -1, which no row"), ([0], b"ends within a sample")):
            given = np.array([1, 2, 3, 4] + tokens, np.int64).tobytes()
            done = subprocess.run([self.folder / "net/predict"], input=given, capture_output=True)
            self.assertEqual((done.returncode, len(done.stdout)), (4, 4 * 4 * 11))
            self.assertIn(said, done.stderr)

    def graph(self, inputs=None, attributes=None, before=(), after=(), weights=None, outputs=("y", "y_h", "y_c")):
        """A file of nodes `before`, an LSTM "cells" of 5 cells on x [time, batch, 3], and nodes `after`, from "image" [batch, 4, 3] to "out"."""
        random_ = np.random.default_rng(3)
        arrays = {"w": (1, 20, 3), "r": (1, 20, 5), "b": (1, 40), "into": (12, 5), "flat": (20, 3), "one": (5, 3), **(weights or {})}
        tensors = [numpy_helper.from_array(random_.normal(0, 0.5, shape).astype(np.float32), name) for name, shape in arrays.items()]
        tensors += [numpy_helper.from_array(np.array([axis], np.int64), f"axis{axis}") for axis in (0, 1)]
        node = helper.make_node("LSTM", inputs or ["x", "w", "r", "b"], list(outputs), name="cells", **{"hidden_size": 5, **(attributes or {})})
        graph = helper.make_graph([*before, node, *after], "g", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 4, 3])],
                                  [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 3])], tensors)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), self.folder / "net.onnx")
        self.write("run.toml", run('type = "onnx"\nfile = "net.onnx"\nreshape_input = true', images(4, 3)))

    def test_time_in_front_and_states_that_the_graph_gives(self):
        """Outputs of all steps, and what is left behind the last; states that it begins with are computed of the input."""
        make = helper.make_node
        turned = [make("Transpose", ["image"], ["x"], perm=[1, 0, 2])]
        state = [make("Flatten", ["image"], ["numbers"]), make("Gemm", ["numbers", "into"], ["mixed"]), make("Tanh", ["mixed"], ["state"]),
                 make("Unsqueeze", ["state", "axis0"], ["h0"]), make("Sigmoid", ["state"], ["cells0"]), make("Unsqueeze", ["cells0", "axis0"], ["c0"])]
        behind = [make("Squeeze", ["y", "axis1"], ["all"]), make("Transpose", ["all"], ["back"], perm=[1, 0, 2]), make("Flatten", ["back"], ["row"]),
                  make("Gemm", ["row", "flat"], ["first"]), make("Squeeze", ["y_h", "axis0"], ["h"]), make("Gemm", ["h", "one"], ["second"]),
                  make("Squeeze", ["y_c", "axis0"], ["c"]), make("Gemm", ["c", "one"], ["third"]), make("Add", ["first", "second"], ["two"]),
                  make("Add", ["two", "third"], ["out"])]
        last = [make("Squeeze", ["y_h", "axis0"], ["h"]), make("Gemm", ["h", "one"], ["out"])]
        for what, inputs, before, after, outputs in (
                ("all", ["x", "w", "r", "b", "", "h0", "c0"], turned + state, behind, ("y", "y_h", "y_c")),
                ("the last alone, without a bias", ["x", "w", "r", "", "", "", "c0"], turned + state, last, ("", "y_h"))):
            with self.subTest(what):
                self.graph(inputs, None, before, after, outputs=outputs)
                inputs, expected = self.predicted("--weights", "initial")
                self.program("--weights", "initial")
                found = self.of_program(inputs)
                self.assert_close(found, expected)
                self.assert_close(found, self.of_onnxruntime(inputs))

    def test_what_is_refused(self):
        make = helper.make_node
        turned = [make("Transpose", ["image"], ["x"], perm=[1, 0, 2])]
        last = [make("Squeeze", ["y_h", "axis0"], ["h"]), make("Gemm", ["h", "one"], ["out"])]
        both = [make("Transpose", ["y_h"], ["apart"], perm=[1, 0, 2]), make("Flatten", ["apart"], ["h"]), make("Gemm", ["h", "two"], ["out"])]
        given = ["x", "w", "r", "b"]
        two = {"weights": {"w": (2, 20, 3), "r": (2, 20, 5), "b": (2, 40), "two": (10, 3)}, "attributes": {"direction": "bidirectional"}, "after": both}
        for words, how in ((r'to = "static": node "cells", a LSTM: direction = "bidirectional" is not written', two),
                           ("cells.*reverse", {"attributes": {"direction": "reverse"}}),
                           ("cells.*peephole weights are not supported", {"inputs": given + ["", "", "", "p"], "weights": {"p": (1, 15)}}),
                           ("cells.*sequence_lens.*not supported", {"inputs": given + ["axis0"]}),
                           ("cells.*`clip`.* not supported", {"attributes": {"clip": 3.0}}),
                           ("cells.*Relu is not supported", {"attributes": {"activations": ["Sigmoid", "Relu", "Tanh"]}}),
                           ('node "turn", a Transpose: it moves more than the batch', {"before": [make("Transpose", ["image"], ["x"], perm=[2, 0, 1], name="turn")],
                                                                                        "weights": {"w": (1, 20, 4)}})):
            with self.subTest(words):
                self.graph(**{"before": turned, "after": last, **how})
                self.assertRegex(self.host("export", "run.toml", "--weights", "initial", "--to", "static", code=2).stderr.replace("\n", " "), words)


if __name__ == "__main__":
    unittest.main()
