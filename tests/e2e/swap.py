"""Swaps of a live run, by `trainyard ctl` and by the run file: killed and gone on with, it ends as the file alone would."""
import csv
import json
import signal
import subprocess
import time
import tomllib
import unittest

from support.host import BUILD, KILLER, SMALL, HostTest
from support.host import planned as with_options

FAULTY = BUILD / "tests" / "faulty"
RUN = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("2ep", "6000ba").replace('eval_interval = "1ep"', 'eval_interval = "2000ba"') + """
[checkpoint]
type = "full"
interval = "100ba"
keep_last = 3
[logging]
interval = "500ba"
"""
# It sleeps at its fifth step, once, and says so: time to be paused.
NAP = '[[hooks]]\ntype = "slow"\nat = "batch_end"\nstep = 5\nseconds = 1.0\nsign = "asleep"\n'


def planned(at, slot, type, **more):
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    return f'[[swap]]\nat = "{at}ba"\nslot = "{slot}"\ntype = "{type}"\n{lines}'


class Steered(HostTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "runs" / "small"

    def start(self, text=RUN):
        """A run that is paused at its fifth step."""
        self.write("run.toml", text + NAP)
        process = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY), cwd=self.folder, text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment())
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.until(lambda: (self.folder / "asleep").exists())
        self.ctl("pause")
        return process

    def ctl(self, *words, code=0):
        return self.host("ctl", "small", *words, code=code)

    def journal(self, *whats):
        lines = map(json.loads, (self.run_folder / "journal.jsonl").read_text().splitlines())
        return [line for line in lines if line["what"] in whats]

    def kill(self, process):
        self.assertIsNone(process.poll(), "the run was over too soon")
        process.kill()
        process.wait()

    def go_on(self):
        self.host("train", "run.toml", "-q", "--plugins", FAULTY)
        result = self.result()
        self.assertEqual(result["steps"], 6000)
        return result["digest"]

    def as_planned(self):
        """The digests of a run whose file has the swaps that are in the journal and were not taken back."""
        swaps = {}
        for line in self.journal("swap", "swap_rolled_back"):
            details = tomllib.loads(line["details"])
            if line["what"] == "swap":
                swaps.setdefault(details["number"], (line["step"], details))  # a resume writes it down again
            else:
                swaps.pop(details["number"], None)
        text = RUN
        for step, details in swaps.values():
            for swap in details["swap"]:
                text += "[[swap]]\n" + "".join(f"{key} = {json.dumps(swap[key])}\n" for key in ("slot", "type", "change", "carry", "watch") if key in swap)
                text += f'at = "{step}ba"\n' + "".join(f"{key} = {json.dumps(value)}\n" for key, value in swap.get("options", {}).items())
        self.assertEqual(self.journal("swap_refused"), [])
        return len(swaps), self.train(text, "--overwrite", "--plugins", FAULTY, "--set", "run.output_dir=planned", run="planned")["digest"]


class Swap(Steered):
    def test_swaps_of_clients_are_repeated_by_a_resume(self):
        for wait in (0.0, 0.05, 0.15):  # before and after the next checkpoint
            with self.subTest(wait=wait):
                process = self.start()
                self.ctl("swap", "optimizer", "adam", "lr=0.002")
                self.ctl("checkpoint")
                self.ctl("swap", "schedule", "cosine", "min_factor=0.1", "--carry", "restart")  # at the step of the checkpoint
                self.ctl("resume")
                self.ctl("pause")
                said = self.ctl("swap", "optimizer", "sgd", "lr=0.01", "momentum=0.5", "--watch", "0ba").stdout
                self.assertNotIn("watched", said)
                self.ctl("resume")
                time.sleep(wait)
                self.kill(process)
                digest = self.go_on()
                self.assertEqual(self.as_planned(), (3, digest))
                subprocess.run(["rm", "-r", self.folder / "runs", self.folder / "asleep"], check=True)

    def test_a_swap_at_the_step_of_the_checkpoint_is_repeated_there(self):
        process = self.start()
        self.ctl("swap", "optimizer", "adam", "lr=0.002")
        self.ctl("checkpoint")
        self.ctl("swap", "optimizer", "sgd", "lr=0.05")
        self.kill(process)
        digest = self.go_on()
        (resumed,) = self.journal("resumed")
        self.assertEqual(resumed["step"], self.journal("swap")[-1]["step"])
        self.assertEqual(self.as_planned(), (2, digest))

    def test_what_was_taken_back_is_not_repeated(self):
        process = self.start()
        said = self.ctl("swap", "optimizer", "troubled", "at=step", "step=3", "--carry", "fresh").stdout
        self.assertRegex(said, r"watched up to step \d+: taken back if anything fails by then")
        self.ctl("resume")
        self.until(lambda: self.journal("swap_rolled_back"))
        self.ctl("pause")
        self.ctl("swap", "schedule", "rex")  # has the number of the one that is gone
        self.ctl("resume")
        self.until(lambda: list(self.run_folder.glob("checkpoints/step-????????")))  # without one it would begin anew
        self.kill(process)
        digest = self.go_on()
        self.assertEqual(self.as_planned(), (1, digest))

    def test_no_step_is_told_twice_of_what_was_taken_back(self):
        text = RUN.replace('interval = "500ba"', 'interval = "1ba"') + '[[logging.sinks]]\ntype = "csv"\n'
        process = self.start(text)
        self.ctl("swap", "optimizer", "troubled", "at=step", "step=3", "--carry", "fresh")
        self.ctl("resume")
        self.assertEqual(process.wait(60), 0)
        (back,) = self.journal("swap_rolled_back")
        lines = map(json.loads, (self.run_folder / "metrics.jsonl").read_text().splitlines())
        steps = [line["step"] for line in lines if line["what"] == "train"]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertIn(back["step"] + 1, steps)
        rows = csv.DictReader((self.run_folder / "metrics.csv").read_text().splitlines())
        self.assertEqual([int(row["step"]) for row in rows if row["name"] == "train/loss"], steps)
        self.assertGreater(back["step"], 4)

    def test_planned_swaps_survive_kills(self):
        text = RUN + planned(1000, "schedule", "rex") + planned(1000, "optimizer", "adam") + planned(3333, "data", "synthetic")
        self.write("run.toml", text)
        expected = self.train(text, "--set", "run.output_dir=undisturbed", run="undisturbed")["digest"]
        for wait in (0.3, 0.5, 0.6, 0.7):
            process = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=self.environment())
            time.sleep(wait)
            process.kill()
            process.wait()
        self.host("train", "run.toml", "-q")
        self.assertEqual(self.result()["digest"], expected)
        self.assertNotEqual(self.train(RUN, "--overwrite", "--set", "run.output_dir=plain", run="plain")["digest"], expected)

    def test_refusals_say_why_and_leave_no_trace(self):
        process = self.start()
        for words, said in ((("optimizer", "adamm"), "adamw"), (("optimiser", "adam"), "optimizer"),
                            (("optimizer", "adam", "lr=-1"), "lr"), (("optimizer", "troubled", "at=load"), "thrown on purpose"),
                            (("optimizer", "sgd", "--carry", "everything"), "fresh")):
            self.assertIn(said, self.ctl("swap", *words, code=2).stderr)
        self.ctl("resume")
        self.assertEqual(process.wait(60), 0)
        self.assertEqual(self.result()["digest"], self.train(RUN, "--set", "run.output_dir=plain", run="plain")["digest"])

    def test_a_watch_goes_on_after_a_resume(self):
        """A swap that fails at a step of its watch, whatever happened to the process before that."""
        text = RUN + """
[[hooks]]
type = "faulty"
step = 100000
way = "throw"
[[hooks]]
type = "slow"
at = "batch_end"
step = 1150
seconds = 2
sign = "asleep"
"""
        swap = '[[swap]]\nat = "1000ba"\nslot = "hooks.faulty"\nstep = 1250\nwatch = "300ba"\n'
        expected = self.train(text, "--plugins", FAULTY, "--set", "run.output_dir=plain", run="plain")["digest"]
        for stop in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(stop=stop):
                (self.folder / "asleep").unlink()
                self.write("run.toml", text + swap)
                process = subprocess.Popen(self.command("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY), cwd=self.folder,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
                self.until((self.folder / "asleep").exists)
                process.send_signal(stop)
                self.assertEqual(process.wait(60), 75 if stop == signal.SIGTERM else -stop)
                self.host("train", "run.toml", "-q", "--plugins", FAULTY)
                (resumed,) = self.journal("resumed")
                self.assertGreater(resumed["step"], 1000)
                (back,) = self.journal("swap_rolled_back")
                self.assertEqual(back["step"], 1000)
                self.assertEqual(self.result()["digest"], expected)

    def test_a_swap_at_the_step_of_an_evaluation_that_was_cut_short(self):
        text = RUN.replace('"2000ba"', '"1000ba"').replace('interval = "100ba"', 'interval = "5000ba"')
        nap = '[[hooks]]\ntype = "slow"\nat = "eval_start"\nstep = 999\nseconds = 2\nsign = "asleep"\n'
        text += planned(1000, "optimizer", "sgd", lr=0.05)
        self.write("run.toml", text + nap)
        process = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY), cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        self.until((self.folder / "asleep").exists)
        process.terminate()
        self.assertEqual(process.wait(60), 75)
        self.host("train", "run.toml", "-q", "--plugins", FAULTY)
        self.assertEqual([line["step"] for line in self.journal("swap")], [1000])
        self.assertEqual(self.result()["digest"], self.train(text, "--set", "run.output_dir=plain", run="plain")["digest"])

    def test_a_run_goes_back_behind_a_swap_that_nobody_watches_any_more(self):
        """To its last checkpoint, without the hook that wrote NaN; the swap comes again at its step."""
        text = RUN + planned(1020, "optimizer", "sgd", lr=0.05, watch="5ba")
        expected = self.train(text, "--set", "run.output_dir=plain", run="plain")
        guard = '[guard]\nnan = "rollback"\n[[hooks]]\ntype = "poison"\ninto = "model"\nstep = 1050\n'
        result = self.train(text + guard, "--plugins", FAULTY)
        self.assertEqual((result["digest"], result["steps"]), (expected["digest"], 6000))
        self.assertEqual([line["step"] for line in self.journal("swap")], [1020, 1020])
        (back,) = self.journal("rolled_back")
        self.assertEqual(back["step"], 1050)
        self.assertEqual([line["plugin"] for line in self.journal("disabled")], ["poison"])
        self.assertFalse((self.run_folder / "report.json").exists())
        steps = [[line["step"] for line in map(json.loads, (self.folder / run / "metrics.jsonl").read_text().splitlines())
                  if line["what"] != "message"]
                 for run in ("runs/small", "plain")]
        self.assertEqual(*steps)

    def test_a_hook_that_comes_back_by_its_swap_ends_the_run(self):
        text = RUN + '[guard]\nnan = "rollback"\n[[hooks]]\ntype = "poison"\nstep = 100000\n'
        swap = '[[swap]]\nat = "1020ba"\nslot = "hooks.poison"\nstep = 1050\nwatch = "5ba"\n'
        said = self.host("train", self.write("run.toml", text + swap), "-q", "--plugins", FAULTY, code=5).stderr
        self.assertIn("[hooks[0]] poison", said)
        self.assertEqual(len(self.journal("rolled_back")), 1)
        report = json.loads((self.run_folder / "report.json").read_text())
        self.assertEqual([report[key] for key in ("plugin", "event", "step")], ["poison", "after_step", 1050])
        # Ahead of the first checkpoint there is nothing to go back to.
        late = ("--overwrite", "--set", "checkpoint.interval=3000ba")
        self.host("train", "run.toml", "-q", "--plugins", FAULTY, *late, code=5)
        self.assertEqual(self.journal("rolled_back"), [])

    def test_only_the_hook_that_wrote_nan_is_left_out(self):
        """Not the one whose slot it took over."""
        text = RUN + '[guard]\nnan = "rollback"\n[[hooks]]\ntype = "ema"\n'
        swap = '[[swap]]\nat = "1020ba"\nslot = "hooks.ema"\ntype = "poison"\noptions = { step = 1050 }\nwatch = "5ba"\n'
        self.host("train", self.write("run.toml", text + swap), "-q", "--plugins", FAULTY, code=5)
        self.assertEqual(len(self.journal("rolled_back")), 1)
        self.assertEqual(self.journal("disabled"), [])

    def test_what_changed_is_told_once_where_the_run_goes_back_after_it(self):
        short = RUN.replace("6000ba", "500ba")
        self.train(short)
        self.write("run.toml", short.replace("500ba", "900ba") + '[guard]\nnan = "rollback"\n[[hooks]]\ntype = "poison"\nstep = 750\n')
        self.host("train", "run.toml", "-q", "--plugins", FAULTY)
        self.assertEqual(len(self.journal("rolled_back")), 1)
        self.assertEqual([line["step"] for line in self.journal("resumed")], [500, 700])
        told = [line["why"] for line in self.journal("resume")]
        self.assertEqual(len([why for why in told if why.startswith("changed: trainer.max_duration")]), 1, told)

    def test_a_rule_that_hangs_is_swapped_out_and_the_run_is_killed(self):
        text = RUN + '[recorder]\n[[rules]]\ntype = "probe"\nevery = "1ba"\nhang_at = 3\ntrace = "trace"\n'
        process = self.start(text)
        self.until(lambda: "hangs" in (self.folder / "trace").read_text())
        self.ctl("set", "rules.probe.hang_at=-1")
        self.ctl("swap", "optimizer", "adam", "lr=0.002")
        self.ctl("checkpoint")
        self.ctl("swap", "rules.probe", "probe", "hang_at=-1", "window=5")
        self.kill(process)
        self.go_on()
        (resumed,) = self.journal("resumed")
        self.assertEqual(self.journal("swap")[-1]["step"], resumed["step"])
        self.assertEqual(self.journal("swap_refused"), [])

    def test_an_evaluation_on_request_steers_nothing(self):
        # A loss that falls is no gain to it: from the second evaluation that it has seen on.
        text = RUN + '[schedule]\ntype = "plateau"\nmode = "max"\npatience = 0\nfactor = 0.1\n[[hooks]]\ntype = "ema"\n'
        process = self.start(text)
        first, second = self.ctl("eval").stdout, self.ctl("eval").stdout
        self.assertIn("val/loss", first)
        self.assertEqual(first, second)
        self.ctl("resume")
        self.assertEqual(process.wait(60), 0)
        plain = self.train(text + NAP.replace("1.0", "0.0"), "--plugins", FAULTY, "--set", "run.output_dir=plain", run="plain")
        self.assertEqual(self.result()["digest"], plain["digest"])
        records = [[line for line in map(json.loads, (self.folder / run / "metrics.jsonl").read_text().splitlines()) if line["what"] == "eval"]
                   for run in ("runs/small", "plain")]
        self.assertEqual([line["step"] for line in records[0]], [line["step"] for line in records[1]])

    def test_no_swap_that_was_acknowledged_is_lost_over_two_kills(self):
        process = self.start()
        self.ctl("checkpoint")
        self.ctl("resume")
        self.ctl("pause")
        self.ctl("swap", "optimizer", "adam", "lr=0.002")
        (first,) = self.journal("swap")
        self.kill(process)
        (self.folder / "asleep").unlink()
        text = RUN + NAP.replace("step = 5", "step = 6")
        self.write("run.toml", text)
        process = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY), cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.until((self.folder / "asleep").exists)
        self.ctl("set", "schedule.warmup=50ba")
        second = self.journal("swap")[-1]
        self.kill(process)
        digest = self.go_on()
        self.assertNotEqual(*(tomllib.loads(line["details"])["number"] for line in (first, second)))
        self.assertEqual(self.as_planned(), (2, digest))

    def test_what_was_acknowledged_ahead_of_the_first_checkpoint_is_not_lost(self):
        process = self.start(RUN.replace('interval = "100ba"', 'interval = "5000ba"'))
        self.ctl("swap", "optimizer", "adam", "lr=0.002")
        self.kill(process)
        digest = self.go_on()
        self.assertEqual(self.journal("resumed"), [])
        self.assertEqual(self.as_planned(), (1, digest))

    def test_a_paused_run_answers_that_its_checkpoint_is_written(self):
        process = self.start(RUN.replace('type = "full"', 'type = "async"'))
        self.assertIn("saved in", self.ctl("checkpoint").stdout)
        self.ctl("stop")
        self.assertEqual(process.wait(60), 0)

    def test_checkpoints_and_records_go_on_where_their_plugins_are_swapped(self):
        text = RUN + planned(1000, "checkpoint", "async") + planned(2000, "logging.sinks.jsonl", "jsonl") + planned(3000, "checkpoint", "full")
        self.train(text)
        self.assertEqual(len(self.journal("swap")), 3)
        self.assertIn("step-00006000", {path.name for path in self.run_folder.glob("checkpoints/step-*")})
        steps = [json.loads(line)["step"] for line in (self.run_folder / "metrics.jsonl").read_text().splitlines()
                 if '"train"' in line]
        self.assertEqual(steps, list(range(500, 6001, 500)))

    def test_a_command_is_done_as_a_whole_or_not_at_all(self):
        process = self.start()
        refusal = self.ctl("set", "optimizer.lr=0.5", "schedule.warmup=\"99999ba\"", code=2).stderr
        self.assertIn("longer than the run", refusal)
        self.assertNotIn("but done", refusal)
        self.assertEqual(self.journal("swap"), [])
        self.assertIn("optimizer: adamw", self.ctl("set", "optimizer.lr=0.5", "schedule.warmup=\"9ba\"").stdout)
        (line,) = self.journal("swap")
        self.assertEqual([each["slot"] for each in tomllib.loads(line["details"])["swap"]], ["optimizer", "schedule"])
        self.ctl("stop")
        self.assertEqual(process.wait(60), 0)

    def test_a_run_begins_from_a_checkpoint_behind_a_swap_of_its_plan(self):
        text = RUN + planned(1000, "optimizer", "sgd", lr=0.05) + planned(3000, "optimizer", "adam")
        whole = self.train(text)
        (checkpoint,) = self.folder.glob("runs/small/checkpoints/step-00005900")
        more = self.train(text.replace('resume = "auto"', f'resume = "{checkpoint}"'), "--set", "run.output_dir=more", run="more")
        self.assertEqual(more["digest"], whole["digest"])

    def test_options_that_are_called_as_keys_of_the_host(self):
        text = RUN + '[[swap]]\nat = "1000ba"\nslot = "schedule"\ntype = "multi_step"\noptions = { at = ["2000ba", "4000ba"] }\n'
        swapped = self.train(text)
        self.assertEqual(len(self.journal("swap")), 1)
        direct = RUN + '[schedule]\ntype = "multi_step"\nat = ["2000ba", "4000ba"]\n'
        self.assertEqual(swapped["digest"], self.train(direct, "--set", "run.output_dir=direct", run="direct")["digest"])
        self.host("train", "runs/small/config.toml", "-q", "--set", "run.output_dir=again")  # as it was printed
        self.assertEqual(self.result("again")["digest"], swapped["digest"])


class ComeAndGo(Steered):
    """Plugins that are added to a run that is going, and removed from it."""
    GRADUAL = RUN.replace('type = "adamw"\nlr = 0.01', 'type = "sgd"\nlr = 0.0625')

    def slots(self):
        return [each["slot"] for each in json.loads(self.ctl("status", "--format", "json").stdout)["slots"]]

    def test_what_comes_and_goes_is_repeated_by_a_resume(self):
        for wait in (0.0, 0.1):
            with self.subTest(wait=wait):
                process = self.start()
                bare = self.slots()
                self.assertRegex(self.ctl("add", "hook", "halving").stdout, r"hooks.halving: halving 1.0.0, generation \d+, added, at step")
                self.ctl("checkpoint")
                self.ctl("add", "hook", "ema", "decay=0.5", "id=mean")
                self.ctl("add", "rule", "exploding_tensor", "every=50ba")  # with the recorder, which there was none of
                self.ctl("add", "metric", "top_k", "k=2")
                self.ctl("add", "sink", "csv")
                self.assertEqual(set(self.slots()) - set(bare), {"hooks.halving", "hooks.mean", "rules.exploding_tensor", "recorder", "metrics.top_k", "logging.sinks.csv"})
                self.ctl("resume")
                self.ctl("pause")
                self.ctl("swap", "hooks.mean", "ema", "decay=0.25")
                self.assertRegex(self.ctl("remove", "hook", "mean").stdout, "hooks.mean: ema removed")
                self.ctl("add", "hook", "dawdling", "steps=1", "seconds=0.0", "id=last", "--watch", "0ba")
                if wait:
                    self.ctl("remove", "hook", "1")  # hooks.halving: the first is the one that sleeps
                    self.ctl("remove", "sink", "csv")
                self.ctl("resume")
                time.sleep(wait)
                self.kill(process)
                digest = self.go_on()
                self.assertEqual(self.as_planned(), (10 if wait else 8, digest))
                self.assertIn("val/top_k", self.result()["metrics"])
                subprocess.run(["rm", "-r", self.folder / "runs", self.folder / "asleep", self.folder / "planned"], check=True)

    def test_a_hook_acts_from_the_step_at_which_it_comes_to_that_at_which_it_goes(self):
        """Gradients that are halved do what half the learning rate does, to the last bit."""
        come = '[[swap]]\nat = "1000ba"\nslot = "hooks.h"\ntype = "halving"\nchange = "add"\n'
        go = '[[swap]]\nat = "3000ba"\nslot = "hooks.h"\nchange = "remove"\n'
        there = self.GRADUAL.replace("6000ba", "4000ba")
        rates = [planned(1000, "optimizer", "sgd", lr=0.03125), planned(3000, "optimizer", "sgd", lr=0.0625)]
        digests = set()
        for plan, same in ((come + go, "".join(rates)), (come, rates[0])):
            hooked = self.train(there + plan, "--overwrite", "--plugins", FAULTY)["digest"]["model"]
            self.assertEqual(len(self.journal("swap")), plan.count("swap"))
            self.assertEqual(hooked, self.train(there + same, "--set", "run.output_dir=rate", "--overwrite", run="rate")["digest"]["model"])
            digests.add(hooked)
        self.assertEqual(len(digests), 2)

    def test_the_order_is_that_of_a_file_with_it_at_the_end(self):
        """Also of those that were behind one that went; the run's own file is then the file that says so."""
        hooks = ['[[hooks]]\ntype = "ema"\n', '[[hooks]]\ntype = "dawdling"\nsteps = 1\nseconds = 0.001\n', '[[hooks]]\ntype = "slow"\n', '[[hooks]]\ntype = "halving"\n']
        short = RUN.replace("6000ba", "40ba")
        plan = ('[[swap]]\nat = "10ba"\nslot = "hooks.halving"\ntype = "halving"\nchange = "add"\n'
                '[[swap]]\nat = "10ba"\nslot = "hooks.dawdling"\nchange = "remove"\n'
                '[[swap]]\nat = "20ba"\nslot = "hooks.slow"\ntype = "slow"\nstep = 1000000\nsign = "never"\n')
        self.train(short + "".join(hooks[:3]) + plan, "--plugins", FAULTY)
        self.write("ordered.toml", short + hooks[0] + '[[hooks]]\ntype = "slow"\nstep = 1000000\nsign = "never"\n' + hooks[3])
        order = [[line for line in self.host("plan", file, "--plugins", FAULTY).stdout.splitlines() if "after_" in line or "before_" in line or line.startswith(("order", "    "))]
                 for file in ("ordered.toml", "runs/small/swapped.toml")]
        self.assertEqual(*order)
        self.assertGreater(len(order[0]), 4)
        files = [sorted(line for line in self.host("config", "show", file, "--plugins", FAULTY).stdout.splitlines() if not line.startswith("name ="))
                 for file in ("ordered.toml", "runs/small/swapped.toml")]
        self.assertEqual(*files)  # a swap puts its options ahead of the others

    def test_a_metric_has_values_while_it_is_there(self):
        short = RUN.replace("6000ba", "40ba").replace('"2000ba"', '"10ba"').replace('"500ba"', '"10ba"')
        come = '[[swap]]\nat = "15ba"\nslot = "metrics.top_k"\ntype = "top_k"\nchange = "add"\noptions = { k = 2 }\n'
        go = '[[swap]]\nat = "35ba"\nslot = "metrics.top_k"\nchange = "remove"\n'
        for plan, steps in ((come, [20, 30, 40]), (come + go, [20, 30])):
            result = self.train(short + plan, "--overwrite")
            for what in ("train", "eval"):
                name = what.replace("eval", "val") + "/top_k"
                self.assertEqual([line["step"] for line in self.lines("metrics.jsonl", what) if name in line["values"]], steps)
                self.assertEqual(name in result["metrics"], steps[-1] == 40)
        self.write("plan.toml", RUN + '[early_stopping]\nmetric = "val/accuracy"\nmode = "max"\n[[swap]]\nat = "9ba"\nslot = "metrics.accuracy"\nchange = "remove"\n')
        self.assertIn('nothing produces "val/accuracy"', self.host("validate", "plan.toml", "--level", "files", code=2).stderr)

    def test_what_cannot_come_or_go_is_refused_and_leaves_no_trace(self):
        process = self.start()
        before = self.slots()
        for words, said in ((("add", "hook", "emma"), "ema"), (("add", "hook", "ema", "decay=7"), "decay"), (("add", "hook", "ema", "dekay=0.5"), "decay"),
                            (("add", "hook", "slow"), "is taken"), (("remove", "hook", "ema"), "hooks.slow"), (("remove", "hook", "7"), "hooks.slow"),
                            (("add", "hook", "faulty", "at=construction", "way=throw"), "on purpose"), (("add", "hook", "initialiser"), "has behind it"),
                            (("add", "metric", "hits_at_k"), "hits_at_k"), (("add", "sink", "jsonl"), "is taken")):
            self.assertIn(said, self.ctl(*words, code=2).stderr, words)
        for slot, said in (("transforms.prune", "hooks, rules, metrics and logging.sinks"), ("model.dropout", "does not come or go"),
                           ("distributed.compressor", "does not come or go"), ("early_stopping", "does not come or go")):
            self.write("plan.toml", RUN + f'[[swap]]\nat = "9ba"\nslot = "{slot}"\ntype = "prune"\nchange = "add"\n')
            self.assertIn(said, self.host("validate", "plan.toml", "--level", "files", code=2).stderr, slot)
        self.assertEqual(self.slots(), before)
        self.ctl("resume")
        self.assertEqual(process.wait(60), 0)
        self.assertEqual(self.result()["digest"], self.train(RUN, "--set", "run.output_dir=plain", run="plain")["digest"])

    def test_a_hook_that_throws_after_it_came_goes_again(self):
        text = RUN.replace("6000ba", "1500ba")
        plain = self.train(text, "--set", "run.output_dir=plain", run="plain")["digest"]
        come = '[[swap]]\nat = "1000ba"\nslot = "hooks.faulty"\ntype = "faulty"\nchange = "add"\noptions = { step = 1002, way = "throw" }\nwatch = "50ba"\n'
        self.assertEqual(self.train(text + come, "--plugins", FAULTY)["digest"], plain)
        (back,) = self.journal("swap_rolled_back")
        self.assertEqual((back["step"], back["details"].count("add")), (1000, 1))

    def test_two_ranks_take_and_leave_it_at_the_same_step(self):
        text = RUN.replace("6000ba", "600ba").replace("batch_size = 16, shuffle", "batch_size = 16, micro_batch_size = 8, shuffle")
        plan = ('[[swap]]\nat = "100ba"\nslot = "hooks.halving"\ntype = "halving"\nchange = "add"\nwatch = "0ba"\n'
                '[[swap]]\nat = "100ba"\nslot = "metrics.top_k"\ntype = "top_k"\nchange = "add"\noptions = { k = 2 }\nwatch = "0ba"\n'
                '[[swap]]\nat = "300ba"\nslot = "hooks.halving"\nchange = "remove"\nwatch = "0ba"\n')
        ranks = ("--ranks", "2", "--plugins", FAULTY)
        whole = self.train(text + plan, *ranks)
        self.assertEqual(len(self.journal("swap")), 3)
        self.assertIn("val/top_k", whole["metrics"])
        self.assertNotEqual(whole["digest"], self.train(text, *ranks, "--set", "run.output_dir=plain", run="plain")["digest"])
        subprocess.run(["rm", "-r", self.run_folder], check=True)  # the file that goes on has other hooks than the one that began
        self.killed_at(text + plan + KILLER, "batch_end 250", *ranks, code=6)
        self.host("train", self.write("run.toml", text + plan), "-q", *ranks)
        self.assertEqual(self.result()["digest"], whole["digest"])


class UsedAfterwards(HostTest):
    """What works on a run that is over takes it as its swaps have left it."""

    def evaluated(self, *words):
        return json.loads(self.host("eval", *words, "--plugins", FAULTY, "--format", "json").stdout)

    def test_a_run_is_evaluated_as_its_swaps_have_left_it(self):
        text = SMALL.replace("lr = 0.01", "lr = 0.001") + '[checkpoint]\ninterval = "2ba"\nkeep_last = 9\n'
        swaps = planned(4, "loss", "cross_entropy", label_smoothing=0.4)
        swaps += planned(5, "metrics.accuracy", "top_k", k=3)
        swaps += with_options(6, "optimizer", "troubled", 5, at="swap_in")
        swaps += with_options(7, "optimizer", "troubled", 5, at="step")
        result = self.train(text + swaps, "--plugins", FAULTY)
        self.assertEqual(result["swaps"], {"made": 2, "refused": 1, "rolled_back": 1})
        expected = {name: value for name, value in result["metrics"].items() if name.startswith("val/")}
        self.assertEqual(expected["val/accuracy"], 1.0)  # of three of the three classes
        for run in ("small", "run.toml", "runs/small/config.toml"):
            self.assertEqual(self.evaluated(run), expected, run)
        audited = self.host("audit", "small", "--steps", 0, "--plugins", FAULTY, "--format", "json").stdout
        self.assertEqual({name: json.loads(audited)["facts"][name] for name in expected}, expected)
        # A checkpoint is of its moment, and the command line has the last word.
        before, after = (f"runs/small/checkpoints/step-0000000{step}" for step in (2, 4))
        (self.folder / "runs/small").rename(self.folder / "apart")
        self.write("plain.toml", text)
        plain = self.evaluated("plain.toml", "--weights", before.replace("runs/small", "apart"))
        (self.folder / "apart").rename(self.folder / "runs/small")
        self.assertEqual(self.evaluated("small", "--weights", before), plain)
        self.assertGreater(self.evaluated("small", "--weights", after)["val/loss"], plain["val/loss"])
        self.assertLess(self.evaluated("small", "--set", "loss.label_smoothing=0.01")["val/loss"], expected["val/loss"])
        # Apart from their run, weights are taken as the file says, with a warning where swaps of the run had set something else.
        (self.folder / "runs/small").rename(self.folder / "apart")
        apart = ("eval", "plain.toml", "--plugins", FAULTY, "--weights", "apart/checkpoints/step-00000004")
        self.assertIn("swaps had set loss.label_smoothing = 0.4;", self.host(*apart).stderr)
        self.assertNotIn("swaps", self.host(*apart, "--set", "loss.label_smoothing=0.4").stderr)
        (self.folder / "apart").rename(self.folder / "runs/small")
        # Without checkpoints it is the same.
        subprocess.run(["rm", "-r", self.folder / "runs/small/checkpoints"], check=True)
        self.assertEqual(self.evaluated("small"), expected)
        self.host("audit", "small", "--steps", 0, "--plugins", FAULTY)

    def test_a_swap_that_was_taken_back_after_a_stop_is_forgotten(self):
        """The process that is stopped leaves the weights as swapped; the one that goes on from there takes the swap back."""
        text = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("2ep", "4ep")
        text = text.replace('type = "adamw"\nlr = 0.01', 'type = "troubled"\nlr = 0.01\nat = "step"\nstep = 6')  # the sixth of a process
        text += '[[hooks]]\ntype = "slow"\nstep = 5\nseconds = 1.0\nsign = "asleep"\n'
        text += planned(4, "loss", "cross_entropy", label_smoothing=0.4, watch="9ba")
        self.write("run.toml", text)
        run = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY), cwd=self.folder, env=self.environment())
        while not (self.folder / "asleep").exists():
            self.assertIsNone(run.poll())
            time.sleep(0.002)
        run.terminate()
        self.assertEqual(run.wait(60), 75)
        self.assertTrue((self.folder / "runs/small/swapped.toml").exists())
        result = self.train(text, "--plugins", FAULTY)
        self.assertEqual(result["swaps"], {"made": 0, "refused": 0, "rolled_back": 1})
        self.assertFalse((self.folder / "runs/small/swapped.toml").exists())
        self.assertEqual(self.evaluated("small")["val/loss"], result["metrics"]["val/loss"])

    def test_predictions_and_exports_are_those_of_the_swapped_model(self):
        """As of a run that has had that model all the time."""
        swapped = 'layers = [8, 16, 3]\nactivation = "tanh"'
        self.train(SMALL + planned(4, "model", "mlp", layers=[8, 16, 3], activation="tanh"))
        self.write("plain.toml", SMALL.replace("layers = [8, 16, 3]", swapped).replace('name = "small"', 'name = "plain"'))
        weights = ("--weights", "runs/small/model.safetensors")
        for verb, file in (("predict --out", "out.csv"), ("export --to onnx --file", "out.onnx")):
            made = []
            for words in (("small",), ("plain.toml", *weights), ("plain.toml", *weights, "--set", "model.activation=relu")):
                self.host(verb.split()[0], *words, *verb.split()[1:], self.folder / file)
                made.append((self.folder / file).read_bytes())
                (self.folder / file).unlink()
            self.assertEqual(made[0], made[1], verb)
            self.assertNotEqual(made[0], made[2], verb)


if __name__ == "__main__":
    unittest.main()
