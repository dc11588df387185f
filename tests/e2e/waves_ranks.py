"""The executor wavelet where two ranks train: what a single rank comes to, whatever each wave is late by, also where the ranks are killed
and go on."""
import os
import shutil
import unittest

from support.host import BUILD
from support.ranks import RUN, ReplacingTest

FAULTY = BUILD / "tests/faulty"
STEPS = int(os.environ.get("TRAINYARD_STEPS", 150))
FEW = ("--set", "distributed.bucket_cap_mb=0.0003")  # a bucket for each matrix
ONE_MICRO = RUN.replace("micro_batch_size = 4", "micro_batch_size = 8")

CONVOLUTIONS = (RUN.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "sequential"\nlayers = [{ type = "conv2d", out = 8, kernel = 3, padding = 1 }, '
                            '{ type = "relu" }, { type = "conv2d", out = 4, kernel = 3, padding = 1 }, { type = "flatten" }, { type = "linear", out = 3 }]')
                .replace('[model.dropout]\ntype = "standard"\np = 0.2\n', "").replace("shape = [8]", "shape = [1, 6, 6]"))


def waves(rule):
    return f'[executor]\ntype = "wavelet"\nmemory_budget = 0\npeak = 2.0\nsync = "{rule}"\n'


def delayed(text, seconds):
    return text.replace('[loss]\ntype = "cross_entropy"', f'[loss]\ntype = "delayed"\nseconds = {seconds}')


class WavesRanks(ReplacingTest):
    def test_joint_is_the_plain_step_of_two_ranks(self):
        for precision, most in (("fp32", 1e-6), ("fp64", 1e-12)):
            for network, text in (("linear", RUN), ("convolutions", CONVOLUTIONS)):
                for cap in ((), FEW):
                    with self.subTest(precision=precision, network=network, cap=cap):
                        words = ("--set", f"trainer.precision={precision}", *cap)
                        self.on(2, text, *words)
                        expected = self.weights()
                        self.on(2, text + waves("joint"), *words)
                        self.assertLess(self.furthest(self.weights(), expected), most)

    def test_steps_in_turn_are_those_of_a_single_rank(self):
        for rule in ("stale1", "replica"):
            with self.subTest(rule):
                self.on(1, ONE_MICRO + waves(rule))
                expected = self.weights()
                self.on(2, ONE_MICRO + waves(rule))
                self.assertLess(self.furthest(self.weights(), expected), 1e-6)

    def test_a_rank_that_leaves_a_batch_out_leaves_the_mean_of_that_very_step_to_the_other(self):
        """Whose update comes with the next step: both are from the first weights, so that updates add up."""
        plain = ONE_MICRO.replace('type = "adamw"', 'type = "sgd"')
        left_out = '[[hooks]]\ntype = "skipping"\nbatches = true\nrank = 1\nfirst = 1\nperiod = 100\n'

        def weights(ranks, steps, text, *words):
            self.on(ranks, text, "--plugins", FAULTY, "--set", f"trainer.max_duration={steps}ba", *words)
            return self.weights()

        both, whole = weights(2, 2, plain + waves("stale1")), weights(1, 1, plain)
        half = weights(1, 1, plain.replace("batch_size = 16, micro", "batch_size = 8, micro"))  # of the first rank
        expected = {name: both[name] - whole[name] + half[name] for name in both}
        self.assertGreater(self.furthest(both, expected), 1e-4)
        self.assertLess(self.furthest(weights(2, 2, plain + waves("stale1") + left_out), expected), 1e-5)
        # A step that all ranks leave out is no update, which the schedule would count.
        none = left_out.replace("rank = 1\n", "") + '[schedule]\ntype = "linear"\n'
        self.assertLess(self.furthest(weights(2, 2, ONE_MICRO + waves("stale1") + none), weights(1, 2, ONE_MICRO + none)), 1e-6)

    def test_random_delays_change_no_bit_and_lock_nobody_up(self):
        for rule, text in (("joint", RUN), ("stale1", ONE_MICRO), ("replica", ONE_MICRO)):
            with self.subTest(rule):
                for_long = ("--plugins", FAULTY, "--set", f"trainer.max_duration={STEPS}ba", *FEW)
                text += waves(rule)
                self.on(2, delayed(text, 0), *for_long)
                expected = self.weights()
                self.assertEqual(self.on(2, delayed(text, 4e-3), *for_long)["steps"], STEPS)
                self.assertEqual(self.furthest(self.weights(), expected), 0.0)

    def test_both_ranks_are_killed_and_go_on_with_the_same_bits(self):
        words = ("--ranks", "2", "--plugins", FAULTY, "--set", "trainer.eval_interval=7ba")
        for rule in ("joint", "stale1", "replica"):
            with self.subTest(rule):
                text = RUN + waves(rule) + '[[hooks]]\ntype = "killer"\nplace = "place"\n'
                (self.folder / "place").unlink(missing_ok=True)
                self.on(1, text, *words)
                expected = self.weights()
                shutil.rmtree(self.run_folder)
                for place in ("before_step 18", "eval_batch_end 35"):
                    self.write("place", place)
                    done = self.start(*words, text=text)
                    self.assertIn("died by signal 9", done.communicate(timeout=60)[1])
                (self.folder / "place").unlink()
                self.train(text, *words)
                self.assertEqual(self.furthest(self.weights(), expected), 0.0)

    def test_a_rank_that_is_replaced(self):
        """Jointly it changes nothing. In turn the step in flight has no update, which the log says; ranks whose weights differ fail."""
        for rule in ("joint", "stale1"):
            with self.subTest(rule):
                text = RUN.replace('type = "full"', 'type = "cpr"').replace('"5ba"', '"50ba"').replace('max_duration = "50ba"', 'max_duration = "300ba"')
                text = text.replace('eval_interval = "1ep"', 'eval_interval = "20ep"') + waves(rule)
                expected = self.on(2, text)["digest"]
                shutil.rmtree(self.run_folder)
                run = self.going(2, text)
                self.kill(run, 2, 1)
                said = run.communicate(timeout=60)[1]
                self.assertEqual(run.returncode, 0, said)
                lost = "the step that was in flight is lost" in (self.run_folder / "run.log").read_text()
                self.assertEqual((self.result()["digest"] == expected, lost), (True, False) if rule == "joint" else (False, True), said)


if __name__ == "__main__":
    unittest.main()
