"""TensorBoard's own reader takes our event files without a warning, and no step of a tag stands there twice."""
import glob
import logging
import math
import os
import subprocess
import sys
import tempfile
import warnings

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter
    import numpy
except ImportError as error:
    print(f"skipped: {error}; tools/test makes a Python that has it")
    sys.exit(77)

complaints = []


class Collector(logging.Handler):
    def emit(self, record):
        complaints.append(record.getMessage())


logging.getLogger("tensorboard").addHandler(Collector(level=logging.WARNING))

with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    subprocess.run(
        [os.path.join(os.environ["TRAINYARD_BINARY_DIR"], "bin", "plugins_tests"), "[write-events]"],
        env={**os.environ, "TRAINYARD_TEST_OUT": folder}, check=True, stdout=subprocess.DEVNULL)

    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert sorted(tags) == ["lr", "train/loss", "val/genauigkeit-ä"], tags

    def points(tag):
        return [(event.step, event.value) for event in accumulator.Scalars(tag)]

    expected = [(step, float(numpy.float32((1 if step <= 100 else 2) / step))) for step in range(10, 300, 10)]
    loss = points("train/loss")
    assert loss[:-1] == expected, loss
    assert loss[-1][0] == 300 and math.isnan(loss[-1][1]), loss[-1]
    assert [step for step, _ in points("lr")] == list(range(10, 301, 10))
    assert points("val/genauigkeit-ä") == [(100, float(numpy.float32(0.6)))]
    times = [event.wall_time for event in accumulator.Scalars("train/loss")]
    assert times == sorted(times)

    # Byte for byte what TensorBoard's own writer makes of the same events.
    files = sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*.v2")))
    assert len(files) == 2, files
    for path in files:
        copy = os.path.join(folder, "copy")
        with open(copy, "wb") as stream:
            writer = RecordWriter(stream)
            for index, record in enumerate(RawEventFileLoader(path).Load()):
                event = Event.FromString(record)
                assert (index == 0) == (event.file_version == "brain.Event:2"), event
                writer.write(event.SerializeToString())
            writer.flush()
            with open(path, "rb") as ours, open(copy, "rb") as theirs:
                assert ours.read() == theirs.read(), path

    assert not complaints, complaints
    assert not caught, [str(warning.message) for warning in caught]
