"""What the end-to-end tests share: the real executable, small run files, small data."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from support.ends import children, end_children, limit_wait

SOURCE = pathlib.Path(os.environ.get("TRAINYARD_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[3]))
BUILD = pathlib.Path(os.environ.get("TRAINYARD_BINARY_DIR", SOURCE / "build" / "release"))
TRAINYARD = BUILD / "bin" / "trainyard"
FAULTY = BUILD / "tests" / "faulty"  # plugins that do wrong on purpose
DATA = pathlib.Path(os.environ.get("TRAINYARD_DATA", SOURCE.parent / "shared" / "data"))

# Folders in memory will do, as in tests/support/main.cpp, where there is room for those of several tests.
MEMORY = pathlib.Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("TMPDIR", str(MEMORY))

# Trains in a moment, on made-up data.
SMALL = """
schema = 1
[run]
name = "small"
seed = 3
deterministic = "strict"
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "mlp"
layers = [8, 16, 3]
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [8]
classes = 3
train = { size = 64, batch_size = 16, shuffle = true }
val = { size = 32, batch_size = 16 }
[[metrics]]
type = "accuracy"
[optimizer]
type = "adamw"
lr = 0.01
[trainer]
max_duration = "2ep"
eval_interval = "1ep"
[[logging.sinks]]
type = "jsonl"
"""

# The same for rows of a file of eight features and a label of three classes.
ROWS = SMALL.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
                     'type = "csv"\npath = "rows.csv"\nclasses = 3').replace("size = 64, ", "").replace("size = 32, ", "")

# The same for rows of few features, with several labels.
SPARSE = SMALL.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3', 'type = "xc"\npath = "rows.txt"').replace(
    "size = 64, batch_size = 16", "batch_size = 2").replace("size = 32, ", "").replace(
    'type = "cross_entropy"', 'type = "cross_entropy"\nmulti_label = true').replace('type = "accuracy"', 'type = "precision_at_k"\nk = [1]')

# A hook that ends the process at the event and the step that the file names (killed_at).
KILLER = '[[hooks]]\ntype = "killer"\nplace = "place"\n'


def with_momentum(steps, blocks):
    """A residual network trained by gradient descent with momentum, evaluated and saved every few steps, which goes on by itself."""
    return SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("2ep", f"{steps}ba").replace('"1ep"', '"9ba"').replace(
        'type = "mlp"\nlayers = [8, 16, 3]', f'type = "residual_mlp"\nwidth = 8\nblocks = {blocks}').replace(
        'type = "adamw"\nlr = 0.01', 'type = "sgd"\nlr = 0.05\nmomentum = 0.9\nweight_decay = 1e-3') + """
[schedule]
type = "cosine"
[checkpoint]
type = "full"
interval = "7ba"
[logging]
interval = "1ba"
"""


def planned(at, slot, type, watch, /, **options):
    """A swap whose options may have the names of its own keys."""
    given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    return f'[[swap]]\nat = "{at}ba"\nslot = "{slot}"\ntype = "{type}"\nwatch = "{watch}ba"\n' + (f"options = {{ {given} }}\n" if given else "")


def rows(count=24, label=lambda row: row % 3, feature=lambda row, column: (row * 7 + column * 3) % 11):
    return "".join(",".join(str(feature(row, column)) for column in range(8)) + f",{label(row)}\n" for row in range(count))


def tensors(path):
    """Name to bytes of a safetensors file, bfloat16 ones too, of which NumPy does not know."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: data[8 + size + each["data_offsets"][0]:8 + size + each["data_offsets"][1]] for name, each in header.items()}


class HostTest(unittest.TestCase):
    """A folder for each test, and the executable to run in it."""
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainyard-e2e-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(end_children, children())  # a training may still write into the folder
        limit_wait()
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def command(self, *words):
        return [str(TRAINYARD), *map(str, words)]

    def environment(self, **more):
        return {**os.environ, "TRAINYARD_DATA": str(DATA), "NO_COLOR": "1", **more}

    def host(self, *words, code=0, timeout=300, **environment):
        """Runs the executable in the test's folder; gives what it printed, standard output and error apart."""
        done = subprocess.run(self.command(*words), cwd=self.folder, text=True, capture_output=True, timeout=timeout,
                              env=self.environment(**environment))
        self.assertEqual(done.returncode, code, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
        return done

    def until(self, true, seconds=60):
        end = time.monotonic() + seconds
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def said(self, process, text):
        """Reads what it prints up to a line with the text; it is ended after two minutes."""
        lines = []
        late = threading.Timer(120, process.kill)
        late.start()
        self.addCleanup(late.cancel)
        for line in process.stdout:
            lines.append(line)
            if text in line:
                late.cancel()
                return "".join(lines)
        self.fail(f"it never said {text}:\n{''.join(lines)}")

    def result(self, run="runs/small"):
        return json.loads((self.folder / run / "result.json").read_text())

    def train(self, text=SMALL, *words, run="runs/small", code=0, **environment):
        """Trains a run file; gives its result.json."""
        self.write("run.toml", text)
        done = self.host("train", "run.toml", "-q", *words, code=code, **environment)
        result = self.result(run)
        self.assertEqual(result["exit_code"], code)
        return {**result, "printed": done.stdout + done.stderr}

    def lines(self, file, *whats):
        """Of metrics.jsonl or journal.jsonl, those that tell of one of these."""
        lines = map(json.loads, (self.folder / "runs/small" / file).read_text().splitlines())
        return [line for line in lines if line["what"] in whats]

    def killed_at(self, text, place, *words, code=-signal.SIGKILL):
        """Begins a run, or goes on with it, until its hook `killer` ends it at a place. Gives what a plugin wrote to the file of the place."""
        self.write("run.toml", text)
        self.write("place", place)
        self.host("train", "run.toml", "-q", "--plugins", FAULTY, *words, code=code)
        said = (self.folder / "place").read_text()
        (self.folder / "place").unlink()
        return said


class KilledTest(HostTest):
    """Of runs that end as if nothing had happened to them; their hook `killer` reads "place"."""

    def end(self, text):
        """The digests that a run ends with, and all that was logged of it."""
        digest = self.train(text, "--plugins", FAULTY)["digest"]
        logged = [line["values"] for line in self.lines("metrics.jsonl", "train", "eval")]
        return digest, [{name: value for name, value in values.items() if name != "samples_per_second"} for values in logged]

    def whole(self, text):
        """The same of one that nothing happens to."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        return self.end(text)

    def killed(self, text, *places):
        """The same of one that is killed at each place in turn."""
        shutil.rmtree(self.folder / "runs")
        self.said = [self.killed_at(text, place) for place in places]
        return self.end(text)
