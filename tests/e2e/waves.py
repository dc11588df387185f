"""The executor wavelet in a run that is killed and goes on, that skips steps, and that swaps executors: it ends with the bits of
the run that nothing happened to."""
import json
import shutil
import subprocess
import time
import unittest

from support.host import FAULTY, SMALL, KilledTest, planned

RUN = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("size = 64, batch_size = 16", "size = 64, batch_size = 16, micro_batch_size = 8")
RUN = RUN.replace('max_duration = "2ep"', 'max_duration = "61ba"').replace('eval_interval = "1ep"', 'eval_interval = "17ba"') + """
[checkpoint]
type = "full"
interval = "9ba"
[logging]
interval = "1ba"
[[hooks]]
type = "killer"
place = "place"
"""
RULES = ('sync = "joint"', 'sync = "stale1"', 'sync = "replica"', 'sync = "replica"\nsync_every = 3')
SKIPS = '[[hooks]]\ntype = "skipping"\n'


def waves(rule):
    return f'[executor]\ntype = "wavelet"\n{rule}\n'


class Waves(KilledTest):
    def test_killed_it_goes_on_with_the_same_bits(self):
        ends = set()
        for rule in RULES:
            with self.subTest(rule):
                text = RUN + waves(rule)
                expected = self.whole(text)
                self.assertEqual(self.killed(text, "before_step 33", "eval_batch_end 50"), expected)
                ends.add(json.dumps(expected[0]))
        self.assertEqual(len(ends), len(RULES))  # the rules are no synonyms

    def test_the_rate_that_a_hook_has_left_is_logged_by_a_resume_too(self):
        """A step is logged ahead of its update, with the rate of the last one."""
        text = RUN + waves('sync = "stale1"') + '[[hooks]]\ntype = "braking"\n'
        expected = self.whole(text)
        self.assertEqual(self.killed(text, "before_step 33"), expected)

    def test_killed_while_a_wave_waits_for_memory(self):
        """The one stops backward with all that a pass has, which is as much as both may have; nothing but memory keeps the other."""
        for rule in ('sync = "joint"', 'sync = "stale1"'):
            with self.subTest(rule):
                loss = f'type = "delayed"\nseconds = 0.0\nplace = "{self.folder / "place"}"'
                text = RUN.replace('type = "cross_entropy"', loss).replace("micro_batch_size = 8", "micro_batch_size = 2")
                text = text.replace('[[hooks]]\ntype = "killer"\nplace = "place"\n', "") + waves(rule + "\npeak = 1.0\noffset = 0.0\nmemory_budget = 0")
                expected = self.whole(text)
                waits = False
                for number in range(106, 111):  # in steps of eight passes: not at each has the other wave one to begin
                    self.assertEqual(self.killed(text, str(number)), expected)
                    slept = dict(map(str.split, self.said[0].splitlines()))
                    # A wave that waits for memory looks again every 200 us; one that waits for another thing sleeps once.
                    waits = max(int(slept["wavelet/tick"]), int(slept["wavelet/tock"])) > 100
                    if waits:
                        break
                self.assertTrue(waits)
                self.assertRegex((self.folder / "runs/small/run.log").read_text(), "they waited [1-9][0-9]* times for memory")

    def test_an_error_of_one_step_waits_for_the_passes_of_the_other(self):
        """Which goes from micro-batch to micro-batch with a network, a loss and a host that have to be there."""
        text = SMALL.replace("batch_size = 16, shuffle", "batch_size = 16, micro_batch_size = 4, shuffle")
        text = text.replace('type = "cross_entropy"', 'type = "delayed"\nseconds = 0.2').replace('type = "adamw"', 'type = "troubled"\nat = "step"\nstep = 1')
        for rule in RULES[1:3]:
            with self.subTest(rule):
                said = self.train(text + waves(rule), "--plugins", FAULTY, "--overwrite", code=3)["error"]
                self.assertIn("[optimizer] troubled, step 2: thrown on purpose", said)

    def test_steps_that_a_plugin_skips(self):
        for rule in RULES[1:]:
            with self.subTest(rule):
                text = RUN + SKIPS + waves(rule)
                expected = self.whole(text)
                self.assertEqual(self.killed(text, "before_step 14"), expected)
                self.assertNotEqual(self.whole(RUN + waves(rule)), expected)

    def test_a_refused_swap_pauses_the_waves_in_a_resume_too(self):
        """From there on it is another training."""
        for rule in RULES[1:3]:
            with self.subTest(rule):
                text = RUN + waves(rule)
                undisturbed = self.whole(text)
                text += planned(12, "optimizer", "troubled", 5, at="swap_in")
                expected = self.whole(text)
                self.assertNotEqual(expected, undisturbed)
                self.assertEqual(self.killed(text, "before_step 16"), expected)

    def test_a_pause_under_the_watch_of_a_swap_comes_again_once_that_is_taken_back(self):
        swaps = planned(10, "optimizer", "troubled", 9, at="step", step=4)
        swaps += planned(12, "optimizer", "troubled", 5, at="swap_in")
        for interval, places in (("9ba", ("before_step 16",)), ("4ba", ("before_step 14", "before_step 18"))):
            with self.subTest(interval):
                text = RUN.replace("9ba", interval) + waves(RULES[1]) + swaps
                expected = self.whole(text)
                paused = [line["step"] for line in self.lines("journal.jsonl", "executor_paused")]
                self.assertEqual(paused, [12, 10])
                self.assertEqual(self.killed(text, *places), expected)

    def test_a_command_pauses_the_waves_in_a_resume_too(self):
        """It goes on from a checkpoint ahead of the command, with the journal that tells of it and without."""
        slow = 'type = "delayed"\nseconds = 0.004'
        text = RUN.replace('interval = "9ba"', 'interval = "9ba"\nkeep_last = 99').replace('type = "cross_entropy"', slow)
        folder = self.folder / "runs/small"
        for command in ("eval", "checkpoint"):
            with self.subTest(command):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                self.write("run.toml", text + waves(RULES[1]))
                run = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY), cwd=self.folder,
                                       env=self.environment())
                while not (folder / "checkpoints/latest").exists():
                    self.assertIsNone(run.poll())
                    time.sleep(0.01)
                step = 0
                while step % 9 == 0 or step % 17 == 0:  # at a step at which the run does not pause by itself
                    self.host("ctl", "small", command)
                    step = self.lines("journal.jsonl", "executor_paused")[-1]["step"]
                self.assertEqual(run.wait(60), 0)
                expected = self.result()["digest"]
                self.assertEqual(self.gone_on_with(text, step), expected)
                journal = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
                self.write(folder / "journal.jsonl", "".join(line for line in journal if "executor_paused" not in line))
                self.assertNotEqual(self.gone_on_with(text, step), expected)

    def test_a_command_pauses_the_waves_in_a_run_that_goes_back_too(self):
        """In the process itself, as in a resume from the same checkpoint, which does without the hook, too."""
        text = RUN.replace('interval = "9ba"', 'interval = "9ba"\nkeep_last = 99') + '[guard]\nnan = "rollback"\n'
        self.write("run.toml", text + '[[hooks]]\ntype = "between"\nsleep = 11\npoison = 17\n' + waves(RULES[1]))
        run = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY), cwd=self.folder, env=self.environment())
        while not (self.folder / "asleep").exists():
            self.assertIsNone(run.poll())
            time.sleep(0.002)
        self.host("ctl", "small", "eval")
        self.assertEqual(run.wait(60), 0)
        self.assertEqual([line["step"] for line in self.lines("journal.jsonl", "rolled_back")], [17])
        self.assertEqual([line["step"] for line in self.lines("journal.jsonl", "executor_paused")], [11])
        expected = self.result()["digest"]
        self.assertEqual(self.gone_on_with(text, 11), expected)

    def gone_on_with(self, text, step):
        """The digest of the run as if it had been killed at a step, before what it saved there was on the disk."""
        folder = self.folder / "runs/small"
        (folder / "result.json").unlink()
        for checkpoint in folder.glob("checkpoints/step-*"):
            if int(checkpoint.name[5:]) >= step:
                shutil.rmtree(checkpoint)
        return self.train(text + waves(RULES[1]), "--plugins", FAULTY)["digest"]

    def test_executors_are_swapped_and_the_run_is_killed_between(self):
        order = ((12, "compiled", ""), (25, "eager", ""), (38, "wavelet", 'sync = "stale1"\n'), (50, "wavelet", 'sync = "replica"\n'))
        for rule in (RULES[0], RULES[3]):
            with self.subTest(rule):
                text = RUN + waves(rule) + "".join(f'[[swap]]\nat = "{at}ba"\nslot = "executor"\ntype = "{type}"\n{more}' for at, type, more in order)
                expected = self.whole(text)
                self.assertEqual(self.killed(text, *(f"batch_end {step}" for step in (16, 28, 44, 57))), expected)
                self.assertEqual({line["step"] for line in self.lines("journal.jsonl", "swap")}, {at for at, _, _ in order})


if __name__ == "__main__":
    unittest.main()
