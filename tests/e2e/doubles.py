"""Runs in double precision: `trainer.precision = "fp64"`."""
import json
import shutil
import struct
import unittest

from support.host import ROWS, SMALL, rows
from support.ranks import RankTest

# Where these are not there, support.ranks has ended the test.
import numpy
from safetensors.numpy import load_file

FP64 = ("--set", "trainer.precision=fp64")
RUN = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"') + '[checkpoint]\ntype = "full"\ninterval = "2ba"\n'
STEPS, RATE = 60, 0.05
# The whole of the data each step, in its order.
LINEAR = (ROWS.replace("layers = [8, 16, 3]", "layers = [8, 3]").replace("batch_size = 16, shuffle = true", "batch_size = 24, shuffle = false")
          .replace("val = { batch_size = 16 }\n", "").replace('[[metrics]]\ntype = "accuracy"\n', "").replace('eval_interval = "1ep"\n', "")
          .replace('"adamw"\nlr = 0.01', f'"sgd"\nlr = {RATE}').replace('"2ep"', f'"{STEPS}ba"'))


def types(path):
    """The types in a safetensors file, as its header has them."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    return {each["dtype"] for name, each in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def feature(row, column):
    return ((row * 7 + column * 3) % 11) / 10


class Doubles(RankTest):
    def test_a_linear_classifier_is_trained_as_numpy_does_it_in_double_precision(self):
        self.write("rows.csv", rows(feature=feature))
        self.on(1, LINEAR, "--set", "optimizer.lr=1e-30", "--set", "trainer.max_duration=1ba")
        names = sorted(self.weights())  # bias, weight
        bias, matrix = (self.weights()[name].astype(numpy.float64) for name in names)
        # Features are read in single precision.
        x = numpy.array([[feature(row, column) for column in range(8)] for row in range(24)], numpy.float32).astype(numpy.float64)
        target = numpy.eye(3)[numpy.arange(24) % 3]
        for _ in range(STEPS):
            scores = numpy.exp(x @ matrix.T + bias)
            slope = (scores / scores.sum(1, keepdims=True) - target) / 24
            matrix, bias = matrix - RATE * slope.T @ x, bias - RATE * slope.sum(0)

        def furthest():
            return max(float(numpy.abs(self.weights()[name] - expected).max()) for name, expected in zip(names, (bias, matrix)))

        self.on(1, LINEAR, *FP64)
        self.assertEqual({each.dtype for each in self.weights().values()}, {numpy.dtype(numpy.float64)})
        self.assertLess(furthest(), 1e-14)
        self.on(1, LINEAR)
        self.assertGreater(furthest(), 1e-9)

    def test_checkpoints_hold_doubles_and_a_run_goes_on_from_one_to_the_bit(self):
        expected = self.on(1, RUN, *FP64)["digest"]
        for checkpoint in (self.run_folder / "checkpoints").glob("step-*"):
            self.assertEqual((types(checkpoint / "model.safetensors"), types(checkpoint / "optimizer.safetensors")), ({"F64"}, {"F64"}))
        shutil.rmtree(self.run_folder)
        self.train(RUN, *FP64, "--set", "trainer.max_wall_time=0.000001s", code=75)
        for precision in ("fp32", "bf16-mixed"):
            said = self.host("train", "run.toml", "--set", f"trainer.precision={precision}", code=2).stderr
            self.assertIn(f"trainer.precision \"fp64\" -> \"{precision}\" since step 1 does not fit the state that was saved", said)
        self.assertEqual(self.train(RUN, *FP64)["digest"], expected)

    def test_two_ranks_sum_gradients_in_double_precision(self):
        text = RUN.replace("batch_size = 16, shuffle", "batch_size = 16, micro_batch_size = 8, shuffle")
        self.on(1, text, *FP64)
        expected = self.weights()
        for words in ((), ("--set", "distributed.bucket_cap_mb=0.0003")):
            self.on(1, text, *FP64, "--ranks", "2", *words)
            for name, each in self.weights().items():
                self.assertEqual(each.dtype, numpy.float64)
                self.assertLess(numpy.abs(each - expected[name]).max(), 1e-13, name)

    def test_weights_of_the_other_precision_are_converted(self):
        self.on(1, RUN)
        single = self.weights()
        shutil.copy(self.run_folder / "model.safetensors", self.folder / "single.safetensors")
        still = ("--set", "optimizer.lr=1e-300", "--set", "optimizer.weight_decay=0", "--set", "trainer.max_duration=1ba", "--set", "run.load=weights")
        self.on(1, RUN, *FP64, *still, "--set", "run.resume=single.safetensors")
        double = self.weights()
        for name, each in single.items():
            self.assertEqual(double[name].dtype, numpy.float64)
            self.assertTrue((double[name] == each).all(), name)
        self.on(1, RUN, *FP64)
        double = self.weights()
        shutil.copy(self.run_folder / "model.safetensors", self.folder / "double.safetensors")
        self.on(1, RUN, *still, "--set", "run.resume=double.safetensors")
        for name, each in self.weights().items():
            self.assertTrue((each == double[name].astype(numpy.float32)).all(), name)

    def test_verbs_take_the_weights_as_they_are(self):
        loss = self.on(1, RUN, *FP64)["metrics"]["val/loss"]
        self.assertEqual(json.loads(self.host("eval", "run.toml", *FP64, "--format", "json").stdout)["val/loss"], loss)
        self.assertEqual(json.loads(self.host("eval", "runs/small", "--format", "json").stdout)["val/loss"], loss)
        self.host("predict", "runs/small", "--inputs", "true", "--out", "said.safetensors")
        said = load_file(self.folder / "said.safetensors")
        w = self.weights()
        hidden = numpy.maximum(said["input/0"] @ w["fc1.weight"].T + w["fc1.bias"], 0)
        self.assertLess(numpy.abs(said["output"] - (hidden @ w["fc2.weight"].T + w["fc2.bias"])).max(), 1e-14)
        exponents = numpy.exp(said["output"])
        chances = exponents / exponents.sum(1, keepdims=True)
        self.assertLess(abs(-numpy.log(chances[numpy.arange(len(chances)), said["target"]]).mean() - loss), 1e-14)
        self.host("export", "runs/small", "--to", "safetensors", "--file", "out.safetensors")
        self.assertEqual(types(self.folder / "out.safetensors"), {"F64"})
        self.assertIn("32-bit floats", self.host("export", "runs/small", "--to", "static", "--file", "static", code=2).stderr)

    def test_what_works_in_single_precision_alone_is_refused_by_name(self):
        self.write("run.toml", RUN)
        for lines, name in (('[executor]\ntype = "pipelined"\n', 'the executor "pipelined"'),
                            ('[distributed.compressor]\ntype = "topk"\n', 'the compressor "topk"')):
            self.write("more.toml", lines)
            for level in ("files", "build"):
                said = self.host("validate", "run.toml", "more.toml", *FP64, "--level", level, code=2).stderr
                self.assertIn(f"{name} needs weights of single precision, and trainer.precision is \"fp64\"", said)

    def test_compiled_runs_as_eager_does_and_says_so(self):
        expected = self.on(1, RUN, *FP64)["digest"]
        done = self.on(1, RUN + '[executor]\ntype = "compiled"\n', *FP64)
        self.assertEqual(done["digest"], expected)
        self.assertIn("kernels are of floats, and the weights are not: every step runs as eager does", (self.run_folder / "run.log").read_text())


if __name__ == "__main__":
    unittest.main()
