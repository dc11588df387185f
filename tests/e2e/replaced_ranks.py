"""Where the checkpointer replaces ranks, one that is killed does not end the run: the others keep what they have, a new
process takes its place, and what is trained is what would have been."""
import json
import os
import random
import shutil
import signal
import time
import unittest

from support.ranks import RUN, RankTest

KILLS = int(os.environ.get("TRAINYARD_KILLS", 3))
STEPS = 100 * max(KILLS, 3)
SURVIVES = (RUN.replace('type = "full"', 'type = "cpr"').replace('"5ba"', '"50ba"').replace('eval_interval = "1ep"', 'eval_interval = "4ep"')
            .replace('max_duration = "50ba"', f'max_duration = "{STEPS}ba"'))
RANKS = 4


class ReplacedRanks(RankTest):
    whole = None  # result.json of the run that nobody disturbs

    def journal(self, rank, what):
        folder = self.run_folder / f"ranks/{rank}" if rank else self.run_folder
        if not (folder / "journal.jsonl").exists():
            return []
        lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["what"] == what]

    def kill(self, run, *victims):
        """Gives the seconds until all survivors have gone on."""
        before = [len(self.journal(rank, "replaced")) for rank in range(RANKS)]
        pids = self.ranks_of(run.pid)
        began = time.monotonic()
        for victim in victims:
            os.kill(pids[victim], signal.SIGKILL)
        survivors = [rank for rank in range(RANKS) if rank not in victims]
        self.until(lambda: run.poll() is not None or
                   all(len(self.journal(rank, "replaced")) > before[rank] for rank in survivors))
        self.assertIsNone(run.poll(), run.poll() is not None and run.communicate()[1])
        took = time.monotonic() - began
        after = self.ranks_of(run.pid)
        for rank in range(RANKS):
            (self.assertNotEqual if rank in victims else self.assertEqual)(pids[rank], after[rank])
        return took

    def going(self, text):
        run = self.start("--ranks", RANKS, text=text)
        self.addCleanup(lambda: run.poll() is None and (run.terminate(), run.communicate(timeout=60)))
        self.until(lambda: run.poll() is not None or len(self.steps()) > 2)
        return run

    def undisturbed(self):
        if ReplacedRanks.whole is None:
            ReplacedRanks.whole = self.on(RANKS, SURVIVES)
            shutil.rmtree(self.run_folder)
        return ReplacedRanks.whole

    def steps(self):
        path = self.run_folder / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line)["step"] for line in lines if line.endswith("\n")]

    def test_killed_ranks_are_replaced_and_the_weights_are_those_of_a_run_without_it(self):
        whole = self.undisturbed()
        run = self.going(SURVIVES)
        chance, seconds = random.Random(7), []
        for kill in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.3))
            victim = kill % RANKS  # the first one, too, which has the run's folder and the store
            seconds.append(self.kill(run, victim))
        said = run.communicate(timeout=120)[1]
        self.assertEqual(run.returncode, 0, said)
        print("resumed after", " ".join(f"{each:.2f}" for each in seconds), "s")
        self.assertLessEqual(max(seconds), 5.0)
        result = self.result()
        self.assertEqual(result["digest"], whole["digest"])
        self.assertEqual(result["steps"], whole["steps"])
        for rank in range(RANKS):
            self.assertEqual(self.journal(rank, "resumed"), [])
        self.assertEqual(said.count("a new process takes its place"), KILLS)

    def test_two_ranks_that_are_killed_at_once_are_replaced(self):
        whole = self.undisturbed()
        run = self.going(SURVIVES)
        self.kill(run, 0, 2)
        said = run.communicate(timeout=120)[1]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual(self.result()["digest"], whole["digest"])

    def test_all_ranks_killed_at_once_end_the_run(self):
        run = self.going(SURVIVES)
        for pid in self.ranks_of(run.pid).values():
            os.kill(pid, signal.SIGKILL)
        said = run.communicate(timeout=120)[1]
        self.assertEqual(run.returncode, 6, said)
        self.assertIn("no rank is left that has the state of the run", said)


if __name__ == "__main__":
    unittest.main()
