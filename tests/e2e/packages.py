"""The archive, the Debian package and the wheel that tools/package makes: unpacked elsewhere they train a run file, build a plugin, and say what
is missing where LibTorch is not found. With TRAINYARD_LONGER=1 each way to put them up builds a plugin, else one of them and the wheel."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.host import BUILD, SMALL, SOURCE


def cache(name):
    return re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M).group(1)


LONGER = os.environ.get("TRAINYARD_LONGER") == "1"
TORCH = pathlib.Path(cache("TRAINYARD_LIBTORCH"))
PLAIN = {key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_") and key != "LD_LIBRARY_PATH"}


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory(prefix="trainyard-packages-")
        cls.addClassCleanup(cls.kept.cleanup)
        cls.folder = pathlib.Path(cls.kept.name)

    def run_(self, *words, code=0, **more):
        done = subprocess.run([str(word) for word in words], text=True, capture_output=True, timeout=300, **{"env": PLAIN, **more})
        self.assertEqual(done.returncode, code, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def package(self, kind):
        return pathlib.Path(self.run_(sys.executable, SOURCE / "tools/package", kind, "--build", BUILD, "--out", self.folder / kind).splitlines()[0])

    def plugin(self, folder):
        """A project of one's own: step.cpp of the README under another name."""
        source = folder / "my_schedule"
        source.mkdir()
        text = (SOURCE / "plugins/schedule/step.cpp").read_text()
        (source / "my_schedule.cpp").write_text(text.replace('name("step")', 'name("my_schedule")'))
        (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.24)\nproject(my_schedule LANGUAGES CXX)\n"
                                               "find_package(Trainyard REQUIRED)\ntrainyard_add_plugin(my_schedule SOURCES my_schedule.cpp)\n")
        return source

    def use(self, prefix, work, builds=LONGER, trainyard=None, **environment):
        """Trains a run file and, if it `builds`, makes a plugin, with an installation at `prefix`."""
        trainyard, environment = trainyard or prefix / "bin/trainyard", {**PLAIN, **environment}
        share = prefix / "share/trainyard"
        for name in ("README.md", "LICENSE", "configs/digits_mlp.toml", "data/optdigits/README.md", "docs/events.md", "docs/run-file.schema.json",
                     "tools/docs", "configs/studies/rex/low_budget.toml", "templates/schedule"):
            self.assertTrue((share / name).exists(), name)
        work.mkdir()
        self.run_(trainyard, "train", share / "configs/digits_mlp.toml", "--set", "trainer.max_duration=20ba", "-q", cwd=work, env=environment)
        [result] = (work / "runs").glob("*/result.json")
        self.assertEqual(json.loads(result.read_text())["status"], "completed")
        self.assertIn("digits-mlp", self.run_(trainyard, "runs", cwd=work, env=environment))  # a program beside it
        for path in (BUILD / "bin/trainyard", *BUILD.glob("bin/trainyard-*")):
            self.assertTrue(os.access(prefix / "bin" / path.name, os.X_OK), path.name)
        if not builds:
            return
        source = self.plugin(work)
        self.run_("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}", env=environment)
        self.run_("cmake", "--build", source / "build", env=environment)
        (work / "run.toml").write_text(SMALL + '[schedule]\ntype = "my_schedule"\n')
        self.run_(trainyard, "train", "run.toml", "-q", "--plugins", source / "build", cwd=work, env=environment)
        self.run_(trainyard, "plugins", "check", source / "build/libmy_schedule.so", "--only", "life.opens", env=environment)
        self.run_(share / "tools/docs", "--write", "--out", work / "docs", "--plugins", source / "build", env=environment)
        self.assertIn("## my_schedule", (work / "docs/kinds/schedule.md").read_text())

    def test_archive(self):
        self.run_("tar", "xzf", self.package("archive"), "-C", self.folder)
        [prefix] = (each for each in self.folder.iterdir() if (each / "bin/trainyard").exists())
        # As on a machine where the LibTorch of the build is not: the path to it is blotted out.
        for path in [prefix / "bin/trainyard-seal", *prefix.glob("lib/lib*.so"), prefix / "lib/cmake/Trainyard/TrainyardConfig.cmake"]:
            path.write_bytes(path.read_bytes().replace(str(TORCH).encode(), b"/nowhere".ljust(len(str(TORCH)), b"_")))
        self.use(prefix, self.folder / "by_variable", builds=True, TRAINYARD_LIBTORCH=str(TORCH))
        (prefix / "torch").symlink_to(TORCH)
        self.use(prefix, self.folder / "beside")
        (prefix / "torch").unlink()

        said = self.run_(prefix / "bin/trainyard", "doctor", code=3)
        self.assertRegex(said, rf"libtorch_cpu.so.*; set TRAINYARD_LIBTORCH to the folder of LibTorch 2\.11\.0, or put that folder at {prefix}/torch")
        said = self.run_(prefix / "bin/trainyard", "doctor", code=3, env={**PLAIN, "TRAINYARD_LIBTORCH": "/absent"})
        self.assertRegex(said, "TRAINYARD_LIBTORCH: /absent/lib/libtorch_cpu.so: .*it is to name the folder of LibTorch")
        self.assertRegex(self.run_(prefix / "bin/trainyard", "plugins", "check", "schedule/step", code=3), "the engine does not load: .*libtorch_cpu.so")
        self.assertIn("valid", self.run_(prefix / "bin/trainyard", "validate", "--level", "files", prefix / "share/trainyard/configs/digits_mlp.toml"))
        (self.folder / "without").mkdir()
        source = self.plugin(self.folder / "without")
        said = self.run_("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}", code=1)
        self.assertRegex(said, r"No LibTorch at '/nowhere_*'.*set\s+TRAINYARD_LIBTORCH")

    def test_wheel(self):
        environment = self.folder / "venv"
        self.run_(sys.executable, "-m", "venv", environment)
        [packages] = environment.glob("lib/python3*/site-packages")
        made = self.package("wheel")
        self.assertRegex(self.run_(environment / "bin/python", "-m", "pip", "install", "--no-index", made, code=1), r"torch==2\.11\.0")
        self.run_(environment / "bin/python", "-m", "pip", "install", "--no-index", "--no-deps", made)
        prefix, trainyard, work = packages / "trainyard", environment / "bin/trainyard", self.folder / "of_wheel"
        # As the package torch lies there, whose folder LibTorch is; and neither its build nor this machine's libraries are found.
        for path in [*prefix.glob("bin/*"), *prefix.glob("lib/lib*.so"), prefix / "lib/cmake/Trainyard/TrainyardConfig.cmake"]:
            path.write_bytes(path.read_bytes().replace(str(TORCH).encode(), b"/nowhere".ljust(len(str(TORCH)), b"_")))
        self.assertRegex(self.run_(trainyard, "doctor", code=3), "set TRAINYARD_LIBTORCH")
        (packages / "torch").mkdir()
        (packages / "torch/__init__.py").touch()
        for each in ("lib", "include", "share"):
            (packages / "torch" / each).symlink_to(TORCH / each)
        alone = {**PLAIN, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(self.folder / "loaded")}
        self.run_(trainyard, "plugins", "check", "model/trees", "--only", "life.opens", env=alone)
        loaded = "".join(path.read_text() for path in self.folder.glob("loaded.*"))
        for each in ("boost_filesystem", "tomlplusplus", "spdlog", "fmt", "xgboost", "dmlc"):
            self.assertRegex(loaded, rf"init: \S*{prefix}/(bin/\.\./)?lib/lib{each}\.")
            self.assertNotRegex(loaded, rf"init: /(usr/)?lib/\S*{each}")
        self.use(prefix, work, builds=True, trainyard=trainyard)
        (self.folder / "elsewhere").mkdir()  # as another folder of packages
        (packages / "torch").rename(self.folder / "elsewhere/torch")
        self.assertIn("LibTorch       2.11.0", self.run_(trainyard, "doctor", env={**PLAIN, "PYTHONPATH": str(self.folder / "elsewhere")}))

    @unittest.skipUnless(shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps"), "no Debian tools here")
    def test_debian_package(self):
        package = self.package("deb")
        self.run_("dpkg-deb", "-x", package, self.folder / "root")
        depends = self.run_("dpkg-deb", "-f", package, "Depends")
        for each in ("libc6", "libssl3", "libstdc++6", "zlib1g"):
            self.assertIn(each, depends)
        self.assertEqual(self.run_("dpkg-deb", "-f", package, "Package").strip(), "trainyard")
        self.use(self.folder / "root/usr", self.folder / "of_package", TRAINYARD_LIBTORCH=str(TORCH))


if __name__ == "__main__":
    unittest.main()
