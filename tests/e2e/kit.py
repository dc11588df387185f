"""What a plugin's author is given: `plugins new` for every kind, as it stands: built outside the tree by both compilers with
warnings as errors, tried, checked, validated, trained. All of them with clang++, too, and with the whole of `plugins check`, where
TRAINYARD_KIT=all; else some of them, others each day."""
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from support.host import BUILD, SOURCE, TRAINYARD, HostTest

TABLE = (SOURCE / "core/plugins/kinds.hpp").read_text()
KINDS = re.findall(r'\.kind = \{"(\w+)"', TABLE)
TEMPLATES = SOURCE / "sdk/templates"
NEEDS = {"schedule": "steps", "compressor": "distributed"}  # as their headers ask for
ALL = os.environ.get("TRAINYARD_KIT") == "all"
EVERY_DAY = 3  # kinds that are built with clang++
CHECKS = [] if ALL else ["--only", "static", "--only", "life.opens", "--only", "run.trains", "--only", "state"]
# As on the machine of somebody who has put trainyard on the PATH, and has set nothing else.
ENVIRONMENT = {**{key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")},
               "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}", "NO_COLOR": "1"}


def run(command, folder, code=0):
    done = subprocess.run(command, cwd=folder, shell=isinstance(command, str), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=ENVIRONMENT, timeout=600)
    if done.returncode != code:
        raise AssertionError(f"{command} in {folder} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def new(kind, name, folder, *more, code=0):
    return run(["trainyard", "plugins", "new", kind, name, *more], folder, code)


def build(folder, names, compiler):
    """One project of them all, with the compiler's cache where there is one."""
    (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.24)\nproject(all LANGUAGES CXX)\nenable_testing()\n" + "".join(
        f"add_subdirectory({name} ${{CMAKE_SOURCE_DIR}}/{name}/build)\n" for name in names))
    options = ["-G", "Ninja"] if shutil.which("ninja") else []
    if shutil.which("ccache"):
        ENVIRONMENT["CCACHE_BASEDIR"] = str(folder)
        options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run(["cmake", "-B", "build", f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", *options], folder)
    run(["cmake", "--build", "build"], folder)
    run(["ctest", "--test-dir", "build", "--output-on-failure"], folder)


class EveryKind(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainyard-kit-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.names = {kind: f"my_{kind}" for kind in KINDS}

    def test_a_template_is_there(self):
        self.assertGreater(len(KINDS), 15)
        for kind in KINDS:
            with self.subTest(kind):
                for file in ("my_plugin.cpp", "test.cpp", "run.toml"):
                    self.assertTrue((TEMPLATES / kind / file).exists(), f"sdk/templates/{kind}/{file}: each kind of kinds.hpp has one")

    def test_the_source_is_short(self):
        for kind in KINDS:
            with self.subTest(kind):
                self.assertLessEqual(len((TEMPLATES / kind / "my_plugin.cpp").read_text().splitlines()), 30)

    def test_it_builds_passes_and_trains(self):
        for kind, name in self.names.items():
            new(kind, name, self.folder)
        build(self.folder, self.names.values(), "g++")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            tried = {kind: pool.submit(self.check_and_train, kind, name) for kind, name in self.names.items()}
        for kind, done in tried.items():
            with self.subTest(kind):
                done.result()

        self.screen()
        self.prune()

    def screen(self):
        """The detector, a part, among those of the verb that takes such."""
        (self.folder / "rows.csv").write_text("a,b\n" + "".join(f"{i % 5},{i % 3}\n" for i in range(20)) + "90,90\n")
        run(["trainyard", "screen", "rows.csv", "--plugins", "my_detector/build", "--pool", '["knn:3"]', "--detectors", '[{ type = "my_detector" }]',
             "--out", "scores.csv"], self.folder)
        lines = [line.split(",") for line in (self.folder / "scores.csv").read_text().splitlines()]
        self.assertEqual(lines[0][4:], ["knn:3", "my_detector"])
        self.assertEqual(max(lines[1:], key=lambda line: float(line[5]))[0], "21")

    def prune(self):
        """The scorer, a part, in the verb that takes such, on a run that a template trained."""
        run(["trainyard", "prune", "my_hook/run.toml", "--plugins", "my_scorer/build", "--plugins", "my_hook/build", "--weights", "my_hook/runs/my_hook",
             "--scorer", '{ type = "my_scorer" }', "--ratio", "0.5", "--out", "pruned"], self.folder)
        self.assertTrue((self.folder / "pruned/model.safetensors").exists())

    def check_and_train(self, kind, name):
        folder = self.folder / name
        inspected = run(f"trainyard plugins inspect build/lib{name}.so", folder)
        self.assertIn(f"{kind}/{name} 0.1.0", inspected)
        if kind in NEEDS:
            self.assertRegex(inspected, rf"(?m)^needs +{NEEDS[kind]}$")
        run(["trainyard", "plugins", "check", f"build/lib{name}.so", *CHECKS], folder)
        command = (folder / "run.toml").read_text().splitlines()[0]
        self.assertTrue(command.startswith("# trainyard "), command)
        run(re.sub(r"(train|study) run.toml", "validate run.toml", command[2:].split("&&")[0]), folder)
        run(command[2:], folder)
        text = "\n".join(path.read_text(errors="replace") for path in folder.rglob("*")
                         if path.is_file() and not {"build", "runs"} & set(path.relative_to(folder).parts))
        self.assertNotRegex(text, "my_plugin|MyPlugin|my_kind|MY_[A-Z]+")

    @unittest.skipUnless(shutil.which("clang++"), "no clang++ here")
    def test_it_builds_and_passes_with_clang(self):
        kinds = KINDS
        if not ALL:
            today = datetime.date.today().toordinal()
            kinds = [KINDS[(today * EVERY_DAY + i) % len(KINDS)] for i in range(EVERY_DAY)]
        folder = self.folder / "clang"
        folder.mkdir()
        for kind in kinds:
            new(kind, self.names[kind], folder)
        build(folder, [self.names[kind] for kind in kinds], "clang++")


class Headers(unittest.TestCase):
    def test_they_cite_nothing_that_is_not_shipped(self):
        for path in sorted((SOURCE / "sdk/include").rglob("*.hpp")):
            for cited in re.findall(r"[\w/.-]+\.md\b|loader-facts", path.read_text()):
                with self.subTest(path.name):
                    self.assertTrue(cited == "README.md" or cited.startswith("docs/") and (SOURCE / cited).exists(), cited)


class NewPlugin(HostTest):
    def refused(self, message, kind, name, *more, code=2):
        before = sorted(self.folder.rglob("*"))
        self.assertIn(message, new(kind, name, self.folder, *more, code=code))
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_a_name_that_will_not_do(self):
        for name in ("Curve", "2fast", "my-curve", "a b", "../up", "", "a__b", "ünder", "x" * 65):
            with self.subTest(name):
                self.refused("as in my_schedule", "schedule", name)
        for name in ("class", "options", "common", "test", "while"):
            with self.subTest(name):
                self.refused(f"take another name, as my_{name}", "schedule", name)
        self.refused("there is a plugin schedule/cosine already", "schedule", "cosine")
        self.refused("is a verb of the host", "tool", "train")
        self.refused("schedulle", "schedulle", "curve")
        self.refused("several lines", "schedule", "curve", "--author", "A\nB")

    def test_nothing_is_written_over(self):
        self.write("curve/mine.txt", "mine")
        self.refused("curve is there already", "schedule", "curve")
        self.write("bend", "a file")
        self.refused("bend is there already", "schedule", "bend")
        (self.folder / "gone").symlink_to("nowhere")
        self.refused("gone is there already", "schedule", "gone")

    def test_licence_author_and_folder(self):
        new("schedule", "curve", self.folder, "--licence", "mit", "--author", "Ada & Co.", "--dir", "some/where")
        folder = self.folder / "some/where/curve"
        year = datetime.date.today().year
        self.assertIn(f"Copyright (c) {year} Ada & Co.", (folder / "LICENSE").read_text())
        self.assertTrue((folder / "curve.cpp").read_text().startswith(
            f"// SPDX-License-Identifier: MIT\n// Copyright (c) {year} Ada & Co.\n#include"))
        self.assertIn("class Curve final", (folder / "curve.cpp").read_text())
        self.assertTrue((folder / ".github/workflows/build.yml").exists())
        new("hook", "silent_one", self.folder, "--licence", "none")
        self.assertFalse((self.folder / "silent_one/LICENSE").exists())
        self.assertTrue((self.folder / "silent_one/silent_one.cpp").read_text().startswith("#include"))
        self.assertIn("class SilentOne final", (self.folder / "silent_one/silent_one.cpp").read_text())
        for licence, words in (("apache-2.0", "Apache License"), ("bsd-3-clause", "BSD 3-Clause")):
            name = licence.split("-")[0] + "_one"
            new("loss", name, self.folder, "--license", licence)
            self.assertIn(words, (self.folder / name / "LICENSE").read_text())

    def test_what_it_says_next_works_where_the_user_stands(self):
        done = subprocess.run([str(TRAINYARD), "plugins", "new", "schedule", "curve"], cwd=self.folder, text=True, capture_output=True,
                              env={**ENVIRONMENT, "PATH": os.environ["PATH"]})
        self.assertIn(f"-DCMAKE_PREFIX_PATH={BUILD.resolve()}", done.stdout)
        self.assertIn(f"{TRAINYARD.resolve()} train run.toml", done.stdout)
        self.assertNotIn("PREFIX_PATH", new("schedule", "bend", self.folder))


if __name__ == "__main__":
    unittest.main()
