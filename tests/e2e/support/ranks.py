"""What tests of several ranks share: a run that they train, its processes, its weights."""
import json
import os
import pathlib
import shutil
import signal
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

    def assert_used_alone(self):
        """A single process takes the run that several ranks have trained, says nothing, and changes nothing."""
        loss, weights = self.result()["metrics"]["val/loss"], self.weights()
        done = self.host("eval", "small", "--format", "json")
        self.assertAlmostEqual(json.loads(done.stdout)["val/loss"], loss, 6)
        self.assertEqual(done.stderr, "")
        facts = json.loads(self.host("audit", "run.toml", "--format", "json").stdout)["facts"]
        self.assertAlmostEqual(facts["val/loss"], loss, 6)
        self.assertEqual(facts["not moved in 1 steps"], 0)
        self.host("predict", "small", "--out", "said.safetensors")
        self.assertEqual(len(load_file(self.folder / "said.safetensors")["output"]), 32)
        self.host("export", "small", "--to", "safetensors", "--file", "out.safetensors")
        self.assertEqual(self.furthest(load_file(self.folder / "out.safetensors"), weights), 0.0)
        self.host("model", "show", "small")

    def furthest(self, a, b):
        """The largest difference, relative to the largest weight of its tensor."""
        self.assertEqual(a.keys(), b.keys())
        return max(float(numpy.abs(a[name] - b[name]).max() / max(numpy.abs(a[name]).max(), 1e-12)) for name in a)

    def start(self, *words, text=RUN, **environment):
        self.write("run.toml", text)
        return subprocess.Popen(self.command("train", "run.toml", "-q", *words), cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(**environment))

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


class ReplacingTest(RankTest):
    """Of runs that go on without a rank that is killed."""

    def journal(self, rank, what):
        folder = self.run_folder / f"ranks/{rank}" if rank else self.run_folder
        if not (folder / "journal.jsonl").exists():
            return []
        lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["what"] == what]

    def kill(self, run, ranks, *victims):
        """Gives the seconds until all survivors have gone on."""
        before = [len(self.journal(rank, "replaced")) for rank in range(ranks)]
        pids = self.ranks_of(run.pid)
        began = time.monotonic()
        for victim in victims:
            os.kill(pids[victim], signal.SIGKILL)
        survivors = [rank for rank in range(ranks) if rank not in victims]
        self.until(lambda: run.poll() is not None or
                   all(len(self.journal(rank, "replaced")) > before[rank] for rank in survivors))
        self.assertIsNone(run.poll(), run.poll() is not None and run.communicate()[1])
        took = time.monotonic() - began
        after = self.ranks_of(run.pid)
        for rank in range(ranks):
            (self.assertNotEqual if rank in victims else self.assertEqual)(pids[rank], after[rank])
        return took

    def going(self, ranks, text, *words):
        run = self.start("--ranks", ranks, *words, text=text)
        self.addCleanup(lambda: run.poll() is None and (run.terminate(), run.communicate(timeout=60)))
        self.until(lambda: run.poll() is not None or len(self.steps()) > 2)
        return run

    def steps(self):
        path = self.run_folder / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line)["step"] for line in lines if line.endswith("\n")]
