"""Documents that follow from the code are those of this code, and the JSON Schema of run files says of a file what the host says
of it, as far as one file tells."""
import json
import re
import subprocess
import sys
import tomllib
import unittest

from support.host import SOURCE, TRAINYARD, HostTest

try:
    import jsonschema
except ImportError:
    sys.stderr.write("there is no jsonschema here: tools/test makes a Python that has it\n")
    sys.exit(77)

SCHEMA = SOURCE / "docs/run-file.schema.json"
BROKEN = sorted((SOURCE / "tests/front/broken").glob("*.toml"))
RUN_FILES = sorted(path for path in (SOURCE / "configs").rglob("*.toml") if "studies" not in path.parts)
# Of a broken file, what a look at its keys can tell: unknown keys, types, ranges, words, what is missing, unknown plugins.
VISIBLE = ("E103", "E104", "E105", "E106", "E107", "E108", "E121", "E301")
# What takes more.
BEYOND = {"05": "depth", "06": "depth", "18": "17.0 is an integer of JSON", "21": "the type of the model is in another file, and layers of some model is an integer",
          "32": "JSON has no nan", "33": "JSON has no inf", "35": "a bound of a duration", "41": "[data] or the split may say it",
          "43": "[data] or the split may say it", "56": "a length of the run", "77": "a name that has to do as a folder"}


class Documents(HostTest):
    def docs(self, *words):
        return subprocess.run([SOURCE / "tools/docs", *words], text=True, capture_output=True, env=self.environment(TRAINYARD=str(TRAINYARD)))

    def test_they_are_of_this_code(self):
        done = self.docs()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_old_is_named(self):
        self.assertEqual(self.docs("--write", "--out", str(self.folder)).returncode, 0)
        (self.folder / "events.md").write_text("old")
        (self.folder / "kinds/loss.md").unlink()
        (self.folder / "kinds/gone.md").write_text("of a kind that was")
        done = self.docs("--out", str(self.folder))
        self.assertEqual(done.returncode, 1)
        self.assertIn("kinds/loss.md, events.md, kinds/gone.md; tools/docs --write", done.stderr)

    def test_plugins_of_others_are_documented(self):
        samples = TRAINYARD.parents[1] / "tests/faulty"
        self.assertEqual(self.docs("--write", "--out", str(self.folder), "--plugins", str(samples)).returncode, 0)
        self.assertIn("\n## counting\n", (self.folder / "kinds/hook.md").read_text())
        self.assertIn('"counting"', (self.folder / "run-file.schema.json").read_text())

    def test_each_kind_and_event_is_there(self):
        header = (SOURCE / "sdk/include/trainyard/event.hpp").read_text()
        names = re.findall(r'"(\w+)"', re.search(r"event_names = \{(.*?)\};", header, re.S)[1])
        page = (SOURCE / "docs/events.md").read_text()
        self.assertEqual(re.findall(r"^\| `(\w+)` \| .+ \| .* \| .* \| .* \|$", page, re.M), names)
        for path in (SOURCE / "docs/kinds").glob("*.md"):
            with self.subTest(path.name):
                text = path.read_text()
                self.assertRegex(text, r"```cpp\nclass \w+ : public Plugin \{")
                if (SOURCE / "plugins" / path.stem).is_dir():  # of the others the SDK has the interface alone
                    self.assertRegex(text, r"(?m)^## \w+$")


class Schema(HostTest):
    @classmethod
    def setUpClass(cls):
        schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft7Validator.check_schema(schema)
        cls.validator = jsonschema.Draft7Validator(schema)

    def errors(self, path):
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in self.validator.iter_errors(tomllib.loads(path.read_text()))]

    def test_shipped_run_files_are_right(self):
        self.assertGreater(len(RUN_FILES), 15)
        for path in RUN_FILES:
            # A part of others has no tables of its own for what it leaves to them.
            whole = path.parent.name != "base"
            with self.subTest(str(path.relative_to(SOURCE))):
                errors = self.errors(path)
                self.assertEqual(errors if whole else [each for each in errors if "required property" not in each], [])

    def test_resolved_files_are_right(self):
        """`config show` prints every key that there is."""
        for path in (path for path in RUN_FILES if path.name in ("digits_mlp.toml", "synthetic_regression.toml", "digits_debugger.toml")):
            with self.subTest(path.name):
                self.write("shown.toml", self.host("config", "show", path).stdout)
                self.assertEqual(self.errors(self.folder / "shown.toml"), [])

    def test_broken_ones_are_wrong(self):
        found = 0
        for path in BROKEN:
            codes = set(re.findall(r"# expect: (?:[\d:]+ )?(E\d+)", path.read_text()))
            if not codes & set(VISIBLE) or path.name[:2] in BEYOND:
                continue
            try:
                errors = self.errors(path)
            except tomllib.TOMLDecodeError:
                continue
            found += 1
            with self.subTest(path.name):
                self.assertNotEqual(errors, [])
        self.assertGreater(found, 25)

    def test_what_is_wrong_within_a_plugin_is_seen(self):
        def wrong(text):
            self.write("run.toml", text)
            return self.errors(self.folder / "run.toml")

        right = (SOURCE / "configs/digits_mlp.toml").read_text()
        self.assertEqual(wrong(right), [])
        for old, new in (('type = "adamw"', 'type = "adamww"'), ("lr = 0.003", "lr = -1.0"), ("lr = 0.003", 'lr = "fast"'), ("lr = 0.003", "lrr = 0.003"),
                         ('type = "csv"\n', 'type = "csv"\nscael = 1.0\n'), ("shuffle = true", "shufle = true"), ("batch_size = 64", "batch_size = 0")):
            with self.subTest(new):
                self.assertIn(old, right)
                self.assertNotEqual(wrong(right.replace(old, new, 1)), [])
        self.assertEqual(wrong(right.replace("lr = 0.003", 'lr = "${vars.lr}"')), [])


if __name__ == "__main__":
    unittest.main()
