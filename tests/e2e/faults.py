"""Plugins that crash, hang, throw and write NaN, in the real executable: the report names who, where and when."""
import hashlib
import json
import shutil
import signal
import subprocess
import time
import unittest

from support.host import BUILD, SMALL, HostTest

FAULTY = BUILD / "tests" / "faulty"
STEP = 5
SIGNALS = {"segv": "SIGSEGV", "bus": "SIGBUS", "fpe": "SIGFPE", "ill": "SIGILL", "abort": "SIGABRT", "stack": "SIGSEGV"}


def entry(**keys):
    return "[[hooks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def hook(way, at="before_step", step=STEP):
    return entry(type="faulty", at=at, step=step, way=way)


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

    def test_a_crash_in_a_constructor_names_the_plugin(self):
        report, _ = self.fails(SMALL + hook("segv", "construction"), ends=-signal.SIGSEGV)
        self.assertEqual([report[key] for key in ("plugin", "slot", "event", "hook", "step")], ["faulty", "hooks[0]", None, False, 0])
        self.supervised(SMALL + hook("segv", "construction"), ends=0)

    def test_an_exception_leaves_the_same_report(self):
        report, said = self.fails(SMALL + hook("throw"), ends=3)
        crash, _ = self.fails(SMALL + hook("segv"), ends=-signal.SIGSEGV)
        self.assertEqual(list(report), list(crash))
        self.assertEqual([report[key] for key in ("cause", "plugin", "slot", "event", "hook", "step", "stack")],
                         ["error", "faulty", "hooks[0]", "before_step", True, STEP, []])
        self.assertIn("thrown on purpose", report["error"])
        self.assertEqual(report["hooks"], ["faulty"])
        for step in (0, 3):
            report, _ = self.fails(SMALL + f'[[hooks]]\ntype = "threaded"\nway = "throw"\nstep = {step}\n', ends=3)
            self.assertEqual([report[key] for key in ("cause", "plugin", "slot", "hook")], ["error", "threaded", "hooks[0]", False])
            self.assertIn("in a thread of its own: thrown on purpose", report["error"])
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

    def test_a_call_that_hangs_and_takes_no_signals_is_reported_from_outside(self):
        guard = '[guard]\ndeadline = "0.3s"\non_deadline = "abort"\n'
        report, said = self.fails(SMALL + guard + hook("deaf"), ends=3)
        self.assertEqual([report[key] for key in ("cause", "plugin", "slot", "event", "step")],
                         ["hang", "faulty", "hooks[0]", "before_step", STEP])
        self.assertIn("faulty", said)

    def test_a_slow_call_is_told_once(self):
        self.write("run.toml", SMALL + '[guard]\ndeadline = "0.05s"\n[[hooks]]\ntype = "faulty"\nat = "before_step"\nstep = 8\nway = "doze"\n')
        done = self.host("train", "run.toml", "-q", "--plugins", FAULTY)
        log = (self.folder / "runs/small/run.log").read_text()
        self.assertEqual(log.count("has not returned for more than 0.05 s"), 1, log)
        self.assertIn("[hooks[0]] faulty at before_step, step 8", log)
        self.assertFalse((self.folder / "runs/small/report.json").exists())

    def test_a_rule_that_hangs_is_left_behind_at_the_end(self):
        self.write("run.toml", SMALL + '[[rules]]\ntype = "probe"\nevery = "1ba"\nhang_at = 3\ntrace = "trace"\n')
        self.host("train", "run.toml", "-q", "--plugins", FAULTY, timeout=40)
        self.assertIn("rule probe does not return from a call: it is left behind", (self.folder / "runs/small/run.log").read_text())
        self.assertTrue([line for line in self.journal() if line["what"] == "rule_left_behind"])
        self.assertEqual(self.result()["status"], "completed")
        # The libraries stay while the call is in them.
        self.assertEqual((self.folder / "trace").read_text().splitlines()[-1], "hangs")

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

    def test_a_hook_that_was_disabled_stays_so_over_a_resume(self):
        # It halves the rate, and throws, at every step from the fifth on.
        text = SMALL.replace("2ep", "12ba") + self.CHECKPOINTS + hook("throw") + 'touch = "hyper"\non_error = "disable"\n'
        self.write("run.toml", text)
        self.host("train", "run.toml", "-q", "--plugins", FAULTY)
        whole = self.result()["digest"]
        for parts in (7, 9, 12):
            self.host("train", "run.toml", "-q", "--plugins", FAULTY, "--set", "run.name=parts", "--set", "run.resume=auto",
                      "--set", f"trainer.max_duration={parts}ba")
        self.assertEqual(self.result("runs/parts")["digest"], whole)
        journal = self.journal("runs/parts")
        self.assertEqual(len([line for line in journal if line["what"] == "disabled"]), 1, journal)
        self.assertEqual(len([line for line in journal if "stays disabled" in line["why"]]), 2, journal)

    def test_weights_that_are_not_finite_are_no_result(self):
        far = ("--set", "optimizer.lr=1e300", "--set", "schedule.warmup=0ba", "--set", "trainer.max_duration=1ba")
        report, said = self.fails(SMALL, *far, ends=5)
        for word in ("fc1.", "not finite after step 1", "lower optimizer.lr", 'guard.nan = "off"'):
            self.assertIn(word, said)
        self.assertEqual(report["cause"], "error")
        self.assertEqual((self.result()["status"], self.result()["exit_code"]), ("failed", 5))
        self.assertFalse((self.folder / "runs/small/model.safetensors").exists())
        # One that goes on from a good checkpoint keeps it, also as the only one that is kept; and it can be mended.
        kept = SMALL.replace("2ep", "4ba") + '[checkpoint]\ninterval = "1ba"\nkeep_last = 1\n'
        good = self.train(kept, "--overwrite")["digest"]
        weights = (self.folder / "runs/small/model.safetensors").read_bytes()
        on = ("train", "run.toml", "-q", "--set", "run.resume=auto", "--set", "trainer.max_duration=6ba")
        self.assertIn("not finite after step 5", self.host(*on, "--set", "optimizer.lr=1e300", code=5).stderr)
        self.assertEqual([path.name for path in (self.folder / "runs/small/checkpoints").glob("step-*")], ["step-00000004"])
        self.assertEqual((self.folder / "runs/small/model.safetensors").read_bytes(), weights)
        self.host(*on)
        mended = self.result()
        self.assertNotEqual(mended["digest"], good)
        self.assertEqual(mended["digest"], self.train(kept.replace("4ba", "6ba"), "--overwrite")["digest"])

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
                self.host("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY)  # that step is none of the sample

    # --- mistakes of those who write plugins

    LONG = ("--set", "trainer.max_duration=1000000ba", "--set", "trainer.eval_interval=1000ba")

    def mistaken(self, mistake, **more):
        return SMALL + entry(type="mistaken", mistake=mistake, **more)

    def test_undeclared_writes_are_found_without_being_looked_for(self):
        for touch in ("model", "model_below_autograd", "grads", "hyper", "batch"):
            with self.subTest(touch=touch):
                text = SMALL + f'[[hooks]]\ntype = "faulty"\nat = "before_step"\nstep = 1\ntouch = "{touch}"\n'
                report, said = self.fails(text, ends=3)
                self.assertEqual([report[key] for key in ("plugin", "event", "step")], ["faulty", "before_step", 1])
                self.assertRegex(said, f"faulty.*region {touch.split('_')[0]}.*did not declare it: ")
                self.host("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY, "--set", "guard.look_for_writes=0ba")
        # Of a hook that is called at few steps the first calls are looked at, and of one of evaluations.
        for at in ("eval_start", "fit_end"):
            text = SMALL + f'[[hooks]]\ntype = "faulty"\nat = "{at}"\ntouch = "hyper"\n'
            self.assertIn("region hyper", self.fails(text, ends=3)[1])

    def test_exit_in_a_plugin_is_a_fault_of_its_own(self):
        text = self.mistaken("exit", step=5) + self.CHECKPOINTS
        report, said = self.fails(text, ends=3)
        self.assertEqual([report[key] for key in ("cause", "error", "plugin", "slot", "event", "hook", "step")],
                         ["exit", "exit(0) was called", "mistaken", "hooks[0]", "before_step", True, 5])
        self.assertIn("[hooks[0]] mistaken at before_step, step 5", said)
        self.assertIn("must not end the process: throw", report["suggestion"])
        self.assertTrue(any(frame["module"].startswith("mistaken-") for frame in report["stack"]), report["stack"])
        # It goes on from its checkpoint, to the very same bits.
        self.host("train", "run.toml", "-q", "--plugins", FAULTY, "--set", "run.resume=auto", "--set", "hooks.0.mistake=none")
        self.assertTrue([line for line in self.journal() if line["what"] == "resumed" and line["step"] == 4])
        self.assertEqual(self.result()["digest"], self.train(SMALL, "--overwrite")["digest"])
        # In a constructor, and in a verb that leaves no run.
        report, _ = self.fails(self.mistaken("exit in the constructor"), ends=3)
        self.assertEqual([report[key] for key in ("cause", "plugin")], ["exit", "mistaken"])
        said = self.host("plan", "run.toml", "--plugins", FAULTY, code=3).stderr
        self.assertIn("[hooks[0]] mistaken called exit(0)", said)

    def test_what_goes_wrong_on_a_thread_of_a_plugins_own_is_its_own(self):
        for mistake, cause, ends in (("throw", "signal", -signal.SIGABRT), ("crash", "signal", -signal.SIGSEGV), ("exit", "exit", 3)):
            with self.subTest(mistake=mistake):
                report, said = self.fails(self.mistaken(f"{mistake} on a thread"), *self.LONG, ends=ends)
                self.assertEqual([report[key] for key in ("cause", "plugin", "slot", "hook", "own_thread")],
                                 [cause, "mistaken", "hooks[0]", False, True])
                self.assertIn("begin it with host().thread", report["suggestion"])
                self.assertIn("[hooks[0]] mistaken", said)
                self.assertIn("that it began by itself (begin it with host().thread)", said)
                if mistake == "throw":
                    self.assertEqual(report["error"], "thrown on purpose")

    def test_what_a_plugin_prints_is_a_line_of_its_own(self):
        for mistake, where in (("print", "in a hook"), ("print on a thread", "on a thread")):
            with self.subTest(mistake=mistake):
                self.write("run.toml", self.mistaken(mistake, step=8) + '[[logging.sinks]]\ntype = "console"\n')
                done = self.host("train", "run.toml", "--overwrite", "--plugins", FAULTY)
                log = (self.folder / "runs/small/run.log").read_text()
                for way in ("printf", "fputs to stderr", "cout", "cerr"):
                    line = f"mistaken: by {way} {where}"
                    self.assertEqual(log.count(f" info {line}\n"), 1, log)
                    self.assertEqual((done.stdout + done.stderr).count(line), 1, done.stdout + done.stderr)
                self.assertIn("8 steps in", done.stdout)  # the host's own summary, as before

    def test_host_in_a_constructor_is_told(self):
        report, said = self.fails(self.mistaken("host in the constructor"), ends=3)
        self.assertEqual([report[key] for key in ("cause", "plugin")], ["error", "mistaken"])
        self.assertIn("asks for host() in its constructor, where there is none yet: ask in `open`", said)

    def test_a_context_that_was_kept_is_told(self):
        kept = "uses a context after the hook that it was lent to has returned"
        report, said = self.fails(self.mistaken("context in save") + self.CHECKPOINTS, ends=3)
        self.assertEqual([report[key] for key in ("plugin", "hook")], ["mistaken", False])
        self.assertIn(kept, said)
        later = self.mistaken("context in a later hook")
        report, said = self.fails(later, "--strict-state", ends=3)
        self.assertEqual([report[key] for key in ("plugin", "event", "step")], ["mistaken", "after_step", 2])
        self.assertIn(kept, said)

    def test_state_that_is_not_saved_is_told(self):
        for mistake, told in (("member not saved", "its members change from step to step, and it saves nothing"),
                              ("static variable", "its static variables change from step to step"), ("none", None)):
            with self.subTest(mistake=mistake):
                self.write("run.toml", self.mistaken(mistake))
                self.host("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY, "--strict-state")
                log = (self.folder / "runs/small/run.log").read_text()
                self.assertEqual(log.count("change from step to step"), 1 if told else 0, log)
                self.assertIn(f"warning [hooks[0]] mistaken: {told}" if told else "", log)

    def endless(self, *words):
        self.write("run.toml", self.mistaken("endless loop", step=3))
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        process = subprocess.Popen(self.command("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY, *words),
                                   cwd=self.folder, text=True, stderr=subprocess.PIPE, env=self.environment())
        journal = self.folder / "runs/small/run.log"
        begun = time.monotonic()
        while not journal.exists() or "has not returned" not in journal.read_text():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic() - begun, 60)
            time.sleep(0.02)
        return process

    def ended(self, process):
        said = process.communicate(timeout=60)[1]
        return json.loads((self.folder / "runs/small/report.json").read_text()), said, process.returncode

    def test_an_endless_loop_ends_after_a_while_or_by_signals(self):
        who = ["mistaken", "hooks[0]", "before_step", True, 3]
        facts = ("plugin", "slot", "event", "hook", "step")
        # By itself, after 30 times the deadline.
        report, said, code = self.ended(self.endless("--set", "guard.deadline=0.05s"))
        self.assertEqual((code, report["cause"], [report[key] for key in facts]), (3, "hang", who))
        # A signal is enough once the deadline has passed.
        process = self.endless("--set", "guard.deadline=1s")
        process.terminate()
        report, said, code = self.ended(process)
        self.assertEqual((code, report["cause"], [report[key] for key in facts]), (3, "hang", who))
        # Where the deadline ends nothing, a second signal does, at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.endless("--set", "guard.deadline=1s", "--set", "guard.on_deadline=warn")
            process.send_signal(number)
            time.sleep(0.3)
            self.assertIsNone(process.poll())
            process.send_signal(number)
            report, said, code = self.ended(process)
            self.assertEqual((code, report["cause"], report["signal"], [report[key] for key in facts]),
                             (-number, "signal", signal.Signals(number).name, who))
            self.assertIn("a second signal to end, in [hooks[0]] mistaken at before_step, step 3", said)

    def test_a_signal_from_outside_is_no_plugins_fault(self):
        self.write("run.toml", SMALL + hook("doze", "before_step", 3))
        process = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY, *self.LONG), cwd=self.folder, text=True,
                                   stderr=subprocess.PIPE, env=self.environment())
        metrics = self.folder / "runs/small/metrics.jsonl"
        while not metrics.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(signal.SIGSEGV)
        report, said, code = self.ended(process)
        self.assertEqual((code, report["cause"], report["signal"], report["plugin"], report["slot"]), (-signal.SIGSEGV, "signal", "SIGSEGV", None, None))
        self.assertIn(f"SIGSEGV, sent by process {report['sender']}", said)
        self.assertIn("no plugin is to blame", report["suggestion"])
        # That a plugin's own raise() is its fault is tried above: SIGBUS.

    def test_the_plan_counts_state_that_is_made_in_the_first_step(self):
        self.write("run.toml", SMALL.replace('type = "adamw"', 'type = "late"').replace("[8, 16, 3]", "[8, 4096, 3]"))
        plan = self.host("plan", "run.toml", "--plugins", FAULTY).stdout
        sizes = dict(line.split()[:2] for line in plan.splitlines() if line.startswith("  ") and len(line.split()) > 1)
        self.assertAlmostEqual(float(sizes["optimizer"]), 2 * float(sizes["gradients"]), delta=0.02)
        self.assertGreater(float(sizes["optimizer"]), 0.3)

    def test_what_the_run_file_says_of_plugins(self):
        """How the author mends it stands in the message."""
        self.write("run.toml", SMALL + entry(type="mistaken", every="5ba"))
        self.assertIn('.every("100ba")', self.host("validate", "run.toml", "--plugins", FAULTY, code=2).stderr)
        self.write("run.toml", SMALL.replace("lr = 0.01", "lr = 0.01\nbetas = [0.9]"))
        said = self.host("validate", "run.toml", code=2).stderr
        self.assertIn("E123 optimizer.betas: expected a list of 2 floats, found one of 1", said)
        self.assertIn("such as [0.9, 0.999]", said)
        self.write("more/libbroken.so", b"no shared object")
        self.write("run.toml", SMALL.replace('"adamw"', '"mine"'))
        said = self.host("validate", "run.toml", "--plugins", self.folder / "more", code=2).stderr
        self.assertIn('E301 no optimizer plugin is called "mine"', said)
        self.assertRegex(said, r"1 file was refused where it was looked for:\n  .*more/libbroken.so: ")

    # --- the supervisor

    CHECKPOINTS = '[checkpoint]\ntype = "full"\ninterval = "2ba"\n'

    def supervised(self, text, *words, ends):
        self.write("run.toml", text)
        done = subprocess.run(self.command("train", "run.toml", "-q", "--supervise", "--overwrite", "--plugins", FAULTY, *words),
                              cwd=self.folder, text=True, capture_output=True, timeout=120, env=self.environment())
        self.assertEqual(done.returncode, ends, done.stdout + done.stderr)
        return done.stderr

    def journal(self, run="runs/small"):
        return [json.loads(line) for line in (self.folder / run / "journal.jsonl").read_text().splitlines()]

    def test_a_plugin_that_crashes_is_left_out_from_the_last_checkpoint_on(self):
        expected = self.train(SMALL + self.CHECKPOINTS)["digest"]
        for way, guard in (("segv", ""), ("stack", ""), ("throw", ""), ("hang", '[guard]\ndeadline = "0.3s"\non_deadline = "abort"\n')):
            with self.subTest(way=way):
                said = self.supervised(SMALL + self.CHECKPOINTS + guard + hook(way, "batch_end", 7), ends=0)
                self.assertEqual(self.result()["digest"], expected)
                (entry,) = json.loads((self.folder / "runs/small/quarantine.json").read_text())
                self.assertEqual([entry[key] for key in ("plugin", "slot", "kind", "event", "step")],
                                 ["faulty", "hooks[0]", "hook", "batch_end", 7])
                self.assertIn("it is quarantined", said)
                # At most an interval was lost, and the journal says who is missing.
                (resumed,) = {line["step"] for line in self.journal() if line["what"] == "resumed"}
                self.assertGreaterEqual(resumed, 7 - 1 - 2)
                self.assertTrue([line for line in self.journal() if "left out: [hooks[0]] faulty" in line["why"]])

    def test_a_crash_inside_a_watch(self):
        """The watch goes on after the restart; a swap that brought the plugin that crashed is taken back."""
        adam = '[[swap]]\nat = "3ba"\nslot = "optimizer"\ntype = "adam"\nwatch = "20ba"\n'
        hooks = '[[hooks]]\ntype = "ema"\n'
        crash = 'watch = "20ba"\noptions = { at = "batch_end", step = 7, way = "segv" }\n'
        brings = f'[[swap]]\nat = "3ba"\nslot = "hooks.ema"\ntype = "faulty"\n{crash}'
        turns = f'[[swap]]\nat = "3ba"\nslot = "hooks.faulty"\n{crash}'
        later = '[[swap]]\nat = "5ba"\nslot = "logging.sinks.jsonl"\nwatch = "0ba"\n'
        for every in ("2ba", "100ba"):
            for text, plan, stays, backs in ((hook("segv", "batch_end", 7) + hooks, adam + later, adam, 0), (hooks, brings + later, "", 1),
                                             (hook("nothing") + hooks, turns + later, "", 0)):
                with self.subTest(plan=plan, every=every):
                    expected = self.train(SMALL + hooks + stays, "--overwrite")["digest"]
                    self.supervised(SMALL + text + plan + self.CHECKPOINTS.replace("2ba", every), ends=0)
                    self.assertEqual((self.result()["status"], self.result()["digest"]), ("completed", expected))
                    told = [line["what"] for line in self.journal()]
                    self.assertEqual(told.count("swap_rolled_back"), backs if every == "2ba" else 0)
                    self.assertEqual(told.count("swap_refused"), backs if every == "100ba" else 0)

    def test_two_culprits_are_found_one_after_the_other(self):
        poison = '[[hooks]]\ntype = "poison"\ninto = "model"\nstep = 7\n'
        self.supervised(SMALL + self.CHECKPOINTS + hook("abort", "batch_start", 5) + poison, ends=0)
        entries = json.loads((self.folder / "runs/small/quarantine.json").read_text())
        self.assertEqual([(each["plugin"], each["step"]) for each in entries], [("faulty", 5), ("poison", 7)])
        self.assertEqual(self.result()["digest"], self.train(SMALL, "--overwrite")["digest"])

    def test_a_crash_ahead_of_the_first_checkpoint_begins_anew_without_the_plugin(self):
        self.supervised(SMALL + self.CHECKPOINTS + hook("segv", "batch_start", 1), ends=0)
        self.assertEqual(len(json.loads((self.folder / "runs/small/quarantine.json").read_text())), 1)
        self.assertEqual(self.result()["steps"], 8)

    def test_what_a_run_needs_is_not_left_out(self):
        said = self.supervised(SMALL.replace('type = "adamw"', 'type = "faulty"\nway = "segv"\nstep = 5') + self.CHECKPOINTS, ends=3)
        self.assertIn("the run cannot do without optimizer", said)
        self.assertFalse((self.folder / "runs/small/quarantine.json").exists())
        report = json.loads((self.folder / "runs/small/report.json").read_text())
        self.write("runs/small/quarantine.json", json.dumps([{**{key: report[key] for key in ("plugin", "slot", "kind", "digest", "event", "step")},
                                                             "reason": "SIGSEGV", "time": ""}]))
        refused = self.host("train", "run.toml", "-q", "--plugins", FAULTY, "--set", "run.resume=auto", code=3)
        self.assertIn("is quarantined (SIGSEGV), and the run cannot do without optimizer", refused.stderr)

    def test_a_metric_that_decides_is_not_left_out(self):
        text = SMALL + self.CHECKPOINTS + 'keep_best = { metric = "val/accuracy", mode = "max" }\n'
        (accuracy,) = [each for each in self.train(text)["plugins"] if each["kind"] == "metric"]
        self.write("runs/small/quarantine.json", json.dumps([{"plugin": "accuracy", "slot": "metrics[0]", "kind": "metric", "event": "",
                                                             "step": 3, "digest": accuracy["digest"], "reason": "SIGSEGV", "time": ""}]))
        more = ("train", "run.toml", "-q", "--set", "run.resume=auto", "--set", "trainer.max_duration=4ep")
        self.assertIn("checkpoint.keep_best watches val/accuracy", self.host(*more, code=3).stderr)
        self.write("run.toml", SMALL + self.CHECKPOINTS)
        self.host(*more)  # nothing hangs on it any more

    def test_a_quarantined_rule_is_left_out(self):
        text = SMALL + self.CHECKPOINTS + '[[rules]]\ntype = "exploding_tensor"\nevery = "1ba"\n'
        (rule,) = [each for each in self.train(text)["plugins"] if each["kind"] == "rule"]
        self.write("runs/small/quarantine.json", json.dumps([{"plugin": "exploding_tensor", "slot": "rules[0]", "kind": "rule", "event": "",
                                                             "step": 3, "digest": rule["digest"], "reason": "SIGSEGV", "time": ""}]))
        self.host("train", "run.toml", "-q", "--set", "run.resume=auto", "--set", "trainer.max_duration=4ep")
        self.assertNotIn("rule", [each["kind"] for each in self.result()["plugins"]])
        self.assertTrue([line for line in self.journal() if "left out: [rules[0]] exploding_tensor" in line["why"]])

    def test_a_host_that_dies_again_at_the_same_place_is_not_started_for_ever(self):
        # `terminate` on a thread that the host knows nothing of, while no plugin's code runs, cannot be had here:
        # a kill from outside stands for it. The first comes after a checkpoint, the second ahead of a further one.
        text = SMALL + self.CHECKPOINTS + hook("doze", "batch_end", 4)
        self.write("run.toml", text)
        process = subprocess.Popen(self.command("train", "run.toml", "-q", "--supervise", "--plugins", FAULTY, "--set", "trainer.max_duration=40ba"),
                                   cwd=self.folder, text=True, stderr=subprocess.PIPE, env=self.environment())
        killed = 0
        latest = self.folder / "runs/small/checkpoints/latest"
        while process.poll() is None:
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
            if children and latest.exists() and killed < 2:
                subprocess.run(["kill", "-KILL", children[0]])
                killed += 1
                time.sleep(1.05)  # the supervisor's pause; then a new child that has not come far
            time.sleep(0.02)
        said = process.communicate()[1]
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, said)
        self.assertIn("no newer checkpoint than before", said)

    def test_a_signal_writes_on_no_stack_that_a_plugin_lays_into_the_heap(self):
        self.write("run.toml", SMALL + entry(type="elsewhere"))
        self.host("train", "run.toml", "-q", "--plugins", FAULTY, code=75)
        self.assertEqual(self.result()["steps"], STEP)

    def test_signals_are_handed_on(self):
        self.write("run.toml", SMALL + self.CHECKPOINTS + hook("doze", "batch_end", 2))
        process = subprocess.Popen(self.command("train", "run.toml", "-q", "--supervise", "--plugins", FAULTY, "--set", "trainer.max_duration=100ba"),
                                   cwd=self.folder, text=True, stderr=subprocess.PIPE, env=self.environment())
        latest = self.folder / "runs/small/checkpoints/latest"
        while not latest.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.terminate()
        said = process.communicate()[1]
        self.assertEqual(process.returncode, 75, said)
        self.assertEqual(self.result()["status"], "interrupted")


if __name__ == "__main__":
    unittest.main()
