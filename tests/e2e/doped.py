"""Transforms doped and prune in whole runs: how many elements are left after each step, kills, ranks, executors, other programs."""
import math
import os
import random
import unittest

import numpy
from safetensors.numpy import load_file

from support.host import KILLER, SMALL, KilledTest, planned, with_momentum

LONG = with_momentum(30, blocks=1).replace('type = "residual_mlp"\nwidth = 8\nblocks = 1', 'type = "mlp"\nlayers = [8, 24, 3]')
DOPED = '[[transforms]]\ntype = "doped"\ntarget_cf = 2.5\nlayers = ["fc1"]\nsparse = { begin = "4ba", end = "20ba", every = 3 }\n'
PRUNED = '[[transforms]]\ntype = "prune"\nratio = 0.7\nsparse = { begin = "4ba", end = "20ba", every = 3 }\n'
CO_MATRIX = '[[hooks]]\ntype = "co_matrix"\np_sparse = 0.4\np_structured = 0.2\n'


def share_of_zeros(step, final):
    """After `step` updates: cubic from 4 to 20, in strides of 3."""
    if step < 4:
        return 0.0
    if step >= 20:
        return final
    done = ((step - 4) // 3 * 3) / 16
    return final * (1 - (1 - done) ** 3)


def nonzeros(tensors, *names):
    return sum(int(numpy.count_nonzero(tensors[name])) for name in names)


class Doped(KilledTest):
    def weights(self, run="runs/small"):
        return load_file(self.folder / run / "model.safetensors")

    def test_after_each_step_as_many_elements_are_left_as_the_schedule_says(self):
        for optimizer in ('type = "adamw"\nlr = 0.02\nweight_decay = 0.1', 'type = "sgd"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.01'):
            for transform, names, final in ((DOPED, ["fc1.weight.sparse"], 1 - (round(24 * 8 / 2.5) - 2 * 14) / (24 * 8)),
                                            (PRUNED, ["fc1.weight", "fc2.weight"], 0.7)):
                with self.subTest(optimizer, transform=transform):
                    text = LONG.replace('type = "sgd"\nlr = 0.05\nmomentum = 0.9\nweight_decay = 1e-3', optimizer).replace('interval = "7ba"', 'interval = "1ba"\nkeep_last = 100')
                    self.assertIn(optimizer, text)
                    self.train(text + transform, "--overwrite")
                    dead = {name: None for name in names}
                    for step in range(1, 31):
                        tensors = load_file(next((self.folder / "runs/small/checkpoints").glob(f"*{step:08}*/model.safetensors")))
                        size = sum(tensors[name].size for name in names)
                        self.assertEqual(nonzeros(tensors, *names), math.floor((1 - share_of_zeros(step, final)) * size + 0.5), step)
                        for name in names:  # what is gone stays so
                            zero = tensors[name] == 0
                            self.assertTrue(dead[name] is None or (zero | ~dead[name]).all())
                            dead[name] = zero

    def test_a_killed_run_goes_on_to_the_same_bits(self):
        places = random.Random(4).sample(range(2, 28), 10 if os.environ.get("TRAINYARD_LONGER") else 3)
        for transform in (DOPED + CO_MATRIX, PRUNED):
            expected = self.whole(LONG + transform + KILLER)
            with self.subTest(transform, places=places):
                self.assertEqual(self.killed(LONG + transform + KILLER, *(f"before_step {place}" for place in sorted(places))), expected)

    def test_two_of_them_have_layers_of_their_own(self):
        """They are in the order of the file, and need no other."""
        second = PRUNED.replace('type = "prune"', 'type = "prune"\nid = "second"\nlayers = ["fc2"]')
        first = PRUNED.replace('type = "prune"', 'type = "prune"\nlayers = ["fc1"]')
        self.train(LONG + first + second, "--overwrite")
        weights = self.weights()
        for name in ("fc1.weight", "fc2.weight"):
            self.assertAlmostEqual(numpy.count_nonzero(weights[name]) / weights[name].size, 0.3, delta=0.02)

    def test_to_a_dense_network_and_back(self):
        """The weights that the sums make, in the files of a run without the transform: the same outputs, and they train on."""
        deep = LONG.replace("[8, 24, 3]", "[8, 24, 16, 3]")
        for structure in ("kp", "lmf", "hmd"):
            with self.subTest(structure):
                self.train(deep + DOPED.replace("2.5", f'2\nstructure = "{structure}"'), "--overwrite")
                self.host("export", "runs/small", "--materialize", "true", "--file", "dense.safetensors")
                self.host("predict", "runs/small", "--out", "said.safetensors")
                said, loss = load_file(self.folder / "said.safetensors")["output"], self.result()["metrics"]["val/loss"]
                self.write("dense.toml", deep.replace('name = "small"', 'name = "dense"'))
                self.host("predict", "dense.toml", "--weights", "dense.safetensors", "--out", "dense_said.safetensors")
                numpy.testing.assert_allclose(load_file(self.folder / "dense_said.safetensors")["output"], said, atol=1e-5)
                self.assertEqual(sorted(load_file(self.folder / "dense.safetensors")), [f"fc{i}.{name}" for i in (1, 2, 3) for name in ("bias", "weight")])
                start = ("--set", 'run.resume="dense.safetensors"', "--set", "run.load=weights", "--set", "optimizer.lr=1e-12")
                self.host("train", "dense.toml", "-q", "--overwrite", *start)
                self.assertAlmostEqual(self.result("runs/dense")["metrics"]["val/loss"], loss, places=5)
        self.train(deep + DOPED.replace("2.5", '2\nstructure = "lmf"') + '[[hooks]]\ntype = "ema"\n', "--overwrite")
        for more in ((), ("--materialize", "true")):
            self.host("export", "runs/small", "--weights_of", "ema", "--file", f"{len(more)}.safetensors", *more)
        terms, sums = load_file(self.folder / "0.safetensors"), load_file(self.folder / "2.safetensors")
        product = terms["fc1.weight.low_rank.u"] @ terms["fc1.weight.low_rank.v"] + terms["fc1.weight.sparse"]
        numpy.testing.assert_allclose(sums["fc1.weight"], product, atol=1e-6)
        said = self.host("export", "runs/small", "--to", "onnx", "--materialize", "true", code=2).stderr
        self.assertIn("materialize is of to = ", said)

    def test_sizes_are_shown_before_and_after(self):
        self.write("run.toml", LONG + DOPED)
        said = self.host("model", "show", "run.toml").stdout
        self.assertRegex(said, r"total +one sample +319 +264\nbefore the transforms +one sample +291 +264\n")
        self.write("run.toml", LONG)
        self.assertNotIn("before", self.host("model", "show", "run.toml").stdout)

    def test_ranks_have_the_same_masks(self):
        for transform in (DOPED + CO_MATRIX, PRUNED):
            with self.subTest(transform):
                self.train(LONG + transform, "--overwrite")
                one = self.weights()
                self.train(LONG + transform, "--overwrite", "--ranks", 2)
                two = self.weights()
                for name, values in one.items():
                    numpy.testing.assert_array_equal(values == 0, two[name] == 0, name)
                    numpy.testing.assert_allclose(values, two[name], atol=2e-4, err_msg=name)

    def test_executors_and_swaps_between_them(self):
        for transform in (DOPED + CO_MATRIX, PRUNED):
            self.train(LONG + transform, "--overwrite")
            expected = self.weights()
            for more in ('[executor]\ntype = "compiled"\n', '[executor]\ntype = "wavelet"\nsync = "joint"\n',
                         planned(9, "executor", "compiled", 0) + planned(18, "executor", "eager", 0)):
                with self.subTest(transform, more=more):
                    self.train(LONG + transform + more, "--overwrite")
                    for name, values in self.weights().items():
                        numpy.testing.assert_allclose(values, expected[name], atol=2e-4, err_msg=name)

    def test_pruning_goes_and_comes_back_in_a_live_run(self):
        """`none` has the same parameters: what was zero trains again, and is taken away anew."""
        text = LONG.replace('interval = "7ba"', 'interval = "1ba"\nkeep_last = 100')
        back = planned(22, "transforms.prune", "prune", 0, ratio=0.5)
        self.train(text + PRUNED + planned(15, "transforms.prune", "none", 0) + back, "--overwrite")
        zeros = []
        for step in (15, 16, 22, 23, 30):
            tensors = load_file(next((self.folder / "runs/small/checkpoints").glob(f"*{step:08}*/model.safetensors")))
            zeros.append(1 - nonzeros(tensors, "fc1.weight", "fc2.weight") / sum(tensors[name].size for name in ("fc1.weight", "fc2.weight")))
        self.assertGreater(zeros[0], .6)
        self.assertLess(zeros[1], .05)
        self.assertLess(zeros[2], .05)
        self.assertAlmostEqual(zeros[3], .5, delta=.01)
        self.assertAlmostEqual(zeros[4], .5, delta=.01)

    def test_a_live_run_is_not_made_dense_or_doped(self):
        """The parameters are others, and the optimizer's state is by parameter."""
        for text, type_, name in ((LONG + DOPED, "none", "fc1.weight"), (LONG + '[[transforms]]\ntype = "none"\n', "doped", "fc1.weight.kron.left")):
            with self.subTest(type_):
                was = "doped" if type_ == "none" else "none"
                options = {} if type_ == "none" else {"target_cf": 2.5, "layers": ["fc1"]}
                said = self.train(text + planned(9, f"transforms.{was}", type_, 0, **options), "--overwrite", code=2)["error"]
                self.assertIn(name, said)
                self.assertIn("step 9", said)

    def test_silent_rows_are_of_steps_alone(self):
        """What is evaluated, predicted and saved has none, though the hook acts to the end."""
        text = LONG + DOPED + CO_MATRIX.replace("co_matrix\"", 'co_matrix"\nuntil = "100%"')
        loss = self.train(text)["metrics"]["val/loss"]
        self.assertNotEqual(loss, self.train(LONG + DOPED, "--overwrite")["metrics"]["val/loss"])
        self.train(text, "--overwrite")
        self.assertAlmostEqual(float(self.host("eval", "runs/small").stdout.split("val/loss")[1].split()[0]), loss, places=4)
        self.host("predict", "runs/small", "--inputs", "true", "--out", "said.safetensors")
        said, all_ = load_file(self.folder / "said.safetensors"), self.weights()
        weight = numpy.kron(all_["fc1.weight.kron.left"], all_["fc1.weight.kron.right"]) + all_["fc1.weight.sparse"]
        hidden = numpy.maximum(said["input/0"] @ weight.T + all_["fc1.bias"], 0)
        numpy.testing.assert_allclose(said["output"], hidden @ all_["fc2.weight"].T + all_["fc2.bias"], rtol=1e-5, atol=1e-6)

    def test_a_network_that_was_trained_dense_goes_on_doped(self):
        """It begins as the dense network; of the other weights, `resume` takes those of the same name."""
        dense = self.train(SMALL.replace('name = "small"', 'name = "dense"'), run="runs/dense")["metrics"]["val/loss"]
        begun = SMALL.replace("[run]", '[run]\nresume = "runs/dense"\nload = "weights"\nload_match = ["*.bias", "fc2.weight"]').replace(
            "2ep", "1ba").replace('"1ep"', '"1ba"').replace("lr = 0.01", "lr = 1e-9")
        for structure in ("kp", "lmf", "hmd"):
            with self.subTest(structure):
                start = f'structure = "{structure}"\nstart = "runs/dense/model.safetensors"\ntarget_cf'
                late = DOPED.replace("target_cf", start).replace("4ba", "50ba").replace("20ba", "60ba")
                found = self.train(begun + late, "--overwrite")["metrics"]["val/loss"]
                self.assertAlmostEqual(found, dense, places=5)
        self.write("run.toml", SMALL + DOPED.replace("target_cf", 'start = "runs/small/model.safetensors"\ntarget_cf'))
        self.assertIn('has no tensor "fc1.weight"', self.host("train", "run.toml", "-q", "--overwrite", "--set", "run.name=again", code=2).stderr)

    def test_what_does_not_go_together_is_refused(self):
        for text, words in ((LONG + CO_MATRIX, "needs a transform with weights that are sums of matrices, and there is none"),
                            (LONG + DOPED.replace("sparse", "alone = true\nsparse") + CO_MATRIX, "and the transform \"doped\" has none"),
                            (LONG + PRUNED + CO_MATRIX, "and the transform \"prune\" has none"),
                            (LONG + DOPED + CO_MATRIX + 'until = "10s"\n', 'until = "10s" cannot be counted in steps'),
                            (LONG + DOPED.replace("4ba", "4s"), 'sparse.begin = "4s" cannot be counted in steps'),
                            (LONG + DOPED + '[executor]\ntype = "hfta"\nmembers = [{}, {}]\n', "array of models"),
                            (LONG.replace('max_duration = "30ba"', 'max_duration = "10s"') + PRUNED, "length can be counted in steps")):
            with self.subTest(words):
                self.write("run.toml", text)
                self.assertIn(words, self.host("validate", "run.toml", code=2).stderr)
        self.write("run.toml", LONG + DOPED + PRUNED + CO_MATRIX)
        self.host("validate", "run.toml")

    def test_the_log_says_what_became_of_weights(self):
        self.train(SMALL + DOPED.replace('["fc1"]', '["*"]').replace("2.5", "4.2"))
        log = (self.folder / "runs/small/run.log").read_text()
        self.assertIn("fc1.weight 16 x 8: (4 x 2) (x) (4 x 4), 24 numbers", log)
        self.assertIn("fc2.weight stays as it is: it is 3 x 16", log)


if __name__ == "__main__":
    unittest.main()
