"""Sinks for others' tools, read by the tools themselves where they are here: MLflow's client and MLPerf's compliance checker (pip install
mlflow-skinny mlperf-logging; TRAINYARD_SINK_READERS=1 makes their absence an error), Prometheus' parser; the layout in any case."""
import json
import os
import re
import subprocess
import sys
import time
import unittest
from importlib.util import find_spec

from support.host import SMALL, SOURCE, HostTest

MUST = os.environ.get("TRAINYARD_SINK_READERS") == "1"


def reader(name):
    try:
        return __import__(name, fromlist=["_"])
    except ImportError:
        if MUST:
            raise
        raise unittest.SkipTest(f"there is no {name} here") from None


def with_sink(text):
    return SMALL + f"[[logging.sinks]]\n{text}\n"


MLFLOW = with_sink('type = "mlflow"\nexperiment = "it\'s mine"')
MLLOG = with_sink('type = "mllog"\naccuracy = "val/accuracy"\nbenchmark = "retinanet"\nkeys = ["opt_name=adamw", "seed=3"]')


def lines_of(lines):
    """Without their times; the size of the evaluation's data stands in the first evaluation, whichever that is."""
    return [(line["key"], line["value"], line["metadata"]) for line in lines if line["key"] != "eval_samples"]


def metrics_of(folder):
    """{name: [(value, step)]} of an MLflow run."""
    found = {}
    for path in sorted((folder / "metrics").rglob("*")):
        if path.is_file():
            lines = [line.split() for line in path.read_text().splitlines()]
            found[str(path.relative_to(folder / "metrics"))] = [(float(value), int(step)) for _, value, step in lines]
    return found


class Mlflow(HostTest):
    def runs(self):
        return sorted(path.parent for path in self.folder.glob("mlruns/*/*/meta.yaml"))

    def test_layout(self):
        self.train(MLFLOW)
        [run] = self.runs()
        meta = (run / "meta.yaml").read_text()
        self.assertIn("status: 3\n", meta)
        self.assertIn(f"artifact_uri: 'file://{self.folder.resolve()}/runs/small'", meta)
        self.assertIn("name: 'it''s mine'\n", (run.parent / "meta.yaml").read_text())
        self.assertEqual((run / "tags/mlflow.runName").read_text(), "small")
        records = [json.loads(line) for line in (self.folder / "runs/small/metrics.jsonl").read_text().splitlines()]
        expected = {}
        for record in records:
            for name, value in record.get("values", {}).items():
                expected.setdefault(name, []).append((float(value), record["step"]))
        self.assertEqual(metrics_of(run), expected)
        self.train(MLFLOW, "--overwrite")
        self.assertEqual(len({run.parent for run in self.runs()}), 1)
        self.assertEqual(len(self.runs()), 2)

    def test_a_resumed_run_goes_on_in_the_same_one(self):
        text = MLFLOW.replace("[trainer]", '[checkpoint]\ninterval = "2ba"\n[trainer]').replace(
            'type = "jsonl"', 'type = "jsonl"\ninterval = "1ba"', 1)
        self.train(text, "--set", "trainer.max_duration=5ba")
        self.host("resume", "small", "-q", "--set", "trainer.max_duration=8ba")
        [run] = self.runs()
        for name, points in metrics_of(run).items():
            steps = [step for _, step in points]
            self.assertEqual(steps, sorted(set(steps)), name)
        self.assertEqual(metrics_of(run)["val/loss"][-1][1], 8)

    def test_mlflow_reads_it(self):
        mlflow = reader("mlflow")
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        self.train(MLFLOW)
        client = mlflow.tracking.MlflowClient(tracking_uri=f"file://{self.folder}/mlruns")
        [experiment] = client.search_experiments()  # get_experiment_by_name takes no quotes in a name
        self.assertEqual(experiment.name, "it's mine")
        [run] = client.search_runs([experiment.experiment_id])
        self.assertEqual((run.info.status, run.info.run_name), ("FINISHED", "small"))
        result = self.result()["metrics"]
        self.assertAlmostEqual(run.data.metrics["val/accuracy"], result["val/accuracy"])
        history = client.get_metric_history(run.info.run_id, "val/loss")
        self.assertEqual([each.step for each in history], [4, 8])
        self.assertIn("config.toml", [each.path for each in client.list_artifacts(run.info.run_id)])


class Mllog(HostTest):
    def lines(self):
        text = (self.folder / "runs/small/mllog.txt").read_text().splitlines()
        self.assertTrue(all(line.startswith(":::MLLOG ") for line in text))
        return [json.loads(line.removeprefix(":::MLLOG ")) for line in text]

    def test_lines(self):
        result = self.train(MLLOG)
        lines = self.lines()
        keys = [line["key"] for line in lines]
        self.assertEqual(keys[0], "init_start")
        self.assertEqual(keys[-1], "run_stop")
        for key in ("submission_benchmark", "submission_org", "submission_platform", "submission_division", "cache_clear", "init_stop", "run_start",
                    "run_stop", "train_samples", "eval_samples", "global_batch_size", "opt_name", "seed", "opt_base_learning_rate"):
            self.assertEqual(keys.count(key), 1, key)
        for key in ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy"):
            self.assertEqual(keys.count(key), 2, key)
        value = {line["key"]: line["value"] for line in lines}
        self.assertEqual((value["train_samples"], value["eval_samples"], value["global_batch_size"], value["seed"]), (64, 32, 16, 3))
        self.assertEqual(value["eval_accuracy"], result["metrics"]["val/accuracy"])
        self.assertEqual(lines[-1]["metadata"]["status"], "success")
        times = [line["time_ms"] for line in lines]
        self.assertEqual(times, sorted(times))

    def test_a_run_that_fails_is_aborted(self):
        self.train(MLLOG, "--set", "optimizer.lr=1e38", code=5)
        self.assertEqual(self.lines()[-1]["metadata"]["status"], "aborted")

    def test_a_resumed_run_goes_on_in_the_same_file(self):
        """Stopped at its end, and killed behind its checkpoint, within an epoch and at the end of one: the lines are those of a run that
        never stopped."""
        text = MLLOG.replace("[trainer]", '[checkpoint]\ninterval = "2ba"\n[trainer]')
        self.train(text)
        whole = lines_of(self.lines())
        path = self.folder / "runs/small/mllog.txt"
        for name, until in (("within", 6), ("at_the_end_of_an_epoch", 4), ("ahead_of_it", 3)):
            with self.subTest(name):
                self.train(text, "--overwrite", "--set", f"trainer.max_duration={until}ba")
                if name == "within":  # what was killed says no end, and its last line may be cut
                    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]) + ":::MLLOG {")
                self.host("resume", "small", "-q", "--set", "trainer.max_duration=8ba")
                lines = self.lines()
                # The end of what was shorter was evaluated, too.
                self.assertEqual(lines_of(line for line in lines if not (line["key"].startswith("eval_") and line["metadata"].get("step_num") == until != 4)),
                                 whole)
                self.assertEqual([line["time_ms"] for line in lines], sorted(line["time_ms"] for line in lines))
                self.check()

    def test_a_run_that_is_told_to_end_is_aborted_until_it_is_resumed(self):
        text = MLLOG + '[[logging.sinks]]\ntype = "mlflow"\n'
        self.write("run.toml", text.replace('max_duration = "2ep"', 'max_duration = "100000ep"').replace("[trainer]", '[checkpoint]\ninterval = "1000ba"\n[trainer]'))
        run = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment())
        self.addCleanup(run.kill)
        path, end = self.folder / "runs/small/mllog.txt", time.monotonic() + 60
        while not path.exists() or "eval_accuracy" not in path.read_text():
            self.assertLess(time.monotonic(), end, "the run does not begin")
            time.sleep(0.05)
        run.terminate()
        self.assertEqual(run.wait(60), 75)
        stop = self.lines()[-1]
        self.assertEqual((stop["key"], stop["metadata"]["status"]), ("run_stop", "aborted"))
        [meta] = self.folder.glob("mlruns/0/*/meta.yaml")
        self.assertIn("status: 5\n", meta.read_text())  # KILLED
        self.host("resume", "small", "-q", "--set", f"trainer.max_duration={stop['metadata']['step_num'] + 8}ba")
        self.assertEqual([line["metadata"]["status"] for line in self.lines() if line["key"] == "run_stop"], ["success"])
        self.assertIn("status: 3\n", meta.read_text())
        self.check()

    def test_a_key_that_is_none_is_named(self):
        self.write("run.toml", MLLOG.replace('"seed=3"', '"seed"'))
        self.assertIn('keys: "seed" is not KEY=VALUE', self.host("train", "run.toml", "-q", code=2).stderr)

    def test_the_official_checker_passes(self):
        """Of the open division: that of a benchmark adds its own keys, which the closed one fixes."""
        reader("mlperf_logging")
        self.train(MLLOG)
        self.check()

    def check(self):
        """By MLPerf's checker, where it is here."""
        if find_spec("mlperf_logging") is None and not MUST:
            return
        done = subprocess.run([sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", "5.1.0", "--log_output",
                               str(self.folder / "checked.log"), str(self.folder / "runs/small/mllog.txt")], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("SUCCESS", done.stdout + done.stderr + (self.folder / "checked.log").read_text())


class Prometheus(HostTest):
    def test_metrics_of_a_run_that_is_going(self):
        self.write("run.toml", SMALL)
        run = subprocess.Popen(self.command("train", "run.toml", "-q", "--set", "trainer.max_duration=100000ep", "--set", "logging.interval=5ba"),
                               cwd=self.folder, env=self.environment())
        self.addCleanup(run.wait)
        self.addCleanup(run.terminate)
        end = time.monotonic() + 30
        while not (self.folder / "runs/small/metrics.jsonl").exists() or "train/loss" not in (self.folder / "runs/small/metrics.jsonl").read_text():
            self.assertLess(time.monotonic(), end, "the run does not begin")
            time.sleep(0.1)
        text = self.host("ctl", "small", "metrics").stdout
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) trainyard_\w+ .+|trainyard_\w+\{\w+="[^"]*"(,\w+="[^"]*")*\} (NaN|[+-]Inf|-?[\d.]+(e[+-]?\d+)?))$')
        self.assertRegex(text, r'(?m)^trainyard_metric\{run="small",name="train/loss"\} ')
        self.assertRegex(text, r'(?m)^trainyard_steps_total\{run="small"\} [1-9]')
        parser = reader("prometheus_client.parser")
        families = {family.name: family for family in parser.text_string_to_metric_families(text)}
        self.assertEqual(families["trainyard_steps"].type, "counter")
        slots = {sample.labels["slot"]: sample.labels["plugin"] for sample in families["trainyard_plugin_seconds"].samples}
        self.assertEqual(slots["optimizer"], "adamw")


class Readme(HostTest):
    def test_its_python_loads_weights(self):
        """The snippet of the README, as it stands there."""
        reader("safetensors.numpy")
        [snippet] = re.findall(r"```python\n(.*?)```", (SOURCE / "README.md").read_text(), re.S)
        self.train()
        done = subprocess.run([sys.executable, "-c", snippet.replace("runs/digits-mlp", "runs/small")], text=True, capture_output=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^\S+weight \(\d+, \d+\) float32$")


if __name__ == "__main__":
    unittest.main()
