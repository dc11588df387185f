"""trainyard study: what is tuned is chosen on other data than is reported, every run is made once, whatever kills the study on
the way, and the tables say of the runs what the runs said."""
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import time
import tomllib
import unittest
import xml.etree.ElementTree

import numpy
from safetensors.numpy import load_file
from support.host import BUILD, ROWS, SMALL, SOURCE, HostTest, rows

STUDY = """
[study]
type = "compare"
metric = "val/loss"
also = ["val/accuracy"]
goal = "min"
against = "linear"
seeds = 2
compare = [
  { name = "linear", set = ["schedule.type=linear"] },
  { name = "stalled", set = ["schedule.type=constant", "schedule.value=0.0"] },
]
[[study.settings]]
name = "small"
run = "small.toml"
tune_run = "small_tune.toml"
tune = ["optimizer.lr=0.01", "optimizer.lr=0.02"]
budgets = ["1ep", "2ep"]
"""
TUNE = SMALL.replace("val = { size = 32", "val = { size = 48")
SPACE = 'space = [{ key = "optimizer.lr", low = 1e-3, high = 1.0, log = true }, { key = "model.layers", choices = ["[8, 16, 3]", "[8, 4, 3]"] }]\n'
ASHA = '[study]\ntype = "asha"\nrun = "small.toml"\nmetric = "val/loss"\ngoal = "min"\ntrials = 9\nmax_budget = "9ep"\n' + SPACE


class StudyTest(HostTest):
    def study(self, *words, code=0, name="tiny.toml"):
        return self.host("study", name, "--out", "out", *words, code=code)

    def runs(self, name="tiny", **wanted):
        """Rows of runs.csv."""
        all_rows = csv.DictReader((self.folder / f"out/{name}/runs.csv").read_text().splitlines())
        return [row for row in all_rows if all(row[key] == value for key, value in wanted.items())]

    def ledger(self, name="tiny"):
        return [json.loads(line) for line in (self.folder / f"out/{name}/ledger.jsonl").read_text().splitlines()]

    def ended(self, name="tiny"):
        return [(line["end"]["trial"], line["end"]["until"]) for line in self.ledger(name) if "end" in line]

    def setUp(self):
        super().setUp()
        self.write("small.toml", SMALL)
        self.write("small_tune.toml", TUNE)
        self.write("tiny.toml", STUDY)


class Compare(StudyTest):
    def alone(self, text, lr, seed):
        """The loss of the same run, started by hand."""
        changes = "schedule.type=linear", f"optimizer.lr={lr}", "trainer.max_duration=2ep", f"run.seed={seed}", "run.output_dir=alone"
        words = (word for change in changes for word in ("--set", change))
        return self.train(text, *words, "--overwrite", run="alone")["metrics"]["val/loss"]

    def test_one_seed_has_no_interval(self):
        said = self.study("--set", "study.seeds=1").stdout
        self.assertNotIn("nan", said)
        self.assertIn("linear less each other, paired by seed:", said)

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
        (one,) = self.runs(part="report", seed="1", **cell)
        self.assertEqual(float(one["val/loss"]), self.alone(SMALL, best, 1))
        (one,) = self.runs(part="tune", seed="3", tuned="optimizer.lr=0.02", **cell)
        self.assertEqual(float(one["val/loss"]), self.alone(TUNE, "0.02", 3))
        for row in self.runs():  # every run is kept in full
            self.assertTrue((self.folder / "out/tiny/runs" / row["trial"] / "model.safetensors").exists(), row["trial"])

    def test_the_tables_are_those_of_the_first_version(self):
        """tests/golden/study.md: what the Python script gave for the same study, before this took its place."""
        self.study()
        self.assertEqual((self.folder / "out/tiny/table.md").read_text().replace("|  |", "| |"),
                         (SOURCE / "tests/golden/study.md").read_text().replace("|  |", "| |"))

    def test_no_run_is_made_twice(self):
        self.write("tiny.toml", STUDY.replace(', "2ep"', ""))
        said = self.study().stdout
        ledger = self.ledger()
        self.assertEqual(self.study().stdout, said)
        self.assertEqual(self.ledger(), ledger)

    def test_a_study_that_has_changed_keeps_what_it_has_in_common(self):
        self.study("--set", "study.seeds=1")
        before = {row["trial"]: row["val/loss"] for row in self.runs(part="report")}
        times = {trial: (self.folder / "out/tiny/runs" / trial / "result.json").stat().st_mtime_ns for trial in before}
        done = self.study("--set", "study.seeds=1", "--set", 'study.settings.0.budgets=["1ep", "2ep", "3ep"]')
        self.assertIn("it has changed", done.stderr)
        self.assertIn("| small, 3ep |", done.stdout)
        for trial, time_then in times.items():
            self.assertEqual((self.folder / "out/tiny/runs" / trial / "result.json").stat().st_mtime_ns, time_then, trial)
        # Another run file is another training, though its name is the same.
        self.write("small.toml", SMALL.replace("[8, 16, 3]", "[8, 12, 3]"))
        self.study("--set", "study.seeds=1", "--set", 'study.settings.0.budgets=["1ep", "2ep", "3ep"]')
        self.assertEqual({row["trial"] for row in self.runs(part="report")} & set(before), set(before))
        self.assertNotEqual({row["trial"]: row["val/loss"] for row in self.runs(part="report") if row["trial"] in before}, before)

    def test_axes_stand_for_lists_of_combinations_and_nothing_need_be_tuned(self):
        self.write("axes.toml", SMALL + '[study]\ntype = "compare"\nmetric = "val/accuracy"\nseeds = 3\nagainst = "constant, 0.01"\n'
                   'axes = [{ key = "schedule.type", choices = ["constant", "linear", "cosine"] }, { key = "optimizer.lr", values = [0.1, 0.01] }]\n')
        said = self.study(name="axes.toml").stdout
        self.assertEqual(len(self.runs("axes")), 3 * 2 * 3)
        self.assertIn("|  | constant, 0.1 | constant, 0.01 | linear, 0.1 |", said)
        self.assertIn("constant, 0.01 less each other, paired by seed", said)
        self.assertNotIn("tuned", said)
        values = {}
        for row in self.runs("axes"):
            self.assertRegex(row["trial"], r"^[\w.+/]+$")  # no blank, no comma in a folder's name
            values.setdefault(row["strategy"], []).append(float(row["val/accuracy"]))
        best = max(values, key=lambda name: statistics.fmean(values[name]))
        self.assertNotEqual(best, "constant, 0.01")  # the table would be the same
        table = re.search(r"The best less each other, paired by seed, with its 95 % interval:\n\n(.*?)\n\n", said, re.DOTALL)[1]
        names, _, cells = ([cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines())
        self.assertEqual(set(names), set(values) - {best})
        for name, cell in zip(names, cells, strict=True):
            self.assertEqual(cell.split()[0], f"{statistics.fmean(a - b for a, b in zip(values[best], values[name])):+.4f}", name)
        svg = "{http://www.w3.org/2000/svg}"
        picture = xml.etree.ElementTree.parse(self.folder / "out/axes/plot.svg").getroot()
        colours = {name: set() for name in values}
        for line in picture.iter(svg + "polyline"):
            colours[line.find(svg + "title").text].add(re.search("hsl[^)]*", line.get("style"))[0])
        self.assertEqual([len(each) for each in colours.values()], [1] * 6)  # in the panel of the results and in that of curves
        self.assertEqual(len(set.union(*colours.values())), 6)
        self.host("report", "out/axes", "--out", "axes.html")
        shown = re.findall(r"<code>(out/axes/runs/report/[\w.+/]+)</code>", (self.folder / "axes.html").read_text())
        self.assertEqual(len(set(shown)), 18)
        self.host("train", "axes.toml", "-q")  # a training has nothing to do with it

    def test_a_study_that_does_not_hold_together_is_refused(self):
        for old, new, *said in (('name = "linear", set', 'name = "stal, led", set = [] }, { name = "stal+led", set', "which are one folder"),
                                ('against = "linear"', 'against = "rex"', '`against` is "rex"', "linear, stalled"),
                                ("optimizer.lr=0.02", "optimizer.lrr=0.02", "E104", "unknown key `lrr`", "did you mean `lr`", "report/small/1ep/linear/seed0"),
                                ("seeds = 2", "seed = 2", "tiny.toml:8:1: E104 unknown key `seed` in [study]", "did you mean `seeds`"),
                                ("seeds = 2", "seeds = 0", "tiny.toml:8:9: ", "study.seeds"),
                                ('metric = "val/loss"\n', "", "E108", "needs `metric`"),
                                ('type = "compare"', 'type = "compair"', "tiny.toml:3:8: E301", "did you mean `compare`"),
                                ('"small.toml"', '"smal.toml"', "tiny.toml:15:7: E401", "did you mean `small.toml`"),
                                ("name = \"small\"\n", "", "E108", "needs `name`"),
                                ("[study]", "[studdy]", "tiny.toml:2:2: E104 unknown key `studdy`", "did you mean `study`"),
                                ("\n[[study", "\n[modle]\n[[study", "tiny.toml:13:2: E104 unknown key `modle`", "did you mean `model`"),
                                ("seeds = 2", "seeds = 2 3", "E102")):
            with self.subTest(new):
                self.assertIn(old, STUDY)
                self.write("tiny.toml", STUDY.replace(old, new))
                done = self.study(code=2)
                for text in said:
                    self.assertIn(text, done.stderr)
                self.assertNotIn("Traceback", done.stderr)
                self.assertFalse((self.folder / "out").exists())
        self.host("study", "none.toml", code=2)

    def test_tables_that_nobody_would_read_are_refused(self):
        self.write("tiny.toml", 'optimizer = { lr = 0.1 }\n[study]\ntype = "grid"\nrun = "small.toml"\nmetric = "val/loss"\n' + SPACE)
        self.assertIn("tiny.toml:1:1: E104 unknown table `optimizer` in a study of another run file", self.study(code=2).stderr)

    def test_a_metric_that_no_run_has_ends_it_at_the_first(self):
        self.write("tiny.toml", STUDY.replace('"val/accuracy"', '"val/acuracy"'))
        self.assertIn("did you mean `val/accuracy`", self.study(code=2).stderr)
        self.write("tiny.toml", STUDY)
        self.study()

    def test_tuning_on_what_is_reported_is_refused(self):
        self.write("tiny.toml", STUDY.replace('tune_run = "small_tune.toml"\n', ""))
        self.assertIn("no `tune_run`", self.study(code=2).stderr)
        self.write("tiny.toml", STUDY)
        self.write("small_tune.toml", SMALL)
        self.assertIn("small_tune.toml evaluates on samples that `run` evaluates on", self.study(code=2).stderr)

    def test_tuning_on_what_was_trained_on_is_refused(self):
        def split(train, val):
            return ROWS.replace("batch_size = 16, shuffle", f"fraction = {train}, batch_size = 4, shuffle").replace(
                "val = { batch_size", f"val = {{ fraction = {val}, batch_size")

        self.write("rows.csv", rows(60))
        self.write("small.toml", split([0.0, 0.5], [0.5, 1.0]))
        self.write("small_tune.toml", split([0.0, 0.3], [0.2, 0.5]))
        self.assertIn("evaluates on samples that it trains on", self.study(code=2).stderr)
        self.write("small_tune.toml", split([0.0, 0.3], [0.3, 0.51]))
        self.assertIn("evaluates on samples that `run` evaluates on", self.study(code=2).stderr)
        self.write("small_tune.toml", split([0.0, 0.3], [0.3, 0.5]))
        self.assertIn("| small, 20ba |", self.study("--quick").stdout)

    def test_dry_run_lists_trials_and_makes_none(self):
        said = self.study("--dry-run").stdout
        self.assertIn("16 trials that depend on no other", said)
        self.assertRegex(said, r"tuning: small, 1ep +8 ")
        self.assertIn("tune/small/2ep/stalled/lr=0.02/seed3", said)
        self.assertFalse((self.folder / "out").exists())


class Search(StudyTest):
    def test_grid_gives_a_table_and_the_best_as_a_run_file_that_gives_the_same(self):
        self.write("grid.toml", SMALL + '[study]\ntype = "grid"\nmetric = "val/loss"\ngoal = "min"\n'
                   'space = [{ key = "optimizer.lr", low = 1e-3, high = 0.1, points = 3, log = true }, { key = "schedule.type", choices = ["constant", "linear"] }]\n')
        found = json.loads(self.study("--format", "json", name="grid.toml").stdout)
        self.assertEqual([trial["labels"]["optimizer.lr"] for trial in found["trials"]], ["0.001"] * 2 + ["0.01"] * 2 + ["0.1"] * 2)
        losses = {trial["trial"]: trial["metrics"]["val/loss"] for trial in found["trials"]}
        best = min(losses, key=losses.get)
        first = found["tables"][0]["rows"][0]
        self.assertEqual((first[0]["text"], first[3]["value"]), (best, losses[best]))
        self.assertEqual(found["counts"], {"done": 6, "diverged": 0, "failed": 0})
        self.host("train", found["best"][0]["file"], "-q")
        self.assertEqual(self.result("runs/grid-best")["metrics"]["val/loss"], losses[best])
        picture = xml.etree.ElementTree.parse(self.folder / "out/grid/plot.svg").getroot()
        circles = picture.findall(".//{http://www.w3.org/2000/svg}circle")
        self.assertGreaterEqual(len(circles), 12)  # each trial in the plot of each key
        self.assertIn("prefers-color-scheme: dark", (self.folder / "out/grid/plot.svg").read_text())

    def test_a_trial_that_fails_is_named_and_the_others_go_on(self):
        self.write("tiny.toml", '[study]\ntype = "grid"\nrun = "small.toml"\nmetric = "val/loss"\ngoal = "min"\n'
                   'space = [{ key = "optimizer.lr", choices = ["0.01", "1e30"] }, { key = "hooks", choices = ["[]", "[{ type = \\"ema\\", decay = 0.5 }]"] }]\n')
        self.write("broken.py", "")
        done = self.study()
        rows_ = self.runs()
        self.assertEqual({row["end"] for row in rows_} <= {"done", "diverged"}, True)
        self.assertIn("diverged", {row["end"] for row in rows_})
        self.assertIn("diverged", done.stdout)

    def test_all_that_fail_end_it_and_once_mended_it_begins_anew(self):
        self.write("rows.csv", rows() + "1,2\n")
        self.write("small.toml", ROWS)
        self.write("tiny.toml", '[study]\ntype = "random"\nrun = "small.toml"\nmetric = "val/loss"\ntrials = 3\n' + SPACE)
        done = self.study(code=4)
        self.assertEqual(done.stderr.count("failed: "), 3)
        self.assertIn("rows.csv", done.stderr)
        self.assertIn("all of its first 3 trials failed", done.stderr)
        self.write("rows.csv", rows())
        self.study()

    def test_one_that_fails_does_not_end_it(self):
        self.write("rows.csv", rows())
        self.write("small.toml", ROWS)
        self.write("bad.csv", "1,2\n")
        self.write("tiny.toml", '[study]\ntype = "grid"\nrun = "small.toml"\nmetric = "val/loss"\n'
                   f'space = [{{ key = "data.path", choices = ["{self.folder}/rows.csv", "{self.folder}/bad.csv"] }}]\n')
        done = self.study()
        self.assertIn('trial "0001" failed: ', done.stderr)
        self.assertIn("bad.csv", done.stderr)
        self.assertIn("1 of 2 trials failed", done.stdout)
        self.assertRegex(done.stdout, r"\| 0001 \| .* \| failed \|")
        self.assertTrue((self.folder / "out/tiny/logs/0001.txt").read_text())


class Rungs(StudyTest):
    def losses(self, folder):
        """Of each evaluation, as the run has recorded it."""
        records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [record["values"]["val/loss"] for record in records if "val/loss" in record.get("values", {})]

    def test_a_trial_that_goes_on_ends_with_the_bits_of_one_that_was_never_stopped(self):
        self.write("tiny.toml", ASHA + 'set = ["schedule.type=linear", "schedule.warmup=1ep"]\n')
        found = json.loads(self.study("--format", "json").stdout)
        ended = self.ended()
        self.assertEqual([sum(until == rung for _, until in ended) for rung in ("1ep", "3ep", "9ep")][0], 9)
        (best,) = [trial for trial in found["trials"] if trial["until"] == "9ep"][:1]
        self.assertEqual([until for trial, until in ended if trial == best["trial"]], ["1ep", "3ep", "9ep"])
        changes = ["schedule.budget=9ep", "schedule.type=linear", "schedule.warmup=1ep", "trainer.max_duration=9ep", "run.output_dir=whole",
                   *(f"{key}={value}" for key, value in best["labels"].items())]
        self.host("train", "small.toml", "-q", *(word for change in changes for word in ("--set", change)))
        run = json.loads((self.folder / best["run"] / "result.json").read_text())
        self.assertEqual(self.result("whole")["digest"], run["digest"])
        self.assertEqual(self.result("whole")["steps"], run["steps"])
        self.assertIn("resumed", (self.folder / best["run"] / "journal.jsonl").read_text() + (self.folder / best["run"] / "run.log").read_text())

    def test_what_was_observed_of_a_trial_that_stops_is_what_one_that_does_not_shows(self):
        """And epochs are counted once, whatever stops a trial between them."""
        self.write("tiny.toml", ASHA.replace("asha", "ss").replace("trials = 9", "trials = 5") + 'set = ["trainer.eval_interval=3ep"]\n')
        found = json.loads(self.study("--format", "json").stdout)
        ends = [line["end"] for line in self.ledger() if "end" in line]
        reached = {}
        for end in ends:
            epochs = int(end["until"][:-2])
            self.assertEqual(len(end["curve"]), epochs)
            self.assertGreater(epochs, reached.get(end["trial"], 0))
            self.assertEqual(end["steps"], 4 * epochs)
            reached[end["trial"]] = epochs
        self.assertEqual(len(reached), 5)
        self.assertGreater(len(ends), 6)
        folders = {self.folder / trial["run"] for trial in found["trials"]}
        self.assertEqual(sum(len(self.losses(folder)) for folder in folders), sum(reached.values()))
        last = {end["trial"]: end for end in ends}
        stopped = next(end for end in ends if end["until"] == "9ep" and sum(each["trial"] == end["trial"] for each in ends) > 1)
        set_ = next(line["start"]["set"] for line in self.ledger() if line.get("start", {}).get("trial") == stopped["trial"])
        self.host("train", "small.toml", "-q", *(word for change in [*set_, "trainer.max_duration=9ep", "run.output_dir=whole"] for word in ("--set", change)))
        self.assertEqual(self.losses(self.folder / "whole"), last[stopped["trial"]]["curve"])

    def test_a_metric_that_is_not_of_evaluations_is_refused(self):
        self.write("tiny.toml", ASHA.replace("asha", "ss").replace("val/loss", "train/loss"))
        self.assertIn("`metric` has to be one of evaluations", self.study(code=2).stderr)
        self.write("tiny.toml", ASHA.replace("asha", "ss") + 'interval = "2ep"\n')
        self.assertIn('interval = "2ep" does not go into "1ep"', self.study(code=2).stderr)

    def test_hyperband_runs_its_brackets(self):
        self.write("tiny.toml", ASHA.replace("asha", "hyperband").replace("trials = 9\n", "").replace("9ep", "3ep"))
        found = json.loads(self.study("--format", "json").stdout)
        self.assertEqual(sorted(self.ended()), sorted([("0000", "1ep"), ("0001", "1ep"), ("0002", "1ep")] +
                                                      [(next(t["trial"] for t in found["trials"] if t["until"] == "3ep" and t["trial"] < "0003"), "3ep"),
                                                       ("0003", "3ep"), ("0004", "3ep")]))

    def test_hyperband_trains_configurations_together(self):
        """As members of one run each: the same rungs and the same best, in fewer runs, also where it is killed."""
        space = SPACE.split(", { key")[0] + ', { key = "optimizer.weight_decay", low = 0.0, high = 0.3 }]\n'
        text = ASHA.replace("asha", "hyperband").replace("trials = 9\n", "").replace(SPACE, space)
        self.write("tiny.toml", text)
        self.study()
        self.write("array.toml", text + "together = 4\n")
        found = json.loads(self.study("--format", "json", name="array.toml").stdout)
        self.assertEqual([trial["trial"] for trial in found["trials"] if trial["until"] == "1ep"], ["0000-0002", "0003-0005", "0006-0008"])

        def table(name):  # values as far as rounding leaves them alone
            return re.sub(r"(\d\.\d\d)\d+", r"\1", (self.folder / f"out/{name}/table.md").read_text())

        def best(name):
            return tomllib.loads((self.folder / f"out/{name}/best.toml").read_text())["optimizer"]

        self.assertEqual(table("array"), table("tiny"))
        self.assertEqual(best("array"), best("tiny"))
        self.assertEqual(len(self.ended()), 9 + 3 + 1 + 5 + 1 + 3)
        self.assertLess(len(self.ended("array")), 13)

    def test_what_no_member_has_to_itself_is_not_trained_together(self):
        self.write("tiny.toml", ASHA.replace("asha", "hyperband").replace("trials = 9\n", "") + "together = 4\n")
        self.assertIn("`model.layers` cannot differ within a run", self.study(code=2).stderr)

    def test_a_schedule_of_steps_is_refused_with_a_budget_of_time(self):
        self.write("tiny.toml", ASHA.replace("9ep", "90s"))
        self.assertIn("cannot be trained in steps", self.study(code=2).stderr)


FLAML = """[study]
type = "flaml"
metric = "val/loss"
goal = "min"
trials = 5
folds = 2
budget = "1ep"
cost = "steps"
ensemble = 20
learners = [
  { name = "deep", run = "rows.toml", space = [
    { key = "optimizer.lr", low = 1e-3, high = 1.0, log = true }, { key = "model.layers", choices = ["[2, 16, 3]", "[2, 4, 3]"] }] },
  { name = "flat", run = "rows.toml", set = ["model.layers=[2, 3]"], space = [{ key = "optimizer.lr", low = 1e-3, high = 1.0, log = true }] },
]
"""


class Learners(StudyTest):
    """flaml: several run files, judged on parts of one file."""

    def setUp(self):
        super().setUp()
        self.write("rows.toml", ROWS.replace("layers = [8,", "layers = [2,"))
        self.write("rows.csv", "".join(f"{i % 7 / 7},{i * i % 5 / 5},{i % 3}\n" for i in range(60)))

    def test_each_configuration_is_judged_over_the_folds_and_the_best_trained_on_all_rows(self):
        self.write("tiny.toml", FLAML)
        said = self.study("--jobs", "1").stdout
        self.assertIn("5 configurations by val/loss, the best first; judged on 2 folds", said)
        runs = self.runs()
        self.assertEqual([row["trial"] for row in runs], [f"{number:04}/fold {fold}" for number in range(5) for fold in range(2)] + ["best", "ensemble"])
        self.assertEqual({row["learner"] for row in runs}, {"deep", "flat", "ensemble"})
        mean = {number: statistics.fmean(float(row["val/loss"]) for row in runs if row["trial"].startswith(number))
                for number in {row["trial"][:4] for row in runs} - {"best", "ense"}}
        best = min(mean, key=mean.get)
        self.assertRegex(said, rf"val/loss \| steps \|\n.*\n\| {best} \|.*\| {mean[best]:.4f} \|")
        # A fold is what `take` says, and the last run has all rows: the same run, started by hand, has the same bits.
        values = next(row["values"] for row in runs if row["trial"] == best + "/fold 1")
        self.assertEqual(self.runs(trial="best")[0]["values"], values)
        for trial, train in ((best + "/fold 1", "all but fold 1 of 2"), ("best", "first 100%")):
            changes = self.assignments(values)
            if "flat" == next(row["learner"] for row in runs if row["trial"] == trial):
                changes.append("model.layers=[2, 3]")
            changes += ["data.train.take=" + train, "trainer.max_duration=1ep", "run.output_dir=alone"]
            words = (word for change in changes for word in ("--set", change))
            alone = self.train((self.folder / "rows.toml").read_text(), *words, "--overwrite", run="alone")
            self.assertEqual(self.result(f"out/tiny/runs/{trial}")["digest"]["model"], alone["digest"]["model"], trial)
        self.host("validate", "out/tiny/best.toml")

    def test_the_ensemble_is_what_a_search_by_hand_takes_and_predicts_by_itself(self):
        """Its members by numpy: in each round the one with which the mean of the probabilities has the least loss."""
        for name, changes in (("classes", ""), ("numbers", 'set = ["data.task=regression", "data.classes=0", "loss.type=mse", "metrics=[]"]\n')):
            with self.subTest(name):
                text = FLAML.replace("trials = 5", "trials = 8") + changes
                self.write("tiny.toml", text if name == "classes" else text.replace(", 3]", ", 1]"))
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                self.study("--jobs", "1")
                place = self.folder / "out/tiny/runs"
                model = tomllib.loads((place / "ensemble/config.toml").read_text())["model"]
                self.assertGreater(len(model["from"]), 4)
                answers = []
                for run in [place / "ensemble" / each for each in model["from"]]:
                    self.assertEqual(tomllib.loads((run / "config.toml").read_text())["data"]["train"]["take"], "all but fold 0 of 2")
                    answers.append(self.answers(run))
                right = answers[0]["target"]
                outputs = numpy.stack([each["output"] for each in answers]).astype(float)
                if name == "classes":
                    outputs = numpy.exp(outputs) / numpy.exp(outputs).sum(2, keepdims=True)
                chosen = []
                for _ in range(50):
                    losses = []
                    for number in range(len(outputs)):
                        mean = outputs[[*chosen, number]].mean(0)
                        losses.append(-numpy.log(mean[numpy.arange(len(right)), right]).mean() if name == "classes" else ((mean - right) ** 2).mean())
                    chosen.append(int(numpy.argmin(losses)))
                found = self.result("out/tiny/runs/ensemble")["metrics"]
                self.assertEqual([round(50 * found[f"chosen/{number}"]) for number in range(len(outputs))], [chosen.count(number) for number in range(len(outputs))])
                self.assertAlmostEqual(found["chosen/loss"], min(losses), 6)
                self.assertAlmostEqual(found["val/loss"], min(losses), 6)
                self.assertIn(f"The run ensemble has val/loss {found['val/loss']:.4f}, the best of its {len(outputs)} candidates", (self.folder / "out/tiny/table.md").read_text())
                # Without its members' folders, and moved.
                shutil.move(place / "ensemble", self.folder / "alone")
                shutil.rmtree(self.folder / "out")
                mean = outputs[chosen].mean(0)
                said = self.answers(self.folder / "alone")["output"]
                numpy.testing.assert_allclose(said if name == "numbers" else numpy.exp(said), mean, rtol=1e-4, atol=1e-6)
                self.write("new.csv", "0.1,0.2\n0.3,0.9\n")
                self.assertEqual(len(self.host("predict", "alone", "new.csv").stdout.splitlines()), 3)
                shutil.rmtree(self.folder / "alone")

    def answers(self, run):
        self.host("predict", run, "--split", "val", "--out", "said.safetensors")
        return load_file(self.folder / "said.safetensors")

    def assignments(self, values):
        """"a=1 b=[2, 3]" is a=1 and b=[2, 3]."""
        return re.split(r" (?=[a-z_.]+=)", values)

    def test_a_validation_split_of_other_data_judges_by_itself(self):
        self.write("other.csv", "0.1,0.2,1\n0.3,0.9,2\n")
        rows = (self.folder / "rows.toml").read_text()
        self.write("rows.toml", rows.replace("val = {", 'val = { path = "other.csv",'))
        self.write("tiny.toml", FLAML)
        self.assertIn("judged on the validation split of the run file", self.study("--jobs", "1").stdout)
        self.assertEqual([row["trial"] for row in self.runs()], [f"{number:04}" for number in range(5)] + ["ensemble"])
        self.write("tiny.toml", FLAML + 'resampling = "holdout"\n')
        self.assertIn("its [data.val] is of other data than [data.train]", self.study(code=2).stderr)
        self.write("rows.toml", "\n".join(line for line in rows.splitlines() if not line.startswith(("val", "eval_interval"))))
        self.write("tiny.toml", FLAML)
        self.assertIn('learner "deep" has no [data.val]', self.study(code=2).stderr)

    def test_changes_of_the_command_line_are_those_of_all_trials(self):
        rows = (self.folder / "rows.toml").read_text()
        self.write("others.csv", (self.folder / "rows.csv").read_text())
        self.write("one.toml", 'schema = 1\n[vars]\nfile = "rows.csv"\n' + rows.replace("schema = 1\n", "").replace('"rows.csv"', '"${vars.file}"') +
                   '[study]\ntype = "random"\nmetric = "val/loss"\ntrials = 2\nset = ["optimizer.weight_decay=0.25"]\n' +
                   SPACE.split(", { key = \"model")[0] + "]\n")
        self.study("--set", "vars.file=others.csv", "--set", "run.seed=9", "--set", "study.budget=1ep", name="one.toml")
        for trial in ("runs/0000/config.toml", "runs/0001/config.toml", "best.toml"):
            config = tomllib.loads((self.folder / "out/one" / trial).read_text())
            self.assertTrue(config["data"]["path"].endswith("/others.csv"), trial)
            self.assertEqual((config["run"]["seed"], config["optimizer"]["weight_decay"], config["trainer"]["max_duration"]), (9, 0.25, "1ep"))

    def test_a_search_is_swapped_for_another_one_which_goes_on_with_what_was_found(self):
        text = '[study]\ntype = "cfo"\nrun = "small.toml"\nmetric = "val/loss"\ngoal = "min"\ntrials = {}\nbudget = "1ep"\n' + SPACE
        tried = {}
        for type_, trials in (("cfo", 6), ("blendsearch", 11), ("random", 4)):
            self.write("tiny.toml", text.replace("{}", str(trials)).replace("cfo", type_))
            self.study("--jobs", "1")
            runs = self.runs()
            times = {row["trial"]: (self.folder / f"out/tiny/runs/{row['trial']}/result.json").stat().st_mtime_ns for row in runs}
            for row in runs:  # what is shown of a trial is of its own run
                self.assertEqual(self.result(f"out/tiny/runs/{row['trial']}")["metrics"]["val/loss"], float(row["val/loss"]))
                config = tomllib.loads((self.folder / f"out/tiny/runs/{row['trial']}/config.toml").read_text())
                self.assertAlmostEqual(config["optimizer"]["lr"], float(row["optimizer.lr"]))
            if type_ == "blendsearch":
                self.assertEqual(len(runs), 11)
                self.assertEqual({trial: times[trial] for trial in tried}, tried)  # none was trained again
                self.assertEqual(len({(row["optimizer.lr"], row["model.layers"]) for row in runs}), 11)
            tried = times
        # Back again: what `random` has put in the place of trials of cfo is not taken for these, nor what another run file gave.
        self.write("tiny.toml", text.replace("{}", "7"))
        for seed in (3, 4):
            self.write("small.toml", SMALL.replace("seed = 3", f"seed = {seed}"))
            self.study("--jobs", "1")
            for row in self.runs():
                self.assertEqual(self.result(f"out/tiny/runs/{row['trial']}")["metrics"]["val/loss"], float(row["val/loss"]), row)
                config = tomllib.loads((self.folder / f"out/tiny/runs/{row['trial']}/config.toml").read_text())
                self.assertAlmostEqual(config["optimizer"]["lr"], float(row["optimizer.lr"]))
                self.assertEqual(config["run"]["seed"], seed)
        # One that was killed in the middle of what came after the swap goes on as it was.
        self.write("tiny.toml", text.replace("{}", "12").replace("cfo", "blendsearch") + 'cost = "steps"\n')
        self.study("--jobs", "1")
        table = (self.folder / "out/tiny/table.md").read_text()
        ledger = (self.folder / "out/tiny/ledger.jsonl").read_text().splitlines(keepends=True)
        self.assertIn("known", ledger[0])
        (self.folder / "out/tiny/ledger.jsonl").write_text("".join(ledger[:-3]))
        self.study("--jobs", "1")
        self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)


class Copies(StudyTest):
    def programs(self, *words):
        """The programs that the trials of a study are, as it runs."""
        self.write("small.toml", SMALL.replace("2ep", "100000ep"))
        study = subprocess.Popen(self.command("study", "tiny.toml", "--out", "out", "--jobs", "2", *words), cwd=self.folder,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        try:
            self.until(lambda: any(self.folder.glob("out/tiny/runs/*/metrics.jsonl")))
            children = pathlib.Path(f"/proc/{study.pid}/task/{study.pid}/children").read_text().split()
            for child in children:  # else a trial that outlives the study would hold its ledger
                self.assertFalse([file for file in map(os.readlink, pathlib.Path(f"/proc/{child}/fd").iterdir()) if "ledger" in file])
            return {os.readlink(f"/proc/{child}/exe").rsplit("/", 1)[1] for child in children}
        finally:
            study.send_signal(signal.SIGTERM)
            self.assertEqual(study.wait(timeout=60), 75)

    def test_a_trial_is_a_copy_of_the_study_unless_that_has_threads(self):
        head = '[study]\nrun = "small.toml"\nmetric = "val/loss"\n'
        self.write("tiny.toml", head + 'type = "random"\ntrials = 2\n' + SPACE)
        self.assertEqual(self.programs(), {"trainyard-study"})
        self.write("tiny.toml", head + 'type = "threaded"\n')
        shutil.rmtree(self.folder / "out")
        self.assertEqual(self.programs("--plugins", str(BUILD / "tests/faulty")), {"trainyard"})


    def test_trials_end_with_a_study_that_is_killed(self):
        self.write("small.toml", SMALL.replace("2ep", "100000ep"))
        self.write("tiny.toml", '[study]\nrun = "small.toml"\nmetric = "val/loss"\ntype = "random"\ntrials = 2\n' + SPACE)
        study = subprocess.Popen(self.command("study", "tiny.toml", "--out", "out", "--jobs", "2"), cwd=self.folder, env=self.environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: any(self.folder.glob("out/tiny/runs/*/metrics.jsonl")))
        children = pathlib.Path(f"/proc/{study.pid}/task/{study.pid}/children").read_text().split()
        study.kill()
        study.wait()
        self.assertTrue(children)
        going = lambda child: pathlib.Path(f"/proc/{child}/stat").exists() and pathlib.Path(f"/proc/{child}/stat").read_text().split()[2] != "Z"
        self.until(lambda: not any(map(going, children)))


LAUNCHER = """#!/bin/sh
# Refuses each trial at first; then the machine that it is on goes down.
times="$PWD/times-$(basename "$2" .sh)"
echo >> "$times"
case $(wc -l < "$times") in
  1) echo "no machine is free" >&2; exit 255 ;;
  2) timeout -s KILL 0.05 "$@"; exit 137 ;;
esac
exec "$@"
"""


class Launched(StudyTest):
    STUDY = '[study]\nrun = "small.toml"\nmetric = "val/loss"\ngoal = "min"\ntype = "random"\ntrials = 3\n' + SPACE

    def test_a_trial_that_is_refused_or_lost_is_given_again(self):
        self.write("tiny.toml", self.STUDY)
        self.study()
        table = (self.folder / "out/tiny/table.md").read_text()
        shutil.rmtree(self.folder / "out")
        (self.folder / "launcher").write_text(LAUNCHER)
        (self.folder / "launcher").chmod(0o755)
        self.write("tiny.toml", self.STUDY + f'launch = "{self.folder}/launcher {{command}}"\n')
        said = self.study("--jobs", "3").stderr
        self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)
        self.assertEqual([trial for trial, _ in sorted(self.ended())], ["0000", "0001", "0002"])
        for trial in ("0000", "0001", "0002"):
            self.assertIn(f'study: trial "{trial}" was lost by its launcher, and begins again in 1 s: no machine is free', said)
            self.assertIn(f'study: trial "{trial}" was lost by its launcher, and begins again in 2 s: ', said)

    def test_on_another_network_it_comes_to_the_same(self):
        """The folder is all that machines share: the trial has neither this network nor this environment."""
        if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0:
            self.skipTest("no network namespace may be made here")
        data = self.folder / "data"
        data.mkdir()
        (data / "rows.csv").write_text(rows(60))
        self.write("small.toml", ROWS.replace('path = "rows.csv"', 'path = "${run.data}/rows.csv"'))
        study = lambda: self.host("study", "tiny.toml", "--out", "out", TRAINYARD_DATA=str(data))
        self.write("tiny.toml", self.STUDY)
        study()
        table = (self.folder / "out/tiny/table.md").read_text()
        self.write("tiny.toml", self.STUDY + "launch = 'unshare -n env -i PATH=\"$PATH\" sh -c \"cd / && {command}\"'\n")
        shutil.rmtree(self.folder / "out")
        study()
        self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)

    def test_one_that_only_refuses_ends_the_study_and_a_launcher_without_a_command_is_none(self):
        self.write("tiny.toml", self.STUDY.replace("trials = 3", "trials = 1") + 'launch = "echo no such queue; false {command}"\n')
        said = self.study(code=1).stderr
        self.assertEqual(said.count("was lost by its launcher"), 4)
        self.assertIn("no such queue", said)
        self.write("tiny.toml", self.STUDY + 'launch = "srun -N1"\n')
        self.assertIn('study.launch = "srun -N1" has no {command}', self.study(code=2).stderr)

    def test_a_signal_ends_what_was_launched(self):
        self.write("small.toml", SMALL.replace("2ep", "100000ep"))
        self.write("tiny.toml", self.STUDY + 'launch = "sleep 0; {command}"\n')
        study = subprocess.Popen(self.command("study", "tiny.toml", "--out", "out", "--jobs", "2"), cwd=self.folder, env=self.environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: any(self.folder.glob("out/tiny/runs/*/metrics.jsonl")))
        study.send_signal(signal.SIGTERM)
        self.assertEqual(study.wait(timeout=60), 75)
        self.until(lambda: not any(str(self.folder) in path.read_text(errors="replace") for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()))


class Killed(StudyTest):
    jobs = "2"

    def begin(self, *words):
        return subprocess.Popen(self.command("study", "tiny.toml", "--out", "out", "--jobs", self.jobs, *words), cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment())

    def wait_for(self, count):
        path = self.folder / "out/tiny/ledger.jsonl"
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            if path.exists() and path.read_text().count('{"end"') >= count:
                return
            time.sleep(0.02)
        self.fail(f"no {count} trials have ended")

    def kill_after(self, *counts):
        """Begins the study again and again, and kills it when so many trials have ended."""
        for count in counts:
            study = self.begin()
            self.wait_for(count)
            study.kill()
            study.communicate()

    def plain(self, text):
        """The table of the study when nothing disturbs it."""
        self.write("tiny.toml", text)
        self.host("study", "tiny.toml", "--out", "whole", "--jobs", self.jobs)
        return (self.folder / "whole/tiny/table.md").read_text()

    def test_killed_again_and_again_it_ends_with_the_same_table_and_runs_nothing_twice(self):
        table = self.plain(STUDY)
        self.kill_after(1, 5, 9)
        self.study()
        self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)
        self.assertEqual(len(self.ended()), len(set(self.ended())))
        self.assertEqual(len(self.ended()), 24)

    def test_rungs_are_the_same_after_a_kill(self):
        plain = ASHA.replace("trials = 9\n", "")
        for name, text in (("hyperband", plain), ("ss", ASHA), ("boss", plain.replace("9ep", "3ep"))):
            with self.subTest(name):
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                shutil.rmtree(self.folder / "whole", ignore_errors=True)
                table = self.plain(text.replace("asha", name))
                self.kill_after(2, 5 if name == "boss" else 8)
                with open(self.folder / "out/tiny/ledger.jsonl", "a") as ledger:
                    ledger.write('{"end": {"tri')  # as a kill may leave it
                self.study()
                self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)
                self.assertEqual(len(self.ended()), len(set(self.ended())))

    def test_a_study_that_goes_by_what_it_found_is_the_same_after_a_kill(self):
        """One trial at a time, and costs in steps: two studies are alike to the last digit."""
        self.jobs = "1"
        table = self.plain('[study]\ntype = "blendsearch"\nrun = "small.toml"\nmetric = "val/loss"\ngoal = "min"\ntrials = 8\nbudget = "1ep"\n'
                           'cost = "steps"\n' + SPACE)
        self.kill_after(1, 4, 6)
        self.study("--jobs", "1")
        self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)
        ends = [line["end"] for line in self.ledger() if "end" in line]
        self.assertEqual([end["trial"] for end in ends], [f"{number:04}" for number in range(8)])
        self.assertEqual({end["steps"] for end in ends}, {4})
        self.assertGreater(min(end["cpu_seconds"] for end in ends), 0.01)
        self.assertEqual(self.runs(trial="0000")[0]["optimizer.lr"], "0.01")  # it begins with the run file's

    def test_learners_have_the_same_trials_after_a_kill(self):
        self.jobs = "1"
        self.write("rows.toml", ROWS.replace("layers = [8,", "layers = [2,"))
        self.write("rows.csv", "".join(f"{i % 7 / 7},{i * i % 5 / 5},{i % 3}\n" for i in range(60)))
        table = self.plain(FLAML)
        self.kill_after(1, 4, 7, 10, 11)
        self.study("--jobs", "1")
        self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)
        self.assertIn("The run ensemble has val/loss", table)
        self.assertEqual(len(self.ended()), 12)
        self.assertEqual(len(set(self.ended())), 12)

    def test_configurations_trained_together_come_to_the_same_after_a_kill(self):
        """Killed between the rungs of an array, whose survivors go on from its checkpoint."""
        space = SPACE.split(", { key")[0] + ', { key = "optimizer.weight_decay", low = 0.0, high = 0.3 }]\n'
        table = self.plain(ASHA.replace("asha", "hyperband").replace("trials = 9\n", "").replace(SPACE, space) + "together = 9\n")
        self.kill_after(1, 2, 3)
        self.study()
        self.assertEqual((self.folder / "out/tiny/table.md").read_text(), table)
        self.assertEqual(len(self.ended()), len(set(self.ended())))

    def test_a_signal_ends_it_in_order_and_its_trials_with_it(self):
        self.write("small.toml", SMALL.replace("2ep", "100000ep"))
        self.write("small_tune.toml", TUNE.replace("2ep", "100000ep"))
        self.write("tiny.toml", STUDY.replace('budgets = ["1ep", "2ep"]\n', ""))
        study = self.begin()
        runs = self.folder / "out/tiny/runs"
        limit = time.monotonic() + 60
        while len(list(runs.rglob("metrics.jsonl"))) < 2 and time.monotonic() < limit:
            time.sleep(0.05)
        study.send_signal(signal.SIGINT)
        _, errors = study.communicate(timeout=60)
        self.assertEqual(study.returncode, 75, errors)
        self.assertIn("The same command goes on", errors)
        for result in runs.rglob("result.json"):
            self.assertEqual(json.loads(result.read_text())["status"], "interrupted")
        self.assertEqual(len(list(runs.rglob("result.json"))), 2)

    def test_two_at_once_are_refused(self):
        self.write("small.toml", SMALL.replace("2ep", "100000ep"))
        self.write("tiny.toml", STUDY.replace('budgets = ["1ep", "2ep"]\n', ""))
        study = self.begin()
        while not (self.folder / "out/tiny/ledger.jsonl").exists():
            time.sleep(0.05)
        self.assertIn("another process runs the study", self.study(code=2).stderr)
        study.send_signal(signal.SIGTERM)
        study.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
