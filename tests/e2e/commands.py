"""What the documents tell readers to run can be run, and every figure has a command that makes it.

A table of figures has a column `command`, or a paragraph directly above or below it that begins with "Command": `like this`,
as typed in the root of the repository. Tables whose header has one of REFERENCE explain, and measure nothing.
Each command is looked up: program, files, options, targets, presets, names of tests. Those of figures have a short form that
runs: as a test of its own (ctest), or here with --quick."""
import concurrent.futures
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

import configs
from support.host import BUILD, DATA, SOURCE, TRAINYARD

DOCUMENTS = sorted(path for path in SOURCE.rglob("*.md") if not {"build", ".deps", "runs", ".git", "golden"} & set(path.relative_to(SOURCE).parts))
REFERENCE = {"type", "file", "folder", "library", "part", "taken", "trainyard ...", "mistake", "event", "the template"}
PROGRAM = re.compile(r"tools/\w|tests/\w|build/release/\w|\w+\.py$|(?:trainyard|bench|cmake|ctest|python3)$")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|\*|\.\.\.")
PATH = re.compile(r"(?:configs|tools|tests|data|docs|plugins|kernels|sdk|core)/")
HOW_LONG = {"--epochs", "--seeds", "--turns"}
SPAN = re.compile(r"`([^`]+)`")


def words_of(text):
    """The words of a command, with `env` for settings of the environment; none where it is no command."""
    try:
        words = shlex.split(text.replace(r"\|", "|"))
    except ValueError:
        return []
    typed = list(itertools.dropwhile(lambda word: re.fullmatch(r"[A-Z_]+=.*", word), words))
    if not typed or typed == ["trainyard"] or not PROGRAM.match(typed[0]) or PLACEHOLDER.search(" ".join(typed[:2])):
        return []
    return typed if typed == words else ["env", *typed]


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


class Document:
    """Its paragraphs in order: tables, text, and blocks of code that are typed."""

    def __init__(self, path):
        self.path, self.name, self.parts = path, str(path.relative_to(SOURCE)), []
        fence, part = None, None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("```"):
                fence, part = (line[3:] or "sh", None) if fence is None else (None, None)
                continue
            kind = fence or ("table" if line.startswith("|") else "text")
            if not fence and (not line.strip() or line.startswith("#")):
                part = None
            elif part is None or part[0] != kind:
                self.parts.append(part := (kind, number, [line]))
            else:
                part[2].append(line)

    def commands(self):
        """(line, words) of each, in the text and in blocks."""
        for kind, number, lines in self.parts:
            for i, line in enumerate(lines):
                if kind == "sh":
                    texts = re.sub(r"\s+#( |$).*", "", line).split("&&")
                else:
                    texts = SPAN.findall(line) if kind in ("table", "text") else []
                for words in filter(None, map(words_of, texts)):
                    yield number + i, words

    def figures(self):
        """(line, commands) of each table of figures; a row without a command of its own gives an empty list."""
        for place, (kind, number, lines) in enumerate(self.parts):
            if kind != "table":
                continue
            header, *rows = [cells(line) for line in lines if not re.fullmatch(r"[|\s:-]+", line)]
            names = {cell.strip("`* ") for cell in header}
            measures = any(re.search(r"\d", SPAN.sub("", cell)) for row in rows for cell in row[1:])
            if not measures or names & REFERENCE:
                continue
            above, below, beyond = (self.parts[i] if 0 <= i < len(self.parts) else ("", 0, []) for i in (place - 1, place + 1, place + 2))
            beside = [above] if beyond[0] == "table" else [above, below]  # between two tables it is the second one's
            texts = [" ".join(lines) for kind, _, lines in beside if kind == "text" and lines[0].startswith("Command")]
            given = [command for text in texts for command in self.commands_in(text)]
            if "command" in names and not given:
                column, last = [cell.strip("`* ") for cell in header].index("command"), []
                for row in rows:
                    last = last if row[column] == "same" else self.commands_in(row[column])
                    yield number, last
            else:
                yield number, given

    @staticmethod
    def commands_in(text):
        return [words for words in map(words_of, SPAN.findall(text)) if words]


@functools.cache
def said(*command):
    done = subprocess.run(command, text=True, capture_output=True, cwd=SOURCE)
    return done.returncode, done.stdout + done.stderr


@functools.cache
def tests():
    """What ctest runs: name and words of each."""
    listed = json.loads(said("ctest", "--test-dir", str(BUILD), "--show-only=json-v1")[1])["tests"]
    return {each["name"]: each.get("command", []) for each in listed}


@functools.cache
def targets():
    return set(re.findall(r"^([\w.-]+): ", said("ninja", "-C", str(BUILD), "-t", "targets", "all")[1], re.M))


def program(words):
    """The file that a command runs, as far as it is one of ours."""
    words = words[1:] if words[0] == "env" else words
    if words[0] == "trainyard":
        words = ["build/release/bin/trainyard", *words[1:]]
    if words[0] == "python3":
        words = words[1:]
    path = BUILD / words[0].removeprefix("build/release/") if words[0].startswith("build/release/") else SOURCE / words[0]
    if path == TRAINYARD and words[1:2] == ["bench"] and len(words) > 2:
        return BUILD / "bin" / f"bench_{words[2]}"
    return path


def run_by_ctest(path):
    return any(str(path) in command for command in tests().values())


def drawn(forms):
    """All of them, but where tools/test draws plugins (tests/contract/draw) those whose script has changed in the last 50 commits,
    and a third of the others, which goes round by the digest of the commit."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=SOURCE, text=True, capture_output=True).stdout.split()
    commit, before = git("rev-parse", "HEAD"), git("rev-parse", "--verify", "--quiet", "HEAD~50")
    if "TRAINYARD_DRAWN" not in os.environ or not commit or not before:
        return list(forms)
    changed = {SOURCE / path for path in git("diff", "--name-only", *before)}
    return [words for words in forms if program(list(words)) in changed
            or int(hashlib.sha256(" ".join([*commit, *words]).encode()).hexdigest(), 16) % 3 == 0]


class Commands(unittest.TestCase):
    def test_each_can_be_typed(self):
        found = 0
        for document in map(Document, DOCUMENTS):
            for line, words in document.commands():
                found += 1
                with self.subTest(f"{document.name}:{line}", command=" ".join(words)):
                    if len(words) == 1 and "/" in words[0]:  # a file is named
                        self.assertTrue(list(SOURCE.glob(words[0])) or program(words).exists(), f"{words[0]} is not there")
                    else:
                        self.check(words)
        self.assertGreater(found, 60)

    def test_each_figure_has_one(self):
        found = 0
        for document in map(Document, DOCUMENTS):
            for line, commands in document.figures():
                found += 1
                with self.subTest(f"{document.name}:{line}"):
                    self.assertTrue(commands, 'this table has figures: say "Command: `...`" directly above or below it, or give it a '
                                    'column "command"')
                    for words in commands:
                        self.check(words)
        self.assertGreater(found, 15)

    @unittest.skipUnless(BUILD == SOURCE / "build" / "release", "commands are typed for build/release")
    def test_the_short_form_of_each_figure_runs(self):
        """From a folder that looks like the root of the repository, so that what they leave is no part of it. Those that differ in
        values of options, or in how long they take, have one short form."""
        def form(words):
            chosen = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
            return *chosen, *(word for word in words if word.startswith("-") and word not in HOW_LONG)
        short = {form(words): tuple(words)
                 for document in map(Document, DOCUMENTS) for _, commands in document.figures() for words in commands
                 if not run_by_ctest(program(words)) and words[0] not in ("ctest", "cmake")}.values()
        short = drawn(short)
        with tempfile.TemporaryDirectory(prefix="trainyard-commands-") as folder:
            for path in SOURCE.iterdir():
                if path.name != "runs":
                    (pathlib.Path(folder) / path.name).symlink_to(path)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                results = {words: pool.submit(self.run_short, words, folder) for words in short}
            for words, result in results.items():
                with self.subTest(" ".join(words)):
                    done = result.result()
                    if done is None:
                        continue
                    if re.search(r"E401 \S+: \S+ does not exist|make it with tools/bench/peers", done.stdout + done.stderr):
                        self.skipTest("its data, or its peers, are not here")
                    if done.returncode == 77:
                        self.skipTest(done.stderr)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def run_short(self, words, folder):
        """Runs it with --quick; a training is validated only: e2e/configs.py trains each file for a moment, and makes the one small
        whose data takes a minute to make. That is read as it is typed, too."""
        path, words = program(list(words)), list(words)
        if path == TRAINYARD and words[1] == "study":
            words = [str(TRAINYARD), *words[1:], "--quick"]
        elif path == TRAINYARD:
            self.assertEqual(words[1], "train", f"{' '.join(words)}: it has no short form")
            words = [str(TRAINYARD), "validate", *words[2:]]
            if pathlib.Path(words[2]).stem == "synthetic_products":
                read = self.run_in(folder, [*words, "--level", "files"])
                if read.returncode != 0:
                    return read
                words += configs.SMALL["synthetic_products"]
        elif path.is_relative_to(BUILD):
            if not path.exists():
                self.skipTest(f"{path.name} is not built: cmake --build build/release --target bench chaos")
            words = [str(path), *words[3 if words[1:2] == ["bench"] else 1:], "--quick"]
        else:
            self.assertIn("--quick", path.read_text(), f"{' '.join(words)}: it has no short form")
            words.append("--quick")
        return self.run_in(folder, words)

    @staticmethod
    def run_in(folder, words):
        return subprocess.run(words, text=True, capture_output=True, cwd=folder, timeout=600,
                              env={**os.environ, "TRAINYARD_DATA": str(DATA), "NO_COLOR": "1"})

    def check(self, words):
        """Fails where a reader who types it would be told that something is not there."""
        words = words[1:] if words[0] == "env" else words
        if words[0] == "cmake":
            return self.check_cmake(words)
        if words[0] == "ctest":
            return self.check_ctest(words)
        path = program(words)
        self.assertTrue(path.exists() or self.source(path).exists(), f"{path} is not there")
        if words[0] != "python3" and path.exists():
            self.assertTrue(os.access(path, os.X_OK), f"{path} cannot be run by its name")
        if path.parent == SOURCE / "tests" / "e2e":
            self.assertEqual(self.bare("import support.host")[0], 0, "it needs an environment that only ctest makes")
        for word in words[1:]:
            if PATH.match(word) and not PLACEHOLDER.search(word):
                self.assertTrue((SOURCE / word).exists(), f"{word} is not there")
        options = [word.split("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
        if path == TRAINYARD:
            return self.check_verb(words[1:], options)
        if path.name.endswith("_tests"):
            return self.check_tests(path, words[1:])
        text = self.source(path).read_text()
        for option in options:
            self.assertIn(option, text, f"{path.name} has no {option}")
        if path.name.startswith("bench_"):
            for word in filter(re.compile(r"[a-z]+$").match, words[3:]):
                self.assertIn(f'"{word}"', text, f"{path.name} takes no {word}")

    @staticmethod
    @functools.cache
    def bare(code):
        """Python beside the end-to-end tests, as a reader starts it: without the environment of ctest."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")}
        done = subprocess.run(["python3", "-c", code], cwd=SOURCE / "tests" / "e2e", env=environment, text=True, capture_output=True)
        return done.returncode, done.stderr

    @staticmethod
    def source(path):
        """Of a program of ours: bench_NAME and chaos_NAME are tools/bench/NAME.cpp and so on; it may not be built yet."""
        kind, _, name = path.name.partition("_")
        code = SOURCE / "tools" / kind / f"{name}.cpp"
        return code if path.is_relative_to(BUILD) and code.exists() else path

    def check_verb(self, words, options):
        """Each verb, of the host or a tool, has a help, which names its options; `ctl` takes the run before its own verbs."""
        verbs = said(str(TRAINYARD), "--help")[1] + said(str(TRAINYARD), "tools")[1]
        self.assertRegex(verbs, rf"(?m)^(  )?{words[0]}\b", f"trainyard has no verb {words[0]}")
        verbs = words[:3 if words[0] == "ctl" else 2]
        code, text = said(str(TRAINYARD), *verbs, "--help")
        if code != 0 or not re.fullmatch(r"[a-z]+", verbs[-1]):
            code, text = said(str(TRAINYARD), words[0], "--help")
        for option in options:
            self.assertIn(option, text, f"trainyard {' '.join(verbs)} has no {option}")

    def check_tests(self, path, words):
        _, text = said(str(path), "--list-tests", *words)
        self.assertRegex(text, r"[1-9]\d* (matching )?test cases?", f"{path.name} has no test {' '.join(words)}")

    def check_cmake(self, words):
        presets = {each["name"] for each in json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]}
        for i, word in enumerate(words):
            if word == "--preset":
                self.assertIn(words[i + 1], presets)
            if word == "--target":
                for target in words[i + 1:]:
                    self.assertIn(target, targets(), "there is no such target")

    def check_ctest(self, words):
        if "--preset" in words:
            self.check_cmake(["--preset", words[words.index("--preset") + 1]])
        if "-R" in words:
            pattern = words[words.index("-R") + 1]
            self.assertTrue([name for name in tests() if re.search(pattern, name)], f"no test is called {pattern}")


class Programs(unittest.TestCase):
    def test_each_that_measures_is_named_by_a_document(self):
        named = {program(words) for document in map(Document, DOCUMENTS) for _, words in document.commands()}
        for folder in ("bench", "chaos", "cluster"):
            for source in sorted((SOURCE / "tools" / folder).iterdir()):
                path = BUILD / "bin" / f"{folder}_{source.stem}" if source.suffix == ".cpp" else source
                if source.stem != "empty" and (source.suffix == ".cpp" or os.access(source, os.X_OK) and source.is_file()):
                    self.assertIn(path, named, f"no document says what {source.relative_to(SOURCE)} found")


if __name__ == "__main__":
    unittest.main()
