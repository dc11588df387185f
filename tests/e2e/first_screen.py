"""What README.md claims on its first screen, typed as it stands there: the same bits after a kill, a swap of a live run, eighteen trainings. Where README
waits for some seconds, a test waits for what is to have come by then, as machines are slow and fast."""
import json
import os
import re
import subprocess
import unittest

from support.host import BUILD, SOURCE, HostTest

README = (SOURCE / "README.md").read_text()
CLAIMS = re.findall(r"```sh\n(.*?)```", README.partition("tools/quickstart")[0], re.S)


class FirstScreen(HostTest):
    def setUp(self):
        super().setUp()
        for name in ("configs", "data"):
            (self.folder / name).symlink_to(SOURCE / name)

    def type(self, lines):
        """What a shell prints of these lines; what runs in the background ends with it."""
        environment = self.environment(PATH=f"{BUILD / 'bin'}:{os.environ['PATH']}")
        done = subprocess.run(["bash", "-c", f"{lines}\nwait"], cwd=self.folder, env=environment, text=True, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def claim(self, word):
        [lines] = [each for each in CLAIMS if word in each]
        return lines

    def instead_of(self, seconds, event, lines):
        changed, times = re.subn(seconds, event, lines)
        self.assertEqual(times, 1)
        return changed

    def test_it_is_a_screen(self):
        self.assertEqual(len(CLAIMS), 3)
        self.assertLess(README[:README.index("tools/quickstart")].count("\n"), 40)

    def test_a_run_that_was_killed_ends_with_the_same_bits(self):
        lines = self.instead_of("timeout -s KILL 3 (.*)", r"\1 & until [ -e runs/killed/checkpoints/latest ]; do sleep 0.05; done; kill -KILL $!; wait",
                                self.claim("sha256sum"))
        sums = re.findall(r"^([0-9a-f]{64})  (\S+)$", self.type(lines), re.M)
        self.assertEqual(len(sums), 2)
        self.assertEqual(sums[0][0], sums[1][0])
        self.assertGreater(len(list((self.folder / "runs/killed").glob("events.out.*"))), 1, "it was not begun twice")

    def test_a_strategy_is_exchanged_while_a_run_goes(self):
        lines = self.instead_of("sleep 3", "until trainyard ctl live status >/dev/null 2>&1; do sleep 0.1; done", self.claim("ctl live swap"))
        printed = self.type(lines)
        said = re.search(r"# (schedule: cosine [\d.]+), ", self.claim("ctl live swap"))[1]
        self.assertIn(said, printed)
        journal = [json.loads(line) for line in (self.folder / "runs/live/journal.jsonl").read_text().splitlines()]
        self.assertEqual([each["what"] for each in journal], ["swap", "stop_run"])

    def test_eighteen_trainings(self):
        printed = self.type(self.claim("trainyard study"))
        self.assertEqual(len(list((self.folder / "runs/studies/digits/runs").rglob("result.json"))), 18)
        self.assertRegex(printed, r"less each other, paired by seed, with its 95 % interval")


if __name__ == "__main__":
    unittest.main()
