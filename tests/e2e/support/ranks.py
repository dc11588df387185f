"""What tests of several ranks share: a run that they train, its processes, its weights."""
import pathlib
import shutil
import subprocess
import time

from support.host import SMALL, HostTest

try:
    import numpy
    from safetensors.numpy import load_file
except ImportError:
    raise SystemExit(77)

# Dropout on; a last step of the epoch that is smaller; micro-batches as four ranks have them.
RUN = (SMALL.replace("layers = [8, 16, 3]", 'layers = [8, 16, 3]\n[model.dropout]\ntype = "standard"\np = 0.2')
       .replace("seed = 3", 'seed = 3\nresume = "auto"')
       .replace("train = { size = 64, batch_size = 16", "train = { size = 72, batch_size = 16, micro_batch_size = 4")
       .replace('max_duration = "2ep"', 'max_duration = "50ba"')
       + '[checkpoint]\ntype = "full"\ninterval = "5ba"\n')


class RankTest(HostTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "runs/small"

    def weights(self):
        return load_file(self.run_folder / "model.safetensors")

    def on(self, ranks, text=RUN, *words, **more):
        """Trains anew on so many ranks; gives result.json."""
        shutil.rmtree(self.run_folder, ignore_errors=True)
        return self.train(text, *(("--ranks", ranks) if ranks > 1 else ()), *words, **more)

    def furthest(self, a, b):
        """The largest difference, relative to the largest weight of its tensor."""
        self.assertEqual(a.keys(), b.keys())
        return max(float(numpy.abs(a[name] - b[name]).max() / max(numpy.abs(a[name]).max(), 1e-12)) for name in a)

    def start(self, *words, text=RUN, **environment):
        self.write("run.toml", text)
        return subprocess.Popen(self.command("train", "run.toml", "-q", *words), cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(**environment))

    def until(self, true, seconds=60):
        end = time.monotonic() + seconds
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def ranks_of(self, launcher):
        """Process of each rank, by its number."""
        pids = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                stat = (folder / "stat").read_text()
                if int(stat.rsplit(")", 1)[1].split()[1]) != launcher:
                    continue
                environment = dict(each.split("=", 1) for each in (folder / "environ").read_text().split("\0") if "=" in each)
                pids[int(environment["RANK"])] = int(folder.name)
            except (OSError, KeyError):
                continue
        return pids
