"""Whoever gives a word that is not taken is told those that are: every option with a set of words, every key of the host, every option of the
command line, and what names a plugin, a slot or a verb."""
import json
import re
import unittest
from concurrent.futures import ThreadPoolExecutor

from support.host import SMALL, HostTest

WRONG = "zzz"


# Where a part of other plugins stands.
PARTS = {"codec": '[checkpoint]\ntype = "full"\ncodec = {}\n', "scorer": '[[tools]]\ntype = "prune"\nscorer = {}\n'}


class Words(HostTest):
    def setUp(self):
        super().setUp()
        self.write("run.toml", SMALL)

    def said(self, *words):
        """What is told of a command that is refused."""
        return self.host(*words, code=2).stderr

    def check_all(self, cases):
        """cases: (words of the command, words that it has to list)"""
        self.assertGreater(len(cases), 0)
        with ThreadPoolExecutor(2) as pool:
            for (words, listed), text in zip(cases, pool.map(lambda case: self.said(*case[0]), cases)):
                with self.subTest(" ".join(map(str, words))):
                    self.assertIn(WRONG, text)
                    told = [line for line in text.splitlines() if "allowed:" in line or " not in {" in line or "one of" in line or "use " in line or "there are:" in line]
                    self.assertTrue(any(all(re.search(rf"(?<![\w-]){re.escape(each)}(?![\w-])", line) for each in listed) for line in told), text)

    def test_options_of_plugins(self):
        tables = json.loads(self.host("config", "schema", "--format", "json").stdout)["tables"]
        place = {}
        for table in sorted(tables, key=lambda table: not table["list"]):
            place.setdefault(table["plugin_kind"], table)
        cases = []
        for each in json.loads(self.host("plugins", "list", "--format", "json").stdout)["plugins"]:
            [plugin] = json.loads(self.host("plugins", "inspect", each["path"], "--format", "json").stdout)
            table = place.get(each["kind"])
            for option in plugin["options"]:
                for path, choices in chosen(option):
                    name = f"{each['kind']}-{each['name']}-{option['name']}-{len(cases)}.toml"
                    if table is None:  # a part of another plugin
                        self.write(name, SMALL + PARTS[each["kind"]].format(f"{{ type = \"{each['name']}\", {path} }}"))
                        cases.append((("config", "show", name), choices))
                    elif table["list"]:
                        self.write(name, f"{SMALL}\n[[{table['table']}]]\ntype = \"{each['name']}\"\n{path}\n")
                        cases.append((("config", "show", name), choices))
                    else:
                        key, value = path.split(" = ", 1)
                        cases.append((("config", "show", "run.toml", "--set", f"{table['table']}.type={each['name']}", "--set",
                                       f"{table['table']}.{key}={value}"), choices))
        self.assertGreater(len(cases), 60)
        self.check_all(cases)

    def test_keys_of_the_host(self):
        cases = []
        for table in json.loads(self.host("config", "schema", "--format", "json").stdout)["tables"]:
            for key in table["keys"]:
                if "choices" not in key:
                    continue
                name = f"{table['table']}-{key['name']}.toml"
                more = {"hooks": '\ntype = "ema"', "swap": '\nat = "1ba"\nslot = "optimizer"', "trainer.grad_clip": "\nmax = 1.0"}.get(table["table"], "")
                brackets = f"[[{table['table']}]]" if table["list"] else f"[{table['table']}]"
                text = SMALL
                if f"{brackets}\n" in text:
                    text = text.replace(f"{brackets}\n", f"{brackets}\n{key['name']} = \"{WRONG}\"\n").replace('deterministic = "strict"\n', "" if key["name"] == "deterministic" else 'deterministic = "strict"\n')
                else:
                    text += f"{brackets}{more}\n{key['name']} = \"{WRONG}\"\n"
                self.write(name, text)
                cases.append((("config", "show", name), key["choices"]))
        self.assertGreater(len(cases), 7)
        self.check_all(cases)

    def test_options_of_the_command_line(self):
        """Those that help shows with their words: {text,json}."""
        cases, verbs = [], []

        def walk(*path):
            text = self.host(*path, "--help").stdout
            for name, listed in re.findall(r"^  (\S+) [^\n{]*:\{([\w,-]+)\}", text, re.M):
                words = [*path, name, WRONG] if name.startswith("--") else [*path, WRONG]
                cases.append((words, listed.split(",")))
            for verb in re.findall(r"^  (\w+) {2,}\w", text.split("Subcommands:")[1], re.M) if "Subcommands:" in text else ():
                verbs.append((*path, verb))
                walk(*path, verb)

        walk()
        self.assertGreater(len(verbs), 25)
        self.assertGreater(len(cases), 12)
        self.check_all(cases)

    def test_names_of_other_things(self):
        plugins = json.loads(self.host("plugins", "list", "schedule", "--format", "json").stdout)["plugins"]
        self.assertEqual({each["kind"] for each in plugins}, {"schedule"})
        names = [each["name"] for each in plugins]
        self.check_all([(("config", "show", "run.toml", "--set", f"schedule.type={WRONG}"), names),
                        ((WRONG,), ["train", "plugins", "ctl"]),
                        (("config", "schema", WRONG), ["optimizer", "data.train"]),
                        (("config", "show", "run.toml", "--set", f"{WRONG}=1"), ["optimizer", "trainer"]),
                        (("config", "show", "run.toml", "--set", f"run.device={WRONG}"), ["cpu", "cuda"])])


def chosen(option, before=""):
    """("NAME = VALUE" with a wrong word, the words that would be right) of an option and of the fields of a table."""
    if option.get("choices"):
        value = f'["{WRONG}"]' if option["list"] else f'"{WRONG}"'
        yield f"{option['name']} = {value}", option["choices"]
    for field in option.get("fields", []):
        for inner, choices in chosen(field):
            yield f"{option['name']} = " + ("[{ %s }]" if option["list"] else "{ %s }") % inner, choices


if __name__ == "__main__":
    unittest.main()
