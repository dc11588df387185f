"""Completion of the command line, in the shells themselves: what is typed goes through a terminal, TAB included."""
import os
import pty
import re
import select
import shutil
import time
import unittest

from support.host import SMALL, TRAINYARD, HostTest

START = {"bash": (["bash", "--norc", "--noprofile", "-i"], "source <(trainyard completion bash)"),
         "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -d .zcompdump; source <(trainyard completion zsh)"),
         "fish": (["fish", "--no-config", "-i"], "trainyard completion fish | source")}


class Shell:
    """A shell at the other end of a terminal."""

    def __init__(self, name, folder):
        words, start = START[name]
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.environ.update(PATH=f"{TRAINYARD.parent}:{os.environ['PATH']}", PS1="$ ", TERM="dumb", HOME=str(folder), HISTFILE="")
            os.execvp(words[0], words)
        self.answer(f"{start}; echo begun", "begun")

    def answer(self, typed, pattern, wait=20):
        """Types a line; what is printed, once the pattern stands in a line of its own."""
        os.write(self.terminal, typed.encode() + b"\n")
        return self.read(rf"(?m)^[^\n]*?(?<!echo ){pattern}\r?$", wait)

    def read(self, pattern, wait):
        text, end = "", time.monotonic() + wait
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[>=]|\x07", "", os.read(self.terminal, 65536).decode(errors="replace"))
            if found := re.search(pattern, text):
                return found
        raise AssertionError(f"no {pattern!r} within {wait} s in:\n{text}")

    def completed(self, line):
        """The line after TAB: what echo prints where it is put before it, in front of a mark."""
        os.write(self.terminal, line.encode() + b"\t")
        time.sleep(1.0)  # for the answer of the executable: what is typed meanwhile would be part of the word
        os.write(self.terminal, b"\x01echo '<' \x05'>'\n")
        return self.read(r"(?m)^(?:\$ )?< (.*?) ?>\r?$", 20)[1].strip()

    def end(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)


class Completion(HostTest):
    def words(self, *words):
        return self.host("__complete", *words).stdout.split("\n")[:-1]

    def setUp(self):
        super().setUp()
        self.write("run.toml", SMALL)

    def test_verbs_and_options(self):
        self.assertEqual(self.words("va"), ["validate"])
        self.assertLess({"train", "plugins", "ctl", "completion", "export"}, set(self.words("")))  # a tool is a verb
        self.assertLessEqual({"events", "inspect", "list"}, set(self.words("plugins", "")))
        self.assertEqual(self.words("plugins", "list", "--fo"), ["--format"])
        self.assertEqual(self.words("plugins", "list", "--format", ""), ["json", "text"])
        self.assertEqual(self.words("plugins", "list", "--format=j"), ["--format=json"])
        self.assertEqual(self.words("config", "schema", "trainer"), ["trainer", "trainer.grad_clip"])
        self.assertIn("schedule", self.words("plugins", "list", ""))
        self.assertEqual(self.words("completion", ""), ["bash", "fish", "zsh"])
        self.assertIn("optimizer/adamw", self.words("plugins", "inspect", "optimizer/"))

    def test_keys_and_values(self):
        self.assertIn("optimizer.", self.words("train", "run.toml", "--set", "o"))
        keys = self.words("train", "run.toml", "--set", "optimizer.")
        self.assertLess({"optimizer.lr=", "optimizer.betas=", "optimizer.type="}, set(keys))  # of adamw, which the file has
        self.assertNotIn("optimizer.momentum=", keys)
        self.assertEqual(self.words("train", "run.toml", "--set", "optimizer.type=adamw"), ["optimizer.type=adamw", "optimizer.type=adamw8"])
        types = self.words("train", "run.toml", "--set", "optimizer.type=")
        self.assertLess({"optimizer.type=sgd", "optimizer.type=adamw"}, set(types))
        self.assertEqual(self.words("train", "run.toml", "--set", "trainer.precision=f"), ["trainer.precision=fp16-mixed", "trainer.precision=fp32", "trainer.precision=fp64"])
        self.assertEqual(self.words("train", "run.toml", "--set", "data.train.shu"), ["data.train.shuffle="])
        self.assertEqual(self.words("train", "run.toml", "--set", "data.train.shuffle="), ["data.train.shuffle=false", "data.train.shuffle=true"])
        self.assertEqual(self.words("train", "run.toml", "--set", "data.train.size"), ["data.train.size="])  # an option of the dataset
        self.assertEqual(self.words("train", "run.toml", "--set", "metrics.0.ty"), ["metrics.0.type="])
        self.assertEqual(self.words("train", "run.toml", "--set=optimizer.lr"), ["--set=optimizer.lr="])

    def test_runs_slots_and_plugins(self):
        self.train()
        self.assertIn("small", self.words("ctl", ""))
        self.assertIn("run.toml", self.words("train", "ru"))
        self.assertIn("runs/", self.words("train", "ru"))
        self.assertEqual(self.words("ctl", "small", "sw"), ["swap"])
        self.assertLess({"schedule", "optimizer", "metrics.accuracy"}, set(self.words("ctl", "small", "swap", "")))
        self.assertIn("cosine", self.words("ctl", "small", "swap", "schedule", ""))
        self.assertNotIn("adamw", self.words("ctl", "small", "swap", "schedule", ""))
        self.assertIn("min_factor=", self.words("ctl", "small", "swap", "schedule", "cosine", "m"))
        self.assertIn("optimizer.lr=", self.words("ctl", "small", "set", "optimizer.l"))

    def test_a_line_that_makes_no_sense_offers_nothing(self):
        for words in (("nothing", "x"), ("train", "absent.toml", "--set", "nowhere."), ("train", "--bogus", "x="), ()):
            self.host("__complete", *words)
        self.write("broken.toml", "[[[")
        self.host("__complete", "train", "broken.toml", "--set", "optimizer.")


def in_shell(name):
    @unittest.skipUnless(shutil.which(name), f"no {name} here")
    def test(self):
        self.train()
        shell = Shell(name, self.folder)
        self.addCleanup(shell.end)
        for begun, whole in (("trainyard valid", "trainyard validate"),
                             ("trainyard config schema optim", "trainyard config schema optimizer"),
                             ("trainyard train run.toml --set optimizer.type=adamw", "trainyard train run.toml --set optimizer.type=adamw"),
                             ("trainyard train run.toml --set optimizer.type=rmsp", "trainyard train run.toml --set optimizer.type=rmsprop"),
                             ("trainyard train run.toml --set trainer.prec", "trainyard train run.toml --set trainer.precision="),
                             ("trainyard ctl small swap schedule cosi", "trainyard ctl small swap schedule cosine")):
            with self.subTest(begun):
                self.assertEqual(shell.completed(begun), whole)

    return test


for each in START:
    setattr(Completion, f"test_in_{each}", in_shell(each))

if __name__ == "__main__":
    unittest.main()
