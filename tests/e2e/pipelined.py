"""The executor `pipelined`, with momentum and what its methods keep: killed at steps and moments at random and gone on with,
swapped for other executors and back, with swaps that are refused or taken back: always the bits of a run that was left alone.
The same with its stages on several ranks, which come to the bits of one."""
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from support.host import FAULTY, KILLER, planned, tensors, with_momentum
from support.ranks import RankTest

STEPS = 60
RUN = with_momentum(STEPS, blocks=6)
KILLS = int(os.environ.get("TRAINYARD_KILLS", "3"))


def executor(mitigation, mode="threads", type="pipelined"):
    return f'[executor]\ntype = "{type}"\nmitigation = "{mitigation}"\nreference_batch_size = 16\nmode = "{mode}"\n'


class Pipelined(RankTest):
    def setUp(self):
        super().setUp()
        self.chance = random.Random(5)

    def outcome(self, text, *words):
        """What a run of the file ends with: digests, and the metrics of its evaluations. Nothing stays of it."""
        self.host("train", self.write("run.toml", text), "-q", "--plugins", FAULTY, *words)
        return self.ended()

    def ended(self):
        result = self.result()
        told = [(line["step"], line["values"]) for line in self.lines("metrics.jsonl", "eval")]
        shutil.rmtree(self.folder / "runs")
        self.assertEqual(result["steps"], STEPS)
        return result["digest"], told

    def journal(self, what):
        return [line["step"] for line in self.lines("journal.jsonl", what)]

    def test_killed_at_random_steps(self):
        digests = set()
        for mitigation in ("none", "stash", "lwpw", "lwpv+sc"):
            text = RUN + executor(mitigation) + KILLER
            expected = self.outcome(text)
            self.assertEqual(self.outcome(RUN + executor(mitigation, "sim") + KILLER), expected)
            digests.add(expected[0]["model"])
            steps = sorted(self.chance.sample(range(8, STEPS), KILLS))
            with self.subTest(mitigation, steps=steps):
                for step in steps:
                    self.killed_at(text, f"{self.chance.choice(('batch_end', 'before_step'))} {step}")
                self.assertEqual(self.outcome(text), expected)
        self.assertEqual(len(digests), 4)

    def test_killed_at_any_moment(self):
        for mitigation in ("stash", "lwpv+sc"):
            text = RUN.replace(f'"{STEPS}ba"', '"400ba"').replace('"1ba"', '"100ba"').replace('"9ba"', '"150ba"') + executor(mitigation)
            self.write("run.toml", text)
            self.host("train", "run.toml", "-q", "--set", "run.output_dir=plain")
            for _ in range(KILLS):
                process = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment(),
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(self.chance.uniform(0.2, 0.7))
                process.kill()
                process.wait()
            self.host("train", "run.toml", "-q")
            self.assertEqual(self.result()["digest"], self.result("plain")["digest"])
            shutil.rmtree(self.folder / "runs")
            shutil.rmtree(self.folder / "plain")

    def test_an_evaluation_by_command_leaves_what_is_in_flight(self):
        """It ends with the state of the run as it was: that of the moment, not of the last checkpoint."""
        slow = RUN.replace('type = "cross_entropy"', 'type = "delayed"\nseconds = 0.001')
        for mode, words in (("threads", ()), ("dist", ("--ranks", 2))):
            text = slow + executor("lwpv+sc", mode)
            expected = self.outcome(text, *words)
            with self.subTest(mode):
                run = self.start("--plugins", FAULTY, *words, text=text)
                self.until(lambda: (self.run_folder / "checkpoints/latest").exists())
                self.host("ctl", "small", "eval")
                self.assertIsNone(run.poll(), "the run was over too soon")
                self.assertEqual((run.wait(timeout=60), run.communicate()[1]), (0, ""))
                self.assertEqual(self.ended(), expected)

    def test_swapped_for_other_executors_and_back(self):
        """The velocity goes along: in the order pipelined, compiled, eager, pipelined."""
        for mitigation in ("stash", "lwpv+sc"):
            def plan(watch):
                back = {"mitigation": mitigation, "reference_batch_size": 16}
                return (RUN + executor(mitigation) + KILLER + planned(15, "executor", "compiled", watch) + planned(27, "executor", "eager", watch) +
                        planned(38, "executor", "pipelined", watch, **back))
            expected = self.outcome(plan(0))
            self.assertEqual(self.outcome(plan(8)), expected)
            self.assertNotEqual(expected, self.outcome(RUN + executor(mitigation) + KILLER))
            for kills in ((17, 30, 41), (15, 27, 50)):  # within watches; at the swaps, and behind them all
                with self.subTest(mitigation, kills=kills):
                    for step in kills:
                        self.killed_at(plan(8), f"batch_end {step}")
                    self.assertEqual(self.journal("swap")[0], 15)
                    self.assertEqual(self.outcome(plan(8)), expected)

    def test_what_was_in_flight_is_there_again_where_another_executor_does_not_stay(self):
        for mitigation in ("sc", "lwpv+sc"):
            text = RUN + executor(mitigation) + KILLER
            expected = self.outcome(text)
            with self.subTest(mitigation):
                refused = text + planned(15, "executor", "by_hand", 8, refuses_to_open=1)
                self.killed_at(refused, "batch_end 30")
                self.assertEqual(self.journal("swap_refused"), [15])
                self.assertEqual(self.outcome(refused), expected)
                back = text + planned(15, "executor", "by_hand", 12, throws_within=20)
                self.killed_at(back, "batch_end 18")  # within the watch
                self.killed_at(back, "batch_end 40")
                self.assertEqual(self.journal("swap_rolled_back"), [15])
                self.assertEqual(self.outcome(back), expected)


    # --- stages on several ranks

    def assert_same(self, found, expected):
        """Digests to the bit; metrics of evaluations are sums over parts of the samples."""
        self.assertEqual(found[0], expected[0])
        self.assertEqual([step for step, _ in found[1]], [step for step, _ in expected[1]])
        for (_, values), (_, others) in zip(found[1], expected[1]):
            self.assertEqual(values.keys(), others.keys())
            for name, value in others.items():
                self.assertAlmostEqual(values[name], value, delta=1e-9, msg=name)

    def test_two_ranks_come_to_the_bits_of_one(self):
        """2080 samples of the first; no hook that would have the weights on all ranks at every step."""
        for mitigation, keep, steps in (("lwpv+sc", "in_flight", 130), ("lwpv+sc", "drain", 20), ("stash", "in_flight", 20), ("lwpw", "drain", 20)):
            with self.subTest(mitigation, checkpoint=keep):
                text = RUN.replace(f'"{STEPS}ba"', f'"{steps}ba"') + executor(mitigation, "MODE") + f'checkpoint = "{keep}"\n'
                one, one_saw = self.learned(text.replace("MODE", "sim"))
                two, two_saw = self.learned(text.replace("MODE", "dist"), "--ranks", 2)
                self.assertEqual(two, one)
                self.assertEqual(two_saw.keys(), one_saw.keys())
                for which, value in one_saw.items():
                    self.assertAlmostEqual(two_saw[which], value, delta=1e-9, msg=which)

    def learned(self, text, *words):
        """Digests, and the losses and metrics of training and evaluation, by step."""
        self.host("train", self.write("run.toml", text), "-q", *words)
        result = self.result()
        lines = map(json.loads, (self.run_folder / "metrics.jsonl").read_text().splitlines())
        saw = {(line["step"], name): value for line in lines for name, value in line.get("values", {}).items()
               if name.endswith(("/loss", "/accuracy", "lr"))}
        shutil.rmtree(self.folder / "runs")
        return result["digest"], saw

    def test_four_ranks_with_a_hook_that_looks_at_all_weights(self):
        ema = '[[hooks]]\ntype = "ema"\ndecay = 0.9\n'
        expected = self.outcome(RUN + executor("lwpv+sc", "sim") + ema)
        self.assert_same(self.outcome(RUN + executor("lwpv+sc", "dist") + ema, "--ranks", 4), expected)
        self.assertNotEqual(self.outcome(RUN + executor("lwpv+sc", "sim"))[1], expected[1])

    def test_ranks_that_are_killed_go_on_to_the_bits_on_as_many_or_on_one(self):
        for mitigation in ("stash", "lwpv+sc"):
            alone, ranks = RUN + executor(mitigation, "sim") + KILLER, RUN + executor(mitigation, "dist") + KILLER
            expected = self.outcome(alone)
            steps = sorted(self.chance.sample(range(8, STEPS), KILLS))
            with self.subTest(mitigation, steps=steps):
                for step in steps:
                    self.killed_at(ranks, f"{self.chance.choice(('batch_end', 'before_step'))} {step}", "--ranks", 2, code=6)
                self.assert_same(self.outcome(ranks, "--ranks", 2), expected)
                self.killed_at(ranks, f"batch_end {steps[0]}", "--ranks", 2, code=6)
                self.assert_same(self.outcome(alone), expected)
                self.killed_at(alone, f"batch_end {steps[0]}")
                self.assert_same(self.outcome(ranks, "--ranks", 4), expected)

    def test_a_rank_that_is_killed_is_named(self):
        text = RUN.replace(f'"{STEPS}ba"', '"4000ba"').replace('"1ba"', '"100ba"').replace('"9ba"', '"1500ba"') + executor("lwpv+sc", "dist")
        for victim in (0, 1):
            run = self.start("--ranks", 2, text=text)
            self.until(lambda: (self.run_folder / "checkpoints/latest").exists())
            time.sleep(self.chance.uniform(0.0, 0.3))
            os.kill(self.ranks_of(run.pid)[victim], signal.SIGKILL)
            began = time.monotonic()
            said = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 6, said)
            self.assertLess(time.monotonic() - began, 10)
            self.assertIn(f"rank {victim} died by signal 9", said)
            shutil.rmtree(self.folder / "runs")

    def test_a_loss_that_is_not_finite_ends_all_ranks(self):
        text = RUN + executor("none", "dist").replace("reference_batch_size = 16\n", "")
        said = self.on(2, text, "--set", "optimizer.lr=1e38", "--set", "guard.nan=off", code=5)["error"]
        self.assertRegex(said, "the training loss is -?nan at step")

    def test_swapped_for_other_executors_on_two_ranks(self):
        def plan(ranks):
            mode = "dist" if ranks > 1 else "sim"
            back = {"mitigation": "lwpv+sc", "reference_batch_size": 16, "mode": mode}
            text = RUN + executor("lwpv+sc", mode) + planned(15, "executor", "eager", 0) + planned(38, "executor", "pipelined", 0, **back)
            result = self.on(ranks, text, "--set", "trainer.max_duration=60ba")
            return result["digest"]["model"], self.weights()
        digest, weights = plan(2)
        self.assertEqual(plan(2)[0], digest)
        self.assertLess(self.furthest(weights, plan(1)[1]), 1e-5)  # eager sums over ranks in another order

    def test_a_run_of_two_ranks_is_used_by_one_process(self):
        self.on(2, RUN + executor("sc", "dist"))
        self.assert_used_alone()
        self.on(2, RUN + planned(15, "executor", "pipelined", 0, mitigation="sc", mode="dist"))
        self.assert_used_alone()

    # --- what it cannot run, and what it keeps

    def test_what_it_cannot_run_is_refused_by_name(self):
        """Each run file is valid without the change that is refused."""
        text = RUN + executor("sc", "sim")
        network = 'type = "residual_mlp"\nwidth = 8\nblocks = 6'
        self.assertIn(network, text)
        normalised = text.replace(network, 'type = "sequential"\nlayers = [{ type = "linear", out = 16 }, { type = "batch_norm" }, { type = "linear", out = 3 }]')
        tied = text.replace(network, 'type = "gpt"\nn_layer = 1\nn_head = 2\nd_model = 8').replace(
            'kind = "classification"\nshape = [8]\nclasses = 3', 'kind = "language"\nseq_len = 6\nvocabulary = 9')
        for valid, words in ((text, ()), (normalised, ("--set", "executor.update_size=2")), (tied, ("--set", "executor.stages=1"))):
            self.host("validate", self.write("run.toml", valid), *words)

        def rule(type, more=""):
            return f'rules=[{{type="{type}"{more}}}]'

        for of, change, *names in (
                (text, 'optimizer={type="adamw",lr=0.01}', '"pipelined" needs optimizer.type = sgd', '"adamw"'),
                (text, "optimizer.nesterov=true", "optimizer.nesterov"),
                (text, "optimizer.dampening=0.1", "optimizer.dampening"),
                (text, 'optimizer.momentum=0;executor.mitigation="lwpv"', "optimizer.momentum", "lwpv"),
                (text, 'optimizer.momentum=0;executor.mitigation="lwpv+sc"', "optimizer.momentum", "lwpv+sc"),
                (text, 'optimizer.momentum=0;executor.mitigation="gsc"', "optimizer.momentum", "gsc"),
                (normalised, "executor.update_size=1", 'node "batch_norm1" normalises over the batch'),
                (tied, "executor.stages=0", '"gpt"', "weights that several layers share"),
                (text, "model.dropout.type=standard", "model.dropout"),
                (text, "trainer.precision=bf16-mixed", "trainer.precision"),
                (text, "trainer.precision=fp16-mixed", "trainer.precision"),
                (text, "trainer.precision=fp64", "fp32"),
                (text, rule("vanishing_gradient"), '"vanishing_gradient"', "gradients"),
                (text, rule("dead_relu"), '"dead_relu"', "outputs of single nodes"),
                (text, rule("exploding_tensor", ',action="lr_scale"'), "learning rate"),
                (text, 'hooks=[{type="halving"}]', '"halving" writes grads at before_step'),
                (text, 'hooks=[{type="rdrop"}]', '"rdrop" has a hook on micro_start'),
                (text, 'hooks=[{type="meddling"}]', '"meddling" has a hook on before_forward')):
            with self.subTest(change):
                words = [word for each in change.split(";") for word in ("--set", each)]
                said = self.host("validate", self.write("run.toml", of), "--plugins", FAULTY, *words, code=2).stderr
                for name in ("pipelined", *names):
                    self.assertIn(name, said)

    def test_tables_in_parts_are_refused(self):
        text = RUN + executor("sc", "dist")
        text = text.replace(text[text.index("[model]"):text.index("[[metrics]]")], """[model]
type = "dlrm"
dim = 4
tables = [8, 8]
sharded = true
[loss]
type = "bce_with_logits"
[data]
type = "ctr"
rows = [8, 8]
features = 4
train = { size = 64, batch_size = 16 }
val = { size = 32, batch_size = 16 }
""").replace('type = "accuracy"', 'type = "auc"')
        said = self.host("validate", self.write("run.toml", text), "--ranks", 2, code=2).stderr
        for name in ('"pipelined"', '"dlrm" needs an executor without parts of the network on different ranks'):
            self.assertIn(name, said)

    def test_what_a_hook_wants_of_a_batch_that_is_in_the_pipeline_ends_the_run_with_the_names(self):
        for what, says in (("repeat_step", "a hook wants the gradients of a batch again"), ("skip_micro", "a hook wants a micro-batch left out")):
            said = self.train(RUN + executor("sc", "sim") + f'[[hooks]]\ntype = "wanting"\nwhat = "{what}"\n', "--plugins", FAULTY, "--overwrite",
                              code=3)["error"]
            for name in ("pipelined", says, 'take the executor "eager" with it'):
                self.assertIn(name, said)

    def test_versions_of_weights_cost_what_they_say(self):
        """The most that the process has resident, by the kernel: in flight S stages keep as many copies of the weights, and none where
        the pipeline runs empty ahead of a pause."""
        text = RUN.replace("width = 8\nblocks = 6", "width = 512\nblocks = 16").replace(f'"{STEPS}ba"', '"6ba"')
        peaks = {}
        for keep in ("in_flight", "drain"):
            self.write("run.toml", text + executor("sc", "sim") + f'checkpoint = "{keep}"\n' + '[trainer.grad_clip]\ntype = "norm"\nmax = 0.001\n')
            run = subprocess.Popen(self.command("train", "run.toml", "-q", "--overwrite", "--set", "checkpoint.interval=1000ba"),
                                   cwd=self.folder, env=self.environment())
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(run.returncode, 0)
            peaks[keep] = usage.ru_maxrss * 1024
        copies = (peaks["in_flight"] - peaks["drain"]) / sum(map(len, tensors(self.run_folder / "model.safetensors").values()))
        print(f"18 stages: {peaks['in_flight'] >> 20} MiB in flight, {peaks['drain'] >> 20} MiB with drain: {copies:.1f} copies of the weights")
        self.assertAlmostEqual(copies, 18, delta=3.6)

    def test_what_cannot_be_on_ranks_is_refused(self):
        for mode, words, says in (("sim", ("--ranks", 2), "trains on one rank"), ("dist", (), "several ranks")):
            self.write("run.toml", RUN + executor("sc", mode))
            for verb in ("validate", "train"):
                self.assertIn(says, self.host(verb, "run.toml", *words, code=2).stderr)
        said = self.host("validate", self.write("run.toml", RUN + executor("sc", "dist") + "[distributed]\nshares = [3, 1]\n"), "--ranks", 2, code=2).stderr
        self.assertIn('the executor "pipelined" needs distributed.shares = none where mode = dist', said)
        text = RUN + executor("sc", "dist") + '[distributed.compressor]\ntype = "fp16"\n'
        said = self.host("train", self.write("run.toml", text), "-q", "--ranks", 2, code=2).stderr
        self.assertIn('the compressor "fp16" needs an executor without parts of the network on different ranks, and the executor "pipelined" has it', said)


if __name__ == "__main__":
    unittest.main()
