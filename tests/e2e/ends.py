"""What a test starts ends with it: where it fails, waits for ever, or is told to end."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from support.host import HostTest

# It starts a process that outlives the one which started it, and then does what the case says.
TEST = """
import subprocess, time, unittest
from support.host import HostTest
class Case(HostTest):
    def test(self):
        subprocess.run(["sh", "-c", "sleep 1000 & echo $! > {pid}"])
        {then}
unittest.main()
"""


class Ends(HostTest):
    def case(self, then, **environment):
        """Such a test, once its process is there."""
        script = self.write("case.py", TEST.format(pid=self.folder / "pid", then=then))
        path = str(pathlib.Path(__file__).parent)
        test = subprocess.Popen([sys.executable, script], text=True, stderr=subprocess.PIPE, env=self.environment(PYTHONPATH=path, **environment))
        end = time.monotonic() + 30
        while not (self.folder / "pid").exists() or not (self.folder / "pid").read_text().endswith("\n"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        return test

    def ended(self, test):
        said = test.communicate(timeout=30)[1]
        self.assertNotEqual(test.returncode, 0, said)
        self.assertFalse(pathlib.Path("/proc", (self.folder / "pid").read_text().strip()).exists(), said)
        os.unlink(self.folder / "pid")
        return said

    def test_processes_end_with_a_test_that_fails_or_waits_for_ever(self):
        self.assertIn("AssertionError: on purpose", self.ended(self.case('self.fail("on purpose")')))
        self.assertIn("the test takes longer than 1 s", self.ended(self.case("time.sleep(1000)", TRAINYARD_TEST_LIMIT="1")))

    def test_processes_end_with_a_test_that_is_told_to_end(self):
        test = self.case("time.sleep(1000)")
        test.send_signal(signal.SIGTERM)
        self.assertIn("told to end", self.ended(test))


if __name__ == "__main__":
    unittest.main()
