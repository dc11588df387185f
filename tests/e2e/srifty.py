"""srifty on the real executable: profiles of a run that leave it as it was, plans, refusals, and the file that a plan writes; drift in a training."""
import csv
import datetime
import json
import os
import pty
import random
import re
import signal
import subprocess
import time
import unittest

from support.host import FAULTY, SMALL, SOURCE, HostTest

LONGER = bool(os.environ.get("TRAINYARD_LONGER"))
TODAY = datetime.datetime.now(datetime.timezone.utc).date()
HEADER = "type,accelerator,count,price_usd_h,spot_usd_h,region,net_gbit_s\n"
ROWS = "small,here,1,1.0,0.4,east,1\ntwo,here,2,1.9,,east,1\nfast,far,1,5.0,,west,10\n"
QUICK = ("--steps", "3", "--repeats", "3")


def dated(days=0):
    return f"# as_of: {TODAY - datetime.timedelta(days)}\n# source: a test\n"


class Srifty(HostTest):
    def call(self, *words, code=0):
        done = subprocess.run(self.command(*words), cwd=self.folder, env=self.environment(), text=True, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, *words, code=0):
        done = self.call("srifty", "run.toml", *words, "--format", "json", code=code)
        self.assertTrue(done.stdout, done.stderr)
        return json.loads(done.stdout)

    def profiled(self):
        """A trained run with a profile, and a catalogue."""
        self.write("run.toml", SMALL)
        self.call("train", "run.toml", "-q")
        self.write("prices.csv", dated() + HEADER + ROWS)
        return self.report("--device", "here", *QUICK)

    def plan(self, *words, code=0):
        return self.report("--catalogue", "prices.csv", "--profiles", '["runs/small/tools/srifty/here.profile.json"]', "--batch", "16", *words,
                           code=code)

    def refusal(self, *words, code):
        done = self.call("srifty", "run.toml", "--catalogue", "prices.csv", "--profiles", '["runs/small/tools/srifty/here.profile.json"]', "--batch", "16",
                         *words, code=code)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def files(self):
        return {path: path.read_bytes() for path in (self.folder / "runs").rglob("*") if path.is_file() and "tools" not in path.parts}

    def test_a_profile_leaves_no_trace_and_has_what_it_says(self):
        self.write("run.toml", SMALL.replace('[optimizer]', '[model.dropout]\ntype = "standard"\np = 0.2\n[optimizer]'))
        self.call("train", "run.toml", "-q")
        before = self.files()
        audit = json.loads(self.call("audit", "run.toml", "--steps", "3", "--format", "json").stdout)
        report = self.report("--device", "here", *QUICK)
        self.assertEqual(before, self.files())
        self.assertEqual(json.loads(self.call("audit", "run.toml", "--steps", "3", "--format", "json").stdout), audit)
        profile = json.loads((self.folder / report["facts"]["profile"]).read_text())
        self.assertEqual([each["samples"] for each in profile["batches"]], [2, 4, 8, 16, 32])
        self.assertEqual([each["bytes"] for each in profile["gradients"]], [512, 64, 192, 12])
        # The last layer's gradients are there before the first layer's.
        ready = [each["ready"] for each in profile["gradients"]]
        self.assertLess(max(ready[2:]), min(ready[:2]))
        self.assertFalse(profile["estimated"])
        self.assertEqual(profile["as_of"], str(datetime.datetime.now(datetime.timezone.utc).date()))
        self.assertEqual(profile["activation_bytes_per_sample"] % 4, 0)
        self.assertEqual([row["samples"] for row in report["rows"]], [2, 4, 8, 16, 32])

    def test_a_plan_is_a_table_a_log_and_a_run_file_that_trains(self):
        self.profiled()
        report = self.plan("--epochs", "50", "--max_machines", "4")
        facts, rows = report["facts"], report["rows"]
        self.assertEqual([row["chosen"] for row in rows].count("*"), 1)
        self.assertEqual(rows[0]["chosen"], "*")
        self.assertEqual(facts["chosen"], rows[0]["cluster"])
        self.assertIn("no profile of far", [row["why not"] for row in rows])
        self.assertEqual(facts["warnings"], [])
        self.assertIn("a test", facts["prices"][0])
        self.assertIn("measured", facts["profiles"][0])
        log = list(csv.DictReader((self.folder / facts["log"]).read_text().splitlines()))
        self.assertEqual(len(log), facts["clusters"])
        self.assertEqual({row["as_of"] for row in log}, {str(TODAY)})
        usable = [row for row in log if not row["why_not"]]
        self.assertEqual(float(next(row for row in log if row["chosen"] == "1")["cost_usd"]), min(float(row["cost_usd"]) for row in usable))
        # The line that it gives, on ranks of this machine.
        launch = facts["launch"].replace("RUN.toml", "run.toml").split()
        self.assertEqual(launch[:2], ["trainyard", "train"])
        self.call(*launch[1:], "--overwrite", "-q")

    def test_a_cluster_of_two_ranks_is_launched_with_two(self):
        self.profiled()
        self.write("prices.csv", dated() + HEADER + "two,here,2,1.9,,east,1\n")
        facts = self.plan("--max_machines", "1")["facts"]
        self.assertRegex(facts["launch"], r"^trainyard train RUN.toml \S+plan.toml --ranks 2$")
        text = (self.folder / facts["plan"]).read_text()
        self.assertIn("batch_size = 16\nmicro_batch_size = 8\n", text)
        self.call(*facts["launch"].replace("RUN.toml", "run.toml").split()[1:], "--overwrite", "-q")

    def test_what_cannot_be_had_is_answered_with_the_nearest(self):
        self.profiled()
        report = self.plan("--epochs", "1000", "--max_cost", "1e-9", "--max_hours", "100", code=2)
        self.assertIn("none", report["facts"]["chosen"])
        self.assertEqual(len(report["facts"]["nearest"]), 1)
        self.assertTrue(all("cost" in row["why not"] or row["why not"].startswith(("no profile", "batch")) for row in report["rows"]))
        (need,) = re.findall(r"^max_cost = (\S+) ", report["facts"]["nearest"][0])
        self.assertIn("x", self.plan("--epochs", "1000", "--max_cost", need, "--max_hours", "100")["facts"]["chosen"])

    def test_spot_needs_a_rate_that_somebody_assumes(self):
        self.profiled()
        self.assertIn("allow_spot needs spot_rate_per_hour", self.refusal("--allow_spot", "true", code=2))
        report = self.plan("--allow_spot", "true", "--spot_rate_per_hour", "0.05", "--show", "0")
        self.assertEqual(report["facts"]["chosen"], "1 x small east spot")
        self.assertAlmostEqual(report["facts"]["spot overhead"], 0.03137, 5)
        self.assertIn("2 x small east (1 spot)", [row["cluster"] for row in report["rows"]])

    def test_what_is_old_is_warned_of(self):
        self.profiled()
        self.write("prices.csv", dated(100) + HEADER + ROWS)
        self.assertIn("100 days old", self.plan()["facts"]["warnings"][0])
        self.assertEqual(self.plan("--max_age_days", "101")["facts"]["warnings"], [])

    def test_what_is_wrong_is_told_once_and_nothing_is_printed(self):
        self.profiled()
        profile = (self.folder / "runs/small/tools/srifty/here.profile.json").read_text()
        for name, text, code, said in (
                ("no rows", dated() + HEADER, 4, "prices.csv: has no rows"),
                ("no date", HEADER + ROWS, 4, "prices.csv:2: has no date or no source"),
                ("unit of a column", dated() + HEADER.replace("net_gbit_s", "net_mbit_s") + ROWS, 4, 'has a column "net_mbit_s"'),
                ("unit of a number", dated() + HEADER + "small,here,1,1.0,,east,10000\n", 4, "prices.csv:4: net_gbit_s is 10000, more than there is"),
                ("devices", dated() + HEADER + "fast,far,1,5.0,,west,10\n", 2, "no profile of far")):
            with self.subTest(name):
                self.write("prices.csv", text)
                self.assertIn(said, self.refusal(code=code))
        self.write("prices.csv", dated() + HEADER + ROWS)
        self.assertIn("expected a size", self.refusal("--bucket_mb", "[]", code=2))
        self.write("runs/small/tools/srifty/here.profile.json", re.sub(r'"rest_s": [^,\n]+', '"rest_s": -1.0', profile))
        self.assertIn("rest_s is -", self.refusal(code=4))
        self.write("runs/small/tools/srifty/here.profile.json", profile)
        self.call("srifty", "run.toml", "--catalogue", "absent.csv", code=2)
        self.assertIn("a plan needs profiles", self.call("srifty", "run.toml", "--catalogue", "prices.csv", code=2).stderr)
        self.write("run.toml", SMALL.replace("layers = [8, 16, 3]", "layers = [8, 24, 3]").replace('name = "small"', 'name = "other"'))
        self.assertIn("is of another model", self.refusal("--weights", "initial", code=2))

    def test_an_executor_of_its_own_gradients_is_refused(self):
        self.write("run.toml", SMALL + '[executor]\ntype = "compiled"\n')
        self.assertRegex(self.call("srifty", "run.toml", "--weights", "initial", code=2).stderr, r"executor\.type = eager")

    @staticmethod
    def catches(process, which):
        """Whether the process has a handler of the signal: before, it would end without a word."""
        with open(f"/proc/{process}/status") as status:
            mask = next(line for line in status if line.startswith("SigCgt"))
        return bool(int(mask.split()[1], 16) >> (which - 1) & 1)

    def test_a_signal_ends_it_with_what_it_has(self):
        self.write("run.toml", SMALL)
        self.call("train", "run.toml", "-q")
        before = self.files()
        tool = subprocess.Popen(self.command("srifty", "run.toml", "--repeats", "1000000"), cwd=self.folder, env=self.environment(), text=True,
                                stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while not self.catches(tool.pid, signal.SIGINT) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        self.assertIsNone(tool.poll())
        tool.send_signal(signal.SIGINT)
        self.assertIn("srifty was interrupted", tool.communicate(timeout=60)[1])
        self.assertEqual(tool.returncode, 75)
        self.assertEqual(before, self.files())

    def long_plan(self, machines, most):
        """A catalogue of many machines, and the words of a plan of up to `most` of each."""
        self.profiled()
        self.write("prices.csv", dated() + HEADER + "".join(f"m{i},here,{1 + i % 2},{1 + i / 7:.4f},,east,{1 + i % 5}\n" for i in range(machines)))
        return ("srifty", "run.toml", "--catalogue", "prices.csv", "--profiles", '["runs/small/tools/srifty/here.profile.json"]', "--batch", "1024",
                "--epochs", "50", "--max_machines", str(most), "--format", "json")

    def test_a_plan_that_was_killed_comes_to_the_same_bytes_when_it_is_asked_again(self):
        """It begins anew: ten thousand clusters take a fifth of a second. What lies in the folder is at any time a whole file."""
        words = self.long_plan(40, 256)
        place = self.folder / "runs/small/tools/srifty"
        began = time.monotonic()
        said = self.call(*words).stdout
        took = time.monotonic() - began
        whole = {name: (place / name).read_bytes() for name in ("candidates.csv", "plan.toml")}
        draws, killed = random.Random(7), 0
        for turn in range(20 if LONGER else 6):
            for name in whole:
                (place / name).unlink(missing_ok=True)
            tool = subprocess.Popen(self.command(*words), cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if turn % 2 == 0:
                time.sleep(draws.random() * took)
            else:  # while the table is written
                while tool.poll() is None and not any(place.glob("candidates.csv*")):
                    pass
            tool.kill()  # nothing where it has ended
            tool.communicate()
            killed += tool.returncode == -signal.SIGKILL
            for name, content in whole.items():
                if (place / name).exists():
                    self.assertEqual((place / name).read_bytes(), content)
        self.assertGreater(killed, 0)
        self.assertEqual(self.call(*words).stdout, said)
        self.assertEqual({name: (place / name).read_bytes() for name in whole}, whole)
        self.assertEqual(sorted(path.name for path in place.iterdir()), ["candidates.csv", "here.profile.json", "plan.toml"])

    def test_a_signal_ends_a_plan_with_the_clusters_that_it_has(self):
        """It comes once the bar says that clusters are predicted: a terminal in the place of standard error shows it."""
        words = self.long_plan(300, 1024)
        log = self.folder / "runs/small/tools/srifty/candidates.csv"
        master, terminal = pty.openpty()
        self.addCleanup(os.close, master)
        tool = subprocess.Popen(self.command(*words), cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        error = ""
        while "   1 %" not in error:
            error += os.read(master, 4096).decode()
        tool.send_signal(signal.SIGINT)
        while part := self.read_terminal(master):
            error += part
        self.assertEqual((tool.stdout.read(), tool.wait(timeout=60)), ("", 75), error)
        tool.stdout.close()
        rows = list(csv.DictReader(log.read_text().splitlines()))
        self.assertLess(len(rows), 300 * 1024)
        self.assertIn(f"candidates.csv has the first {len(rows)} of {300 * 1024} clusters", error)
        (chosen,) = [row for row in rows if row["chosen"] == "1"]
        self.assertEqual(float(chosen["cost_usd"]), min(float(row["cost_usd"]) for row in rows if not row["why_not"]))

    @staticmethod
    def read_terminal(master):
        try:
            return os.read(master, 4096).decode()
        except OSError:  # nobody has its other end any more
            return ""

    def test_the_shipped_catalogue_is_read(self):
        self.profiled()
        done = self.call("srifty", "run.toml", "--catalogue", SOURCE / "configs/catalogues/aws_2023.csv", "--profiles",
                         '["runs/small/tools/srifty/here.profile.json"]', code=2)
        self.assertIn("no profile of k80", done.stderr)

    def test_drift_is_told_in_the_journal(self):
        text = SMALL.replace("2ep", "40ep")
        for name, predicted, found in (("off", 1e-6, 1), ("held", None, 0)):
            with self.subTest(name):
                self.write("run.toml", text.replace('"small"', f'"{name}"') + f'[[hooks]]\ntype = "drift"\npredicted_ms = {predicted or 1.0}\n'
                           + ("" if predicted else "tolerance = 1e6\n"))
                self.call("train", "run.toml", "-q")
                journal = (self.folder / f"runs/{name}/journal.jsonl").read_text()
                self.assertEqual(journal.count("prediction_failed"), found)

    def test_drift_finds_a_change_in_the_middle_of_a_run_within_60_steps(self):
        change = '[[swap]]\nat = "70ba"\nslot = "hooks.dawdling"\nseconds = 0.04\n'
        self.write("run.toml", SMALL.replace("2ep", "135ba") + '[[hooks]]\ntype = "dawdling"\nsteps = 1\nseconds = 0.005\n'
                   '[[hooks]]\ntype = "drift"\npredicted_ms = 8.0\ntolerance = 1.0\n' + change)
        self.call("train", "run.toml", "-q", "--plugins", FAULTY)
        lines = [json.loads(line) for line in (self.folder / "runs/small/journal.jsonl").read_text().splitlines()]
        (found,) = [line for line in lines if line["what"] == "prediction_failed"]
        self.assertGreater(found["step"], 70 + 50)
        self.assertLessEqual(found["step"], 70 + 60)
        self.assertRegex(found["why"], r"steps take 4\d\.\d+ ms .* of the 8\.000 ms that were predicted; the plan no longer holds")


if __name__ == "__main__":
    unittest.main()
