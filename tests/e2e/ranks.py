"""Several ranks train as one would: the same weights, the same data once each, and all of them or none."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
import unittest

from support.host import BUILD
from support.ranks import RUN, RankTest

KILLS = int(os.environ.get("TRAINYARD_KILLS", 1))
FAULTY = BUILD / "tests/faulty"
# Of the second rank alone.
ASKS = '[[hooks]]\ntype = "asking"\nrank = 1\n'


class Ranks(RankTest):
    # --- the same training

    def test_two_and_four_ranks_train_as_one_does_whatever_the_optimizer(self):
        for optimizer in ("adagrad", "adam", "adamw", "lamb", "lars", "rmsprop", "sgd"):
            text = RUN.replace('type = "adamw"', f'type = "{optimizer}"')
            one = self.on(1, text)
            alone = self.weights()
            for ranks in (2, 4) if optimizer == "adamw" else (2,):
                with self.subTest(optimizer=optimizer, ranks=ranks):
                    many = self.on(ranks, text)
                    self.assertLess(self.furthest(self.weights(), alone), 1e-6)
                    self.assertEqual((many["steps"], many["samples"], many["epochs"]), (one["steps"], one["samples"], one["epochs"]))
                    for name in ("val/loss", "val/accuracy", "train/loss"):
                        self.assertAlmostEqual(many["metrics"][name], one["metrics"][name], delta=1e-6)

    def test_torchrun_starts_the_same(self):
        torchrun = pathlib.Path(os.environ.get("VIRTUAL_ENV", "")) / "bin/torchrun"
        found = shutil.which("torchrun") or (str(torchrun) if torchrun.exists() else None)
        if found is None:
            self.skipTest("no torchrun here")
        self.on(2)
        expected = self.weights()
        shutil.rmtree(self.run_folder)
        done = subprocess.run([found, "--no-python", "--nproc-per-node", "2", "--master-port", "0", *self.command("train", "run.toml", "-q")],
                              cwd=self.folder, text=True, capture_output=True, timeout=120, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.furthest(self.weights(), expected), 0.0)

    def test_a_run_goes_from_one_rank_to_two_to_four_and_back(self):
        self.on(1)
        expected = self.weights()
        shutil.rmtree(self.run_folder)
        for ranks, until in ((1, 11), (2, 23), (4, 37), (1, 50)):
            result = self.train(RUN, *(("--ranks", ranks) if ranks > 1 else ()), "--set", f"trainer.max_duration={until}ba")
            self.assertEqual(result["steps"], until)
        self.assertLess(self.furthest(self.weights(), expected), 1e-6)
        self.assertEqual(result["samples"], 50 * 16 - 10 * 8)  # each epoch of 72 has four whole steps and one of eight

    # --- what does not fit

    def test_batches_that_cannot_be_cut_are_refused(self):
        self.write("run.toml", RUN)
        said = self.host("validate", "run.toml", "--ranks", 3, code=2).stderr
        self.assertIn("E207", said)
        self.assertIn("x ranks 3", said)

    def test_ranks_that_were_started_differently_are_refused(self):
        self.write("run.toml", RUN)
        port = str(20000 + os.getpid() % 20000)
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        started = [subprocess.Popen(self.command("train", "run.toml", "-q", "--set", f"optimizer.lr={rate}"), cwd=self.folder, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(RANK=str(rank), **place))
                   for rank, rate in enumerate((0.01, 0.02))]
        said = "".join(each.communicate(timeout=60)[1] for each in started)
        self.assertEqual([each.returncode for each in started], [2, 2])
        self.assertRegex(said, "rank 1 differs from rank 0: it has lr = 0.02, and rank 0 has lr = 0.01")

    # --- ranks that die

    def test_a_rank_that_is_killed_is_named_and_the_run_resumes_to_the_bit(self):
        text = RUN.replace('max_duration = "50ba"', f'max_duration = "{200 * KILLS}ba"')
        whole = self.on(4, text)
        shutil.rmtree(self.run_folder)
        chance, kills = random.Random(5), 0
        for attempt in range(KILLS):
            run = self.start("--ranks", 4, text=text)
            journal = self.run_folder / "metrics.jsonl"
            until = time.monotonic() + 60
            while time.monotonic() < until and not (journal.exists() and journal.stat().st_size > 200 * (attempt + 1)):
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 0.2))
            victim = chance.randrange(4)
            if run.poll() is not None:
                break
            pids = self.ranks_of(run.pid)
            os.kill(pids[victim], signal.SIGKILL)
            began = time.monotonic()
            said = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 6, said)
            self.assertLess(time.monotonic() - began, 10)
            self.assertIn(f"rank {victim} died by signal 9", said)
            kills += 1
        self.assertGreater(kills, 0)
        result = self.train(text, "--ranks", 4)
        self.assertEqual(result["digest"], whole["digest"])

    def test_a_rank_that_only_went_silent_is_told_and_waited_for(self):
        text = RUN.replace('max_duration = "50ba"', 'max_duration = "1000ba"')
        whole = self.on(2, text)
        shutil.rmtree(self.run_folder)
        run = self.start("--ranks", 2, text=text)
        self.until(lambda: (self.run_folder / "metrics.jsonl").exists())
        silent = self.ranks_of(run.pid)[1]
        os.kill(silent, signal.SIGSTOP)
        log = self.run_folder / "run.log"
        self.until(lambda: "rank 1 has given no sign of life for 8 s; the others wait for it" in log.read_text())
        os.kill(silent, signal.SIGCONT)
        run.terminate()
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 75, said)
        result = self.train(text, "--ranks", 2)
        self.assertEqual(result["digest"], whole["digest"])

    # --- swaps

    def live(self, ranks):
        """A run that goes on until it is told to stop."""
        text = RUN.replace('max_duration = "50ba"', 'max_duration = "1000000ba"') + '[[hooks]]\ntype = "faulty"\n'
        run = self.start("--ranks", ranks, "--plugins", FAULTY, text=text)
        self.addCleanup(lambda: (run.poll() is None and run.send_signal(signal.SIGTERM), run.communicate(timeout=60)))
        until = time.monotonic() + 60
        while not (self.run_folder / "checkpoints/latest").exists():
            self.assertIsNone(run.poll(), "it ended by itself")
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        return run

    def journals(self, ranks, what):
        folders = [self.run_folder, *(self.run_folder / f"ranks/{rank}" for rank in range(1, ranks))]
        return [[line for line in map(json.loads, (folder / "journal.jsonl").read_text().splitlines()) if line["what"] == what]
                for folder in folders]

    def test_a_swap_is_made_by_all_ranks_at_one_step_or_by_none(self):
        run = self.live(4)
        self.host("ctl", "small", "swap", "optimizer", "sgd", "lr=0.001")
        refused = self.host("ctl", "small", "swap", "hooks.faulty", "faulty", "at=construction", "way=throw", "rank=2", code=2).stderr
        self.assertIn("rank 2: ", refused)
        began = time.monotonic()
        self.host("ctl", "small", "swap", "hooks.faulty", "faulty", "at=construction", "way=doze", "rank=1")
        self.assertGreater(time.monotonic() - began, 0.3)
        self.host("ctl", "small", "eval")
        self.host("ctl", "small", "stop")
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0)
        swaps = self.journals(4, "swap")
        self.assertEqual([len(each) for each in swaps], [2] * 4)
        for swap in range(2):
            self.assertEqual(len({each[swap]["step"] for each in swaps}), 1)
        self.assertEqual([len(each) for each in self.journals(4, "swap_refused")], [1] * 4)

    def test_a_rank_that_dies_while_it_prepares_a_swap_ends_the_run(self):
        run = self.live(4)
        self.host("ctl", "small", "swap", "hooks.faulty", "faulty", "at=construction", "way=segv", "rank=3", code=2)
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 6, said)
        self.assertIn("rank 3 died by signal 11", said)
        self.assertEqual(self.journals(4, "swap"), [[]] * 4)

    # --- signals, requests

    def test_what_one_rank_asks_for_all_ranks_do(self):
        text = RUN.replace('max_duration = "50ba"', 'max_duration = "1000000ba"') + ASKS
        result = self.on(2, text, "--plugins", FAULTY)
        self.assertEqual(result["status"], "stopped")
        self.assertLess(result["steps"], 12)

    def test_a_signal_stops_all_ranks_at_one_step_and_the_run_goes_on(self):
        text = RUN.replace('max_duration = "50ba"', 'max_duration = "1500ba"')
        whole = self.on(2, text)
        shutil.rmtree(self.run_folder)
        run = self.start("--ranks", 2, text=text)
        while not (self.run_folder / "checkpoints/latest").exists():
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 75)
        self.assertEqual(self.train(text, "--ranks", 2)["digest"], whole["digest"])


if __name__ == "__main__":
    unittest.main()
