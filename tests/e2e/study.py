"""tools/study: what is tuned is chosen on other data than is reported, every run is made once, and the tables say of the runs
what the runs said."""
import csv
import statistics
import subprocess
import unittest

from support.host import BUILD, ROWS, SMALL, SOURCE, HostTest, rows

STUDY = """
metric = "val/loss"
also = ["val/accuracy"]
goal = "min"
against = "linear"
seeds = 2
[compare]
linear = ["schedule.type=linear"]
stalled = ["schedule.type=constant", "schedule.value=0.0"]
[settings.small]
run = "small.toml"
tune_run = "small_tune.toml"
tune = ["optimizer.lr=0.01", "optimizer.lr=0.02"]
budgets = ["1ep", "2ep"]
"""
TUNE = SMALL.replace("val = { size = 32", "val = { size = 48")


class Study(HostTest):
    def study(self, *words, code=0):
        done = subprocess.run([SOURCE / "tools/study", self.folder / "tiny.toml", "--build", BUILD, "--out", self.folder / "out",
                               *words], text=True, capture_output=True, env=self.environment(), cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def runs(self, **wanted):
        """Rows of runs.csv."""
        all_rows = csv.DictReader((self.folder / "out/tiny/runs.csv").read_text().splitlines())
        return [row for row in all_rows if all(row[key] == value for key, value in wanted.items())]

    def setUp(self):
        super().setUp()
        self.write("small.toml", SMALL)
        self.write("small_tune.toml", TUNE)
        self.write("tiny.toml", STUDY)

    def alone(self, text, lr, seed):
        """The loss of the same run, started by hand."""
        changes = "schedule.type=linear", f"optimizer.lr={lr}", "trainer.max_duration=2ep", f"run.seed={seed}", "run.output_dir=alone"
        words = (word for change in changes for word in ("--set", change))
        return self.train(text, *words, "--overwrite", run="alone")["metrics"]["val/loss"]

    def test_what_is_chosen_is_chosen_by_other_runs_than_those_of_the_table(self):
        said = self.study().stdout
        self.assertEqual(len(self.runs(part="tune")), 2 * 2 * 2 * 2)
        self.assertEqual({row["seed"] for row in self.runs(part="tune")}, {"2", "3"})
        cell = {"budget": "2ep", "strategy": "linear"}
        tuned = {lr: statistics.fmean(float(row["val/loss"]) for row in self.runs(part="tune", tuned=f"optimizer.lr={lr}", **cell))
                 for lr in ("0.01", "0.02")}
        best = min(tuned, key=tuned.get)
        reported = self.runs(part="report", **cell)
        self.assertEqual([row["tuned"] for row in reported], [f"optimizer.lr={best}"] * 2)
        for metric in ("val/loss", "val/accuracy"):
            mean = statistics.fmean(float(row[metric]) for row in reported)
            self.assertRegex(said, rf"{metric}, mean over 2 seeds[^±]*\| small, 2ep \| {mean:.4f} \({best}\) \|")
        self.assertIn("| average rank | 1.00 | 2.00 |", said)
        self.assertTrue((self.folder / "out/tiny/plot.svg").read_text().startswith("<svg"))
        (one,) = self.runs(part="report", seed="1", **cell)
        self.assertEqual(float(one["val/loss"]), self.alone(SMALL, best, 1))
        (one,) = self.runs(part="tune", seed="3", tuned="optimizer.lr=0.02", **cell)
        self.assertEqual(float(one["val/loss"]), self.alone(TUNE, "0.02", 3))

    def test_no_run_is_made_twice(self):
        self.write("tiny.toml", STUDY.replace(', "2ep"', ""))
        said = self.study().stdout
        file = self.folder / "out/tiny/runs.csv"
        written = file.read_text()
        self.assertEqual(self.study().stdout, said)
        self.assertEqual(file.read_text(), written)
        file.write_text(written.replace("val/accuracy", "val/other"))
        self.assertIn("move it away", self.study(code=1).stderr)

    def test_a_study_that_does_not_hold_together_is_refused(self):
        self.write("tiny.toml", STUDY.replace('against = "linear"', 'against = "rex"'))
        self.assertIn("linear, stalled", self.study(code=1).stderr)
        self.write("tiny.toml", STUDY.replace("optimizer.lr=0.02", "optimizer.lrr=0.02"))
        self.assertIn("lrr", self.study(code=1).stderr)
        self.assertFalse((self.folder / "out").exists())

    def test_tuning_on_what_is_reported_is_refused(self):
        self.write("tiny.toml", STUDY.replace('tune_run = "small_tune.toml"\n', ""))
        self.assertIn("no `tune_run`", self.study(code=1).stderr)
        self.write("tiny.toml", STUDY)
        self.write("small_tune.toml", SMALL)
        self.assertIn("small_tune.toml evaluates on samples that `run` evaluates on", self.study(code=1).stderr)

    def test_tuning_on_what_was_trained_on_is_refused(self):
        def split(train, val):
            return ROWS.replace("batch_size = 16, shuffle", f"fraction = {train}, batch_size = 4, shuffle").replace(
                "val = { batch_size", f"val = {{ fraction = {val}, batch_size")

        self.write("rows.csv", rows(60))
        self.write("small.toml", split([0.0, 0.5], [0.5, 1.0]))
        self.write("small_tune.toml", split([0.0, 0.3], [0.2, 0.5]))
        self.assertIn("evaluates on samples that it trains on", self.study(code=1).stderr)
        self.write("small_tune.toml", split([0.0, 0.3], [0.3, 0.51]))
        self.assertIn("evaluates on samples that `run` evaluates on", self.study(code=1).stderr)
        self.write("small_tune.toml", split([0.0, 0.3], [0.3, 0.5]))
        self.assertIn("| small, 20ba |", self.study("--quick").stdout)


if __name__ == "__main__":
    unittest.main()
