"""Run files of configs/ with the executor `compiled`: the weights are those of `eager` but for rounding, also where it is
swapped to eager and back, and a run that was cut ends with the bits of one that was not. Names of files, or `all`, as
arguments; by default some."""
import re
import subprocess
import sys
import unittest

import numpy

import configs
from support.host import HostTest, tensors

INTEGERS = ("tables.ids", "tables.starts", "tables.schedule")  # of SLIDE
CHOSEN = ("digits_mlp", "digits_certified", "digits_gyro", "digits_debugger", "fashion_mnist_cnn", "cora_sage")
THERE_AND_BACK = 'swap=[{at="2ba",slot="executor",type="eager",watch="0ba"},{at="3ba",slot="executor",type="compiled",watch="0ba"}]'


class Compiled(HostTest):
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
        cut = ("executor.type=compiled", 'run.resume="auto"', "checkpoint.type=full")
        self.train_("cut", *cut, "trainer.max_wall_time=0.000001s", code=75)
        self.assertEqual(self.train_("cut", *cut)["digest"], whole["digest"])

    return test


names = [word for word in sys.argv[1:] if not word.startswith("-")]
for name in names:
    sys.argv.remove(name)
for file in configs.FILES:
    if "all" in names or file.stem in (names or CHOSEN):
        setattr(Compiled, "test_" + file.stem, holds(file))

if __name__ == "__main__":
    unittest.main()
