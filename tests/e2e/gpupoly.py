"""gpupoly on the real executable: verdicts on public networks and properties, what lies near digits, refusals.

Its networks are ONNX files, or dense ones of them, whose weights an `mlp` is given. TRAINYARD_VNNCOMP names the folder of the
competition's files, which `python3 tests/e2e/gpupoly.py --fetch FOLDER` gets; without it, what needs them is skipped. TRAINYARD_LONGER: what is timed is timed
five times each, and what is trained for figures as long as they say."""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import unittest

import numpy as np
from safetensors.numpy import save_file

from support.host import DATA, SMALL, SOURCE, HostTest
from support.onnx_weights import dense_weights

VERIFY = DATA / "verify"
LONGER = bool(os.environ.get("TRAINYARD_LONGER"))
VNNCOMP = pathlib.Path(os.environ.get("TRAINYARD_VNNCOMP", "/nonexistent"))
BOX = "".join(f"(declare-const X_{i} Real)(assert (<= X_{i} 1))(assert (>= X_{i} 0))\n" for i in range(8))
OUTPUTS = "".join(f"(declare-const Y_{i} Real)\n" for i in range(3))


def fetch(folder):
    """The networks and properties of VNN-COMP 2021 that tests here are of, 32 MB."""
    for words in (["clone", "--filter=blob:none", "--no-checkout", "https://github.com/stanleybak/vnncomp2021", folder],
                  ["-C", folder, "sparse-checkout", "set", "benchmarks/mnistfc", "benchmarks/cifar10_resnet"],
                  ["-C", folder, "checkout", "-q", "90419aadcf06cf543ce5c1706cae1059dc9fa6cf"]):
        subprocess.run(["git", *words], check=True)


def outputs(weights, x):
    """Of a dense network with relus, in double precision."""
    x, layers = np.asarray(x, np.float64), len(weights) // 2
    for k in range(1, layers + 1):
        x = x @ weights[f"fc{k}.weight"].astype(np.float64).T + weights[f"fc{k}.bias"]
        x = np.maximum(x, 0) if k < layers else x
    return x


def box(text):
    """Bounds of the inputs of a property that asserts each by itself."""
    sides = {"<=": {}, ">=": {}}
    for op, index, value in re.findall(r"\((<=|>=) X_(\d+) ([-+.\de]+)\)", text):
        sides[op][int(index)] = float(value)
    return np.array([[side[i] for i in range(len(side))] for side in (sides[">="], sides["<="])])


def residual(net):
    """A network of the competition, and the folder of its properties."""
    folder = VNNCOMP / "benchmarks/cifar10_resnet"
    return folder / f"onnx/resnet_{net}.onnx", folder / f"vnnlib_properties_pgd_filtered/resnet{net}_pgd_filtered"


class Gpupoly(HostTest):
    def network(self, weights, name="w.safetensors"):
        """A run file for these weights."""
        save_file(weights, self.folder / name)
        layers = len(weights) // 2
        widths = [weights["fc1.weight"].shape[1], *(weights[f"fc{k}.weight"].shape[0] for k in range(1, layers + 1))]
        text = SMALL.replace("layers = [8, 16, 3]", f"layers = {widths}").replace("shape = [8]", f"shape = [{widths[0]}]")
        self.write("run.toml", text.replace("classes = 3", f"classes = {widths[-1]}"))

    def facts(self, property, *words, run=("run.toml", "--weights", "w.safetensors")):
        """`run`: a run file with its weights, or an ONNX file."""
        run = run if isinstance(run, tuple) else (run,)
        return json.loads(self.host("gpupoly", *run, "--property", property, "--format", "json", *words).stdout)["facts"]

    def unpack(self, path):
        if not path.exists():
            self.skipTest(f"{path} is not there")
        with tarfile.open(path) as bundle:
            bundle.extractall(self.folder, filter="data")

    def check_counterexample(self, weights, facts, text):
        """By other arithmetic: it lies in the box and has the outputs that it says."""
        words = dict(re.findall(r"\(([XY]_\d+) ([-+.\de]+)\)", (self.folder / facts["counterexample"]).read_text()))
        x, y = ([float(words[f"{kind}_{i}"]) for i in range(sum(name[0] == kind for name in words))] for kind in "XY")
        lower, upper = box(text)
        self.assertTrue((lower <= x).all() and (x <= upper).all())
        np.testing.assert_allclose(outputs(weights, x), y, rtol=1e-4, atol=1e-5)
        return y

    def test_mnist_network(self):
        """Intervals as computed here, a property that holds, and one that does not."""
        self.unpack(VERIFY / "nnenum/mnistfc_vnnlib.tar.gz")
        weights = dense_weights(VERIFY / "nnenum/mnist-net_256x2.onnx")
        self.network(weights)
        for name, verdict in (("prop_0_0.03", "unsat"), ("prop_2_0.03", "sat")):
            path = self.folder / f"{name}.vnnlib"
            low, up = box(path.read_text())
            label = int(re.search(r"label: (\d)", path.read_text())[1])
            for k in (1, 2, 3):
                matrix, bias = weights[f"fc{k}.weight"].astype(np.float64), weights[f"fc{k}.bias"]
                more, less = np.maximum(matrix, 0), np.minimum(matrix, 0)
                low, up = more @ low + less @ up + bias, more @ up + less @ low + bias
                low, up = (np.maximum(low, 0), np.maximum(up, 0)) if k < 3 else (low, up)
            found = self.facts(path, "--restarts", 0, "--soundness", 1, "--method", "ibp")
            self.assertEqual((found["verdict"], found["soundness"]), ("unknown", 1))
            self.assertAlmostEqual(found["margin"], low[label] - max(np.delete(up, label)), places=6)
            found = self.facts(path)
            self.assertEqual(found["verdict"], verdict)
            alone = self.facts(path, run=VERIFY / "nnenum/mnist-net_256x2.onnx")
            self.assertEqual((alone["verdict"], alone["weights"], alone["cases"]), (verdict, "initial", found["cases"]))
            self.assertEqual(alone.get("margin"), found.get("margin"))
            if verdict == "sat":
                y = self.check_counterexample(weights, found, path.read_text())
                self.assertNotEqual(int(np.argmax(y)), label)
                found = self.facts(path, "--restarts", 0, "--memory_budget_mb", 1)
                self.assertEqual(found["verdict"], "unknown")
                self.assertEqual(found["margin"], self.facts(path, "--restarts", 0)["margin"])

    @unittest.skipUnless(VNNCOMP.is_dir(), "TRAINYARD_VNNCOMP names no folder")
    def test_mnist_networks_of_the_competition(self):
        """How many of 15 are proven, as other implementations have it; margins of one, of three methods."""
        folder, found = VNNCOMP / "benchmarks/mnistfc", []
        for depth, counts in ((2, (7, 4)), (4, (6, 1)), (6, (6, 2))):
            network = folder / f"mnist-net_256x{depth}.onnx"
            for eps, count in zip(("0.03", "0.05"), counts):
                proven = [self.facts(folder / f"prop_{i}_{eps}.vnnlib", "--restarts", 0, run=network)["verdict"] for i in range(15)]
                self.assertEqual(proven.count("unsat"), count, f"256x{depth}, {eps}")
                found += [self.facts(folder / f"prop_{i}_{eps}.vnnlib", "--method", "ibp", "--timeout", 10, run=network)["verdict"]
                          for i in range(15)]
        self.assertGreaterEqual(found.count("sat"), 20)
        for words, margin in (((), -0.603255), (("--method", "ibp"), -3.084400)):
            found = self.facts(folder / "prop_0_0.03.vnnlib", "--restarts", 0, "--soundness", 1, *words,
                               run=folder / "mnist-net_256x2.onnx")
            self.assertAlmostEqual(found["margin"], margin, places=5)

    @unittest.skipUnless(VNNCOMP.is_dir(), "TRAINYARD_VNNCOMP names no folder")
    def test_windows_of_the_competition(self):
        """What forms over windows save, run in turn with whole ones: the least of five times each."""
        network, properties = residual("2b")
        for soundness in (1, 3):
            times, margins = {"true": [], "false": []}, {}
            for windows in ("true", "false") * (5 if LONGER else 1):
                facts = self.facts(properties / "prop_5_eps_0.008.vnnlib", "--restarts", 0, "--soundness", soundness,
                                   "--windows", windows, run=network)
                times[windows].append(facts["seconds"])
                margins[windows] = facts["margin"]
            least = {windows: min(each) for windows, each in times.items()}
            print(f"level {soundness}: windows {least['true']:.2f} s, whole {least['false']:.2f} s: {least['false'] / least['true']:.2f} times")
            self.assertAlmostEqual(margins["true"], margins["false"], delta=1e-9)

    @unittest.skipUnless(VNNCOMP.is_dir(), "TRAINYARD_VNNCOMP names no folder")
    def test_residual_networks_of_the_competition(self):
        """How many of 48 and 24 are proven, as another implementation has it: one less where rounding counts."""
        for net, counts in (("2b", {1: 27, 3: 26}), ("4b", {3: 9})):
            network, properties = residual(net)
            for soundness, count in counts.items():
                verdicts = [self.facts(path, "--restarts", 0, "--soundness", soundness, run=network)["verdict"]
                            for path in sorted(properties.glob("*.vnnlib"))]
                self.assertEqual((len(verdicts), verdicts.count("unsat")), ({"2b": 48, "4b": 24}[net], count), f"{net}, {soundness}")

    def test_no_verdict_on_acas_xu_contradicts_what_was_published(self):
        self.unpack(VERIFY / "eran/acasxu_nets_onnx.tar.gz")
        self.unpack(VERIFY / "nnenum/acasxu_vnnlib.tar.gz")
        every, decided = int(os.environ.get("TRAINYARD_ACAS_EVERY", "9")), []
        with open(VERIFY / "acasxu_verdicts.csv") as table:
            rows = list(csv.DictReader(table))[::every]
        for row in rows:
            (net,) = self.folder.rglob(row["net"])
            weights = dense_weights(net)
            self.network(weights)
            (path,) = self.folder.rglob(row["property"] + ".vnnlib")
            found = self.facts(path)
            if found["verdict"] in ("sat", "unsat"):
                decided.append(found["verdict"])
                self.assertEqual(found["verdict"], row["majority_verdict"], f"{row['net']} {row['property']}")
            if found["verdict"] == "sat" and "or" not in path.read_text():
                self.check_counterexample(weights, found, path.read_text())
        self.assertGreater(decided.count("sat"), 0)

    def compare(self, weak, strong):
        """Verdicts sample by sample: `weak` may have searched for counterexamples, `strong` has not."""
        for a, b in zip(weak, strong, strict=True):
            self.assertIn((a, b), {("unsat", "unsat"), ("sat", "sat"), ("sat", "unknown"), ("unknown", "unknown"),
                                   ("unknown", "unsat")})

    def test_near_digits(self):
        """Sample by sample: what intervals prove, forms prove, and the search of another run does not refute."""
        run = ("--set", "run.name=digits", "--set", f"run.output_dir={self.folder}/digits")
        path = SOURCE / "configs/digits_mlp.toml"
        self.host("train", path, "-q", "--set", "trainer.max_duration=5ep", *run)
        verdicts, facts = {}, {}
        for name in ("ibp", "crown", "deeppoly", "attack"):
            method, words = ("ibp", ()) if name == "attack" else (name, ("--restarts", 0))
            done = self.host("gpupoly", path, "--eps", 0.02, "--subset", 60, "--method", method, "--format", "json", *words, *run)
            report = json.loads(done.stdout)
            facts[name], verdicts[name] = report["facts"], [row["verdict"] for row in report["rows"]]
        self.assertEqual(len(verdicts["ibp"]), 60)
        self.assertGreater(verdicts["attack"].count("sat"), verdicts["ibp"].count("sat"))  # those are wrong as they are
        self.compare(verdicts["attack"], verdicts["deeppoly"])
        for weak, strong in (("ibp", "crown"), ("crown", "deeppoly")):
            self.compare(verdicts[weak], verdicts[strong])
            self.assertLess(facts[weak]["cert_acc"], facts[strong]["cert_acc"] + 1e-9)
        self.assertLess(facts["ibp"]["cert_acc"], facts["deeppoly"]["cert_acc"])
        self.assertLessEqual(facts["deeppoly"]["cert_acc"], facts["deeppoly"]["accuracy"])
        # At a radius of nothing, only what the network gets wrong is refuted.
        done = self.host("gpupoly", path, "--eps", 0, "--subset", 60, "--format", "json", *run)
        nothing = json.loads(done.stdout)["facts"]
        self.assertEqual((nothing["cert_acc"], nothing["cert_unknown"]), (nothing["accuracy"], 0))

    def test_certified_training(self):
        """The hook counts what the verb proves; trained by bounds, a network is proven where it is not without."""
        path, proven = SOURCE / "configs/digits_certified.toml", {}
        digits = SOURCE / "data/optdigits/optdigits.tes.gz"  # 1,797, of which 1,437 are to train with
        split = ("--set", f"data.train.path={digits}", "--set", "data.train.take=all but fold 0 of 5", "--set", "data.val.take=fold 0 of 5",
                 "--set", "trainer.max_duration=200ep", "--set", "trainer.eval_interval=200ep")
        for name, words in (("alone", ("hooks.0.kappa=1",)), ("crown_ibp", ("hooks.0.method=crown_ibp",)), ("ibp", ())):
            run = ("--set", f"run.name={name}", "--set", f"run.output_dir={self.folder}/{name}", "--set", "hooks.1.subset=5000", *split,
                   *(word for each in words for word in ("--set", each)))
            self.host("train", path, "-q", *run)
            found = json.loads(self.host("eval", path, "--format", "json", *run).stdout)
            for method in ("ibp", "crown", "deeppoly"):
                facts = json.loads(self.host("gpupoly", path, "--subset", 5000, "--restarts", 0, "--method", method, "--format", "json",
                                             *run).stdout)["facts"]
                self.assertEqual(facts["samples"], 360)
                proven[name, method] = facts["cert_acc"]
                print(f"{name}, by {method}: {facts['accuracy']:.3f} right, {facts['cert_acc']:.3f} certified")
            for what in ("acc", "unknown"):
                self.assertAlmostEqual(found[f"val/cert_{what}"], facts[f"cert_{what}"], delta=1e-12)
            self.assertGreater(facts["accuracy"], 0.92)
            self.assertLessEqual(proven[name, "ibp"], proven[name, "crown"])
            self.assertLessEqual(proven[name, "crown"], proven[name, "deeppoly"])
        for name in ("ibp", "crown_ibp"):
            self.assertGreater(proven[name, "deeppoly"], 0.7)
            self.assertGreater(proven[name, "crown"], 0.9 * proven[name, "deeppoly"])
        self.assertLess(proven["alone", "deeppoly"], 0.15)
        # The samples that are drawn are the same, however they are put together.
        some = [json.loads(self.host("eval", path, "--format", "json", *run, "--set", "hooks.1.subset=40", "--set", "hooks.1.eps=0.02",
                                     "--set", f"data.val.batch_size={size}").stdout)["val/cert_acc"] for size in (256, 7)]
        self.assertEqual(some[0], some[1])
        self.assertAlmostEqual(some[0] * 40, round(some[0] * 40), delta=1e-9)

    def test_hooks_train_with_layer_normalisation_and_in_mixed_precision(self):
        """To the end, with bounds in the loss from the second step on; another model is refused with both names."""
        text = SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "residual_mlp"\nwidth = 8\nblocks = 2') + """
[[hooks]]
type = "certified_loss"
method = "crown_ibp"
eps = 0.01
clip = []
start = "1ba"
length = "3ba"
[[hooks]]
type = "certified"
eps = 0.0001
soundness = 2
clip = []
"""
        metrics = self.train(text.replace("[trainer]", '[trainer]\nprecision = "bf16-mixed"'))["metrics"]
        self.assertGreater(metrics["val/cert_acc"], 0)
        self.assertEqual([line["values"]["certified_eps"] for line in self.lines("metrics.jsonl", "train")][-1:], [0.01])
        self.write("run.toml", text.replace('type = "residual_mlp"\nwidth = 8\nblocks = 2', 'type = "lstm"'))
        for hook in ("certified", "certified_loss"):
            self.assertRegex(self.host("validate", "run.toml", code=2).stderr,
                             f'hook "{hook}" cannot be in a run with the model "lstm"')
        # Proofs of programs in single precision are none of those that run in less.
        mixed = ("--set", "trainer.precision=bf16-mixed")
        self.write("run.toml", text)
        said = self.host("validate", "run.toml", *mixed, "--set", "hooks.1.soundness=3", code=2).stderr
        self.assertRegex(said, r'hook "certified".*trainer\.precision = fp32')
        self.assertRegex(self.host("gpupoly", "run.toml", *mixed, code=2).stderr, r'tool "gpupoly".*trainer\.precision = fp32')

    def test_proofs_are_not_of_convolutions_by_transforms(self):
        """The verb says so of the networks that have some, and the hook warns of an executor that makes them, with both names."""
        certified = '[[hooks]]\ntype = "certified"\n'

        def images(kernel):
            layers = f'{{ type = "conv2d", out = 4, kernel = {kernel} }}, {{ type = "relu" }}, {{ type = "flatten" }}, {{ type = "linear", out = 3 }}'
            return SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', f'type = "sequential"\nlayers = [{layers}]').replace(
                "shape = [8]", "shape = [1, 8, 8]")

        for kernel in (1, 3):
            self.write("run.toml", images(kernel))
            self.host("train", "run.toml", "-q", "--overwrite")
            for soundness, says in (2, "the real function of the weights"), (3, "programs on a CPU that compute each node in single precision"), \
                                   (4, "and any rounding mode"):
                done = self.host("gpupoly", "run.toml", "--subset", 2, "--soundness", soundness, "--format", "json")
                holds = json.loads(done.stdout)["facts"]["proofs hold of"]
                self.assertIn(says, holds)
                self.assertEqual("none that convolves by transforms (executor.winograd = true)" in holds, kernel == 3 and soundness > 2, holds)

        def warnings(text, *sets):
            self.write("run.toml", text + certified)
            words = [word for each in sets for word in ("--set", each)]
            return self.host("validate", "run.toml", "--level", "files", *words).stderr

        compiled = "executor.type=compiled"
        self.assertRegex(warnings(images(3), compiled), r'hook "certified" does .* executor\.winograd = false .* of the executor "compiled"')
        for text, *sets in (images(3), compiled, "executor.winograd=false"), (images(3), compiled, "hooks.0.soundness=2"), (images(3),), (SMALL, compiled):
            self.assertNotIn("winograd", warnings(text, *sets))

    def test_hooks_refuse_networks_as_the_run_is_built(self):
        """Whoever made them: layers of a run file, or a file of another program."""
        self.write("run.toml", SMALL.replace("layers = [8, 16, 3]", 'layers = [8, 16, 3]\nactivation = "gelu"'))
        self.host("export", "run.toml", "--weights", "initial", "--to", "onnx", "--file", "net.onnx")
        gelu = 'type = "sequential"\nlayers = [{ type = "linear", out = 16 }, { type = "gelu" }, { type = "linear", out = 3 }]'
        for model in (gelu, 'type = "onnx"\nfile = "net.onnx"'):
            text = SMALL.replace('type = "mlp"\nlayers = [8, 16, 3]', model)
            self.host("validate", self.write("run.toml", text))
            for hook in ("certified", "certified_loss"):
                with self.subTest(hook, model=model):
                    self.write("run.toml", text + f'[[hooks]]\ntype = "{hook}"\n')
                    said = self.host("validate", "run.toml", code=2).stderr
                    self.assertRegex(said, rf'\[hooks\[0\]\] {hook} at model_ready.*node "\w+" \(\w+\).*README')

    def test_at_half_the_distance(self):
        """Sample by sample: what intervals prove, forms prove, and the search of another run does not refute."""
        path, proven = SOURCE / "configs/digits_certified.toml", {}
        epochs, samples = ("200ep", 360) if LONGER else ("60ep", 90)
        for name, kappa in (("alone", 1.0), ("ibp", 0.5)):
            run = ("--set", f"run.name={name}", "--set", f"run.output_dir={self.folder}/{name}", "--set", f"hooks.0.kappa={kappa}",
                   "--set", "hooks.0.eps=0.05", "--set", "hooks.1.eps=0.05", "--set", f"trainer.max_duration={epochs}",
                   "--set", f"trainer.eval_interval={epochs}")
            self.host("train", path, "-q", *run)
            reports = {}
            for method, words in (("ibp", ()), ("deeppoly", ("--restarts", 0))):
                reports[method] = json.loads(self.host("gpupoly", path, "--eps", 0.05, "--subset", samples, "--method", method, "--format",
                                                       "json", *words, *run).stdout)
            self.compare(*([row["verdict"] for row in reports[method]["rows"]] for method in ("ibp", "deeppoly")))
            facts, searched = reports["deeppoly"]["facts"], reports["ibp"]["facts"]
            proven[name] = facts["cert_acc"]
            print(f"{name}: {facts['accuracy']:.3f} right, certified {searched['cert_acc']:.3f} by intervals, "
                  f"{facts['cert_acc']:.3f} by deeppoly, {searched['cert_acc'] + searched['cert_unknown']:.3f} not refuted")
        self.assertGreater(proven["ibp"], proven["alone"] + (0.2 if LONGER else 0.1))

    def test_savings(self):
        """What each saves of a network that was trained by bounds, and of one that was not; verdicts stay."""
        path, report, samples = SOURCE / "configs/digits_certified.toml", {}, 360 if LONGER else 90
        for kappa in (0.5, 1.0):
            run = ("--set", f"run.name=kappa{kappa}", "--set", f"run.output_dir={self.folder}/{kappa}", "--set", f"hooks.0.kappa={kappa}",
                   "--set", "model.layers=[64, 96, 96, 96, 96, 96, 10]", "--set", "hooks.1.method=ibp")
            self.host("train", path, "-q", *run)
            for saving in ("all", "early_termination", "unstable_only"):
                words = () if saving == "all" else (f"--{saving}", "false")
                done = self.host("gpupoly", path, "--subset", samples, "--restarts", 0, "--format", "json", *words, *run)
                report[kappa, saving] = json.loads(done.stdout)
                print(f"kappa {kappa}, {saving}: {report[kappa, saving]['facts']['multiply-adds'] / 1e6:.1f} M multiply-adds")
        work = {key: each["facts"]["multiply-adds"] for key, each in report.items()}
        for kappa in (0.5, 1.0):
            verdicts = [[row["verdict"] for row in report[kappa, saving]["rows"]] for saving in ("all", "early_termination")]
            self.assertEqual(*verdicts)
            self.assertLess(work[kappa, "all"], work[kappa, "unstable_only"])
        self.assertLess(work[0.5, "all"], 0.85 * work[0.5, "early_termination"])
        self.assertLessEqual(work[1.0, "all"], 1.02 * work[1.0, "early_termination"])

    def trained(self, text=SMALL):
        self.write("run.toml", text)
        self.host("train", "run.toml", "-q", "--overwrite")

    def test_refusals(self):
        self.trained(SMALL.replace("layers = [8, 16, 3]", 'layers = [8, 16, 3]\nactivation = "gelu"'))
        self.write("p.vnnlib", "(never read)")
        self.assertRegex(self.host("gpupoly", "run.toml", "--property", "p.vnnlib", code=2).stderr, r'cannot bound node "\w+" \(Gelu\)')
        self.trained()
        for text, code, message in ((BOX + OUTPUTS + "(assert (<= Y_0 Y_7))", 4, "p.vnnlib:12:17: \"Y_7\" was not declared"),
                                    (BOX + "(declare-const Y_0 Real)", 2, "declares 1 outputs, and the network has 3"),
                                    ("", 4, "p.vnnlib:1:1: declares 0 inputs")):
            self.write("p.vnnlib", text)
            self.assertIn(message, self.host("gpupoly", "run.toml", "--property", "p.vnnlib", code=code).stderr)
        self.host("gpupoly", "run.toml", "--property", "absent.vnnlib", code=2)
        if not pathlib.Path("/dev/nvidia0").exists():
            self.assertIn("set device = \"cpu\"", self.host("gpupoly", "run.toml", "--device", "cuda", code=2).stderr)
        self.write("broken.onnx", "no network")
        self.assertRegex(self.host("gpupoly", "broken.onnx", "--property", "p.vnnlib", code=4).stderr, r"broken\.onnx: .*byte \d")
        self.host("gpupoly", "absent.onnx", "--property", "p.vnnlib", code=2)
        self.assertIn("std has 3 numbers", self.host("gpupoly", "run.toml", "--std", "[1,2,3]", code=2).stderr)

    def test_verdicts_of_a_small_network(self):
        """Any output violates a property without atoms; none does one whose box is empty; no time is a timeout."""
        self.trained()
        for asserted, words, verdict in (("", (), "sat"), ("(assert (<= X_0 -1))", (), "unsat"), ("(assert (<= Y_0 1e9))", (), "sat"),
                                         ("(assert (>= Y_0 1e9))", (), "unsat"), ("(assert (>= Y_0 1e9))", ("--timeout", 1e-9), "timeout"),
                                         ("", ("--restarts", 0), "unknown")):
            self.write("p.vnnlib", BOX + OUTPUTS + asserted)
            done = self.host("gpupoly", "run.toml", "--property", "p.vnnlib", "--format", "json", *words)
            facts = json.loads(done.stdout)["facts"]
            self.assertEqual(facts["verdict"], verdict, asserted)
            # What a verdict is worth, and what it cost.
            self.assertEqual(facts["soundness"], 3)
            self.assertIn("single precision", facts["proofs hold of"])
            self.assertGreater(facts["seconds"], 0)
            bounded = ">= Y_0" in asserted and verdict != "timeout"
            self.assertEqual((facts["multiply-adds"] > 0, facts["forms"] > 0), (bounded, bounded), asserted)
            self.assertGreaterEqual(facts["stopped early"], 0)


if __name__ == "__main__":
    if "--fetch" in sys.argv:
        fetch(sys.argv[-1])
    else:
        unittest.main()
