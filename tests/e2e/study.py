"""tools/study: every run of a study is made once, and the table says of them what the runs said."""
import csv
import json
import statistics
import subprocess
import unittest

from support.host import BUILD, SMALL, SOURCE, HostTest

STUDY = """
metric = "val/loss"
goal = "min"
against = "linear"
seeds = 2
[compare]
linear = ["schedule.type=linear"]
stalled = ["schedule.type=constant", "schedule.value=0.0"]
[settings.small]
run = "small.toml"
tune = ["optimizer.lr=0.01", "optimizer.lr=0.02"]
budgets = ["1ep", "2ep"]
"""


class Study(HostTest):
    def study(self, *words, code=0):
        done = subprocess.run([SOURCE / "tools/study", self.folder / "tiny.toml", "--build", BUILD, "--out", self.folder / "out",
                               *words], text=True, capture_output=True, env=self.environment(), cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def setUp(self):
        super().setUp()
        self.write("small.toml", SMALL)
        self.write("tiny.toml", STUDY)

    def test_the_table_is_that_of_the_runs_and_no_run_is_made_twice(self):
        said = self.study().stdout
        file = self.folder / "out/tiny/runs.csv"
        rows = list(csv.DictReader(file.read_text().splitlines()))
        self.assertEqual(len(rows), 2 * 2 * 2 * 2)
        alone = self.train(SMALL, *(word for change in ("schedule.type=linear", "optimizer.lr=0.02", "trainer.max_duration=2ep",
                                                         "run.seed=1", "run.output_dir=alone") for word in ("--set", change)), run="alone")
        (same,) = [row for row in rows if (row["budget"], row["strategy"], row["tuned"], row["seed"]) ==
                   ("2ep", "linear", "optimizer.lr=0.02", "1")]
        self.assertEqual(float(same["val/loss"]), alone["metrics"]["val/loss"])
        means = {lr: statistics.fmean(float(row["val/loss"]) for row in rows if row["budget"] == "2ep" and row["strategy"] == "linear"
                                      and row["tuned"] == f"optimizer.lr={lr}") for lr in ("0.01", "0.02")}
        best = min(means, key=means.get)
        self.assertIn(f"| small, 2ep | {means[best]:.4f} ({best}) |", said)
        self.assertIn("| average rank | 1.00 | 2.00 |", said)
        self.assertTrue((self.folder / "out/tiny/plot.svg").read_text().startswith("<svg"))
        written = file.read_text()
        self.assertEqual(self.study().stdout, said)
        self.assertEqual(file.read_text(), written)

    def test_a_study_that_does_not_hold_together_is_refused(self):
        self.write("tiny.toml", STUDY.replace('against = "linear"', 'against = "rex"'))
        self.assertIn("linear, stalled", self.study(code=1).stderr)
        self.write("tiny.toml", STUDY.replace("optimizer.lr=0.01", "optimizer.lrr=0.01"))
        self.assertIn("lrr", self.study(code=1).stderr)


if __name__ == "__main__":
    unittest.main()
