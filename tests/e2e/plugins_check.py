"""`trainyard plugins check`: finds the mistake that each plugin of tests/seeded has, by the test that its first line names, and
accuses none of the shipped ones. TRAINYARD_CHECK_ALL=1 tries all of these, eight minutes on two cores, else one of each kind."""
import json
import os
import re
import shutil
import subprocess
import unittest
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor

from support.host import BUILD, SOURCE, HostTest

SEEDED = BUILD / "tests/seeded"
PLUGINS = BUILD / "lib/trainyard/plugins"
FOUND = {"fail", "crash", "warn"}
DONE, PLUGIN, CONFIG = 0, 3, 2


class CheckTest(HostTest):
    def run_host(self, *words, timeout=300):
        return subprocess.run(self.command(*words), cwd=self.folder, text=True, capture_output=True, timeout=timeout, env=self.environment())

    def check(self, *words, code=DONE):
        """Results by plugin and test."""
        done = self.run_host("plugins", "check", *words, "--format", "json", timeout=1200)
        self.assertIn(done.returncode, (DONE, PLUGIN) if code is None else (code,), done.stderr)
        return {each["path"]: {test["name"]: test for test in each["tests"]} for each in json.loads(done.stdout)}


class Seeded(CheckTest):
    def test_each_mistake_is_found_by_its_test(self):
        sources = sorted((SOURCE / "tests/seeded").glob("*.cpp"))
        self.assertGreaterEqual(len(sources), 25)

        self.write("points.txt", "points 24\n")

        def found(source):
            kind, name = source.stem.split("_", 1)
            test, words = re.match(r"// Caught by ([a-z_.]+)( with .*?)?: ", source.read_text()).groups("")
            library = SEEDED / kind / f"lib{name}.so"
            done = self.run_host("plugins", "check", library, "--only", test, *words.split()[1:], "--timeout", "20",
                                 "--format", "json")
            [report] = json.loads(done.stdout)
            return source, test, {each["name"]: each for each in report["tests"]}, done.returncode

        missed = []
        with ThreadPoolExecutor(2) as pool:
            for source, test, results, code in pool.map(found, sources):
                with self.subTest(source.stem):
                    self.assertLessEqual(len(source.read_text().splitlines()), 30)
                    verdict = results.get(test, {}).get("verdict")
                    if verdict not in FOUND:
                        missed.append(f"{source.stem}: {test} says {verdict}, {results}")
                        continue
                    self.assertTrue(results[test]["what"])
                    self.assertEqual(code, DONE if verdict == "warn" else PLUGIN)
        self.assertEqual(missed, [])

    def test_a_mistake_is_told_in_words(self):
        library = SEEDED / "hook/libforgetful.so"
        [results] = self.check(library, "--only", "resume", code=PLUGIN).values()
        self.assertIn("killed at steps 5 and 8", results["resume.bits"]["what"])
        self.assertIn("save()", results["resume.bits"]["what"])
        [results] = self.check(SEEDED / "schedule/libby_zero.so", "--only", "options.bounds", code=PLUGIN).values()
        self.assertEqual(results["options.bounds"]["verdict"], "crash")
        self.assertIn("schedule.period=0", results["options.bounds"]["what"])


    def test_a_dataset_whose_file_nobody_gave_is_skipped_by_name(self):
        library = SEEDED / "dataset/libcounting.so"
        [results] = self.check(library, "--only", "run.trains", "--only", "resume").values()
        self.assertEqual({test["verdict"] for test in results.values()}, {"skip"})
        self.assertIn("give one with --set data.path=FILE", results["run.trains"]["what"])
        self.assertIn("see run.trains", results["resume.bits"]["what"])
        [results] = self.check(library, "--only", "run.trains", "--set", "data.path=none.txt", code=PLUGIN).values()
        self.assertIn("none.txt does not exist", results["run.trains"]["what"])


class Shipped(CheckTest):
    def test_none_is_accused(self):
        everything = os.environ.get("TRAINYARD_CHECK_ALL") == "1"
        files = []
        for kind in sorted(path for path in PLUGINS.iterdir() if path.is_dir()):
            of_kind = sorted(kind.glob("lib*.so"))
            files += of_kind if everything else of_kind[:1]
        self.assertGreater(len(files), 12)
        words = () if everything else [word for group in ("static", "life", "run.trains", "state", "resume", "determinism.process",
                                                          "events") for word in ("--only", group)]
        with ThreadPoolExecutor(2) as pool:
            halves = pool.map(lambda some: self.check(*some, *words, code=None) if some else {}, (files[::2], files[1::2]))
        for results in halves:
            for path, tests in results.items():
                for name, test in tests.items():
                    with self.subTest(f"{path}: {name}"):
                        self.assertNotIn(test["verdict"], ("fail", "crash"), test["what"])


class Verb(CheckTest):
    def test_the_list_has_a_sentence_for_each_test(self):
        lines = self.host("plugins", "check", "--list").stdout.splitlines()
        self.assertGreater(len(lines), 25)
        for line in lines:
            self.assertRegex(line, r"^[a-z]+\.[a-z_]+ +\S.{10,}$")

    def test_junit(self):
        done = self.host("plugins", "check", SEEDED / "hook/libopen_door.so", "--only", "static", "--format", "junit", code=PLUGIN)
        [suite] = xml.fromstring(done.stdout)
        self.assertEqual((suite.get("tests"), suite.get("failures"), suite.get("errors")), ("5", "1", "0"))
        [failure] = suite.iter("failure")
        self.assertIn("helper", failure.get("message"))

    def test_text(self):
        done = self.host("plugins", "check", "schedule/step", "--only", "static")
        self.assertIn("pass   static.seal", done.stdout)
        self.assertIn("schedule step: 5 passed\n", done.stdout)

    def test_what_is_no_plugin_fails_without_a_crash(self):
        for content in (b"", b"\x7fELF" + bytes(range(60)) * 3, (PLUGINS / "schedule/libstep.so").read_bytes()[:3000]):
            path = self.write("libbroken.so", content)
            [results] = self.check(path, code=PLUGIN).values()
            self.assertEqual(results["static.seal"]["verdict"], "fail")

    def test_changed_code_is_found(self):
        copy = self.folder / "libstep.so"
        shutil.copy(PLUGINS / "schedule/libstep.so", copy)
        data = bytearray(copy.read_bytes())
        data[0x1000] ^= 1
        copy.write_bytes(data)
        [results] = self.check(copy, "--only", "static", code=PLUGIN).values()
        self.assertEqual(results["static.digest"]["verdict"], "fail")

    def test_wrong_words_are_named(self):
        for words, message in ((("step", "--only", "resum"), '"resum"'), ((), "give the file"), (("nobody",), '"nobody"')):
            done = self.run_host("plugins", "check", *words)
            self.assertIn(done.returncode, (CONFIG, PLUGIN))
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
