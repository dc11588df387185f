"""Run files of configs/ with the executor `compiled`: the weights are those of `eager` but for rounding, also where it is
swapped to eager and back, and a run that was cut ends with the bits of one that was not. Names of files, or `all`, as
arguments; by default some."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import unittest

import numpy

import configs
import gpus
from support.host import FAULTY, KILLER, SMALL, HostTest, KilledTest, tensors

INTEGERS = ("tables.ids", "tables.starts", "tables.schedule")  # of SLIDE
CHOSEN = ("digits_mlp", "digits_certified", "digits_gyro", "digits_debugger", "fashion_mnist_cnn", "cora_sage")
THERE_AND_BACK = 'swap=[{at="2ba",slot="executor",type="eager",watch="0ba"},{at="3ba",slot="executor",type="compiled",watch="0ba"}]'


LONG = SMALL.replace('max_duration = "2ep"', 'max_duration = "200ba"').replace("[[logging.sinks]]", '[schedule]\ntype = "cosine"\n[logging]\ninterval = "1ba"\n[[logging.sinks]]')
IMAGES = 'kind = "classification"\nshape = [3, 8, 8]\nclasses = 3'
TOKENS = 'kind = "language"\nseq_len = 6\nvocabulary = 9'
MLP, ROWS = 'type = "mlp"\nlayers = [8, 16, 3]', 'kind = "classification"\nshape = [8]\nclasses = 3'
# Networks of 200 steps with a cosine schedule: dropout in the first, ragged last batches in the second.
NETWORKS = {
    "mlp": LONG + '[model.dropout]\ntype = "standard"\n',
    "cnn": LONG.replace(MLP, 'type = "lenet"\npadding = 2').replace(ROWS, IMAGES.replace("8, 8", "28, 28")).replace("size = 64", "size = 40"),
    "lstm": LONG.replace(MLP, 'type = "lstm"\nn_layer = 1\nhidden = 6').replace(ROWS, TOKENS),
    "gpt": LONG.replace(MLP, 'type = "gpt"\nn_layer = 2\nn_head = 2\nd_model = 8').replace(ROWS, TOKENS),
}


class Networks(HostTest):
    def losses(self, text, executor, options="", *words):
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        self.train(text + f'[executor]\ntype = "{executor}"\n{options}\n', *words)
        lines = (self.folder / "runs/small/metrics.jsonl").read_text().splitlines()
        return numpy.array([each["values"]["train/loss"] for each in map(json.loads, lines) if each["what"] == "train"])

    def test_losses_are_those_of_eager(self):
        for name, text in NETWORKS.items():
            eager, direct = self.losses(text, "eager"), self.losses(text, "compiled", "winograd = false")
            # Rounding grows from step to step, most where few samples are learnt by heart. The second: with fewer products,
            # which have a digit less.
            for compiled, first, later in (direct, 1e-4, 0.1), (self.losses(text, "compiled"), 1e-3 if name == "cnn" else 1e-4, 0.5 if name == "cnn" else 0.1):
                with self.subTest(name, bar=first):
                    self.assertEqual(len(eager), 200)
                    apart = numpy.abs(compiled - eager)
                    self.assertLessEqual((apart[:20] / eager[:20]).max(), first)
                    self.assertLessEqual((apart / (eager + 0.01)).max(), later)

    def test_losses_with_bfloat16_are_about_those_of_single_precision(self):
        for name, text in NETWORKS.items():
            full, half = self.losses(text, "compiled"), self.losses(text, "compiled", 'kernels = "counted"', "--set", "trainer.precision=bf16-mixed")
            with self.subTest(name):
                self.assertFalse(numpy.array_equal(full, half))
                if "as eager does" in (self.folder / "runs/small/run.log").read_text():  # this processor has no bfloat16
                    capable = re.search("avx512_bf16|amx_bf16", pathlib.Path("/proc/cpuinfo").read_text())
                    self.assertTrue(capable is None or "ONEDNN_MAX_CPU_ISA" in os.environ)
                    self.assertTrue(numpy.array_equal(half, self.losses(text, "eager", "", "--set", "trainer.precision=bf16-mixed")))
                    continue
                self.assertLessEqual(numpy.abs(half - full)[:6].max(), 0.05)  # then some learn their few samples by heart

    def test_the_plan_says_what_an_executor_leaves_out(self):
        said = {}
        for executor in ("eager", "compiled"):
            self.write("run.toml", SMALL + f'[executor]\ntype = "{executor}"\n')
            for precision in ("fp32", "bf16-mixed"):
                said[executor, precision] = self.host("plan", "run.toml", "--set", f"trainer.precision={precision}").stdout.partition("\n")[0]
        self.assertEqual(said, {
            ("eager", "fp32"): "executor eager: does all it can", ("eager", "bf16-mixed"): "executor eager: does all it can",
            ("compiled", "fp32"): "executor compiled: does all it can",
            ("compiled", "bf16-mixed"): "executor compiled: does all it can"})

    def test_the_plan_says_precision_threads_swaps_and_what_libtorch_computes(self):
        swap = '[[swap]]\nat = "50%"\nslot = "hooks.ema"\ntype = "ema"\nchange = "add"\n'
        zones = '[model.dropout]\ntype = "zoneout"\n'  # at which the LSTM is left
        for name, more, left in (("lstm", zones, "; by LibTorch: .* \\(LSTM\\)"), ("mlp", "", " an arena of \\d+ KiB\n")):
            self.write("run.toml", NETWORKS[name].replace("inter_op = 1", "inter_op = 2") + '[executor]\ntype = "compiled"\nkernels = "counted"\n' + more + swap)
            said = self.host("plan", "run.toml", "--set", "trainer.precision=bf16-mixed").stdout
            self.assertIn("  swap             add hooks.ema = ema, after step 100\n", said)
            self.assertIn("bf16-mixed on cpu, threads: 1 within an operation, 2 between\n", said)
            self.assertRegex(said.partition("Executor\n")[2], "compiled for evaluations of .*" + left)

    def test_two_shapes_are_compiled_once_each(self):
        self.losses(NETWORKS["cnn"], "compiled")
        log = (self.folder / "runs/small/run.log").read_text()
        self.assertEqual(len(re.findall(r"compiled for \[", log)), 2)
        self.assertEqual(len(re.findall("compiled for evaluations of", log)), 1)

    def test_several_samples_of_the_dropout_on_two_ranks(self):
        """The network makes several rows of each: losses and weights are those of eager."""
        text = NETWORKS["mlp"].replace('"200ba"', '"12ba"').replace('type = "standard"', 'type = "multi_sample"\nsamples = 3')
        found = {}
        for executor in ("eager", "compiled"):
            losses = self.losses(text, executor, "", "--ranks", 2)
            found[executor] = losses, tensors(self.folder / "runs/small/model.safetensors")
        (expected, weights), (losses, ends) = found.values()
        self.assertGreater(len(expected), 5)
        self.assertLessEqual(numpy.abs(losses - expected).max(), 1e-4)
        for name, value in weights.items():
            apart = numpy.abs(numpy.frombuffer(ends[name], numpy.float32) - numpy.frombuffer(value, numpy.float32))
            self.assertLessEqual(apart.max(), 1e-3, name)

    def test_on_a_gpu_steps_are_recorded(self):
        if gpus.gpus() == 0:
            self.skipTest("no GPU here, or LibTorch's CUDA half does not load")
        for name, text in NETWORKS.items():
            with self.subTest(name):
                eager, recorded = (self.losses(text, each, "", "--set", "run.device=cuda") for each in ("eager", "compiled"))
                log = (self.folder / "runs/small/run.log").read_text()
                # The first has a dropout, which draws anew for each step.
                self.assertEqual("recorded forward and backward" in log, name != "mlp", log)
                self.assertLessEqual((numpy.abs(recorded - eager)[:20] / eager[:20]).max(), 1e-3)

    def test_what_looks_into_the_step_sees_what_it_sees_of_eager(self):
        """Accumulation, clipping, averaged weights, a hook that has each batch go through twice, a recorder and a rule; steps that
        are repeated at once, as sharpness-aware minimisation asks for, and steps and micro-batches that are left out."""
        more = ("data.train.micro_batch_size=8", 'trainer.grad_clip={type="norm",max=0.5}',
                f'plugins.paths=["{FAULTY}"]', 'hooks=[{type="ema",decay=0.9},{type="rdrop"},'
                '{type="asking",id="again",ask="repeat_step",at="before_step",step=1,period=3},'
                '{type="asking",id="less",ask="skip_step",at="before_step",step=2,period=5},'
                '{type="asking",id="half",ask="skip_micro",at="before_forward",step=1,period=4}]', "model.dropout.type=standard", 'rules=[{type="vanishing_gradient"}]', "recorder.type=trial")
        words = [word for each in more for word in ("--set", each)]
        found = {}
        for executor in ("eager", "compiled"):
            shutil.rmtree(self.folder / "runs", ignore_errors=True)
            result = self.train(SMALL + f'[executor]\ntype = "{executor}"\n', *words)
            found[executor] = result["metrics"]
        for key, value in found["eager"].items():
            if key != "samples_per_second":
                self.assertAlmostEqual(found["compiled"][key], value, delta=1e-4 * max(1, abs(value)), msg=key)


class Shapes(HostTest):
    """50 shapes in turn, with a plan kept for each, and with fewer plans than shapes, so that every step makes one. TRAINYARD_STEPS
    is the number of steps, 10000 for the whole."""
    STEPS = int(os.environ.get("TRAINYARD_STEPS", "2000"))

    def test_memory_does_not_grow(self):
        text = LONG.replace('"200ba"', f'"{self.STEPS}ba"').replace("size = 64, batch_size = 16", "size = 512, batch_size = 64").replace(
            'eval_interval = "1ep"', f'eval_interval = "{self.STEPS}ba"').replace('interval = "1ba"', f'interval = "{self.STEPS}ba"')
        text += f'[[hooks]]\ntype = "meddling"\nwith = "1 to 50 rows"\nstep = 0\n[[hooks]]\ntype = "resident"\nfile = "{self.folder}/resident"\n'
        for plans, made in ((50, 50), (8, self.STEPS)):
            with self.subTest(plans=plans):
                self.train(text + f'[executor]\ntype = "compiled"\nplans = {plans}\n', "--plugins", FAULTY, "--overwrite")
                log = (self.folder / "runs/small/run.log").read_text()
                self.assertEqual(len(re.findall(r"compiled for \[", log)), made)
                kib = [int(line.split()[1]) for line in (self.folder / "resident").read_text().splitlines()]
                settled = kib[self.STEPS // 200:]  # behind the first half, or the first 1,000 of 2,000
                print(f"{plans} plans, {self.STEPS} steps: {min(settled)} to {max(settled)} KiB behind the first half")
                self.assertLessEqual(max(settled), 1.01 * settled[0])


def resumed(name):
    """Such a network for 30 steps, whose checkpoints lie between the ends of epochs, with the executor's table last."""
    text = NETWORKS[name].replace('"200ba"', '"30ba"').replace("seed = 3", 'seed = 3\nresume = "auto"').replace("size = 64", "size = 40").replace("size = 32", "size = 20")
    return text + '[checkpoint]\ntype = "full"\ninterval = "4ba"\n' + KILLER + '[executor]\ntype = "compiled"\n'


class Resumed(KilledTest):
    TEXT = resumed("mlp")

    def test_passes_with_bfloat16(self):
        """On a processor without it, passes run as eager does: the same has to hold."""
        for name in ("mlp", "cnn", "gpt", "lstm"):
            with self.subTest(name):
                # By counts, as single precision may be faster for networks of this size.
                text = resumed(name).replace("[trainer]", '[trainer]\nprecision = "bf16-mixed"') + 'kernels = "counted"\n'
                expected = self.whole(text)
                self.assertNotEqual(expected, self.whole(resumed(name)))
                self.assertEqual(self.killed(text, "batch_end 9", "before_step 22"), expected)

    def test_where_the_smaller_batch_comes_first_another_shape_is_no_other_one(self):
        """Which of two shapes is compiled, and which runs as eager does, does not depend on where a run begins again."""
        recompiled = self.whole(self.TEXT)
        for options in ("", "plans = 1\n"):
            eager = self.TEXT + 'on_new_shape = "eager"\n' + options
            expected = self.whole(eager)
            self.assertNotEqual(expected, recompiled)
            self.assertEqual(self.killed(eager, "batch_end 9", "before_step 22"), expected)  # each goes on at the last step of an epoch, behind an evaluation

    def test_ranks_whose_batches_of_an_evaluation_differ(self):
        """The second has the smaller one alone, and a checkpoint knows of the first."""
        text = self.TEXT + 'on_new_shape = "eager"\n'
        words = ("--ranks", 2, "--set", "trainer.eval_interval=4ba")

        def end():
            self.train(text, "--plugins", FAULTY, *words)
            return [line["values"] for line in self.lines("metrics.jsonl", "eval")]

        expected = end()
        shutil.rmtree(self.folder / "runs")
        self.killed_at(text, "batch_end 9", *words, code=6)
        self.assertEqual(end(), expected)

    def test_a_rule_that_wants_nothing_of_nodes_has_no_pass_run_as_eager_does(self):
        """Neither the first one of a run, nor the first one of a run that goes on."""
        expected = self.whole(self.TEXT)
        watched = self.TEXT + '[[rules]]\ntype = "vanishing_gradient"\nevery = "2ba"\n'
        self.assertEqual(self.whole(watched), expected)
        self.assertEqual(self.killed(watched, "batch_end 9", "before_step 22"), expected)


class Kernels(KilledTest):
    """Kernels by measured times: what a first run found holds for it until its end, and for later runs on the machine."""
    TEXT = resumed("cnn").replace('"30ba"', '"12ba"')

    def cache(self, name, text=None):
        """Has runs keep what they measure in a folder of that name, which holds such a file."""
        folder = self.folder / name
        os.environ["XDG_CACHE_HOME"] = str(folder)
        if text is not None:
            self.write(f"{name}/trainyard/compiled/{self.kept.name}", text)
        return folder

    def setUp(self):
        super().setUp()
        before = os.environ.get("XDG_CACHE_HOME")
        self.addCleanup(lambda: os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before))
        first = self.cache("first")
        self.expected = self.whole(self.TEXT)
        self.kept = next((first / "trainyard/compiled").glob("*.json"))

    def turned(self):
        """The times that were kept, those of oneDNN and of fewer products exchanged, far apart."""
        given = json.loads(self.kept.read_text())
        for times in given["seconds"].values():
            for i, (fewer, direct) in enumerate(zip(times.get("winograd", []), times.get("direct", []))):
                if fewer is not None and direct is not None:
                    times["winograd"][i], times["direct"][i] = (0.5, 1.0) if fewer > direct else (1.0, 0.5)
        return json.dumps(given)

    def log(self):
        return (self.folder / "runs/small/run.log").read_text()

    def test_two_runs_have_the_same_bits_and_the_second_measures_nothing(self):
        before = self.kept.read_bytes()
        self.assertIn("measured now", self.log())
        self.assertEqual(self.whole(self.TEXT), self.expected)
        self.assertNotIn("measured now", self.log())
        self.assertEqual(self.kept.read_bytes(), before)
        self.write("run.toml", self.TEXT)
        self.assertIn(str(self.kept), self.host("plan", "run.toml", "--plugins", FAULTY).stdout)

    def test_a_run_that_goes_on_where_other_times_are_kept_has_its_own_kernels(self):
        turned = self.turned()
        self.cache("turned", turned)
        self.assertNotEqual(self.whole(self.TEXT), self.expected)  # so that it would show
        for name, text in (("elsewhere", turned), ("empty", None)):
            with self.subTest(name):
                shutil.rmtree(self.folder / "runs")
                self.cache("first")
                self.killed_at(self.TEXT, "batch_end 6")
                self.cache(name, text)
                self.assertEqual(self.end(self.TEXT), self.expected)
                self.assertIn("goes on with the kernels that it began with", self.log())

    def test_first_runs_at_once_have_the_same_bits(self):
        self.cache("at once")
        self.write("run.toml", self.TEXT)
        runs = [subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY, "--set", f"run.output_dir={self.folder}/{i}"),
                                 cwd=self.folder, env=self.environment()) for i in range(3)]
        self.assertEqual([each.wait() for each in runs], [0, 0, 0])
        first, *others = (self.result(str(i))["digest"] for i in range(3))
        self.assertEqual(others, [first, first])

    def test_a_spoilt_file_is_replaced_and_where_nothing_can_be_kept_counts_decide(self):
        whole = self.kept.read_text()
        for name, text in (("spoilt", "rubbish"), ("cut off", whole[:len(whole) // 2]), ("foreign", whole.replace("oneDNN", "twoDNN"))):
            with self.subTest(name):
                folder = self.cache(name, text)
                digest = self.whole(self.TEXT)
                self.assertIn("measured now", self.log())
                self.assertEqual(json.loads((folder / "trainyard/compiled" / self.kept.name).read_text())["format"], 1)
                self.assertEqual(self.whole(self.TEXT), digest)
        counted = self.whole(self.TEXT + 'kernels = "counted"\n')
        self.write("file", "")
        self.cache("file")
        self.assertEqual(self.whole(self.TEXT), counted)
        self.assertIn("cannot be written", self.log())

    def test_ranks_go_by_counts(self):
        text = self.TEXT.replace(KILLER, "")
        self.train(text, "--plugins", FAULTY, "--ranks", 2, "--overwrite")
        self.assertIn("counts of operations choose kernels", self.log())


class Compiled(KilledTest):
    def train_(self, name, *sets, code=0):
        words = [word for each in ("trainer.max_duration=4ba", "schedule.warmup=0ba", "run.threads.intra_op=1", *sets) for word in ("--set", each)]
        self.host("train", str(self.path), "-q", "--set", f"run.output_dir={self.folder}/{name}", *words, *self.small, code=code)
        return self.result(name)

    def weights(self, name):
        return {key: numpy.frombuffer(value, numpy.float32) for key, value in tensors(self.folder / name / "model.safetensors").items()
                if key not in INTEGERS}

    def assert_close(self, name, other):
        """Of all weights together: rounding flips a few rectified units of a deep network, which single small weights show."""
        ours, theirs = self.weights(name), self.weights(other)
        self.assertEqual(ours.keys(), theirs.keys())
        apart = sum(numpy.square(value - theirs[key], dtype=numpy.float64).sum() for key, value in ours.items())
        whole = sum(numpy.square(value, dtype=numpy.float64).sum() for value in theirs.values())
        self.assertLessEqual((apart / whole) ** 0.5, 1e-2)


def holds(path):
    def test(self):
        self.path, self.small = path, configs.SMALL.get(path.stem, [])
        done = subprocess.run(self.command("validate", path, *self.small), cwd=self.folder, text=True, capture_output=True, env=self.environment())
        absent = re.search(r"E401 (\S+: \S+ does not exist)", done.stderr)
        if absent:
            self.skipTest(absent.group(1))
        self.train_("eager", "executor.type=eager")
        whole = self.train_("whole", "executor.type=compiled")
        self.assert_close("whole", "eager")
        self.train_("swapped", "executor.type=compiled", THERE_AND_BACK)
        self.assert_close("swapped", "eager")
        again = (self.folder / "whole/config.toml").read_text()
        hooks = [*tomllib.loads(again).get("hooks", []), {"type": "killer", "place": "place"}]
        inline = ", ".join("{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in hook.items()) + " }" for hook in hooks)
        words = [word for each in (f"run.output_dir={self.folder}/cut", 'run.resume="auto"', "checkpoint.type=full", "checkpoint.interval=1ba",
                                   f"hooks=[{inline}]") for word in ("--set", each)]
        self.killed_at(again, "batch_end 2", *words)
        self.host("train", "run.toml", "-q", "--plugins", FAULTY, *words)
        self.assertEqual(self.result("cut")["digest"], whole["digest"])
        self.assertIn('"what":"resumed"', (self.folder / "cut/journal.jsonl").read_text())

    return test


names = [word for word in sys.argv[1:] if not word.startswith("-")]
for name in names:
    sys.argv.remove(name)
for file in configs.FILES:
    if "all" in names or file.stem in (names or CHOSEN):
        setattr(Compiled, "test_" + file.stem, holds(file))

if __name__ == "__main__":
    unittest.main()
