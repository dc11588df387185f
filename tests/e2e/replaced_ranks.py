"""Where the checkpointer replaces ranks, one that is killed does not end the run: the others keep what they have, a new
process takes its place, and what is trained is what would have been."""
import os
import random
import shutil
import signal
import time
import unittest

from support.host import BUILD
from support.ranks import RUN, ReplacingTest

KILLS = int(os.environ.get("TRAINYARD_KILLS", 3))
STEPS = 100 * max(KILLS, 3)
SURVIVES = (RUN.replace('type = "full"', 'type = "cpr"').replace('"5ba"', '"50ba"').replace('eval_interval = "1ep"', 'eval_interval = "4ep"')
            .replace('max_duration = "50ba"', f'max_duration = "{STEPS}ba"'))
RANKS = 4
FAULTY = BUILD / "tests/faulty"


class ReplacedRanks(ReplacingTest):
    whole = None  # result.json of the run that nobody disturbs

    def undisturbed(self):
        if ReplacedRanks.whole is None:
            ReplacedRanks.whole = self.on(RANKS, SURVIVES)
            shutil.rmtree(self.run_folder)
        return ReplacedRanks.whole

    def test_killed_ranks_are_replaced_and_the_weights_are_those_of_a_run_without_it(self):
        whole = self.undisturbed()
        run = self.going(RANKS, SURVIVES)
        chance, seconds = random.Random(7), []
        for kill in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.3))
            victim = kill % RANKS  # the first one, too, which has the run's folder and the store
            seconds.append(self.kill(run, RANKS, victim))
        said = run.communicate(timeout=400)[1]
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
        run = self.going(RANKS, SURVIVES)
        self.kill(run, RANKS, 0, 2)
        said = run.communicate(timeout=400)[1]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual(self.result()["digest"], whole["digest"])

    def test_a_rank_is_killed_anywhere_in_a_step_and_around_it(self):
        text = (SURVIVES.replace(f'"{STEPS}ba"', '"12ba"').replace('"4ep"', '"6ba"').replace('"50ba"', '"6ba"')
                + '[[hooks]]\ntype = "rank_killer"\nplace = "place"\nrank = {rank}\n')
        expected = None
        for place in ("-", "before_fetch 7", "after_backward 6", "before_reduce 6", "after_reduce 6", "before_step 6", "after_step 6",
                      "batch_end 6", "eval_start 6", "eval_batch_end 6", "eval_end 6", "safe_point 6", "before_checkpoint 6",
                      "safe_point 5", "before_step 1"):
            for rank in (0, 1) if place in ("after_step 6", "eval_end 6") else (1,):
                with self.subTest(place=place, rank=rank):
                    self.write("place", place)
                    result = self.on(2, text.replace("{rank}", str(rank)), "--plugins", FAULTY)
                    expected = expected or result["digest"]
                    self.assertEqual(result["digest"], expected)
                    self.assertEqual(len(self.journal(1 - rank, "replaced")), int(place != "-"))

    def test_all_ranks_killed_at_once_end_the_run(self):
        run = self.going(RANKS, SURVIVES)
        for pid in self.ranks_of(run.pid).values():
            os.kill(pid, signal.SIGKILL)
        said = run.communicate(timeout=400)[1]
        self.assertEqual(run.returncode, 6, said)
        self.assertIn("no rank is left that has the state of the run", said)


if __name__ == "__main__":
    unittest.main()
