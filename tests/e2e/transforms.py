"""Transforms, as the host applies them wherever it builds a network, and codecs, as parts of other plugins."""
import unittest

import numpy
from safetensors.numpy import load_file

from support.host import FAULTY, KILLER, SMALL, SPARSE, KilledTest, planned, with_momentum

PLUGINS = ("--plugins", FAULTY)


def gain(**options):
    return "[[transforms]]\ntype = \"gain\"\n" + "".join(f"{key} = {value!r}\n" for key, value in options.items())


LONG = with_momentum(30, blocks=1).replace('type = "residual_mlp"\nwidth = 8\nblocks = 1', 'type = "mlp"\nlayers = [8, 16, 3]')


class Transforms(KilledTest):
    def outputs(self, *words):
        """What the network of the run gives for `val`, what NumPy makes of its weights, and the weights."""
        self.host("predict", "runs/small", "--inputs", "true", "--out", "said.safetensors", *PLUGINS, *words)
        said, weights = load_file(self.folder / "said.safetensors"), load_file(self.folder / "runs/small/model.safetensors")
        hidden = said["input/0"] @ weights["fc1.weight"].T + weights["fc1.bias"]
        if "fc1.gain" in weights:
            hidden = hidden * weights["fc1.gain"]
        return said["output"], numpy.maximum(hidden, 0) @ weights["fc2.weight"].T + weights["fc2.bias"], weights

    def test_its_parameters_are_the_networks(self):
        plain = self.train()
        self.train(SMALL + gain(start=3.0), *PLUGINS, "--overwrite")
        given, expected, weights = self.outputs()
        numpy.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
        self.assertEqual(weights["fc1.gain"].shape, (16,))
        self.assertTrue((weights["fc1.gain"] != 3.0).all())  # they were trained
        self.assertAlmostEqual(float(self.host("eval", "runs/small", *PLUGINS).stdout.split("val/loss")[1].split()[0]),
                               self.result()["metrics"]["val/loss"], places=4)
        self.assertNotEqual(plain["digest"], self.result()["digest"])

    def test_several_work_in_the_order_of_the_file(self):
        second = gain(layer="fc2").replace("[[transforms]]", '[[transforms]]\nid = "other"')
        self.train(SMALL + gain() + second, *PLUGINS)
        names = list(load_file(self.folder / "runs/small/model.safetensors"))
        self.assertEqual({"fc1.gain", "fc2.gain"} - set(names), set())
        said = self.train(SMALL + gain() + second.replace("fc2", "fc1"), *PLUGINS, "--overwrite", code=2)["error"]
        self.assertIn("[transforms[1]] gain", said)  # the first has taken the name
        self.assertIn("fc1.gain", said)

    def test_executors_train_what_it_made(self):
        expected = self.train(LONG + gain(start=0.5), *PLUGINS)["metrics"]
        plain = self.train(LONG, "--overwrite")["metrics"]["val/loss"]
        self.assertGreater(abs(plain - expected["val/loss"]), 1e-3)
        for executor, words in (("compiled", ()), ("hfta", ()), ("wavelet", ()), ("eager", ("--ranks", 2)), ("compiled", ("--ranks", 2)),
                                ("wavelet", ("--ranks", 2))):
            with self.subTest(executor, words=words):
                text = LONG + gain(start=0.5) + f'[executor]\ntype = "{executor}"\n' + ('sync = "joint"\n' if executor == "wavelet" else "")
                if executor == "hfta":  # whose members are networks of their own
                    text += "members = [{}, {}]\n"
                found = self.train(text, *PLUGINS, "--overwrite", *words)["metrics"]
                self.assertAlmostEqual(found["val/loss"], expected["val/loss"], places=4)

    def test_an_executor_goes_on_with_the_network_that_a_swap_brings(self):
        swap = planned(12, "model", "mlp", 0, activation="gelu")
        found = {}
        for executor in ("eager", "compiled"):
            self.train(LONG + gain(start=0.5) + f'[executor]\ntype = "{executor}"\n' + swap, *PLUGINS, "--overwrite")
            found[executor] = load_file(self.folder / "runs/small/model.safetensors")
        self.train(LONG + gain(start=0.5), *PLUGINS, "--overwrite")
        without = load_file(self.folder / "runs/small/model.safetensors")
        for name, values in found["eager"].items():
            numpy.testing.assert_allclose(found["compiled"][name], values, atol=1e-4)
        self.assertGreater(abs(without["fc1.gain"] - found["eager"]["fc1.gain"]).max(), 1e-3)

    def test_in_other_precisions(self):
        for precision in ("fp64", "bf16-mixed"):
            with self.subTest(precision):
                text = LONG.replace("[trainer]", f'[trainer]\nprecision = "{precision}"') + gain(start=0.5)
                found = self.train(text, *PLUGINS, "--overwrite")["metrics"]["val/loss"]
                self.assertAlmostEqual(found, self.train(LONG + gain(start=0.5), *PLUGINS, "--overwrite")["metrics"]["val/loss"], places=2)

    def test_a_resume_has_it_to_the_bit(self):
        for more in ("", planned(12, "model", "mlp", 5, layers=[8, 16, 3]), planned(12, "transforms.gain", "gain", 5, start=2.0)):
            with self.subTest(more):
                text = LONG + gain(start=0.5) + '[[hooks]]\ntype = "ema"\ndecay = 0.9\n' + KILLER + more
                expected = self.whole(text)
                self.assertEqual(self.killed(text, "before_step 9", "before_step 16"), expected)

    def test_a_swap_of_the_model_or_of_a_transform_keeps_what_was_learned(self):
        expected = self.train(LONG + gain(start=0.5), *PLUGINS)["digest"]
        for swap in (planned(12, "model", "mlp", 5, layers=[8, 16, 3]), planned(12, "transforms.gain", "gain", 5, start=2.0)):
            with self.subTest(swap):
                self.assertEqual(self.train(LONG + gain(start=0.5) + swap, *PLUGINS, "--overwrite")["digest"], expected)
                self.assertEqual([line["step"] for line in self.lines("journal.jsonl", "swap")], [12])
        said = self.train(LONG + gain() + planned(12, "transforms.gain", "gain", 5, layer="fc2"), *PLUGINS, "--overwrite", code=2)["error"]
        self.assertIn("fc2.gain", said)
        said = self.train(LONG + gain() + planned(12, "model", "mlp", 5, activation="gelu"), *PLUGINS, "--overwrite")
        self.assertNotEqual(said["digest"], expected)

    def test_a_resume_with_other_transforms_is_refused(self):
        self.write("run.toml", LONG + gain() + KILLER)
        self.killed_at(LONG + gain() + KILLER, "before_step 9")
        for text in (LONG, LONG + gain(layer="fc2"), LONG + gain() + gain(layer="fc2").replace("]]", ']]\nid = "more"', 1)):
            self.write("run.toml", text + KILLER)
            said = self.host("train", "run.toml", "-q", *PLUGINS, code=2).stderr
            self.assertIn("E502", said)
            self.assertIn("transforms", said)

    def test_what_it_does_wrong_is_its_fault(self):
        for fault, code, words in (("nothing", 3, "handed on no network"), ("no graph", 3, "without a graph"), ("throw", 3, "thrown on purpose")):
            with self.subTest(fault):
                said = self.train(SMALL + gain(fault=fault), *PLUGINS, "--overwrite", code=code)["error"]
                self.assertIn("[transforms[0]] gain", said)
                self.assertIn(words, said)
        said = self.train(SMALL + gain(layer="fc9"), *PLUGINS, "--overwrite", code=2)["error"]
        self.assertIn('layer = "fc9" is no linear layer of the network', said)
        self.write("rows.txt", "2 6 4\n0,1 0:1 2:1\n3 1:1\n")
        self.write("run.toml", SPARSE.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "slide"') + gain())
        self.assertIn("a model with a graph", self.host("validate", "run.toml", *PLUGINS, code=2).stderr)


class Codecs(KilledTest):
    def test_a_plugin_has_it_as_a_part(self):
        self.train(SMALL + '[[hooks]]\ntype = "packing"\ncodecs = [{ type = "runs" }]\n', *PLUGINS)
        log = (self.folder / "runs/small/run.log").read_text()
        self.assertRegex(log, r"packing: 780 bytes are \d+")

    def test_what_it_does_wrong_is_said(self):
        broken = SMALL + '[[hooks]]\ntype = "packing"\ncodecs = [{ type = "runs", broken = true }]\n'
        self.assertIn("the runs do not add up", self.train(broken, *PLUGINS, code=4)["error"])

    def test_it_has_no_table_and_no_other_kind_stands_for_it(self):
        for text, words in (('[codec]\ntype = "runs"\n', "codec"), ('[[hooks]]\ntype = "packing"\ncodecs = [{ type = "gain" }]\n', "codec"),
                            ('[[hooks]]\ntype = "runs"\n', "runs")):
            with self.subTest(text):
                self.write("run.toml", SMALL + text)
                said = self.host("validate", "run.toml", *PLUGINS, code=2).stderr
                self.assertIn(words, said)
                self.assertNotIn("internal", said)


if __name__ == "__main__":
    unittest.main()
