"""The commands of docs/plugins.md, as they stand there, in one shell; and what is to come of them."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from support.host import BUILD, SOURCE

GUIDE = SOURCE / "docs/plugins.md"
KINDS = re.findall(r'\.kind = \{"(\w+)"', (SOURCE / "core/plugins/kinds.hpp").read_text())
ENVIRONMENT = {**{key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")},
               "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1"}


class Guide(unittest.TestCase):
    def test_its_commands(self):
        blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.S)
        self.assertGreater(len(blocks), 5)
        with tempfile.TemporaryDirectory(prefix="trainyard-guide-") as folder:
            began = time.monotonic()
            done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + "\n".join(blocks)],
                                  cwd=folder, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertLess(time.monotonic() - began, 300)
            run = pathlib.Path(folder) / "curve/runs/curve"
            journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
            self.assertIn("swap", [entry["what"].split("_")[0] for entry in journal], journal)
            self.assertEqual(json.loads((run / "result.json").read_text())["status"], "stopped")
            dev = (pathlib.Path(folder) / "curve/dev.log").read_text()
            self.assertIn("built in", dev)
            self.assertIn("the run is over", dev)

    def test_it_names_every_kind(self):
        named = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text().split("## Kinds")[1], re.M)
        self.assertEqual(sorted(named), sorted(KINDS))


if __name__ == "__main__":
    unittest.main()
