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
from safetensors.numpy import load_file

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

    def test_a_study_that_is_killed_ends_as_one_that_is_not(self):
        self.study()
        draws, place = random.Random(3), self.folder / "killed/tiny/ledger.jsonl"
        for _ in range(int(os.environ.get("TRAINYARD_KILLS", 3))):
            process = subprocess.Popen(self.command("study", "tiny.toml", "--out", "killed"), cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=self.environment(), start_new_session=True)
            time.sleep(draws.uniform(.3, 2.5))
            if draws.random() < .5:
                process.send_signal(signal.SIGTERM)
            else:
                subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
            process.wait()
        self.assertTrue(place.exists())
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
