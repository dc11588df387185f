"""tools/mutate on a file that is small enough to say what it must find: each place breaks what it says and nothing else, all of
them compile together, and a switch that is off changes nothing."""
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.host import SOURCE

try:
    import clang.cindex
except ImportError:
    sys.exit(77)
if not shutil.which("clang"):
    sys.exit(77)
MUTATE = SOURCE / "tools/mutate"
sys.path.insert(0, str(MUTATE))
sys.dont_write_bytecode = True

TEXT = """#include <cstdio>
#include <cstdlib>
struct Plugin {
  static void describe(int& m) { m = 41 + 1; }
};
constexpr int fixed = 2 + 2;
static int mark = 0;
void note(int value) { mark = value; }
int ratio(int a, int b) { return a / b; }
int main() {
  if (mark == 0 && fixed > 3)
    note(7);
  std::printf("%d %d", mark, ratio(6, 3));
  for (int i = 0; i < 2; ++i) std::printf(" %d", -i);
}
"""
OUTPUT = "7 2 0 -1"


def module(name):
    loader = importlib.machinery.SourceFileLoader(name, str(MUTATE / name))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(made)
    return made


class Mutations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import sites
        folder = tempfile.TemporaryDirectory(prefix="trainyard-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.tree = pathlib.Path(folder.name)
        (cls.tree / "core").mkdir()
        cls.file = cls.tree / "core/main.cpp"
        cls.file.write_text(TEXT)
        cls.places, problem = sites.read_file(cls.tree, "core/main.cpp", {"file": str(cls.file), "command": f"c++ -std=c++20 -c {cls.file} -o main.o"})
        assert problem is None, problem
        broken = cls.tree / "broken.cpp"
        broken.write_text(module("mutate").rewritten(TEXT, list(enumerate(cls.places))))
        subprocess.run(["c++", "-std=c++20", "-w", "-include", MUTATE / "switch.hpp", broken, "-o", cls.tree / "broken"], check=True)

    def run_with(self, **environment):
        return subprocess.run([self.tree / "broken"], env={**os.environ, **environment}, text=True, capture_output=True, timeout=10).stdout

    def output_of(self, kind, line, broken):
        """What it prints with the one place of that kind on."""
        [number] = [i for i, each in enumerate(self.places) if (each["kind"], each["line"], each["broken"]) == (kind, line, broken)]
        return self.run_with(MUTATE=str(number))

    def test_off_it_is_the_program_that_it_was(self):
        self.assertEqual(self.run_with(), OUTPUT)

    def test_each_breaks_what_it_says(self):
        self.assertEqual(self.output_of("condition", 11, "mark == 0 || fixed > 3"), OUTPUT)
        self.assertEqual(self.output_of("comparison", 11, "mark != 0"), "0 2 0 -1")
        self.assertEqual(self.output_of("negated", 11, "!(mark == 0 && fixed > 3)"), "0 2 0 -1")
        self.assertEqual(self.output_of("dropped", 12, ""), "0 2 0 -1")
        self.assertEqual(self.output_of("constant", 12, "8"), "8 2 0 -1")
        self.assertEqual(self.output_of("early return", 8, "return;"), "0 2 0 -1")
        self.assertEqual(self.output_of("sign", 9, "a * b"), "7 18 0 -1")
        self.assertEqual(self.output_of("arguments", 13, "ratio(3, 6)"), "7 0 0 -1")
        self.assertEqual(self.output_of("comparison", 14, "i <= 2"), "7 2 0 -1 -2")
        self.assertEqual(self.output_of("sign", 14, "i"), "7 2 0 1")

    def test_what_the_compiler_or_the_seal_computes_is_left_out(self):
        self.assertEqual({each["line"] for each in self.places} & {4, 6, 7}, set())

    def test_it_notes_what_it_came_by(self):
        reached = self.tree / "reached"
        reached.mkdir()
        self.run_with(MUTATE_REACHED=str(reached))
        names = {int(path.name) for path in reached.iterdir()}
        self.assertEqual(names, set(range(len(self.places))))


if __name__ == "__main__":
    unittest.main()
