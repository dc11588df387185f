"""A trial's files as others read them: SageMaker Debugger's own reader, and TensorBoard's."""
import glob
import json
import math
import os
import sys
import unittest
import warnings

warnings.simplefilter("ignore")
try:
    import numpy
    from smdebug import modes
    from smdebug.core.tfrecord.tensor_reader import TensorReader
    from smdebug.trials import create_trial
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"skipped: {error}; tools/test makes a Python that has it")
    sys.exit(77)

from support.host import SMALL, HostTest

REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2"]
REDUCTIONS += ["abs_" + name for name in REDUCTIONS]
RUN = SMALL + f"""
[recorder]
save_interval = 2
save_steps = [5]
tensorboard = true
collections = [
  {{ name = "weights", reductions = {json.dumps(REDUCTIONS)}, save_raw_tensor = true, save_histogram = true }},
  {{ name = "gradients", reductions = ["abs_mean", "nonfinite"], start_step = 4 }},
  {{ name = "metrics" }},
  {{ name = "labels", include_regex = ["^label$"], save_interval = 4 }},
]
"""


def entrywise(name, x):
    """A reduction of the tensor as a vector, in double; variances as torch has them."""
    x = numpy.abs(x.astype(numpy.float64)).ravel() if name.startswith("abs_") else x.astype(numpy.float64).ravel()
    name = name.removeprefix("abs_")
    if name in ("std", "variance"):
        return getattr(x, {"std": "std", "variance": "var"}[name])(ddof=1)
    return numpy.linalg.norm(x, int(name[1])) if name in ("l1", "l2") else getattr(x, name)()


class Readers(HostTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["SMDEBUG_TRAINING_END_DELAY_REFRESH"] = "0"

    def setUp(self):
        super().setUp()
        self.train(RUN)
        self.trial = self.folder / "runs" / "small" / "trial"

    def test_debuggers_own_reader(self):
        trial = create_trial(str(self.trial))
        self.assertEqual(trial.steps(mode=modes.TRAIN), [0, 2, 4, 5, 6])
        self.assertEqual(trial.steps(mode=modes.EVAL), [0, 1])
        self.assertEqual(trial.steps(), [0, 2, 4, 5, 6, 7, 9])
        self.assertEqual(trial.workers(), ["worker_0"])
        self.assertEqual(trial.mode_modestep(4), (modes.EVAL, 0))
        self.assertEqual(trial.mode_modestep(5), (modes.TRAIN, 4))
        self.assertTrue({"weights", "gradients", "losses", "metrics", "labels"} <= set(trial.collections()))
        weights = ["fc1.weight", "fc2.weight"]
        self.assertEqual(trial.tensor_names(collection="weights"), weights)
        self.assertEqual(trial.tensor_names(collection="gradients"), [f"gradient/{fc}.{what}" for fc in ("fc1", "fc2") for what in ("bias", "weight")])
        self.assertEqual(trial.tensor("gradient/fc1.weight").steps(mode=modes.TRAIN), [4, 5, 6])
        self.assertEqual(trial.tensor("label").steps(mode=modes.TRAIN), [0, 4, 5])
        self.assertEqual(trial.tensor("label").value(0, mode=modes.TRAIN).dtype, numpy.int64)
        self.assertEqual(tuple(trial.tensor("gradient/fc1.weight").shape(4, mode=modes.TRAIN)), (16, 8))
        self.assertEqual(trial.tensor("gradient/fc1.weight").reduction_value(4, "nonfinite", mode=modes.TRAIN), 0)
        self.assertGreater(trial.tensor("gradient/fc1.weight").reduction_value(4, "mean", abs=True, mode=modes.TRAIN), 0)
        losses = trial.tensor("loss_output_0").values(mode=modes.TRAIN)
        self.assertEqual(list(losses), [0, 2, 4, 5, 6])
        self.assertTrue(all(math.isfinite(loss) and loss > 0 for loss in losses.values()))
        accuracy = trial.tensor("metric/val/accuracy").value(1, mode=modes.EVAL)
        self.assertEqual(float(accuracy), self.result()["metrics"]["val/accuracy"])
        for name in weights:
            for step in (0, 6):
                value = trial.tensor(name).value(step, mode=modes.TRAIN)
                self.assertEqual(value.dtype, numpy.float32)
                saved = trial.tensor(name).reduction_values(step, mode=modes.TRAIN)
                self.assertEqual(len(saved), len(REDUCTIONS))
                for (reduction, of_abs), number in saved.items():
                    expected = entrywise(("abs_" if of_abs else "") + reduction, value)
                    numpy.testing.assert_allclose(number, expected, rtol=1e-6, atol=1e-12, err_msg=f"{name} {reduction} {of_abs}")

    def test_every_checksum_is_the_true_one(self):
        files = glob.glob(str(self.trial / "events" / "*" / "*.tfevents"))
        self.assertEqual(len(files), 7)
        for file in files:
            data = open(file, "rb").read()
            self.assertTrue(list(TensorReader(data).read_tensors(check="full")))
            self.assertTrue(list(TensorReader(data).read_tensors(check="minimal")))
            events = list(EventFileLoader(file).Load())  # checks them all
            index = json.loads(open(file.replace("/events/" + os.path.basename(os.path.dirname(file)), "/index/000000000").replace("tfevents", "json")).read())
            self.assertEqual([event.summary.value[0].tag for event in events], [each["tensorname"] for each in index["tensor_payload"]])
            for event, place in zip(events, index["tensor_payload"]):
                (tensor,) = [found[2] for found in TensorReader(data[place["start_idx"]:place["start_idx"] + place["length"]]).read_tensors()]
                numpy.testing.assert_array_equal(tensor_util.make_ndarray(event.summary.value[0].tensor), tensor)

    def test_tensorboard(self):
        board = EventAccumulator(str(self.trial / "tensorboard"), size_guidance={"histograms": 0, "scalars": 0, "tensors": 0})
        board.Reload()
        tags = board.Tags()
        self.assertIn("loss_output_0", tags["scalars"])
        self.assertIn("eval/metric/val/loss", tags["scalars"])
        self.assertIn("fc1.weight/std", tags["scalars"])
        self.assertEqual(tags["histograms"], ["fc1.weight", "fc2.weight"])
        trial = create_trial(str(self.trial))
        histograms = board.Histograms("fc1.weight")
        self.assertEqual([each.step for each in histograms], [0, 2, 5, 6, 7])
        value = trial.tensor("fc1.weight").value(0, mode=modes.TRAIN)
        first = histograms[0].histogram_value
        self.assertEqual((first.num, sum(first.bucket)), (value.size, value.size))
        self.assertAlmostEqual(first.min, float(value.min()))
        self.assertAlmostEqual(first.sum, float(value.astype(numpy.float64).sum()), places=6)
        for limit, below in zip(first.bucket_limit, numpy.cumsum(first.bucket)):
            self.assertEqual(below, (value <= limit).sum())


if __name__ == "__main__":
    unittest.main()
