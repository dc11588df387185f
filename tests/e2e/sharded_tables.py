"""Embedding tables whose rows lie on different ranks train as whole ones do; and where a rank is killed, the others load
nothing, and its rows alone come from the disk."""
import os
import random
import re
import shutil
import signal
import time
import unittest

from support.ranks import ReplacingTest

KILLS = int(os.environ.get("TRAINYARD_KILLS", 2))
RANKS = 4
RUN = """
schema = 1
[run]
name = "small"
seed = 5
resume = "auto"
deterministic = "strict"
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "dlrm"
dim = 8
bottom = [16]
top = [16]
tables = [10, 203, 5000, 20001]
sharded = true
[loss]
type = "bce_with_logits"
[data]
type = "ctr"
rows = [10, 203, 5000, 20001]
features = 4
train = { size = 6464, batch_size = 64, micro_batch_size = 8, shuffle = true, drop_last = true }
val = { size = 400, batch_size = 100 }
[[metrics]]
type = "auc"
[optimizer]
type = "rowwise_adagrad"
tables = ["tables.*"]
lr = 0.05
[trainer]
max_duration = "30ba"
eval_interval = "20ba"
[[logging.sinks]]
type = "jsonl"
[logging]
interval = "5ba"
[checkpoint]
type = "full"
interval = "10ba"
"""
WHOLE = RUN.replace("sharded = true", "sharded = false")
CPR = (RUN.replace('type = "full"\ninterval = "10ba"', 'type = "cpr"\ntarget_pls = 0.3\nmtbf = 50')
       .replace("30ba", f"{60 * (KILLS + 1)}ba").replace('eval_interval = "20ba"', 'eval_interval = "1000ba"'))


class ShardedTables(ReplacingTest):
    def test_tables_in_parts_train_as_whole_ones(self):
        expected = self.on(1, WHOLE)
        weights = self.weights()
        for ranks in (2, RANKS):
            with self.subTest(ranks=ranks):
                found = self.on(ranks, RUN)
                self.assertLess(self.furthest(self.weights(), weights), 1e-6)
                self.assertAlmostEqual(found["metrics"]["val/auc"], expected["metrics"]["val/auc"], delta=1e-6)
                self.assertAlmostEqual(found["metrics"]["val/loss"], expected["metrics"]["val/loss"], delta=1e-6)

    def test_a_checkpoint_of_parts_is_gone_on_from_with_another_number_of_ranks(self):
        self.on(1, WHOLE)
        weights = self.weights()
        shutil.rmtree(self.run_folder)
        for ranks, until in ((RANKS, 10), (2, 20), (1, 30)):
            self.train(RUN, *(("--ranks", ranks) if ranks > 1 else ()), "--set", f"trainer.max_duration={until}ba")
        self.assertLess(self.furthest(self.weights(), weights), 1e-6)

    def test_weights_of_whole_tables_are_loaded_into_parts(self):
        self.on(1, WHOLE)
        elsewhere = self.folder / "elsewhere.safetensors"
        shutil.copy(self.run_folder / "model.safetensors", elsewhere)
        words = ("--set", f"run.resume={elsewhere}", "--set", "run.load=weights", "--set", "trainer.max_duration=5ba")
        self.on(1, WHOLE, *words)
        weights = self.weights()
        self.on(2, RUN, *words)
        self.assertLess(self.furthest(self.weights(), weights), 1e-6)

    def test_averaged_weights_are_refused(self):
        """Evaluations would read the tables themselves, and the average of one rank be that of all behind a resume."""
        for hook in ("ema", "swa"):
            said = self.host("train", self.write("run.toml", RUN + f'[[hooks]]\ntype = "{hook}"\n'), "-q", "--ranks", 2, code=2).stderr
            self.assertIn(f"{hook} at model_ready, step 0: averages weights for evaluations, and the tables of the model lie in parts", said)
        self.on(1, RUN + '[[hooks]]\ntype = "ema"\n', "--set", "trainer.max_duration=2ba")  # they are whole

    def test_what_was_lost_counts_on_where_a_run_is_resumed_by_hand(self):
        run = self.going(RANKS, CPR)
        self.kill(run, RANKS, 2)
        before = self.losses()
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 75)
        run = self.start("--ranks", RANKS, text=CPR)
        self.addCleanup(lambda: run.poll() is None and (run.terminate(), run.communicate(timeout=60)))
        self.until(lambda: run.poll() is not None or self.journal(0, "resumed"))
        steps = len(self.steps())
        self.until(lambda: run.poll() is not None or len(self.steps()) > steps)
        self.kill(run, RANKS, 1)
        run.communicate(timeout=400)
        self.assertEqual(run.returncode, 0)
        after = self.losses()
        total = 64 * 60 * (KILLS + 1)
        self.assertEqual(len(after), 2)
        self.assertAlmostEqual(after[1][1] - before[0][1], after[1][0] / total / RANKS, delta=1e-4)

    def losses(self):
        """(samples, portion of lost samples by then) of each failure."""
        lines = [line["why"] for line in self.journal(0, "partial_recovery")]
        return [(int(re.search(r"(\d+) samples lost", line)[1]), float(line.rsplit(" ", 1)[1])) for line in lines]

    def test_a_killed_rank_loads_its_rows_and_the_others_load_nothing(self):
        undisturbed = self.on(RANKS, CPR)
        shutil.rmtree(self.run_folder)
        run = self.going(RANKS, CPR)
        chance, seconds = random.Random(3), []
        for kill in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.3))
            seconds.append(self.kill(run, RANKS, kill % RANKS))
            for rank in range(RANKS):
                self.until(lambda: len(self.journal(rank, "partial_recovery")) > kill)
                loaded = int(re.match(r"(\d+) bytes of the tables loaded", self.journal(rank, "partial_recovery")[kill]["why"])[1])
                (self.assertGreater if rank == kill % RANKS else self.assertEqual)(loaded, 0)
        said = run.communicate(timeout=400)[1]
        self.assertEqual(run.returncode, 0, said)
        print("resumed after", " ".join(f"{each:.2f}" for each in seconds), "s")
        self.assertLessEqual(max(seconds), 5.0)
        result = self.result()
        self.assertEqual(result["steps"], undisturbed["steps"])
        self.assertNotEqual(result["digest"], undisturbed["digest"])  # what the rows had learnt since is lost
        lost = [float(line["why"].rsplit(" ", 1)[1]) for line in self.journal(1 if KILLS < 2 else 3, "partial_recovery")]
        self.assertEqual(lost, sorted(lost))
        self.assertGreater(lost[-1], 0.0)


if __name__ == "__main__":
    unittest.main()
