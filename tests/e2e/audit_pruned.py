"""The tool audit_pruned, against NumPy on what the networks say."""
import csv
import functools
import json
import os
import shutil
import signal
import subprocess
import unittest

import numpy
from safetensors.numpy import load_file, save_file

from support.host import SMALL, HostTest

SPLITS = SMALL.replace("val = { size = 32, batch_size = 16 }", "val = { size = 60, batch_size = 16 }\ntest = { size = 90, batch_size = 16 }").replace(
    '"2ep"', '"12ep"')
IMAGES = SPLITS.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
                        'type = "csv"\npath = "rows.csv"\nclasses = 3\nshape = [1, 4, 4]\nscale = 16.0\nmean = [0.5]\nstd = [0.25]').replace(
    "size = 64, ", "").replace("size = 60, ", 'take = "first 60", ').replace("size = 90, ", 'take = "last 90", ').replace("[8, 16, 3]", "[16, 16, 3]")
LONGER = bool(os.environ.get("TRAINYARD_LONGER"))


def softmax(logits):
    powers = numpy.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def nonzero(weights):
    return sum(int(numpy.count_nonzero(each)) for each in weights.values())


class Audit(HostTest):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        rows = random.integers(0, 17, (150, 16))
        self.write("rows.csv", "".join(",".join(map(str, row)) + f",{(row[0] + row[5]) % 3}\n" for row in rows))

    def parent(self, text=SPLITS):
        self.train(text)
        return load_file(self.folder / "runs/small/model.safetensors")

    def save(self, name, weights, **changed):
        save_file({**weights, **changed}, self.folder / f"{name}.safetensors")
        return f"{name}.safetensors"

    def audit(self, *words, code=0):
        done = self.host("audit_pruned", "runs/small/config.toml", *words, "--format", "json", code=code)
        if code:
            return done.stderr
        return json.loads(done.stdout)

    def table(self, name, **where):
        with open(self.folder / f"runs/small/tools/audit_pruned/{name}.csv") as file:
            rows = list(csv.DictReader(file))
        return [row for row in rows if all(row[key] == value for key, value in where.items())]

    def pruned(self, weights, *ratios):
        """The weights of smallest magnitude at 0, of both layers together."""
        sizes = numpy.sort(abs(numpy.concatenate([weights["fc1.weight"].ravel(), weights["fc2.weight"].ravel()])))
        for ratio in ratios:
            least = sizes[int(ratio * len(sizes))]
            yield {name: each * (abs(each) >= least) if name.endswith("weight") else each for name, each in weights.items()}

    def seen(self, split, text=None):
        """Inputs and labels of a split."""
        words = ["--set", "data.train.batch_size=1"]
        if text is not None:
            self.write("seen.toml", text)
        self.host("predict", "seen.toml" if text else "runs/small/config.toml", "--weights", "runs/small", "--split", split, "--inputs", "true",
                  "--out", "seen.safetensors", *(words if text else ()))
        found = load_file(self.folder / "seen.safetensors")
        return found["input/0"].reshape(len(found["target"]), -1), found["target"]

    @staticmethod
    def logits(weights, inputs):
        return numpy.maximum(inputs @ weights["fc1.weight"].T + weights["fc1.bias"], 0) @ weights["fc2.weight"].T + weights["fc2.bias"]

    def test_a_network_that_says_the_same_is_the_same(self):
        weights = self.parent()
        order = numpy.random.default_rng(1).permutation(16)
        permuted = dict(weights, **{"fc1.weight": weights["fc1.weight"][order], "fc1.bias": weights["fc1.bias"][order],
                                    "fc2.weight": numpy.ascontiguousarray(weights["fc2.weight"][:, order])})
        # Neurons that nobody listens to, with and without their own weights, and taken out of the tensors.
        deaf = numpy.array(weights["fc2.weight"])
        deaf[:, :6] = 0
        parent = dict(weights, **{"fc2.weight": deaf})
        silent = dict(parent, **{name: numpy.where(numpy.arange(16).reshape(-1, *[1] * (weights[name].ndim - 1)) < 6, 0, weights[name]).astype("f4")
                                 for name in ("fc1.weight", "fc1.bias")})
        small = {"fc1.weight": weights["fc1.weight"][6:].copy(), "fc1.bias": weights["fc1.bias"][6:].copy(),
                 "fc2.weight": numpy.ascontiguousarray(weights["fc2.weight"][:, 6:]), "fc2.bias": weights["fc2.bias"]}
        words = ["--noise", "[0, 0.5, 2]", "--draws", "3"]
        self.audit(self.save("same", weights), self.save("permuted", permuted), *words)
        for row in self.table("errors"):
            self.assertEqual(float(row["match"]), 1)
            self.assertLessEqual(float(row["distance"]), 1e-6)
            self.assertLessEqual(float(row["largest"]), 1e-6)
        said = self.audit("--weights", self.save("parent", parent), self.save("silent", silent), self.save("small", small), *words)
        for row in self.table("errors"):
            self.assertEqual(float(row["match"]), 1)
            self.assertLessEqual(float(row["distance"]), 1e-6)
        ratio = 1 - nonzero(silent) / nonzero(parent)
        self.assertGreater(ratio, 0.3)
        for row in self.table("potential"):
            self.assertAlmostEqual(float(row["potential"]), ratio, places=12)
        self.assertEqual({row["ratio"] for row in self.table("networks", **{"is": "pruned"})}, {self.table("networks")[1]["ratio"]})
        self.assertEqual([row["holds"] for row in said["rows"]], ["yes"] * 3)
        # The smaller one as a model of its own, from an ONNX file.
        self.write("small.toml", SPLITS.replace("[8, 16, 3]", "[8, 10, 3]").replace('"small"', '"smaller"'))
        self.host("export", "small.toml", "--weights", "small.safetensors", "--to", "onnx", "--file", "small.onnx")
        self.audit("--weights", "parent.safetensors", "--models", '[{ type = "onnx", file = "small.onnx" }]', *words)
        self.assertEqual({row["match"] for row in self.table("errors")}, {"1"})
        self.assertLessEqual(max(float(row["distance"]) for row in self.table("errors")), 1e-6)
        self.assertAlmostEqual(float(self.table("networks")[1]["ratio"]), ratio, places=12)

    def test_all_figures_are_what_numpy_makes_of_the_outputs(self):
        weights = self.parent()
        ratios = (.3, .6, .8, .9, .97)
        networks = [weights, *self.pruned(weights, *ratios)]
        files = [self.save(f"pruned{ratio}", each) for ratio, each in zip(ratios, networks[1:])]
        random = numpy.random.default_rng(3)
        other = {name: (each + 0.3 * random.standard_normal(each.shape)).astype("f4") for name, each in weights.items()}
        report = self.audit(*files, "--yardstick", self.save("other", other), "--noise", "[0.8]", "--draws", "2")
        networks.append(other)
        kept = [1 - nonzero(each) / nonzero(weights) for each in networks]
        for split in ("val", "test"):
            inputs, labels = self.seen(split)
            said = [self.logits(each, inputs) for each in networks]
            rows = self.table("errors", split=split, distribution="clean")
            for row, ratio, mine in zip(rows, kept, said):
                p, q = softmax(mine), softmax(said[0])
                right = mine.argmax(1) == labels
                for key, expected in (("ratio", ratio), ("samples", len(labels)), ("error", 1 - right.mean()),
                                      ("match", (mine.argmax(1) == said[0].argmax(1)).mean()), ("distance", numpy.linalg.norm(p - q, axis=1).mean()),
                                      ("largest", abs(p - q).max(1).mean()), ("logits", numpy.linalg.norm(mine - said[0], axis=1).mean())):
                    self.assertAlmostEqual(float(row[key]), expected, delta=1e-5, msg=key)
                places = numpy.minimum((15 * p.max(1)).astype(int), 14)
                ece = sum(abs(p.max(1)[places == k].sum() - right[places == k].sum()) for k in range(15)) / len(labels)
                self.assertAlmostEqual(float(row["calibration_error"]), ece, delta=1e-5)
            for row, mine in zip(self.table("classes", split=split, network=files[3]), (said[4][labels == c] for c in range(3))):
                label = int(row["class"])
                error, parents = (mine.argmax(1) != label).mean(), (said[0][labels == label].argmax(1) != label).mean()
                self.assertAlmostEqual(float(row["error"]), error, places=9)
                self.assertAlmostEqual(float(row["damage"]), error - parents, places=9)
        # Potentials and excess errors follow from the errors; the ratio is chosen on one split and reported on the other.
        errors = {split: {name: [float(row["error"]) for row in self.table("errors", split=split, distribution=name)]
                          for name in ("clean", "uniform_noise 0.8")} for split in ("val", "test")}
        for row, name in zip(report["rows"], errors["val"]):
            self.assertEqual(row["distribution"], name)
            fine = [ratio for ratio, error in zip(kept[1:-1], errors["val"][name][1:-1]) if error <= errors["val"][name][0] + 0.005 + 1e-12]
            self.assertAlmostEqual(row["potential"], max(fine, default=0), places=9)
            there = kept.index(max(fine)) if fine else 0
            self.assertAlmostEqual(row["error there"], errors["test"][name][there], places=9)
            self.assertEqual(row["holds"], "yes" if errors["test"][name][there] <= errors["test"][name][0] + 0.005 + 1e-12 else "no")
            self.assertAlmostEqual(row["yardstick's error"], errors["test"][name][-1], places=9)
        clean, noisy = (numpy.array(errors["test"][name]) for name in errors["test"])
        excess = ((noisy - clean) - (noisy[0] - clean[0]))[1:-1]
        for row, expected in zip(self.table("excess"), excess):
            self.assertEqual(row["split"], "test")
            self.assertAlmostEqual(float(row["excess_error"]), expected, places=9)
        x = numpy.array(kept[1:-1])
        self.assertAlmostEqual(report["facts"]["excess error a ratio of 1"], (x @ excess) / (x @ x), places=9)
        self.assertAlmostEqual(report["rows"][1]["excess slope"], (x @ excess) / (x @ x), places=9)
        self.assertLess(report["rows"][1]["low"], report["rows"][1]["excess slope"])

    def test_corruptions_and_noise_are_those_of_the_dataset(self):
        weights = self.parent(IMAGES)
        (half,) = self.pruned(weights, .5)
        words = [self.save("half", half), "--noise", "[0.4]", "--draws", "1", "--corruptions", '["gaussian_noise", "contrast"]', "--severity", "[2, 5]"]
        self.audit(*words, "--seed", "6")
        errors = self.table("errors", split="test")
        self.assertEqual([row["distribution"] for row in errors[::2]],
                         ["clean", "uniform_noise 0.4", "gaussian_noise 2", "gaussian_noise 5", "contrast 2", "contrast 5"])
        begin, end = IMAGES.index('type = "csv"'), IMAGES.index("train = {")
        options = IMAGES[begin:end].strip().replace("\n", ", ")
        seen = functools.cache(lambda text: self.seen("test", text))
        for row in errors[2:] if LONGER else errors[2:6]:
            name, severity = row["distribution"].split()
            more = f'eps = {severity}\nseverity = [3]' if name == "uniform_noise" else f"severity = [{severity}]"
            text = f'{IMAGES[:begin]}type = "corrupted"\nof = [{{ {options} }}]\nseed = 6\ncorruptions = ["{name}"]\n{more}\n{IMAGES[end:]}'
            inputs, labels = seen(text)
            mine = weights if row["network"] != "half.safetensors" else half
            self.assertAlmostEqual(float(row["error"]), (self.logits(mine, inputs).argmax(1) != labels).mean(), places=6, msg=row)
        # The same again, whatever the batches; others for another seed.
        first = self.table("errors")
        self.audit(*words, "--seed", "6", "--batch_size", "7")
        for row, before in zip(self.table("errors"), first):
            self.assertEqual((row["error"], row["match"]), (before["error"], before["match"]))
            self.assertAlmostEqual(float(row["distance"]), float(before["distance"]), places=6)
        if not LONGER:
            return
        self.audit(*words, "--seed", "7")
        self.assertNotEqual([row["distance"] for row in self.table("errors")], [row["distance"] for row in first])

    def test_pixels_that_networks_go_by(self):
        weights = self.parent(IMAGES)
        (half,) = self.pruned(weights, .5)
        report = self.audit(self.save("half", half), "--backselect", "{ images = 3, keep = 0.25 }")
        self.assertEqual(report["facts"]["evaluations of BackSelect"], 2 * 3 * 16 * 17 // 2)
        inputs, labels = self.seen("test")
        for chooser, mine in (("runs/small/model.safetensors", weights), ("half.safetensors", half)):
            sure = {"runs/small/model.safetensors": [], "half.safetensors": []}
            for image, label in zip(inputs[:3], labels):
                predicted = self.logits(mine, image[None]).argmax()
                left, alive = image.astype("f4").copy(), list(range(16))
                while len(alive) > 4:
                    copies = numpy.array([numpy.where(numpy.arange(16) == pixel, 0, left) for pixel in alive])
                    pixel = alive[int(softmax(self.logits(mine, copies).astype(float))[:, predicted].argmax())]
                    left[pixel] = 0
                    alive.remove(pixel)
                for name, judge in (("runs/small/model.safetensors", weights), ("half.safetensors", half)):
                    sure[name].append(softmax(self.logits(judge, left[None]))[0, label])
            for row in self.table("backselect", pixels_of=chooser):
                self.assertAlmostEqual(float(row["confidence"]), numpy.mean(sure[row["network"]]), places=4)
                self.assertEqual((row["samples"], row["pixels"]), ("3", "4"))

    def test_an_interrupt_leaves_what_there_is(self):
        weights = self.parent()
        (half,) = self.pruned(weights, .5)
        process = subprocess.Popen(self.command("audit_pruned", "runs/small/config.toml", self.save("half", half), "--noise", "[0.5]", "--draws", "1000000"),
                                   cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        tables = self.folder / "runs/small/tools/audit_pruned"
        self.until(lambda: len(self.table("errors") if (tables / "errors.csv").exists() else ()) >= 2)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, said)
        self.assertIn("of 4 distributions is in", said[0] + said[1])
        self.assertEqual([row["network"] for row in self.table("errors", split="val", distribution="clean")], ["runs/small/model.safetensors", "half.safetensors"])

    def test_one_that_is_killed_and_begun_again_says_the_same(self):
        """Killed at random places, its tables, which were half there, are those of an audit that nobody killed, to the byte."""
        weights = self.parent(IMAGES)
        files = [self.save(f"pruned{ratio}", each) for ratio, each in zip((.3, .6, .9), self.pruned(weights, .3, .6, .9))]
        words = [*files, "--noise", "[0.3, 0.6]", "--draws", "300", "--corruptions", '["gaussian_noise", "elastic_transform", "snow"]', "--severity", "[1, 3, 5]",
                 "--backselect", "{ images = 20, keep = 0.1 }"]
        self.audit(*words)
        whole = self.tables()
        self.assertEqual(set(whole), {"errors.csv", "potential.csv", "excess.csv", "classes.csv", "networks.csv", "backselect.csv"})
        shutil.rmtree(self.folder / "runs/small/tools")

        def rows():
            return len(self.tables().get("errors.csv", b"").splitlines())
        distributions = (len(whole["errors.csv"].splitlines()) - 1) // 4
        for place in (0, 1, distributions // 2, distributions - 1, distributions):  # the last one is among the pixels
            process = subprocess.Popen(self.command("audit_pruned", "runs/small/config.toml", *words), cwd=self.folder, env=self.environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.until(lambda: rows() > place * 4 or place == 0 or process.poll() is not None)
            self.assertIsNone(process.poll(), "it ended before it was killed")
            process.kill()
            process.wait()
            self.assertNotEqual(self.tables(), whole)
        self.audit(*words)
        self.assertEqual(self.tables(), whole)

    def tables(self):
        return {each.name: each.read_bytes() for each in (self.folder / "runs/small/tools/audit_pruned").glob("*") if each.is_file()}

    def test_what_cannot_be_audited_is_refused(self):
        weights = self.parent()
        half = self.save("half", next(self.pruned(weights, .5)))
        wrong = dict(weights)
        wrong["fc3.weight"] = wrong.pop("fc2.weight")
        wide = dict(weights, **{"fc1.weight": numpy.zeros((16, 9), "f4")})
        refused = ((2, [self.save("wrong", wrong)], 'has no "fc2.weight"'),
                   (2, [self.save("wide", wide)], "do not fit the parent's graph"),
                   (4, ["nowhere"], "no such run"), (2, [half, "--report", "train"], "the run has val, test"),
                   (2, [half, "--corruptions", '["contrast"]'], "samples are"),
                   (2, [half, "--corruptions", '["uniform_noise"]'], "give its numbers as noise"),
                   (2, [half, "--set", "trainer.precision=fp64"], "fp32"))
        for code, words, text in refused[:None if LONGER else 4]:
            with self.subTest(text):
                self.assertIn(text, self.audit(*words, code=code))
        report = self.audit(half, "--choose", "test")
        self.assertEqual(report["facts"]["ratios chosen on"], "the same data")
        self.assertEqual([row["potential"] for row in report["rows"]], [row["potential on test"] for row in report["rows"]])
        if not LONGER:
            return
        alone = self.audit("--noise", "[0.5]")
        self.assertEqual(alone["facts"]["pruned networks"], 0)
        self.assertEqual([row["parent's error"] for row in alone["rows"]][0], report["rows"][0]["parent's error"])
        said = self.audit(half, "--set", "model.dropout.type=dropconnect", "--set", "model.dropout.inference=gaussian", "--set", "model.dropout.p=0.5", code=2)
        self.assertIn("evaluates layers in its own way", said)
        self.assertIn("it is not pruned", self.host("audit_pruned", "runs/small/config.toml", "runs/small").stderr)
        table = 'type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3'
        self.write("noisy.toml", SPLITS.replace(table, 'type = "corrupted"\ncorruptions = ["uniform_noise"]\neps = 0.1').replace(
            "size = 64, ", "").replace("size = 60, ", "").replace("size = 90, ", "").replace(
                "[data.", "").replace("[[metrics]]", f"[[data.of]]\n{table}\nsize = 60\n[[metrics]]", 1))
        said = self.host("audit_pruned", "noisy.toml", half, "--weights", "runs/small", code=2).stderr
        self.assertIn("is corrupted already", said)


if __name__ == "__main__":
    unittest.main()
