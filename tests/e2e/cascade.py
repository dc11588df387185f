"""trainyard study of type cascade: each network is made of the one that it says, as pruned as it says, and a study that is killed ends
as one that is not."""
import csv
import json
import os
import random
import re
import signal
import subprocess
import time
import unittest

import numpy
from safetensors.numpy import load_file, save_file

from support.exported_runs import DATA, run
from support.host import HostTest

RUN = run('type = "mlp"\nlayers = [20, 48, 32, 5]', DATA.replace("[8]", "[20]").replace("classes = 3", "classes = 5")).replace(
    "train = { size = 64,", 'train = { size = 400, take = "first 90%",')
STUDY = """
[study]
type = "cascade"
run = "small.toml"
metric = "val/loss"
goal = "min"
delta = 0.2
ratios = [0.4, 0.7]
seeds = 2
budget = "2ep"
methods = [{ name = "wt", scorer = '{ type = "magnitude" }' }, { name = "ft", scorer = '{ type = "filter_norm" }' }]
"""


class Cascade(HostTest):
    def setUp(self):
        super().setUp()
        self.write("small.toml", RUN)
        self.write("tiny.toml", STUDY)

    def study(self, *words, out="out", code=0):
        return self.host("study", "tiny.toml", "--out", out, *words, code=code).stdout

    def rows(self, out="out"):
        return {row["trial"]: float(row["val/loss"]) for row in csv.DictReader((self.folder / out / "tiny/runs.csv").read_text().splitlines())}

    def weights(self, trial, out="out", of=""):
        return load_file(self.folder / out / f"tiny/runs/{trial}{of}/model.safetensors")

    def share_gone(self, weights):
        return 1 - sum(numpy.count_nonzero(each) for each in weights.values()) / sum(each.size for each in weights.values())

    def test_each_stage_goes_on_from_the_one_before(self):
        said, losses = self.study(), self.rows()
        self.assertEqual(set(losses), {"dense/0", "dense/1", *(f"{method}/{ratio}/{seed}" for method in ("wt", "ft") for ratio in (.4, .7) for seed in (0, 1))})
        for method in ("wt", "ft"):
            for seed in (0, 1):
                dense, first, second = (self.weights(name) for name in (f"dense/{seed}", f"{method}/0.4/{seed}", f"{method}/0.7/{seed}"))
                self.assertEqual(self.share_gone(dense), 0)
                for name, ratio, ended, before in ((f"{method}/0.4/{seed}", .4, first, dense), (f"{method}/0.7/{seed}", .7, second, first)):
                    begun = self.weights(name, of=".pruned")
                    self.assertAlmostEqual(self.share_gone(begun), ratio, delta=.005 if method == "wt" else .02)
                    for each, values in begun.items():
                        numpy.testing.assert_array_equal(values, numpy.where(values != 0, before[each], 0))  # of that network, with zeros
                        self.assertTrue((ended[each][values == 0] == 0).all())
                    self.assertTrue(any((ended[each] != values).any() for each, values in begun.items()))
        self.assertEqual({name: self.result(f"out/tiny/runs/{name}")["metrics"]["val/loss"] for name in losses}, losses)
        for method in ("wt", "ft"):  # the largest ratio of all that are no worse, by hand
            potentials = [max([0, *(ratio for ratio in (.4, .7) if losses[f"{method}/{ratio}/{seed}"] <= losses[f"dense/{seed}"] + .2)]) for seed in (0, 1)]
            self.assertRegex(said, rf"(?s)prune potential.*\| {method} \| {sum(potentials) / 2:.4f}[^|]*\| {min(potentials):.4f} \|")

    def test_one_shot_prunes_the_dense_network_each_time(self):
        once = ("--set", "study.mode=oneshot", "--set", "study.seeds=1", "--set", 'study.retrain=["optimizer.lr=1e-12"]')
        self.study(*once)
        dense = self.weights("dense/0")
        before = {ratio: self.weights(f"wt/{ratio}/0") for ratio in (.4, .7)}
        for weights in before.values():
            for each, values in weights.items():
                numpy.testing.assert_allclose(values[values != 0], dense[each][values != 0], atol=1e-6)
        # Trials of another scorer are others, whatever they are called.
        self.study(*once, "--set", 'study.methods=[{ name = "wt", scorer = "{ type = \\"random\\" }" }]')
        for ratio, weights in before.items():
            self.assertTrue(any(((values != 0) != (weights[each] != 0)).any() for each, values in self.weights(f"wt/{ratio}/0").items()))
        self.assertEqual(self.weights("dense/0")["fc1.weight"].tobytes(), dense["fc1.weight"].tobytes())

    def methods(self, start_from, *names):
        scorers = {"wt": "magnitude", "ft": "filter_norm"}
        each = [f'{{ name = "{name}", start_from = "{start_from}", scorer = "{{ type = \\"{scorers[name]}\\" }}" }}' for name in names or scorers]
        return "--set", f"study.methods=[{', '.join(each)}]"

    def rewound(self, *words, out="out"):
        """Checkpoints after each of the dense run's two epochs; what trains on is as good as still."""
        self.study("--set", 'study.set=["checkpoint.interval=1ep", "checkpoint.keep_every=1ep"]', "--set", 'study.retrain=["optimizer.lr=1e-12"]', *words, out=out)

    def first_epoch(self, seed, out="out"):
        checkpoints = sorted((self.folder / out / f"tiny/runs/dense/{seed}/checkpoints").glob("step-*"))
        steps = [int(each.name[5:]) for each in checkpoints]
        self.assertEqual(steps, [steps[0], 2 * steps[0]])
        return load_file(checkpoints[0] / "model.safetensors")

    def masked(self, trial, weights):
        """Weights with the zeros of the network that was pruned ahead of a trial."""
        zeros = self.weights(trial, of=".pruned")
        return {each: numpy.where(zeros[each] != 0, values, 0) for each, values in weights.items()}

    def assertBegins(self, trial, weights):
        begun, ended = self.weights(trial, of=".begin"), self.weights(trial)
        for each, values in weights.items():
            numpy.testing.assert_array_equal(begun[each], values)
            numpy.testing.assert_allclose(ended[each], values, atol=1e-6)
            self.assertTrue((ended[each][values == 0] == 0).all())

    def test_weights_are_rewound_to_those_of_the_epoch(self):
        self.rewound(*self.methods("rewound"), "--set", "study.rewind_to=1ep", "--set", "study.seeds=1")
        early, dense = self.first_epoch(0), self.weights("dense/0")
        self.assertTrue(any((early[each] != dense[each]).any() for each in dense))
        for method in ("wt", "ft"):
            for ratio in (.4, .7):
                trial = f"{method}/{ratio}/0"
                self.assertAlmostEqual(self.share_gone(self.weights(trial, of=".begin")), ratio, delta=.005 if method == "wt" else .02)
                self.assertBegins(trial, self.masked(trial, early))
            # The second is pruned from what the first ended with, and not from the dense network.
            before, pruned = self.weights(f"{method}/0.4/0"), self.weights(f"{method}/0.7/0", of=".pruned")
            for each, values in pruned.items():
                numpy.testing.assert_array_equal(values, numpy.where(values != 0, before[each], 0))

    def test_weights_are_those_of_the_beginning_or_new_ones(self):
        once = ("--set", "study.seeds=1", "--set", "study.ratios=[0.5]")
        text = (self.folder / "small.toml").read_text()
        self.host("train", "small.toml", "-q", "--set", "run.name=first", "--set", "run.seed=0", "--set", "trainer.max_duration=1ba", "--set", "optimizer.lr=1e-30")
        first = load_file(self.folder / "runs/first/model.safetensors")
        self.rewound(*self.methods("rewound", "wt"), "--set", "study.rewind_to=0ep", *once)
        self.assertBegins("wt/0.5/0", self.masked("wt/0.5/0", first))
        self.write("small.toml", text)
        self.rewound(*self.methods("random", "wt"), *once, out="random")
        zeros, begun = self.weights("wt/0.5/0", "random", ".pruned"), self.weights("wt/0.5/0", "random", ".begin")
        for each, values in begun.items():
            self.assertTrue(((values != 0) == (zeros[each] != 0)).all())
            self.assertEqual((values[values != 0] == first[each][values != 0]).sum(), 0)

    def test_a_time_without_a_checkpoint_is_refused(self):
        kept = ("--set", 'study.set=["checkpoint.interval=1ep", "checkpoint.keep_every=1ep"]')
        rewound = self.methods("rewound")
        for change, words in ((rewound, "rewind_to, which is absent"), (("--set", "study.rewind_to=1ep"), 'of which there are none'),
                              ((*rewound, "--set", "study.rewind_to=1ep"), "no checkpoint there, by checkpoint.interval, which is absent"),
                              ((*rewound, "--set", "study.rewind_to=1ep", "--set", 'study.set=["checkpoint.interval=1ep"]'), "checkpoint.keep_every, which is absent"),
                              ((*rewound, "--set", "study.rewind_to=3ba", "--set", "study.budget=9ba", *kept), 'by checkpoint.interval = "1ep"'),
                              ((*rewound, "--set", "study.rewind_to=2ep", *kept), 'no time of a training of "2ep"'),
                              ((*rewound, "--set", "study.rewind_to=0.5ep", *kept), "whole epochs"),
                              ((*rewound, "--set", "study.rewind_to=10%", *kept), "whole epochs")):
            self.assertIn(words, self.host("study", "tiny.toml", *change, code=2).stderr)

    def test_the_verb_refuses_what_does_not_fit(self):
        self.host("train", "small.toml", "-q", "--set", "checkpoint.interval=1ep", "--set", "checkpoint.keep_every=1ep")
        self.host("prune", "small.toml", "--scorer", '{ type = "magnitude" }', "--cut", "false", "--out", "pruned")
        self.host("prune", "small.toml", "--scorer", '{ type = "filter_norm" }', "--out", "small")
        first = sorted((self.folder / "runs/small/checkpoints").glob("step-*"))[0]
        words = ("rewind", "small.toml", "--weights", first, "--zeros_of", "pruned/model.safetensors")
        self.assertIn("is of epoch 1, not of 2ep", self.host(*words, "--at", "2ep", code=2).stderr)
        self.assertIn("is no checkpoint", self.host("rewind", "small.toml", "--weights", "initial", "--zeros_of", "pruned/model.safetensors", "--at", "1ep", code=2).stderr)
        self.assertIn("has another shape", self.host("rewind", "small.toml", "--weights", first, "--zeros_of", "small/model.safetensors", code=2).stderr)
        self.assertIn("no-such", self.host("rewind", "small.toml", "--zeros_of", "no-such", code=4).stderr)
        said = json.loads(self.host(*words, "--at", "1ep", "--format", "json").stdout)
        self.assertEqual(said["facts"]["kept ones that were 0"], 0)

    def test_a_kept_parameter_that_is_0_is_no_zero(self):
        self.host("train", "small.toml", "-q")
        weights = load_file(self.folder / "runs/small/model.safetensors")
        early, pruned = dict(weights), dict(weights)
        early["fc1.bias"] = numpy.zeros_like(weights["fc1.bias"])
        pruned["fc1.bias"] = numpy.where(numpy.arange(len(weights["fc1.bias"])) < 7, 0, 1).astype("f4")
        for name, each in (("early", early), ("zeros", pruned)):
            save_file(each, self.folder / f"{name}.safetensors")
        said = json.loads(self.host("rewind", "small.toml", "--weights", "early.safetensors", "--zeros_of", "zeros.safetensors", "--out", ".", "--format", "json").stdout)
        bias = load_file(self.folder / "model.safetensors")["fc1.bias"]
        self.assertTrue(((bias != 0) == (numpy.arange(len(bias)) >= 7)).all())
        self.assertLess(abs(bias).max(), 1e-37)
        self.assertEqual(said["facts"]["kept ones that were 0"], len(bias) - 7)

    def test_a_study_that_is_killed_ends_as_one_that_is_not(self):
        self.kill_and_go_on()

    def test_one_that_rewinds_is_killed(self):
        study = (self.folder / "tiny.toml").read_text()
        study = study.replace(""" }, { name = "ft", scorer = '{ type = "filter_norm" }' }""", ', start_from = "rewound" }')
        self.write("tiny.toml", study.replace("seeds = 2", 'seeds = 1\nrewind_to = "1ep"\nset = ["checkpoint.interval=1ep", "checkpoint.keep_every=1ep"]'))
        self.kill_and_go_on(2)

    def kill_and_go_on(self, kills=3):
        self.study()
        draws, place = random.Random(3), self.folder / "killed/tiny/ledger.jsonl"
        for _ in range(int(os.environ.get("TRAINYARD_KILLS", kills))):
            process = subprocess.Popen(self.command("study", "tiny.toml", "--out", "killed"), cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=self.environment(), start_new_session=True)
            self.until(place.exists)
            time.sleep(draws.uniform(0, 2.5))
            if draws.random() < .5:
                process.send_signal(signal.SIGTERM)
            else:
                subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
            process.wait()
        self.study(out="killed")
        self.assertEqual(self.rows("killed"), self.rows())
        for name in self.rows():
            for each, values in self.weights(name).items():
                self.assertEqual(values.tobytes(), self.weights(name, "killed")[each].tobytes())
        starts = [json.loads(line)["start"]["trial"] for line in place.read_text().splitlines() if '"start"' in line]
        self.assertEqual(len(starts), len(set(starts)))

    def test_bad_options_are_refused(self):
        for change, words in (("study.ratios=[0.5, 0.4]", "0.4 follows 0.5"), ("study.ratios=[]", "ratios is empty"), ("study.ratios=[1.0]", "between 0 and 1"),
                              ('study.methods=[{ name = "dense", scorer = "x" }]', 'called "dense"')):
            self.assertIn(words, self.host("study", "tiny.toml", "--set", change, code=2).stderr)
        self.write("small.toml", RUN + '[[transforms]]\ntype = "prune"\n')
        self.assertIn("the run has [[transforms]]", self.host("study", "tiny.toml", code=2).stderr)
        self.write("small.toml", RUN)
        said = self.host("study", "tiny.toml", "--out", "out", "--set", 'study.methods=[{ name = "wt", scorer = "{ type = \\"nobody\\" }" }]').stderr
        self.assertRegex(said, r'trial "wt/0.4/0" to 2ep failed: .*no scorer plugin is called "nobody"')


if __name__ == "__main__":
    unittest.main()
