"""`plugins dev` beside a run that is going: what is saved comes into it, and what does not build or pass leaves it alone."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

from support.host import BUILD, TRAINYARD, HostTest

ENVIRONMENT = {**{key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")},
               "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1"}


class Dev(HostTest):
    def setUp(self):
        super().setUp()
        self.host("plugins", "new", "schedule", "curve")
        self.plugin = self.folder / "curve"
        self.source = self.plugin / "curve.cpp"
        if shutil.which("ccache"):  # which CMake takes from the environment
            ENVIRONMENT["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
        # Only the plugin: its test is no part of this one.
        lists = self.plugin / "CMakeLists.txt"
        lists.write_text(lists.read_text().split("enable_testing()")[0])
        run = self.plugin / "run.toml"
        run.write_text(run.read_text().replace('max_duration = "5ep"', 'max_duration = "1000000ep"')
                       .replace('eval_interval = "1ep"', 'eval_interval = "1000000ep"').replace('warmup = "5%"', 'warmup = "0ba"'))

    def start(self, *words, **more):
        process = subprocess.Popen([str(TRAINYARD), *map(str, words)], cwd=self.plugin, env=ENVIRONMENT, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def status(self):
        done = subprocess.run([str(TRAINYARD), "ctl", "curve", "status", "--format", "json"], cwd=self.plugin, env=ENVIRONMENT,
                              text=True, capture_output=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def schedule(self):
        return next(slot for slot in self.status()["slots"] if slot["slot"] == "schedule")

    def until(self, holds, what, seconds=90):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := holds():
                return found
            time.sleep(0.1)
        self.fail(f"not within {seconds} s: {what}")

    def edit(self, *changes):
        """In one save."""
        text = self.source.read_text()
        for old, new in zip(changes[::2], changes[1::2]):
            self.assertIn(old, text)
            text = text.replace(old, new)
        self.source.write_text(text)

    def test_what_is_saved_comes_into_the_run(self):
        done = subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=self.plugin, env=ENVIRONMENT, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = subprocess.run(["cmake", "--build", "build"], cwd=self.plugin, env=ENVIRONMENT, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run = self.start("train", "run.toml", "-q")
        self.until(lambda: self.status(), "the run answers")
        before = self.schedule()
        dev = self.start("plugins", "dev", ".", "--run", "curve")
        self.assertIn("of the run is this very curve", self.said(dev, "watching"))
        self.assertEqual(self.schedule()["digest"], before["digest"])

        # Another factor: the learning rate is the new one.
        self.edit("std::pow(1.0 - at.progress, options_.power)", "0.25 + 0.0 * at.progress")
        self.said(dev, "schedule: curve 0.1.0, generation ")
        self.assertNotEqual(self.schedule()["digest"], before["digest"])
        self.assertEqual(self.schedule()["swaps"], before["swaps"] + 1)
        self.until(lambda: abs(self.status()["metrics"].get("lr", 0.0) - 0.0025) < 1e-9, "the learning rate is a quarter of 0.01")

        # What does not compile: told in short, with the line, and the run goes on as it was.
        good = self.schedule()
        self.edit("return 0.25", "return nothing_of_that_name + 0.25")
        told = self.said(dev, "nothing_of_that_name")
        self.assertIn("does not build, and the run goes on as it was", told)
        self.assertRegex(told, r"(?m)^  curve\.cpp:\d+:\d+: error: ")
        # Nor what describes itself wrongly, which the seal finds.
        self.edit("nothing_of_that_name + ", "", "double power = 2.0;", "double power = -2.0;")
        self.said(dev, "has the default -2, below its own minimum 0")
        step = self.status()["step"]
        self.until(lambda: self.status()["step"] > step + 10, "the run goes on")
        self.assertEqual(self.schedule()["digest"], good["digest"])

        # What builds and does not pass the check: a factor that is no number.
        self.edit("double power = -2.0;", "double power = 2.0;", "return 0.25 + 0.0 * at.progress;",
                  "return at.step > 0 ? 0.0 / (at.progress - at.progress) : 1.0;")
        self.said(dev, "does not pass `trainyard plugins check`, and the run goes on as it was")
        self.said(dev, "run.trains")
        step = self.status()["step"]
        self.until(lambda: self.status()["step"] > step + 10, "the run goes on")
        self.assertEqual(self.schedule()["digest"], good["digest"])

        # The end of the run is the end of it.
        self.host("ctl", self.plugin / "runs/curve", "stop")
        self.said(dev, "the run is over")
        self.assertEqual(dev.wait(10), 0)
        self.assertEqual(run.wait(30), 0)

    def test_once(self):
        self.edit("double power = 2.0;", "double power = 3.0;")
        lists = self.plugin / "run.toml"
        lists.write_text(re.sub(r'\[schedule\]\ntype = "curve"\npower = 2.0\n', '[schedule]\ntype = "constant"\n', lists.read_text()))
        (self.plugin / "build").mkdir()
        self.start("train", "run.toml", "-q")
        self.until(lambda: self.status(), "the run answers")
        self.host("plugins", "dev", self.plugin, "--run", self.plugin / "runs/curve", "--once", "--set", "power=1.5")
        self.assertEqual(self.schedule()["type"], "curve")
        self.edit("#include <cmath>", "#include <nowhere.hpp>")
        done = self.host("plugins", "dev", self.plugin, "--run", self.plugin / "runs/curve", "--once", code=3)
        self.assertIn("nowhere.hpp", done.stdout)

    def test_a_folder_or_a_run_that_will_not_do(self):
        (self.folder / "empty").mkdir()
        done = self.host("plugins", "dev", "empty", "--run", "curve", code=2)
        self.assertIn("has no CMakeLists.txt", done.stderr)
        done = self.host("plugins", "dev", "curve", "--run", "nowhere", code=2)
        self.assertIn("nowhere", done.stderr)

    def test_a_signal_ends_it_and_not_the_run(self):
        (self.plugin / "build").mkdir()
        text = (self.plugin / "run.toml").read_text()
        (self.plugin / "run.toml").write_text(re.sub(r'type = "curve"\npower = 2.0\n', 'type = "constant"\n', text))
        run = self.start("train", "run.toml", "-q")
        self.until(lambda: self.status(), "the run answers")
        dev = self.start("plugins", "dev", ".", "--run", "curve")
        self.said(dev, "watching")
        dev.send_signal(signal.SIGINT)
        dev.wait(10)
        self.assertIsNotNone(self.status())
        self.assertIsNone(run.poll())


if __name__ == "__main__":
    import unittest
    unittest.main()
