"""The executor wavelet where two ranks train: what a single rank comes to, whatever each wave is late by, also where the ranks are killed
and go on; with all waves on all ranks, and with a stage of the network on each."""
import json
import os
import shutil
import unittest

from support.host import FAULTY, KILLER, with_momentum
from support.ranks import RUN, ReplacingTest

STEPS = int(os.environ.get("TRAINYARD_STEPS", 150))
OFTEN = ("--set", "trainer.eval_interval=7ba", "--set", "logging.interval=1ba")
FEW = ("--set", "distributed.bucket_cap_mb=0.0003")  # a bucket for each matrix
ONE_MICRO = RUN.replace("micro_batch_size = 4", "micro_batch_size = 8")

CONVOLUTIONS = (RUN.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "sequential"\nlayers = [{ type = "conv2d", out = 8, kernel = 3, padding = 1 }, '
                            '{ type = "relu" }, { type = "conv2d", out = 4, kernel = 3, padding = 1 }, { type = "flatten" }, { type = "linear", out = 3 }]')
                .replace('[model.dropout]\ntype = "standard"\np = 0.2\n', "").replace("shape = [8]", "shape = [1, 6, 6]"))

STAGES = RUN.replace('[model.dropout]\ntype = "standard"\np = 0.2\n', "")
WHOLE = STAGES.replace(", micro_batch_size = 4", "")
NORMALISED = CONVOLUTIONS.replace('{ type = "flatten" }', '{ type = "batch_norm" }, { type = "flatten" }')
NORMALISED_WHOLE = NORMALISED.replace(", micro_batch_size = 4", "")


def waves(rule, count=2):
    return f'[executor]\ntype = "wavelet"\nmemory_budget = 0\npeak = 2.0\nsync = "{rule}"\nwaves = {count}\n'


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
        for rule, text, count in (("joint", RUN, 2), ("stale1", ONE_MICRO, 2), ("replica", ONE_MICRO, 2), ("round", STAGES, 4), ("rolling", WHOLE, 4)):
            with self.subTest(rule):
                for_long = ("--plugins", FAULTY, "--set", f"trainer.max_duration={STEPS}ba", *FEW)
                text += waves(rule, count)
                self.on(2, delayed(text, 0), *for_long)
                expected = self.weights()
                self.assertEqual(self.on(2, delayed(text, 4e-3), *for_long)["steps"], STEPS)
                self.assertEqual(self.furthest(self.weights(), expected), 0.0)

    def logged(self):
        """What is told of each step."""
        return {line["step"]: {**line["values"], "samples_per_second": 0} for line in self.lines("metrics.jsonl", "train")}

    def killed(self, text, *places, rank=-1):
        """The weights of a run of two ranks that both die, or one, at each place in turn, and go on to the end; and what it logs."""
        text += KILLER + f"rank = {rank}\n"
        words = ("--ranks", 2, *OFTEN)
        shutil.rmtree(self.run_folder, ignore_errors=True)
        for place in places:
            self.killed_at(text, place, *words, code=6)
        self.train(text, "--plugins", FAULTY, *words)
        return self.weights(), self.logged()

    def assert_killed(self, text, expected, *places, rank=-1):
        weights, logged = self.killed(text, *places, rank=rank)
        self.assertEqual(self.furthest(weights, expected[0]), 0.0)
        self.assertEqual(logged, expected[1])

    def test_both_ranks_are_killed_and_go_on_with_the_same_bits(self):
        """And one alone. Steps in flight at a checkpoint are in the losses; those that have no update yet have the rate and the norm
        of the last one."""
        for rule, text, count in (("joint", RUN, 2), ("stale1", RUN, 2), ("replica", RUN, 2), ("round", NORMALISED, 3), ("rolling", NORMALISED_WHOLE, 3)):
            with self.subTest(rule):
                text += waves(rule, count) + '[schedule]\ntype = "cosine"\n[trainer.grad_clip]\nmax = 1.0\n'
                expected = self.killed(text)
                self.assert_killed(text, expected, "before_step 18", "eval_batch_end 35")
                if rule in ("round", "rolling"):
                    for rank in (0, 1):
                        self.assert_killed(text, expected, "before_step 18", "eval_batch_end 35", rank=rank)

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

    # --- a stage of the network on each rank

    def test_rounds_are_the_plain_steps_of_one_rank(self):
        for network, text, counts in (("linear", STAGES, (1, 2, 4)), ("running statistics", NORMALISED, (2,))):  # with as many samples a wave as there are a micro-batch
            self.on(1, text)
            expected = self.weights()
            for count in counts:
                with self.subTest(network=network, waves=count):
                    digest = self.on(2, text + waves("round", count))["digest"]
                    self.assertLess(self.furthest(self.weights(), expected), 1e-6)
            self.assertEqual(self.on(2, text + waves("round", count))["digest"], digest)

    def test_rolling_waves_lack_so_many_updates(self):
        """With one wave nothing is lacking; two and four are other trainings, the same each time."""
        self.on(1, WHOLE)
        expected = self.weights()
        for count in (1, 2, 4):
            digest = self.on(2, WHOLE + waves("rolling", count))["digest"]
            self.assertEqual(self.furthest(self.weights(), expected) < 1e-6, count == 1)
            self.assertIn(f"waves read weights that lacked at most {count - 1} updates", (self.run_folder / "run.log").read_text())
        self.assertEqual(self.on(2, WHOLE + waves("rolling", count))["digest"], digest)

    def test_swapped_for_eager_and_back_and_killed_between(self):
        for rule, text in (("round", STAGES), ("rolling", WHOLE)):
            with self.subTest(rule):
                for at, type, more in ((12, "eager", ""), (27, "wavelet", f'options = {{ sync = "{rule}", waves = 2 }}\n')):
                    text += f'[[swap]]\nat = "{at}ba"\nslot = "executor"\ntype = "{type}"\n{more}'
                text += waves(rule, 4)
                expected = self.killed(text)
                self.assert_killed(text, expected, "batch_end 9", "batch_end 19", "batch_end 40")
                self.on(1, WHOLE)
                self.assertEqual(self.furthest(self.weights(), expected[0]) < 1e-6, rule == "round")

    def test_what_sees_or_changes_a_step_is_the_same_on_all_stages(self):
        """Gradients are clipped by the norm of all, steps are skipped, and a hook has the weights behind each."""
        more = '[[hooks]]\ntype = "ema"\ndecay = 0.9\n[[hooks]]\ntype = "skipping"\n'
        text = STAGES.replace("[checkpoint]\n", '[trainer.grad_clip]\nmax = 0.1\n[checkpoint]\n') + more
        self.on(1, text, "--plugins", FAULTY)
        expected = self.weights()
        self.on(2, text + waves("round", 2), "--plugins", FAULTY)
        self.assertLess(self.furthest(self.weights(), expected), 1e-6)

    def test_a_pause_for_a_checkpoint_that_is_asked_for_is_repeated_by_a_resume(self):
        """Though a hook has it skipped, and whoever asked does not ask again. All ranks have it in their journals."""
        asks = '[[hooks]]\ntype = "between"\nask = 11\nrank = 0\nskip = 12\n'
        pipelined = '[executor]\ntype = "pipelined"\nmode = "dist"\nreference_batch_size = 16\ncheckpoint = "drain"\n'
        for text in (WHOLE + waves("rolling", 2), ONE_MICRO + waves("replica") + "sync_every = 3\n", with_momentum(50, blocks=6).replace('"7ba"', '"5ba"') + pipelined):
            with self.subTest(text[text.index("[executor]"):]):
                undisturbed = self.killed(text)[0]
                expected = self.killed(text + asks)
                self.assertGreater(self.furthest(expected[0], undisturbed), 0.0)
                for rank in (0, 1):
                    journal = (self.run_folder / (f"ranks/{rank}" if rank else "") / "journal.jsonl").read_text().splitlines()
                    self.assertEqual([line["step"] for line in map(json.loads, journal) if line["what"] == "executor_paused"], [12])
                shutil.rmtree(self.run_folder)
                self.killed_at(text + asks + KILLER, "before_step 14", "--ranks", 2, *OFTEN, code=6)
                self.train(text + asks.replace("11", "1000") + KILLER, "--plugins", FAULTY, "--ranks", 2, *OFTEN)
                self.assertEqual(self.furthest(self.weights(), expected[0]), 0.0)

    def test_a_run_of_two_ranks_is_used_by_one_process(self):
        for rule, text in (("round", STAGES), ("rolling", WHOLE)):
            with self.subTest(rule):
                self.on(2, text + waves(rule))
                self.assert_used_alone()

    def test_what_stages_cannot_do_is_refused(self):
        for rule in ("round", "rolling"):
            self.write("run.toml", STAGES + waves(rule))
            self.assertIn("several ranks", self.host("validate", "run.toml", code=2).stderr)
            for text, more, says in ((RUN, "", "dropout"), (STAGES, "timeline = true\n", "timeline"),
                                     (STAGES.replace("[trainer]\n", '[trainer]\nprecision = "bf16-mixed"\n'), "", "trainer.precision")):
                with self.subTest(rule, says=says):
                    said = self.host("train", self.write("run.toml", text + waves(rule) + more), "-q", "--ranks", 2, code=2).stderr
                    self.assertIn(says, said)
        said = self.host("train", self.write("run.toml", STAGES + waves("rolling")), "-q", "--ranks", 2, code=2).stderr
        self.assertIn("a step is one wave", said)
        said = self.host("train", self.write("run.toml", STAGES.replace("batch_size = 16", "batch_size = 24") + waves("round")), "-q", "--ranks", 3, code=2).stderr
        self.assertIn("3 ranks are to share", said)
        said = self.host("train", self.write("run.toml", RUN + waves("joint", 3)), "-q", code=2).stderr
        self.assertIn("has two waves", said)


if __name__ == "__main__":
    unittest.main()
