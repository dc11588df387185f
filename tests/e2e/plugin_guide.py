"""The commands of docs/plugins.md, as they stand there, in one shell; and what is to come of them."""
import json
import os
import re
import subprocess
import unittest

from support.ends import LIMIT
from support.host import BUILD, SOURCE, HostTest

GUIDE = SOURCE / "docs/plugins.md"
KINDS = re.findall(r'\.kind = \{"(\w+)"', (SOURCE / "core/plugins/kinds.hpp").read_text())
ENVIRONMENT = {**{key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")},
               "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1"}


class Guide(HostTest):
    def commands(self):
        blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.S)
        self.assertGreater(len(blocks), 5)
        return "\n".join(blocks)

    def longest(self):
        """Seconds that the commands may take: all their waits to the end, and what is built, tested and trained between."""
        return 300 + sum(map(int, re.findall(r"^timeout (\d+)", self.commands(), re.M)))

    def test_its_commands(self):
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", self.commands()], cwd=self.folder, env=ENVIRONMENT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=self.longest())
        self.assertEqual(done.returncode, 0, done.stdout)
        run = self.folder / "curve/runs/curve"
        journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
        self.assertIn("swap", [entry["what"].split("_")[0] for entry in journal], journal)
        self.assertEqual(json.loads((run / "result.json").read_text())["status"], "stopped")
        dev = (self.folder / "curve/dev.log").read_text()
        self.assertIn("built in", dev)
        self.assertIn("the run is over", dev)

    def test_its_waits_have_an_end(self):
        """A wait that is not over in time fails, which ends the commands of the test."""
        for wait in re.findall(r"^.*\b(?:until|while|wait)\b.*$", self.commands(), re.M):
            self.assertRegex(wait, r"^timeout \d+ bash -c 'until .*; done'$")
        self.assertLess(self.longest(), LIMIT)

    def test_it_names_every_kind(self):
        named = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text().split("## Kinds")[1], re.M)
        self.assertEqual(sorted(named), sorted(KINDS))


if __name__ == "__main__":
    unittest.main()
