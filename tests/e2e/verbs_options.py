"""Each option of each verb, as the helps list them, is typed once with a value that it may have, and once with one that
it may not: no command dies by a signal, hangs, reports an internal error or ends with a code of no documented class."""
import re
import shutil
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor

from support.host import SMALL, HostTest

CODES = {0, 2, 3, 4, 5, 6, 75}  # of error.hpp, all but that of an internal error; `ctl` has it where no run answers
PATIENCE = 60  # seconds for a command that takes one
BROKEN = re.compile(r"internal error|terminate called|Sanitizer|Assertion .* failed")
OPTION = re.compile(r"  (?:-\w,)?(--[\w-]+)(?:,--[\w-]+)*(?: ([A-Z]+)(:\S+)?)?")
RUN = SMALL.replace('"2ep"', '"2ba"').replace("size = 64, batch_size = 16", "size = 8, batch_size = 4").replace(
    "size = 32, batch_size = 16", "size = 4, batch_size = 4") + '[checkpoint]\ntype = "full"\ninterval = "1ba"\n'
STUDY = '[study]\ntype = "compare"\nseeds = 1\nsettings = [{ name = "one" }]\n'

# What stands behind a verb, with OPTION in the place of the option where that is not the last;
# "runs/done" for verbs that are not here.
ABOUT = {
    "train": "run.toml --set run.name=NAME", "resume": "runs/NAME", "study": "study.toml --dry-run", "bench": "loop",
    "config schema": "optimizer", "config diff": "run.toml runs/done", "tools": "", "doctor": "", "completion": "bash",
    "plugins list": "", "plugins inspect": "mlp", "plugins events": "", "plugins new": "schedule NAME",
    "plugins check": "schedule/step --only static.seal", "plugins dev": "empty --run done",
    "ckpt diff": "runs/done runs/done", "ckpt convert": "runs/done weights.safetensors", "runs": "runs",
    "runs compare": "runs/done runs/done", "ctl": "done OPTION status", "ctl done set": "optimizer.lr=1",
    "ctl done swap": "schedule step"}
# What an option of this name may have where its help lists no words, else "text"; a number is 2, a flag has nothing.
MAY = {"--set": "run.seed=5", "--plugins": "empty", "--weights": "best", "--config": "run.toml", "--run": "done",
       "--watch": "2ba", "--only": "static.seal"}
MAY_NOT = '=[{"'


def typed(text):
    """(words, whether they must be refused) of each option in a help: with a right value, then with a wrong one."""
    for line in text.partition("Options:\n")[2].partition("\n\n")[0].splitlines():
        found = OPTION.match(line)
        if not found or found[1] in ("--help", "--version"):
            continue
        name, kind, values = found.groups("")
        if not kind:
            yield [name], False
            yield [f"{name}=2"], True
        elif kind in ("INT", "FLOAT"):
            yield [name, "2"], False
            yield [name, "1e999"], True
        else:
            yield [name, values[2:-1].split(",")[0] if values.startswith(":{") else MAY.get(name, "text")], False
            yield [name, MAY_NOT], bool(values)


class VerbsOptions(HostTest):
    def walk(self, *verb):
        """(verb, its help) of all below one. `ctl` has the run between its verbs and itself."""
        text = self.host(*verb, "--help").stdout
        below = re.findall(r"(?m)^  ([a-z]+)  ", text.partition("Subcommands:\n")[2])
        if verb:
            yield " ".join(verb), text
        for name in below:
            yield from self.walk(*verb, *(["done"] if verb == ("ctl",) else []), name)
        if not verb:
            for name in re.findall(r"(?m)^(\w+)", self.host("tools").stdout):
                yield from self.walk(name)

    def lines(self):
        """(words of a command, whether it must be refused) of everything that is typed."""
        for verb, text in self.walk():
            before, _, behind = ABOUT.get(verb, "runs/done").partition("OPTION")
            for words, must_fail in typed(text):
                yield [*verb.split(), *before.split(), *words, *behind.split()], must_fail

    def wrong_end(self, number, words, must_fail):
        """What is wrong with how a command ends; nothing where that is in order."""
        if words[0] == "resume":
            shutil.copytree(self.folder / "runs/done", self.folder / f"runs/n{number}")
        words = [word.replace("NAME", f"n{number}") for word in words]
        try:
            done = subprocess.run(self.command(*words), cwd=self.folder, env=self.environment(OMP_NUM_THREADS="1"),
                                  text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return f"{words} hangs"
        said, code = done.stdout + done.stderr, done.returncode
        documented = code in CODES or (code == 1 and words[0] == "ctl")
        in_order = documented and (code == 2 or not must_fail) and (code == 0 or said) and not BROKEN.search(said)
        return None if in_order else f"{words} ended with {code}:\n{said[-600:]}"

    def test_each_is_typed(self):
        self.write("run.toml", RUN)
        self.write("study.toml", RUN + STUDY)
        (self.folder / "empty").mkdir()
        self.host("train", "run.toml", "-q", "--set", "run.name=done")
        lines = list(self.lines())
        self.assertGreater(len(lines), 150)
        with ThreadPoolExecutor(2) as pool:
            wrong = list(filter(None, pool.map(lambda each: self.wrong_end(each[0], *each[1]), enumerate(lines))))
        self.assertEqual(wrong, [], "\n".join(wrong))


if __name__ == "__main__":
    unittest.main()
