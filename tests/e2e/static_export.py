"""What `export --to static` writes: source that compiles without LibTorch, whose programs give what `predict` gives and fit what a training fits."""
import array
import json
import math
import os
import re
import struct
import subprocess
import sys
import unittest

from support.exported_runs import DATA, MODEL, SEQUENTIAL, built, images, run
from support.host import DATA as SHARED
from support.host import SOURCE, HostTest

RUNS = {
    "mlp": run(MODEL),
    "mlp of tanh": run(MODEL + '\nactivation = "tanh"') + '[model.dropout]\ntype = "standard"\np = 0.5\n',
    "lenet": run('type = "lenet"', images(1, 28, 28)),
    "sequential": run(SEQUENTIAL, images(3, 13, 11)),
}
DIGITS = run(MODEL.replace("8, 16, 3", "64, 128, 10"), f"""type = "csv"
scale = 16.0
classes = 10""").replace("size = 64, ", f'path = "{SOURCE}/data/optdigits/optdigits.tra.gz", ').replace(
    "size = 32, ", f'path = "{SOURCE}/data/optdigits/optdigits.tes.gz", ')
FASHION = run('type = "lenet"', 'type = "idx"\nmean = [0.2860]\nstd = [0.3530]\nclasses = 10')
for split, of in (("size = 64, batch_size = 16, shuffle = true", "t10k"), ("size = 32, batch_size = 16", "t10k")):
    folder = SHARED / "vision/fashion_mnist"
    FASHION = FASHION.replace(split, f'images = "{folder}/{of}-images-idx3-ubyte.gz", labels = "{folder}/{of}-labels-idx1-ubyte.gz", batch_size = 100')


def floats(data):
    return array.array("f", data)


def tensors(path):
    """Name to numbers, floats or integers of 64 bits, and how many rows."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    kinds = {"F32": "f", "I64": "q"}
    return {name: (array.array(kinds[each["dtype"]], data[8 + size + each["data_offsets"][0]:8 + size + each["data_offsets"][1]]), each["shape"][0])
            for name, each in header.items()}


class Static(HostTest):
    def distance(self, one, other):
        self.assertEqual(len(one), len(other))
        scale = max(1.0, max(abs(each) for each in other))
        return max(abs(a - b) for a, b in zip(one, other)) / scale

    def exported(self, text, *words):
        self.train(text, "--overwrite")
        self.host("export", "run.toml", "--to", "static", "--file", "net", *words)
        return built(self.folder / "net")

    def outputs(self, text):
        """Of the program, and of the host for the same inputs."""
        net = self.exported(text)
        self.host("predict", "run.toml", "--inputs", "true", "--out", "said.safetensors")
        said = tensors(self.folder / "said.safetensors")
        done = subprocess.run([net / "predict"], input=said["input/0"][0].tobytes(), capture_output=True, check=True)
        return floats(done.stdout), said["output"][0]

    def test_the_programs_give_what_predict_gives(self):
        for name, text in RUNS.items():
            with self.subTest(name):
                found, expected = self.outputs(text)
                self.assertGreater(max(abs(each) for each in expected), 1e-3)
                self.assertLessEqual(self.distance(found, expected), 1e-5)
                self.assertEqual((self.folder / "net/fit.cpp").exists(), name.startswith("mlp"))
                dynamic = subprocess.run(["readelf", "-d", self.folder / "net/predict"], text=True, capture_output=True, check=True).stdout
                self.assertIn("There is no dynamic section", dynamic)
                subprocess.run(["rm", "-r", self.folder / "net"], check=True)

    def test_digits(self):
        found, expected = self.outputs(DIGITS)
        self.assertEqual(len(expected), 1797 * 10)
        self.assertLessEqual(self.distance(found, expected), 1e-5)

    @unittest.skipUnless((SHARED / "vision/fashion_mnist").exists(), "the data is not here")
    def test_lenet_on_fashion_mnist(self):
        found, expected = self.outputs(FASHION.replace('"2ep"', '"20ba"').replace('eval_interval = "1ep"', 'eval_interval = "20ba"'))
        self.assertEqual(len(expected), 10_000 * 10)
        self.assertLessEqual(self.distance(found, expected), 1e-5)

    def test_a_fit_is_that_of_a_training(self):
        """Plain descent, a sample a step in the order of the data: by the host, and by the program from the same weights."""
        one_by_one = lambda text: text.replace("batch_size = 16, shuffle = true", "batch_size = 1, shuffle = false").replace(
            '"adamw"\nlr = 0.01', '"sgd"\nlr = 0.05')
        regression = DATA.replace("classification", "regression").replace("\nclasses = 3", "")
        by_mse = run(MODEL.replace("3]", "1]") + '\nactivation = "sigmoid"', regression).replace('"cross_entropy"', '"mse"').replace('"accuracy"', '"mae"')
        for loss, text in (("cross_entropy", one_by_one(RUNS["mlp"])), ("mse", one_by_one(by_mse))):
            with self.subTest(loss):
                trained = floats((self.exported(text) / "weights.bin").read_bytes())
                self.host("export", "run.toml", "--weights", "initial", "--to", "static", "--file", "net")
                net = built(self.folder / "net")
                initial = floats((net / "weights.bin").read_bytes())
                self.host("predict", "run.toml", "--split", "train", "--batches", "64", "--inputs", "true", "--out", "said.safetensors")
                said = tensors(self.folder / "said.safetensors")
                inputs, targets = said["input/0"][0], said["target"][0]
                samples = b"".join(inputs[8 * i:8 * i + 8].tobytes() + array.array("f", [targets[i]]).tobytes() for i in range(64))
                self.write("samples.f32", "")
                (self.folder / "samples.f32").write_bytes(samples)
                subprocess.run([net / "fit", loss, "0.05", "2", self.folder / "samples.f32", self.folder / "fitted.bin"], check=True, capture_output=True)
                fitted = floats((self.folder / "fitted.bin").read_bytes())
                self.assertGreater(self.distance(initial, trained), 1e-2)
                self.assertLessEqual(self.distance(fitted, trained), 1e-5)
                once = subprocess.run([net / "predict", self.folder / "fitted.bin"], input=inputs.tobytes(), capture_output=True, check=True)
                self.assertEqual(len(floats(once.stdout)), 64 * len(said["output"][0]) // 64)

    def test_weights_in_terms_are_packed(self):
        """What transforms make of weights is multiplied by term after term; no zero is stored, and no matrix made."""
        wide = run('type = "mlp"\nlayers = [96, 120, 80, 3]', DATA.replace("[8]", "[96]"))
        self.assertIn("96]", wide)
        doped = '[[transforms]]\ntype = "doped"\nlayers = ["fc1", "fc2"]\ntarget_cf = 6\nsparse = { every = 1 }\nstructure = '
        ways = {"kp": doped + '"kp"\n', "lmf": doped + '"lmf"\n', "hmd": doped + '"hmd"\n',
                "kp alone": doped + '"kp"\nalone = true\n', "prune": '[[transforms]]\ntype = "prune"\nratio = 0.9\nsparse = { every = 1 }\n'}
        for name, text in ways.items():
            with self.subTest(name):
                found, expected = self.outputs(wide + text)
                self.assertLessEqual(self.distance(found, expected), 1e-5)
                numbers, stored, rows = 0, 0, 0
                for each, (values, count) in tensors(self.folder / "runs/small/model.safetensors").items():
                    alive = sum(value != 0 for value in values)
                    sparse = each.endswith(".sparse") or name == "prune" and each in ("fc1.weight", "fc2.weight")
                    numbers, stored, rows = numbers + alive, stored + (alive if sparse else 0), rows + (count if sparse else 0)
                size = sum((self.folder / "net" / file).stat().st_size for file in ("weights.bin", "places.bin") if (self.folder / "net" / file).exists())
                self.assertLessEqual(size, 1.02 * (4 * numbers + 2 * stored + 2 * rows))
                self.assertLess(size, 0.4 * 4 * (96 * 120 + 120 * 80 + 240))
                self.assertRegex((self.folder / "net/network.hpp").read_text(), r"// fc1.weight: 11520 numbers as \d+, 46080 bytes as \d+\n")
                subprocess.run(["rm", "-r", self.folder / "net"], check=True)

    def test_what_weights_alone_make_is_a_weight(self):
        text = RUNS["mlp"] + '[[transforms]]\ntype = "doped"\ntarget_cf = 1.5\nlayers = ["fc1"]\nsparse = { every = 1 }\n'
        found, expected = self.outputs(text)
        self.assertLessEqual(self.distance(found, expected), 1e-5)
        self.assertFalse((self.folder / "net/places.bin").exists())

    def test_what_is_refused(self):
        self.train(RUNS["mlp"].replace("[trainer]", '[trainer]\nprecision = "fp64"'))
        said = self.host("export", "run.toml", "--to", "static", code=2).stderr
        self.assertRegex(said, "takes a network of an input of 32-bit floats or of 64-bit integers; that of this one, [^ ]+, holds Double")
        self.train(run('type = "resnet"\ndepth = 8', images(3, 12, 12)), "--overwrite")  # with a shortcut that is cut and padded
        said = self.host("export", "run.toml", "--to", "static", code=2).stderr
        self.assertRegex(said, r'node "\w[^"]*", a Slice: there is no such operator for small devices; there are Add, ')
        self.train(RUNS["mlp"], "--overwrite")
        self.write("other/notes.txt", "mine")
        said = self.host("export", "run.toml", "--to", "static", "--file", "other", code=2).stderr
        self.assertIn("the folder other holds other things than a network", said)
        net = self.exported(RUNS["mlp"])
        done = subprocess.run([net / "predict"], input=b"\0" * 33, capture_output=True)
        self.assertEqual((done.returncode, b"ends within a sample" in done.stderr), (4, True))
        done = subprocess.run([net / "predict", "/dev/null"], input=b"", capture_output=True)
        self.assertEqual((done.returncode, b"does not hold the 195 weights" in done.stderr), (4, True))


class SmallDevice(HostTest):
    def test_the_spline_fit(self):
        """Its control points are those of the normal equations, solved here."""
        program = self.folder / "spline_fit"
        subprocess.run([os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-static", "-s", f"-I{SOURCE}/sdk/include", f"-I{SOURCE}",
                        SOURCE / "tests/programs/spline_fit.cpp", "-o", program], check=True)
        done = subprocess.run([program], text=True, capture_output=True, check=True)
        size, memory = program.stat().st_size, int(re.search(r"VmHWM:\s*(\d+) kB", done.stderr).group(1))
        print(f"spline fit: {size / 1e6:.2f} MB stripped, {memory / 1024:.2f} MB of memory, {done.stderr.split(' a step')[0]} a step", file=sys.stderr)
        self.assertLessEqual(size, 4e6)
        self.assertLessEqual(memory, 8 * 1024)
        dynamic = subprocess.run(["readelf", "-d", program], text=True, capture_output=True, check=True).stdout
        self.assertIn("There is no dynamic section", dynamic)
        rows, targets = [], []
        for i in range(100):
            at = i / 100 * 5
            first, u = int(at), at - int(at)
            row = [0.0] * 8
            row[first:first + 4] = [(1 - u) ** 3 / 6, (3 * u ** 3 - 6 * u ** 2 + 4) / 6, (-3 * u ** 3 + 3 * u ** 2 + 3 * u + 1) / 6, u ** 3 / 6]
            rows.append(row)
            targets.append(math.sin(0.06 * i) + 0.1 * math.cos(1.7 * i))
        matrix = [[sum(row[i] * row[j] for row in rows) for j in range(8)] + [sum(row[i] * t for row, t in zip(rows, targets))] for i in range(8)]
        for k in range(8):
            for i in range(8):
                if i != k:
                    factor = matrix[i][k] / matrix[k][k]
                    matrix[i] = [a - factor * b for a, b in zip(matrix[i], matrix[k])]
        for found, row in zip(map(float, done.stdout.split()), enumerate(matrix)):
            self.assertAlmostEqual(found, row[1][8] / row[1][row[0]], delta=1e-6)


if __name__ == "__main__":
    unittest.main()
