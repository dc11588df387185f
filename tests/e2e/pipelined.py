"""The executor `pipelined`, with momentum and what its methods keep: killed at steps and moments at random and gone on with,
swapped for other executors and back, with swaps that are refused or taken back: always the bits of a run that was left alone."""
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from support.host import BUILD, SMALL, HostTest

FAULTY = BUILD / "tests" / "faulty"
STEPS = 60
RUN = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("2ep", f"{STEPS}ba").replace('"1ep"', '"9ba"').replace(
    'type = "mlp"\nlayers = [8, 16, 3]', 'type = "residual_mlp"\nwidth = 8\nblocks = 6').replace(
    'type = "adamw"\nlr = 0.01', 'type = "sgd"\nlr = 0.05\nmomentum = 0.9\nweight_decay = 1e-3') + """
[schedule]
type = "cosine"
[checkpoint]
type = "full"
interval = "7ba"
[logging]
interval = "1ba"
"""
KILLER = '[[hooks]]\ntype = "killer"\nplace = "place"\n'
KILLS = int(os.environ.get("TRAINYARD_KILLS", "3"))


def executor(mitigation, mode="threads", type="pipelined"):
    return f'[executor]\ntype = "{type}"\nmitigation = "{mitigation}"\nreference_batch_size = 16\nmode = "{mode}"\n'


def planned(at, type, watch, **options):
    text = f'[[swap]]\nat = "{at}ba"\nslot = "executor"\ntype = "{type}"\nwatch = "{watch}ba"\n'
    more = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    return text + (f"options = {{ {more} }}\n" if more else "")


class Pipelined(HostTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "runs" / "small"
        self.chance = random.Random(5)

    def outcome(self, text):
        """What a run of the file ends with: digests, and the metrics of its evaluations. Nothing stays of it."""
        self.host("train", self.write("run.toml", text), "-q", "--plugins", FAULTY)
        result = self.result()
        lines = map(json.loads, (self.run_folder / "metrics.jsonl").read_text().splitlines())
        told = [(line["step"], line["values"]) for line in lines if line["what"] == "eval"]
        shutil.rmtree(self.folder / "runs")
        self.assertEqual(result["steps"], STEPS)
        return result["digest"], told

    def killed(self, text, event, step):
        """Goes on with the run until a hook kills it there."""
        self.write("place", f"{event} {step}")
        self.host("train", self.write("run.toml", text), "-q", "--plugins", FAULTY, code=-signal.SIGKILL)
        (self.folder / "place").unlink()

    def journal(self, what):
        return [line["step"] for line in map(json.loads, (self.run_folder / "journal.jsonl").read_text().splitlines()) if line["what"] == what]

    def test_killed_at_random_steps(self):
        digests = set()
        for mitigation in ("none", "stash", "lwpw", "lwpv+sc"):
            text = RUN + executor(mitigation) + KILLER
            expected = self.outcome(text)
            self.assertEqual(self.outcome(RUN + executor(mitigation, "sim") + KILLER), expected)
            digests.add(expected[0]["model"])
            steps = sorted(self.chance.sample(range(8, STEPS), KILLS))
            with self.subTest(mitigation, steps=steps):
                for step in steps:
                    self.killed(text, self.chance.choice(("batch_end", "before_step")), step)
                self.assertEqual(self.outcome(text), expected)
        self.assertEqual(len(digests), 4)

    def test_killed_at_any_moment(self):
        for mitigation in ("stash", "lwpv+sc"):
            text = RUN.replace(f'"{STEPS}ba"', '"400ba"').replace('"1ba"', '"100ba"').replace('"9ba"', '"150ba"') + executor(mitigation)
            self.write("run.toml", text)
            self.host("train", "run.toml", "-q", "--set", "run.output_dir=plain")
            for _ in range(KILLS):
                process = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment(),
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(self.chance.uniform(0.2, 0.7))
                process.kill()
                process.wait()
            self.host("train", "run.toml", "-q")
            self.assertEqual(self.result()["digest"], self.result("plain")["digest"])
            shutil.rmtree(self.folder / "runs")
            shutil.rmtree(self.folder / "plain")

    def test_swapped_for_other_executors_and_back(self):
        """The velocity goes along: in the order pipelined, compiled, eager, pipelined."""
        for mitigation in ("stash", "lwpv+sc"):
            def plan(watch):
                back = {"mitigation": mitigation, "reference_batch_size": 16}
                return (RUN + executor(mitigation) + KILLER + planned(15, "compiled", watch) + planned(27, "eager", watch) +
                        planned(38, "pipelined", watch, **back))
            expected = self.outcome(plan(0))
            self.assertEqual(self.outcome(plan(8)), expected)
            self.assertNotEqual(expected, self.outcome(RUN + executor(mitigation) + KILLER))
            for kills in ((17, 30, 41), (15, 27, 50)):  # within watches; at the swaps, and behind them all
                with self.subTest(mitigation, kills=kills):
                    for step in kills:
                        self.killed(plan(8), "batch_end", step)
                    self.assertEqual(self.journal("swap")[0], 15)
                    self.assertEqual(self.outcome(plan(8)), expected)

    def test_what_was_in_flight_is_there_again_where_another_executor_does_not_stay(self):
        for mitigation in ("sc", "lwpv+sc"):
            text = RUN + executor(mitigation) + KILLER
            expected = self.outcome(text)
            with self.subTest(mitigation):
                refused = text + planned(15, "by_hand", 8, refuses_to_open=1)
                self.killed(refused, "batch_end", 30)
                self.assertEqual(self.journal("swap_refused"), [15])
                self.assertEqual(self.outcome(refused), expected)
                back = text + planned(15, "by_hand", 12, throws_within=20)
                self.killed(back, "batch_end", 18)  # within the watch
                self.killed(back, "batch_end", 40)
                self.assertEqual(self.journal("swap_rolled_back"), [15])
                self.assertEqual(self.outcome(back), expected)


if __name__ == "__main__":
    unittest.main()
