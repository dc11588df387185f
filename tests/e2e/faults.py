"""Plugins that crash, hang, throw and write NaN, in the real executable: the report names who, where and when."""
import hashlib
import json
import signal
import subprocess
import unittest

from support.host import BUILD, SMALL, HostTest

FAULTY = BUILD / "tests" / "faulty"
STEP = 5
SIGNALS = {"segv": "SIGSEGV", "bus": "SIGBUS", "fpe": "SIGFPE", "ill": "SIGILL", "abort": "SIGABRT", "stack": "SIGSEGV"}


def hook(way, at="before_step", step=STEP, plugin="faulty", **more):
    rest = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    return f'[[hooks]]\ntype = "{plugin}"\n' + (f'at = "{at}"\nstep = {step}\nway = "{way}"\n' if plugin == "faulty" else rest)


class Faults(HostTest):
    def fails(self, text, *words, ends):
        """Runs to its bad end; gives the report and what was said on standard error."""
        self.write("run.toml", text)
        done = subprocess.run(self.command("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY, *words),
                              cwd=self.folder, text=True, capture_output=True, timeout=120, env=self.environment())
        self.assertEqual(done.returncode, ends, done.stdout + done.stderr)
        run = self.folder / "runs/small"
        self.assertFalse((run / "report.json.tmp").exists())
        report = json.loads((run / "report.json").read_text())
        config = hashlib.sha256((run / "config.toml").read_bytes()).hexdigest()
        self.assertEqual(report["config"], config)
        self.assertTrue(report["suggestion"])
        return report, done.stderr

    def test_a_fatal_signal_in_a_hook_is_attributed(self):
        for way, name in SIGNALS.items():
            for at in ("before_step", "after_forward"):
                with self.subTest(way=way, at=at):
                    report, said = self.fails(SMALL + hook(way, at), ends=-getattr(signal, name))
                    found = [report[key] for key in ("cause", "signal", "plugin", "slot", "kind", "event", "hook", "step", "thread")]
                    self.assertEqual(found, ["signal", name, "faulty", "hooks[0]", "hook", at, True, STEP, "loop"])
                    self.assertEqual(report["stack_overflow"], way == "stack")
                    self.assertRegex(report["digest"], "^[0-9a-f]{64}$")
                    self.assertEqual(report["hooks"], ["faulty"])
                    self.assertEqual(report["events"][-1], {"event": at, "step": STEP})
                    self.assertEqual(len(report["events"]), 100 if STEP > 6 else len(report["events"]))
                    self.assertTrue(any(frame["module"].startswith("faulty-") for frame in report["stack"]), report["stack"])
                    for word in (name, "[hooks[0]] faulty", at, f"step {STEP}", "report.json"):
                        self.assertIn(word, said)

    def test_the_last_hundred_events_are_kept(self):
        report, _ = self.fails(SMALL + hook("segv", "safe_point", 8), ends=-signal.SIGSEGV)
        self.assertEqual(len(report["events"]), 100)
        self.assertEqual([each["event"] for each in report["events"][-2:]], ["eval_end", "safe_point"])
        self.assertEqual(report["events"][-1]["step"], 8)

    def test_a_crash_in_a_call_of_the_loop_names_the_slot(self):
        text = SMALL.replace('type = "adamw"', 'type = "faulty"\nway = "segv"\nstep = 3')
        report, said = self.fails(text, ends=-signal.SIGSEGV)
        self.assertEqual([report[key] for key in ("plugin", "slot", "event", "hook", "step")],
                         ["faulty", "optimizer", "before_step", False, 3])
        self.assertIn("take another one for its slot", report["suggestion"])

    def test_a_crash_in_another_thread_names_its_plugin(self):
        data = SMALL.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
                             'type = "faulty"\nway = "segv"\nworkers = 2').replace("size = 64, ", "").replace("size = 32, ", "")
        report, _ = self.fails(data, ends=-signal.SIGSEGV)
        self.assertEqual([report[key] for key in ("plugin", "slot", "thread")], ["faulty", "data.train", "loader"])
        sink = SMALL + '[[logging.sinks]]\ntype = "faulty"\nway = "stack"\n[logging]\ninterval = "1ba"\n'
        report, _ = self.fails(sink, ends=-signal.SIGSEGV)
        self.assertEqual([report[key] for key in ("plugin", "slot", "thread", "stack_overflow")],
                         ["faulty", "logging.sinks[1]", "sinks", True])
        report, _ = self.fails(SMALL + '[[hooks]]\ntype = "threaded"\nway = "fpe"\n', ends=-signal.SIGFPE)
        self.assertEqual([report[key] for key in ("plugin", "slot", "thread")], ["threaded", "hooks[0]", "threaded/side"])

    def test_an_exception_leaves_the_same_report(self):
        report, said = self.fails(SMALL + hook("throw"), ends=3)
        crash, _ = self.fails(SMALL + hook("segv"), ends=-signal.SIGSEGV)
        self.assertEqual(list(report), list(crash))
        self.assertEqual([report[key] for key in ("cause", "plugin", "slot", "event", "hook", "step", "stack")],
                         ["error", "faulty", "hooks[0]", "before_step", True, STEP, []])
        self.assertIn("thrown on purpose", report["error"])
        self.assertEqual(report["hooks"], ["faulty"])
        report, said = self.fails(SMALL + hook("terminate"), ends=-signal.SIGABRT)
        self.assertEqual(report["signal"], "SIGABRT")

    def test_a_call_that_hangs_is_told_or_ends_the_run(self):
        guard = '[guard]\ndeadline = "0.3s"\non_deadline = "abort"\n'
        report, said = self.fails(SMALL + guard + hook("hang"), ends=3)
        self.assertEqual([report[key] for key in ("cause", "plugin", "slot", "event", "step", "thread")],
                         ["hang", "faulty", "hooks[0]", "before_step", STEP, "loop"])
        self.assertTrue(any(frame["module"].startswith("faulty-") for frame in report["stack"]), report["stack"])
        optimizer = SMALL.replace('type = "adamw"', 'type = "faulty"\nway = "hang"\nstep = 2')
        report, said = self.fails(optimizer + guard, ends=3)
        self.assertEqual([report[key] for key in ("cause", "slot", "event", "step")], ["hang", "optimizer", "before_step", 2])

    def test_a_slow_call_is_told_once(self):
        self.write("run.toml", SMALL + '[guard]\ndeadline = "0.05s"\n[[hooks]]\ntype = "faulty"\nat = "before_step"\nstep = 8\nway = "doze"\n')
        done = self.host("train", "run.toml", "-q", "--plugins", FAULTY)
        log = (self.folder / "runs/small/run.log").read_text()
        self.assertEqual(log.count("has not returned for more than 0.05 s"), 1, log)
        self.assertIn("[hooks[0]] faulty at before_step, step 8", log)
        self.assertFalse((self.folder / "runs/small/report.json").exists())

    def test_nan_is_laid_at_the_door_of_the_hook_that_wrote_it(self):
        for into, event in (("model", "after_step"), ("grads", "before_step"), ("outputs", "after_forward")):
            with self.subTest(into=into):
                poison = f'[[hooks]]\ntype = "poison"\ninto = "{into}"\nstep = 3\n'
                report, said = self.fails(SMALL + poison, ends=5)
                self.assertEqual([report[key] for key in ("cause", "plugin", "event", "step")], ["error", "poison", event, 3])
                self.assertIn(f"region {into}", report["error"])
                # Undone, and the run goes on without the plugin: as if it had never been there.
                self.write("run.toml", SMALL + poison)
                self.host("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY, "--set", "guard.nan=disable")
                without = self.result()
                journal = (self.folder / "runs/small/journal.jsonl").read_text()
                self.assertIn("disabled", journal)
                self.assertEqual(without["digest"], self.train(SMALL, "--overwrite")["digest"])

    def test_strict_state_finds_undeclared_writes(self):
        mends = {"model": ".writes(Region::model)", "model_below_autograd": ".writes(Region::model)", "grads": ".writes(Region::grads)",
                 "optimizer": "it may at optimizer_ready", "hyper": ".writes(Region::hyper)", "batch": "it may at"}
        for touch, mend in mends.items():
            with self.subTest(touch=touch):
                text = SMALL + f'[[hooks]]\ntype = "faulty"\nat = "before_step"\nstep = 3\ntouch = "{touch}"\n'
                report, said = self.fails(text, "--strict-state", ends=3)
                self.assertEqual([report[key] for key in ("plugin", "event", "step")], ["faulty", "before_step", 3])
                self.assertIn("region " + touch.split("_")[0], report["error"])
                self.assertIn(mend, report["error"])
                self.host("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY)  # nobody looks


if __name__ == "__main__":
    unittest.main()
