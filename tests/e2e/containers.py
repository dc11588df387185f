"""The Dockerfile and the development container say what tools/setup says, and name what is there. Nothing is built or fetched."""
import json
import os
import re
import shlex
import unittest

from support.host import SOURCE

BESIDE = {"git"}  # for people who edit in the container; no build needs it
# All of Dockerfile's; ADD may fetch and is not used.
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
PROGRAMS = {"apt-get", "cmake", "rm"}


def instructions():
    """(word, the rest) of each, in order; comments and continued lines as Docker reads them."""
    lines = [line for line in (SOURCE / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, rest.strip()


def commands():
    for word, rest in instructions():
        if word == "RUN":
            yield from (shlex.split(each) for each in rest.split("&&"))


def asked_by_setup():
    text = (SOURCE / "tools/setup").read_text()
    always = re.search(r"^packages=\((.*?)\)", text, re.M | re.S)[1].split()
    modules = re.findall(r"\w+:([\w-]+)", re.search(r"^for module in (.*?); do", text, re.M)[1])
    return {*always, *modules}


def presets():
    return {each["name"] for each in json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]}


class Command(unittest.TestCase):
    def check(self, words):
        """Fails where a shell in the tree would find no such program, or CMake no such preset."""
        if "/" in words[0]:
            self.assertTrue(os.access(SOURCE / words[0], os.X_OK), f"{words[0]} is no program of this tree")
        else:
            self.assertIn(words[0], PROGRAMS)
        if "--preset" in words:
            self.assertIn(words[words.index("--preset") + 1], presets())


class Dockerfile(Command):
    def test_its_instructions_are_known(self):
        found = [word for word, _ in instructions()]
        self.assertEqual(found[0], "FROM")
        self.assertEqual(set(found) - INSTRUCTIONS, set())

    def test_it_begins_with_debian_12_which_setup_is_for(self):
        stages = set()
        for rest in (rest for word, rest in instructions() if word == "FROM"):
            image, _, name = rest.partition(" AS ")
            self.assertIn(image, {"debian:12", *stages})
            stages.add(name)

    def test_its_packages_are_those_of_setup(self):
        installed = [word for words in commands() if words[:2] == ["apt-get", "install"] for word in words[2:] if not word.startswith("-")]
        self.assertEqual(len(installed), len(set(installed)), "one stands twice")
        self.assertGreater(len(asked_by_setup()), 25)
        self.assertEqual(set(installed), asked_by_setup() | BESIDE)

    def test_its_commands_and_files_are_there(self):
        found = list(commands())
        self.assertGreater(len(found), 4)
        for words in found:
            with self.subTest(" ".join(words)):
                self.check(words)
        for word, rest in instructions():
            if word == "COPY":
                for path in rest.split()[:-1]:
                    self.assertTrue((SOURCE / path).exists(), f"{path} is not there")
            if word in ("CMD", "ENTRYPOINT"):
                self.assertIsInstance(json.loads(rest), list)


class DevelopmentContainer(Command):
    def test_it_is_made_of_a_stage_of_the_dockerfile(self):
        folder = SOURCE / ".devcontainer"
        said = json.loads((folder / "devcontainer.json").read_text())
        build = said["build"]
        self.assertEqual((folder / build["dockerfile"]).resolve(), SOURCE / "Dockerfile")
        self.assertEqual((folder / build["context"]).resolve(), SOURCE)
        self.assertIn(build["target"], [rest.partition(" AS ")[2] for word, rest in instructions() if word == "FROM"])
        for words in map(shlex.split, said["postCreateCommand"].split("&&")):
            self.check(words)


if __name__ == "__main__":
    unittest.main()
