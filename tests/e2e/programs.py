"""Verbs that are programs of their own: they answer as verbs, and where one is missing, trainyard says how to get it. A program
trainyard-NAME that somebody else wrote is a verb as well."""
import os
import re
import shutil
import signal
import subprocess
import unittest

from support.host import BUILD, SOURCE, TRAINYARD, HostTest

PROGRAMS = ("bench", "ckpt", "completion", "config", "ctl", "monitor", "plugins", "report", "rules", "runs", "schedule", "study")


class Programs(HostTest):
    def setUp(self):
        super().setUp()
        self.alone = self.folder / "alone/bin/trainyard"  # an installation of which nothing else is there
        self.alone.parent.mkdir(parents=True)
        shutil.copy(TRAINYARD, self.alone)

    def run_(self, *words, code=0, path="/usr/bin:/bin", **more):
        done = subprocess.run([str(word) for word in words], text=True, capture_output=True, timeout=60, cwd=self.folder,
                              env={**os.environ, "PATH": str(path)}, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def program(self, path, text):
        self.write(path, f"#!/bin/sh\n{text}\n").chmod(0o755)

    def test_the_table_of_headers_says_what_it_cannot_write(self):
        """A program of the build alone, which goes by its exit code."""
        table, file = BUILD / "bin/trainyard_contract", self.folder / "contract.cpp"
        self.run_(table, SOURCE / "sdk/include", file)
        self.assertIn('{"schedule.hpp", "', file.read_text())
        os.utime(file, (1, 1))
        self.run_(table, SOURCE / "sdk/include", file)
        self.assertEqual(file.stat().st_mtime, 1)  # it is what was there
        self.run_(table, code=2)
        self.run_(table, SOURCE / "sdk/include", self.folder / "nowhere/contract.cpp", code=1)
        self.assertIn("trainyard_contract: ", self.run_(table, self.folder / "nowhere", file, code=1).stderr)

    def test_a_program_answers_as_the_verb(self):
        for verb in PROGRAMS:
            with self.subTest(verb):
                said = self.run_(TRAINYARD, verb, "--help").stdout
                self.assertRegex(said, rf"Usage: trainyard {verb} ")
                for word in ("help", "--help", "-h"):
                    self.assertEqual(self.run_(TRAINYARD, word, verb).stdout, said)
                self.assertEqual(self.run_(BUILD / f"bin/trainyard-{verb}", "--help").stdout, said)
                self.assertIn("--help", self.run_(TRAINYARD, "__complete", verb, "--h").stdout.split())
                wrong = self.run_(TRAINYARD, verb, "--bogus", code=2).stderr
                self.assertEqual(self.run_(BUILD / f"bin/trainyard-{verb}", "--bogus", code=2).stderr, wrong)

    def test_trainyard_alone_lists_all_and_says_what_is_missing(self):
        self.assertEqual(self.run_(self.alone, "--help").stdout, self.run_(TRAINYARD, "--help").stdout)
        self.assertEqual(self.run_(self.alone, "__complete", "re").stdout.split(), ["report", "resume"])
        for verb in PROGRAMS:
            with self.subTest(verb):
                said = self.run_(self.alone, verb, "x", code=2)
                self.assertEqual(said.stdout, "")
                self.assertEqual(said.stderr, f"trainyard: the verb {verb} is a program of its own, trainyard-{verb}, which is neither in "
                                              f"{self.alone.parent} nor on the PATH: install all of Trainyard\n")
        self.write("alone/CMakeCache.txt", "")  # a folder of a build
        self.assertIn(f"build it with cmake --build {self.alone.parents[1]} --target trainyard-runs\n", self.run_(self.alone, "runs", code=2).stderr)

    def test_the_path_is_the_second_place(self):
        self.assertIn("optimizer", self.run_(self.alone, "config", "schema", path=TRAINYARD.parent).stdout)
        self.program("alone/bin/trainyard-config", "echo beside")
        self.assertEqual(self.run_(self.alone, "config", "schema", path=TRAINYARD.parent).stdout, "beside\n")

    def test_a_folder_may_have_any_name(self):
        other = self.folder / "a:b/bin"
        other.mkdir(parents=True)
        shutil.copy(TRAINYARD, other)
        self.program("a:b/bin/trainyard-config", "echo beside")
        self.assertEqual(self.run_(other / "trainyard", "config").stdout, "beside\n")

    def test_a_verb_of_somebody_else(self):
        self.program("theirs/trainyard-hello", 'echo "$$ $@"; cat; exit 7')
        path = f"{self.folder / 'theirs'}:/usr/bin:/bin"
        self.assertRegex(self.run_(TRAINYARD, "hello", "a b", "--set", "c", path=path, code=7, input="typed\n").stdout, r"^\d+ a b --set c\ntyped\n$")
        self.assertIn(" --help\n", self.run_(TRAINYARD, "help", "hello", path=path, code=7, input="").stdout)
        self.assertIn('there is no verb "hello"', self.run_(TRAINYARD, "hello", code=2).stderr)
        self.assertIn('there is no verb "../hello"', self.run_(TRAINYARD, "../hello", path=path, code=2).stderr)
        os.chmod(self.folder / "theirs/trainyard-hello", 0o644)
        self.assertIn('there is no verb "hello"', self.run_(TRAINYARD, "hello", path=path, code=2).stderr)

    def test_none_takes_the_place_of_a_verb_or_a_tool(self):
        for verb in ("train", "export"):
            self.program(f"theirs/trainyard-{verb}", "echo theirs")
            said = self.run_(TRAINYARD, verb, "--help", path=f"{self.folder / 'theirs'}:/usr/bin:/bin").stdout
            self.assertRegex(said, rf"Usage: trainyard {verb} ")

    def test_the_process_is_replaced(self):
        self.program("theirs/trainyard-wait", "echo $$; exec sleep 60")
        with subprocess.Popen([str(TRAINYARD), "wait"], text=True, stdout=subprocess.PIPE,
                              env={**os.environ, "PATH": f"{self.folder / 'theirs'}:/usr/bin:/bin"}) as waiting:
            self.assertEqual(int(waiting.stdout.readline()), waiting.pid)
            waiting.send_signal(signal.SIGINT)
            self.assertEqual(waiting.wait(20), -signal.SIGINT)

    def test_one_that_cannot_start_is_told(self):
        self.write("theirs/trainyard-broken", b"\x7fELF no program").chmod(0o755)
        said = self.run_(TRAINYARD, "broken", path=self.folder / "theirs", code=2).stderr
        self.assertRegex(said, r"^trainyard: cannot start \S+/theirs/trainyard-broken: Exec format error\n$")

    def test_the_help_says_which_verbs_there_are(self):
        listed = re.findall(r"(?m)^  ([a-z]+)  ", self.run_(TRAINYARD, "--help").stdout.partition("Subcommands:\n")[2])
        self.assertLess(set(PROGRAMS), set(listed))
        self.assertEqual({path.name for path in TRAINYARD.parent.glob("trainyard-*")} - {f"trainyard-{verb}" for verb in PROGRAMS}, {"trainyard-seal"})


if __name__ == "__main__":
    unittest.main()
