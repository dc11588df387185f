"""What holds where a run file says nothing is an interface: it changes on purpose or not at all. support/defaults holds every
default and range of the host's keys and of the shipped plugins' options.

  defaults.py --write      writes them anew; read the difference before it is committed
"""
import json
import sys
import unittest

from support.host import SOURCE, HostTest

KEPT = SOURCE / "tests/e2e/support/defaults"
# torch.optim's documentation, 2.11.
OF_TORCH = {
    "sgd": {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
    "adam": {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False},
    "adamw": {"betas": [0.9, 0.999], "eps": 1e-8, "amsgrad": False},
    "rmsprop": {"alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0, "centered": False},
    "adagrad": {"lr_decay": 0.0, "weight_decay": 0.0, "initial_accumulator": 0.0, "eps": 1e-10},
}


class Defaults(HostTest):
    def found(self):
        """{file: its lines}"""
        names = [(each["kind"], each["name"]) for each in json.loads(self.host("plugins", "list", "--format", "json").stdout)["plugins"]]
        lines = []
        for kind, name in sorted(names):
            [plugin] = json.loads(self.host("plugins", "inspect", f"{kind}/{name}", "--format", "json").stdout)
            lines += [line for option in plugin["options"] if not option["common"] for line in told(f"{kind}/{name}", option)]
        shown = self.host("config", "show", str(KEPT / "run.toml"), "--set", "run.output_dir=here").stdout
        return {"plugins.txt": "\n".join(lines) + "\n", "host.toml": shown}

    def test_they_are_what_they_were(self):
        for name, text in self.found().items():
            with self.subTest(name):
                self.assertEqual((KEPT / name).read_text(), text)

    def test_optimizers_have_those_of_torch(self):
        for name, expected in OF_TORCH.items():
            [plugin] = json.loads(self.host("plugins", "inspect", f"optimizer/{name}", "--format", "json").stdout)
            options = {option["name"]: option.get("default") for option in plugin["options"]}
            self.assertEqual({key: options.get(key) for key in expected}, expected, name)


def told(plugin, option, path=""):
    """A line an option, and those of a table's fields."""
    path += ("." if path else "") + option["name"]
    more = {key: value for key, value in option.items() if key not in ("name", "help", "common", "fields", "file")}
    yield f"{plugin} {path} " + json.dumps(more, sort_keys=True)
    for field in option.get("fields", []):
        yield from told(plugin, field, path)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        case = Defaults("test_they_are_what_they_were")
        case.setUp()
        for file, content in case.found().items():
            (KEPT / file).write_text(content)
        case.doCleanups()
    else:
        unittest.main()
