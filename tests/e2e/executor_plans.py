"""Random plans: executors and optimizers swapped for each other, some refused or taken back, on one rank and on two, with hooks that skip
steps and average weights. A run that is killed twice ends with the bits of the one that was not.
  TRAINYARD_SEQUENCES=100 TRAINYARD_SEED=7 python3 tests/e2e/executor_plans.py"""
import json
import os
import random
import shutil
import subprocess
import unittest

from support.host import FAULTY, KILLER, planned, with_momentum
from support.ranks import RankTest

STEPS = 40
RUN = with_momentum(STEPS, blocks=3)


def pipelined(mode):
    return [("pipelined", {"mode": mode, "mitigation": "stash"}), ("pipelined", {"mitigation": "lwpv+sc", "mode": mode})]


ANYWHERE = [("eager", {}), ("compiled", {}), ("wavelet", {"sync": "joint"}), ("wavelet", {"sync": "stale1"}), ("wavelet", {"sync_every": 3, "sync": "replica"})]
EXECUTORS = {1: ANYWHERE + pipelined("sim") + pipelined("threads"),
             2: ANYWHERE + pipelined("dist") + [("wavelet", {"waves": 3, "sync": "round"}), ("wavelet", {"waves": 2, "sync": "rolling"})]}
OPTIMIZERS = [("sgd", {"momentum": 0.9, "lr": 0.02}), ("sgd", {"lr": 0.03}), ("troubled", {"lr": 0.01, "at": "step", "step": 3}),
              ("troubled", {"lr": 0.01, "at": "not_finite", "step": 2})]

GAINS = [("gain", {"start": 2.0, "layer": "first"}), ("gain", {"start": 0.5, "layer": "first"})]


def lines(options):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())


def random_plan(chance, ranks):
    type, options = chance.choice(EXECUTORS[ranks])
    text = RUN + f'[executor]\ntype = "{type}"\n' + lines(options) + KILLER
    if chance.random() < 0.4:
        text += '[[hooks]]\ntype = "ema"\ndecay = 0.9\n'
    if chance.random() < 0.4:
        text += '[[hooks]]\ntype = "skipping"\n' + lines({"period": chance.choice((4, 5, 7)), "rank": chance.choice((-1, 0, 1)) if ranks > 1 else -1,
                                                         "batches": chance.random() < 0.5})
    slots = [("executor", EXECUTORS[ranks]), ("executor", EXECUTORS[ranks]), ("optimizer", OPTIMIZERS)]
    if chance.random() < 0.4:
        text += '[[transforms]]\ntype = "gain"\nlayer = "first"\n'
        slots.append(("transforms.gain", GAINS))
    at = 0
    for _ in range(chance.randrange(4)):
        at += chance.randint(3, 12)
        slot, choices = chance.choice(slots)
        type, options = chance.choice(choices)
        text += planned(at, slot, type, chance.choice((0, 4, 8)), **options)
    return text


class ExecutorPlans(RankTest):
    def train_on(self, ranks, text):
        """The exit code, and the digests of a run that came to its end."""
        command = self.command("train", self.write("run.toml", text), "-q", "--plugins", FAULTY, "--ranks", ranks)
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=300)
        self.assertNotIn(done.returncode, (1, 2), done.stderr)  # an internal error; a plan that is none
        return done.returncode, self.result()["digest"] if done.returncode == 0 else None

    def refuses(self, ranks, text):
        """Whether validation does, as pipelined takes sgd alone; it names both sides."""
        command = self.command("validate", self.write("run.toml", text), "--level", "files", "--plugins", FAULTY, "--ranks", ranks)
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            self.assertRegex(done.stderr, r'the executor "pipelined" needs optimizer\.type = sgd, and it is "troubled"')
        return done.returncode != 0

    def assert_kills_change_nothing(self, ranks, text, places):
        expected = self.train_on(ranks, text)
        shutil.rmtree(self.folder / "runs")
        for place in places:
            self.write("place", place)
            self.train_on(ranks, text)
            (self.folder / "place").unlink()
        self.assertEqual(self.train_on(ranks, text), expected, text)
        shutil.rmtree(self.folder / "runs")

    def test_random_plans(self):
        first = int(os.environ.get("TRAINYARD_SEED", "5040"))
        for seed in range(first, first + int(os.environ.get("TRAINYARD_SEQUENCES", "4"))):
            chance = random.Random(seed)
            ranks = chance.choice((1, 2))
            text = random_plan(chance, ranks)
            while self.refuses(ranks, text):
                text = random_plan(chance, ranks)
            places = [f"{chance.choice(('batch_end', 'before_step'))} {step}" for step in sorted(chance.sample(range(4, STEPS), 2))]
            with self.subTest(seed=seed, ranks=ranks, places=places):
                self.assert_kills_change_nothing(ranks, text, places)

    def test_a_swap_to_what_the_executor_of_that_time_does_not_take_is_refused_at_validation(self):
        plan = RUN + '[executor]\ntype = "pipelined"\n' + KILLER
        troubled = planned(12, "optimizer", "troubled", 0, step=3, lr=0.01, at="never")
        self.assertTrue(self.refuses(1, plan + troubled))
        self.assertFalse(self.refuses(1, plan + planned(9, "executor", "eager", 0) + troubled))


if __name__ == "__main__":
    unittest.main()
