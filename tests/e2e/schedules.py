"""Every schedule through kill -9 and resume: the learning rates of the steps, and the digests that the momenta went into,
are those of a run that was left alone. `python3 tests/e2e/schedules.py --kills N` kills each run at least N times (default 1)."""
import json
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support.host import FAULTY, SMALL, HostTest

KILLS = int(sys.argv[sys.argv.index("--kills") + 1]) if "--kills" in sys.argv else 1
LINEAR = '{ type = "linear", start_factor = 0.1, end_factor = 1.0, budget = "20%" }'
CYCLE = '{ type = "one_cycle", budget = "15ba" }'
SCHEDULES = [
    'type = "constant"\nvalue = 0.5\nlength = "15ba"', 'type = "linear"', 'type = "step"', 'type = "multi_step"',
    'type = "exponential"', 'type = "cosine"', 'type = "warm_restarts"\nfirst = "5ba"\nmult = 2', 'type = "polynomial"',
    'type = "one_cycle"', 'type = "one_cycle"\nthree_phase = true\nanneal = "linear"',
    'type = "plateau"\npatience = 0\nthreshold = 0.2\nfactor = 0.7', 'type = "cyclic"\nup = "4ba"\nmode = "triangular2"',
    'type = "inverse_sqrt"', 'type = "wsd"\nwarmup = "10%"', 'type = "rex"\nwarmup = "4ba"\nfloor = 0.01',
    f'type = "sequence"\nparts = [{LINEAR}, {CYCLE}, {{ type = "rex" }}]',
    f'type = "sequence"\nparts = [{LINEAR}, {{ type = "sequence", parts = [{CYCLE}, {{ type = "cosine" }}] }}]',
    'type = "chain"\nparts = [{ type = "rex" }, { type = "step", every = "7ba", gamma = 0.5 }]',
]
RUN = (SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace('"2ep"', '"10ep"').replace("eval_interval = \"1ep\"", 'eval_interval = "3ba"')
       .replace('type = "adamw"\nlr = 0.01', 'type = "sgd"\nlr = 0.02\nmomentum = 0.9')
       + '[logging]\ninterval = "1ba"\n[checkpoint]\ntype = "full"\ninterval = "1ba"\nkeep_last = 2\n[schedule]\n')


class Schedules(HostTest):
    def rates(self):
        lines = map(json.loads, (self.folder / "runs/small/metrics.jsonl").read_text().splitlines())
        return [(line["step"], line["values"]["lr"]) for line in lines if "lr" in line.get("values", {})]

    def killed(self, after):
        """Whether it was still going then."""
        process = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
        return process.wait() == -signal.SIGKILL

    def test_killed_at_random_moments(self):
        draw = random.Random(5)
        for schedule in SCHEDULES:
            with self.subTest(schedule=schedule):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                began = time.monotonic()
                expected = self.train(RUN + schedule)["digest"]
                seconds = time.monotonic() - began
                rates = self.rates()
                self.assertEqual([step for step, _ in rates], list(range(1, 41)))
                kills = 0
                while kills < KILLS:
                    shutil.rmtree(self.folder / "runs")
                    # A start takes a good part of the time; no start gets so far that the last one has nothing to do.
                    while kills < KILLS and not (self.folder / "runs/small/result.json").exists():
                        kills += self.killed(seconds * draw.uniform(0.3, 0.8))
                    self.assertEqual(self.train(RUN + schedule)["digest"], expected)
                    self.assertEqual(self.rates(), rates)

    def test_swaps_on_two_ranks_leave_the_rates_of_one(self):
        turns = ['type = "rex"', 'type = "step"\noptions = { every = "3ba", gamma = 0.5 }', 'type = "wsd"\noptions = { warmup = "10%" }',
                 f'type = "sequence"\noptions = {{ parts = [{LINEAR}, {CYCLE}] }}', 'type = "cosine"\noptions = { min_factor = 0.1 }',
                 'type = "chain"\noptions = { parts = [{ type = "rex" }, { type = "step", every = "7ba", gamma = 0.5 }], budget = "60ba" }']
        curves = []
        for carry in ("state", "fresh", "restart", "splice"):
            swaps = "".join(f'[[swap]]\nat = "{5 * at}ba"\nslot = "schedule"\ncarry = "{carry}"\n{turn}\n' for at, turn in enumerate(turns, 1))
            of_ranks = []
            for ranks in (1, 2):
                self.train(RUN + 'type = "linear"\n' + swaps, "--overwrite", "--ranks", ranks)
                self.assertEqual([line["step"] for line in self.lines("journal.jsonl", "swap")], list(range(5, 35, 5)))
                of_ranks.append(self.rates())
            with self.subTest(carry=carry):
                self.assertEqual(len(of_ranks[0]), 40)
                self.assertEqual(*of_ranks)
            curves.append(str(of_ranks[0]))
        self.assertEqual(len(set(curves)), 3, "none of these has a state: fresh is as state, and the others differ")

    def test_an_executor_that_makes_fewer_updates_than_steps(self):
        """They are what the schedule goes by: the run says how far it came, and how the whole curve is had."""
        text = SMALL + '[executor]\ntype = "by_hand"\nevery = 2\n[schedule]\ntype = "cosine"\n'
        log = self.folder / "runs/small/run.log"
        self.train(text, "--plugins", FAULTY)
        self.assertIn('[schedule] goes by updates, and the executor made 4 in 8 steps: the curve ends at update 4 of '
                      '8; schedule.budget = "4ba" has it end there', log.read_text())
        for words in (("--set", "schedule.budget=4ba"), ("--set", "executor.every=1")):
            self.train(text, "--plugins", FAULTY, "--overwrite", *words)
            self.assertNotIn("goes by updates", log.read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
