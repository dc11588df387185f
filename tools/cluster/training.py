"""The trainings that are timed, and what they leave."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import links

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRAINYARD = pathlib.Path(os.environ.get("TRAINYARD_BINARY_DIR", SOURCE / "build/release")) / "bin/trainyard"
DATA = pathlib.Path(os.environ.get("TRAINYARD_DATA", SOURCE.parent / "shared/data"))
STORE_PORT = 29500  # of the first node, which has all ports to itself

# Fashion-MNIST; a network of 1.02 million parameters with two convolutions.
IMAGES_OF_TEST = 10_000
A_FEW = 320  # of them, where no figure is worth quoting: every run ends with an evaluation, which took most of the time
IMAGES = """
[model]
type = "lenet"
channels = [32, 64]
hidden = [600]
[data]
type = "idx"
mean = [0.2860]
std = [0.3530]
classes = 10
[data.train]
images = "${run.data}/vision/fashion_mnist/train-images-idx3-ubyte.gz"
labels = "${run.data}/vision/fashion_mnist/train-labels-idx1-ubyte.gz"
batch_size = {batch}
shuffle = true
drop_last = true
[data.val]
images = "${run.data}/vision/fashion_mnist/t10k-images-idx3-ubyte.gz"
labels = "${run.data}/vision/fashion_mnist/t10k-labels-idx1-ubyte.gz"
batch_size = 1000
[[metrics]]
type = "accuracy"
"""
DIGITS = """
[model]
type = "mlp"
layers = [64, 512, 512, 10]
[data]
type = "csv"
scale = 16.0
classes = 10
train = { path = "SOURCE/data/optdigits/optdigits.tra.gz", batch_size = 64, shuffle = true, drop_last = true }
val = { path = "SOURCE/data/optdigits/optdigits.tes.gz", batch_size = 256 }
[[metrics]]
type = "accuracy"
""".replace("SOURCE", str(SOURCE))
MADE_UP = """
[model]
type = "mlp"
layers = {layers}
[data]
type = "synthetic"
kind = "classification"
shape = [{features}]
classes = {classes}
train = {{ size = 4096, batch_size = {batch}, shuffle = true, drop_last = true }}
"""
HOST = """
schema = 1
[run]
name = "cluster"
seed = {seed}
output_dir = "{folder}/run"
threads = {{ intra_op = {threads}, inter_op = 1 }}
[loss]
{loss}
[optimizer]
{optimizer}
[trainer]
max_duration = "{duration}"
{evaluate}
[logging]
interval = "{interval}ba"
[[logging.sinks]]
type = "jsonl"
"""
SGD = 'type = "sgd"\nlr = 0.05\nmomentum = 0.9'


def images(batch, quick=False):
    task = IMAGES.replace("{batch}", str(batch))
    return task.replace("[data.val]\n", f'[data.val]\ntake = "first {A_FEW}"\n') if quick else task


def made_up(layers, batch):
    return MADE_UP.format(layers=list(layers), features=layers[0], classes=layers[-1], batch=batch)


def compressor(name, **options):
    """A table of a run file; `flat`: none."""
    if name == "flat":
        return ""
    lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else json.dumps(value)}" for key, value in options.items()]
    return "\n".join(["[distributed.compressor]", f'type = "{name}"', *lines]) + "\n"


def hierarchical(density=None, **options):
    """hitopk; without a density it sends all: dense within nodes and between them."""
    if density is None:
        return compressor("hitopk", density=1.0, **options)
    return compressor("hitopk", **{"density": density, "auto_dense": "never", "method": "radix", **options})


class Result:
    """What is to be read in the folder of a run."""

    def __init__(self, folder, batch):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.batch, self.lines = batch, lines
        self.train = [line["values"] for line in lines if line["what"] == "train"]
        self.evaluations = [line["values"] for line in lines if line["what"] == "eval"]
        self.result = json.loads((folder / "result.json").read_text())
        self.log = (folder / "run.log").read_text()

    @property
    def steps(self):
        """Seconds a step, of each time that it was logged but the first."""
        return [self.batch / values["samples_per_second"] for values in self.train[1:]]

    @property
    def settled(self):
        """Those of the middle half: of runs side by side, while all of them run."""
        steps = self.steps
        return steps[len(steps) // 4:len(steps) - len(steps) // 4]

    def evaluated(self, batches):
        """Seconds a batch of an evaluation, the shortest: the forward pass, from the record of a step to that of its evaluation."""
        pairs = zip(self.lines, self.lines[1:])
        return min((b["seconds"] - a["seconds"]) / batches for a, b in pairs if (a["what"], b["what"]) == ("train", "eval"))

    @property
    def measured(self):
        """Of hitopk's auto_dense = "measured": for each bucket the seconds of a dense and of a sparse exchange, of all ranks together."""
        found = re.findall(r"bucket (\d+): (\S+) s dense, (\S+) s sparse, of all ranks", self.log)
        return {int(bucket): (float(dense), float(sparse)) for bucket, dense, sparse in found}


def text(task, *more, seed=17, folder="", optimizer=SGD, duration="40ba", interval=5, evaluate=None, threads=1, loss='type = "cross_entropy"'):
    evaluate = f'eval_interval = "{evaluate}"' if evaluate else ""
    head = HOST.format(seed=seed, folder=folder, optimizer=optimizer, duration=duration, interval=interval, evaluate=evaluate,
                       threads=threads, loss=loss)
    return head + task + "".join(more)


def together(commands, environments, folder, limit):
    """Runs processes side by side until all have ended; ends all of them, and raises, where one fails or takes too long."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        said = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in commands]
        started = [subprocess.Popen(list(map(str, command)), cwd=folder, env={**os.environ, **environment}, stdout=file, stderr=subprocess.STDOUT)
                   for command, environment, file in zip(commands, environments, said)]
        try:
            while any(each.poll() is None for each in started):
                if time.monotonic() - began > limit:
                    raise RuntimeError(f"no end after {limit} s")
                time.sleep(0.02)
        finally:
            for each in started:
                each.kill()
                each.wait()
        failed = [number for number, each in enumerate(started) if each.returncode != 0]
        for number in sorted(failed, key=lambda number: started[number].returncode == 6)[:1]:  # 6: because of another
            said[number].seek(0)
            raise RuntimeError(f"process {number} ended with {started[number].returncode}: {said[number].read().strip()}")


def places(size, local, address):
    """The environment of each rank, as torchrun would give it."""
    return [{"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local),
             "MASTER_ADDR": address, "MASTER_PORT": str(STORE_PORT)} for rank in range(size)]


def launch(cluster, local, words, folder, environment, limit=600):
    """Starts ranks on all nodes, `local` of them each, with the environment that torchrun would give them."""
    size = cluster.nodes * local
    together([cluster.command(rank // local, words) for rank in range(size)], [{**environment, **place} for place in places(size, local, cluster.address(0))],
             folder, limit)


def train(where, task, *more, local=1, limit=600, **how):
    """On an emulated cluster, or on so many ranks without one. `more`: further tables of the run file."""
    batch = int(re.search(r"batch_size = (\d+)", task)[1])
    with tempfile.TemporaryDirectory(prefix="trainyard-cluster-") as name:
        folder = pathlib.Path(name)
        (folder / "run.toml").write_text(text(task, *more, folder=folder, **how))
        words = [TRAINYARD, "train", folder / "run.toml", "-q"]
        environment = {"TRAINYARD_DATA": str(DATA), "NO_COLOR": "1", "OMP_NUM_THREADS": str(how.get("threads", 1))}
        if isinstance(where, int):
            together([[*words, *(["--ranks", where] if where > 1 else [])]], [environment], folder, limit)
        else:
            launch(where, local, words, folder, environment, limit)
        return Result(folder / "run", batch)


def alone(count, task, **how):
    """So many runs of one rank each, side by side: what computing costs where the machine has that much to do."""
    batch = int(re.search(r"batch_size = (\d+)", task)[1])
    with tempfile.TemporaryDirectory(prefix="trainyard-cluster-") as name:
        folders = [pathlib.Path(name) / str(number) for number in range(count)]
        for folder in folders:
            folder.mkdir()
            (folder / "run.toml").write_text(text(task, folder=folder, **how))
        environment = {"TRAINYARD_DATA": str(DATA), "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        together([[TRAINYARD, "train", folder / "run.toml", "-q"] for folder in folders], [environment] * count, name, 600)
        return [Result(folder / "run", batch) for folder in folders]


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


def typical(steps):
    """The 20th percentile: what a step takes where nothing else wants the machine."""
    return percentile(steps, 0.2)


def main(name, work):
    """Of the tools: an error is one message, and who is told to end leaves nothing behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        work()
    except links.NotHere as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(77)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"{name}: {error}")
