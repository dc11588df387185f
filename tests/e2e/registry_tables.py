"""Documents that say what there is name all of it and nothing else: README.md the verbs, tools, kinds and executors, docs/executors.md the
executors, docs/data.md the datasets and the folders of data that run files ask for. They are written by hand; the executable knows better.
Links within the tree lead somewhere."""
import functools
import json
import re
import subprocess
import unittest

from commands import DOCUMENTS, Document, cells
from support.host import SOURCE, TRAINYARD

README, EXECUTORS, DATA = (SOURCE / name for name in ("README.md", "docs/executors.md", "docs/data.md"))
SPAN = re.compile(r"`([^`]+)`")


@functools.cache
def told(*words):
    done = subprocess.run([TRAINYARD, *words], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plugins():
    """Names by kind, as the registry has them."""
    found = {}
    for each in json.loads(told("plugins", "list", "--format", "json"))["plugins"]:
        found.setdefault(each["kind"], set()).add(each["name"])
    return found


def kinds():
    """Those of the SDK; of a part there may be no plugin yet."""
    texts = [path.read_text() for path in (SOURCE / "sdk/include/trainyard").glob("*.hpp")]
    return {name for text in texts for name in re.findall(r'static constexpr Kind kind\{"(\w+)"', text)}


def verbs_of(*words):
    """Words that a command line may go on with, by its help."""
    _, _, listed = told(*words, "--help").partition("Subcommands:")
    return set(re.findall(r"^  (\w+) {2,}\w", listed, re.M))


def tables(path, heading):
    """Rows of the tables whose header begins so."""
    found = [[cells(line) for line in lines] for kind, _, lines in Document(path).parts if kind == "table"]
    return [table[2:] for table in found if table[0][0].strip("`") == heading]


def names(cell):
    """Names of plugins or kinds in a cell: code that is a single word."""
    return [each for each in SPAN.findall(cell) if re.fullmatch(r"\w+", each)]


class Readme(unittest.TestCase):
    def commands(self):
        """Words of each command in the table of verbs; "`plugins list`, `inspect`" are `plugins list` and `plugins inspect`."""
        [table] = tables(README, "trainyard ...")
        host = verbs_of()
        for first, *_ in table:
            verb = None
            for words in map(str.split, SPAN.findall(first)):
                if verb in host and words[0] in verbs_of(verb):
                    words = [verb, *words]
                verb = words[0]
                yield words

    def kinds(self):
        """(kinds, what README says of them) of each row."""
        [table] = tables(README, "kind")
        return [(names(first), what) for first, _, what in table]

    def test_verbs_and_tools(self):
        tools = {line.split()[0] for line in told("tools").splitlines()}
        self.assertEqual(tools, plugins()["tool"])
        self.assertGreater(len(verbs_of()), 15)
        self.assertEqual({words[0] for words in self.commands()} - {"help"}, verbs_of() | tools)

    def test_words_below_a_verb(self):
        found = 0
        for verb in sorted(verbs_of()):
            known = verbs_of(verb)
            found += len(known)
            with self.subTest(verb):
                self.assertEqual({words[1] for words in self.commands() if words[0] == verb and words[1:2] and known}
                                 - {"RUN"} | {words[2] for words in self.commands() if words[:2] == [verb, "RUN"] and words[2:]}, known)
        self.assertGreater(found, 20)

    def test_kinds(self):
        listed = [name for named, _ in self.kinds() for name in named]
        self.assertGreater(len(kinds()), 20)
        self.assertEqual(sorted(listed), sorted(kinds()))
        self.assertLessEqual(plugins().keys(), kinds())

    def test_executors(self):
        [said] = [what for named, what in self.kinds() if named == ["executor"]]
        self.assertEqual(sorted(names(said)), sorted(plugins()["executor"]))

    def test_plugins_that_are_named_are_there(self):
        found = 0
        for named, what in self.kinds():
            found += len(names(what))
            with self.subTest(", ".join(named)):
                self.assertLessEqual(set(names(what)), {name for kind in named for name in plugins().get(kind, ())})
        self.assertGreater(found, 20)


class Guides(unittest.TestCase):
    def test_executors(self):
        both = tables(EXECUTORS, "executor")
        self.assertEqual(len(both), 2, "what each does, and what was measured")
        for table in both:
            self.assertEqual({name for first, *_ in table for name in names(first)}, plugins()["executor"])

    def test_datasets(self):
        [table] = tables(DATA, "dataset")
        self.assertEqual(sorted(name for first, *_ in table for name in names(first)), sorted(plugins()["dataset"]))

    def test_folders_of_data(self):
        texts = [path.read_text() for path in (SOURCE / "configs").rglob("*.toml")]
        asked = {folder for text in texts for folder in re.findall(r"\$\{run\.data\}/(\w+/\w+)", text)}
        self.assertGreater(len(asked), 6)
        [table] = tables(DATA, "folder")
        self.assertEqual({first.strip("`") for first, *_ in table}, asked)


class Links(unittest.TestCase):
    @staticmethod
    @functools.cache
    def anchors(path):
        titles = re.findall(r"^#+ (.*)", path.read_text(), re.M)
        return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}

    def test_each_leads_somewhere(self):
        found = 0
        for path in DOCUMENTS:
            for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", path.read_text(), flags=re.S)):
                if re.match(r"\w+:", link):
                    continue
                found += 1
                file, _, anchor = link.partition("#")
                target = path.parent / file if file else path
                with self.subTest(f"{path.relative_to(SOURCE)}: {link}"):
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, self.anchors(target))
        self.assertGreater(found, 150)


if __name__ == "__main__":
    unittest.main()
