"""Run files of configs/ whose networks have a graph, each with each transform: 20 steps, the same killed and gone on with, the same with
the executor swapped for `compiled` and back. Some of them here; TRAINYARD_LONGER=1 has all."""
import json
import os
import re
import shutil
import subprocess
import tomllib
import unittest

import numpy
from safetensors.numpy import load_file

from configs import FILES, SMALL
from support.host import FAULTY, HostTest

TRANSFORMS = {"doped": '{ type = "doped", target_cf = 3, sparse = { begin = "4ba", end = "16ba", every = 2 } }',
              "prune": '{ type = "prune", ratio = 0.6, sparse = { begin = "4ba", end = "16ba", every = 2 } }',
              "packed_activations": '{ type = "packed_activations", codec = { type = "boveda" } }'}
SOME = {("digits_mlp", "doped"), ("fashion_mnist_cnn", "prune"), ("digits_rdrop", "doped"), ("digits_gyro", "prune"), ("digits_mlp", "packed_activations")}
# Its rate is for updates by single samples; with `eager` it diverges, transformed or not.
CALMER = {"residual": ["--set", "optimizer.lr=0.001"]}
SWAPS = ('swap=[{ at = "7ba", slot = "executor", type = "compiled", watch = "0ba" }, '
         '{ at = "14ba", slot = "executor", type = "eager", watch = "0ba" }]')


class TransformedConfigs(HostTest):
    def train(self, path, transform, *sets, code=0, kill=None):
        """The weights that a run of 20 steps ends with, in `code`; it goes on where another was killed."""
        every = [f"transforms=[{TRANSFORMS.get(transform, '')}]", f"run.output_dir={self.folder}/run", "run.resume=auto", "run.deterministic=strict",
                 "trainer.max_duration=20ba", "trainer.eval_interval=20ba", "schedule.warmup=1ba", "checkpoint.interval=5ba", *sets]
        if kill:
            self.write("place", kill)
            own = [", ".join(f"{key} = {json.dumps(value)}" for key, value in hook.items())
                   for hook in tomllib.loads(path.read_text()).get("hooks", [])]
            hooks = ", ".join(f"{{ {each} }}" for each in [*own, f'type = "killer", place = "{self.folder}/place"'])
            every += [f'plugins.paths=["{FAULTY}"]', f"hooks=[{hooks}]"]
        words = [word for each in every for word in ("--set", each)]
        done = subprocess.run(self.command("train", path, "-q", *words, *SMALL.get(path.stem, []), *CALMER.get(path.stem, [])), text=True, capture_output=True,
                              timeout=300, env=self.environment())
        if absent := re.search(r"E401 (\S+: \S+ does not exist)", done.stderr):
            self.skipTest(absent.group(1))
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def weights(self):
        return load_file(self.folder / "run/model.safetensors")

    def anew(self):
        shutil.rmtree(self.folder / "run", ignore_errors=True)

    def check(self, path, transform):
        first = self.train(path, transform, "executor.type=eager", code=None)
        if first.returncode == 2:  # with both names
            self.assertIn(transform, first.stderr)
            return
        self.assertEqual(first.returncode, 0, first.stderr)
        expected, dead = self.weights(), sum(int((value == 0).sum()) for name, value in self.weights().items())
        if transform != "packed_activations":
            self.assertGreater(dead, 0)
        self.anew()
        self.train(path, transform, "executor.type=eager", code=-9, kill="before_step 12")
        self.train(path, transform, "executor.type=eager")
        for name, value in self.weights().items():
            self.assertEqual(value.tobytes(), expected[name].tobytes(), name)
        far = self.far(path, transform, expected)
        if far > 2e-3:  # rounding alone leads deep networks apart, also without the transform
            self.anew()
            self.train(path, None, "executor.type=eager")
            self.assertLessEqual(far, 4 * self.far(path, None, self.weights()))

    def far(self, path, transform, expected):
        """How far weights come to lie from the expected ones where the executor is swapped, as a part of the largest of each."""
        self.anew()
        self.train(path, transform, "executor.type=eager", SWAPS)
        pairs = [(value.astype("f8"), expected[name]) for name, value in self.weights().items() if value.dtype.kind == "f" and value.size]
        return max(numpy.abs(value - other).max() / max(1.0, numpy.abs(other).max()) for value, other in pairs)


def checks(path, transform):
    return lambda self: self.check(path, transform)


for file in FILES:
    for transform in TRANSFORMS:
        if os.environ.get("TRAINYARD_LONGER") or (file.stem, transform) in SOME:
            setattr(TransformedConfigs, f"test_{file.stem}_{transform}", checks(file, transform))

if __name__ == "__main__":
    unittest.main()
