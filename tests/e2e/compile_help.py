"""Mistakes in a plugin's source: the compiler, the build and the sealing tool say in a sentence what is wrong and how to mend it."""
import re
import shutil
import subprocess
import unittest

from support.host import BUILD, SOURCE, HostTest

COMPILERS = [each for each in ("g++", "clang++") if shutil.which(each)]
FLAGS = ["-std=c++20", "-fsyntax-only", '-DTRAINYARD_LIBTORCH_VERSION="0"', f"-I{SOURCE}/sdk/include", "-x", "c++", "-"]

HEAD = """
#include <map>
#include <trainyard/plugin.hpp>
#include <trainyard/schedule.hpp>
using namespace trainyard;
namespace trainyard { class StepContext {}; }
"""
WHOLE = """
struct NAME : Schedule {
  struct Options { double gamma = 0.5; };
  static void describe(Manifest<Options>& m) { m.option("gamma", &Options::gamma, "factor").range(0, 1); }
  explicit NAME(const Options&) {}
  double factor(const SchedulePoint&) const override { return 1.0; }
};
"""
END = "TRAINYARD_PLUGIN(NAME)\n"


def plugin(members="", options="", described="", outside="", base="Schedule", entry=END):
    """A plugin that is right but for what is said."""
    text = WHOLE.replace("double gamma = 0.5;", "double gamma = 0.5; " + options).replace("range(0, 1);", "range(0, 1); " + described)
    return HEAD + outside + text.replace("struct NAME : Schedule {", f"struct NAME : {base} {{" + members) + entry


# The source, and the sentence about it.
MISTAKES = {
    "an option of a type that is none": (
        plugin(options="std::map<int, int> shape;", described='m.option("shape", &Options::shape, "shape");'),
        "this type cannot be an option: take bool, an integer"),
    "an enumeration without words": (
        plugin(outside="enum class Mode { a, b };", options="Mode mode{};", described='m.option("mode", &Options::mode, "mode");'),
        "specialise trainyard::Words for it"),
    "a count of what is no list": (plugin(options="int k = 1;", described='m.option("k", &Options::k, "k").count(2);'),
                                   "only a list has a count: make the member a std::vector"),
    "a hook that takes the context by value": (plugin("void hook(StepContext) {}", described="m.template hook<&NAME::hook>(Event::before_step);"),
                                               "a hook is a method `void name(trainyard::StepContext& context)`"),
    "a hook that gives something back": (plugin("int hook(StepContext&) { return 0; }", described="m.template hook<&NAME::hook>(Event::before_step);"),
                                         "it gives nothing back, and takes the context by reference alone"),
    "a hook that takes more": (plugin("void hook(StepContext&, int) {}", described="m.template hook<&NAME::hook>(Event::before_step);"),
                               "a hook is a method `void name(trainyard::StepContext& context)`"),
    "no description": (plugin().replace("static void describe(Manifest<Options>& m)", "static void describes(Manifest<Options>& m)"),
                       "the plugin does not describe itself: add a public `static void describe(trainyard::Manifest<Options>& m)`"),
    "a description that is no static one": (plugin().replace("static void describe", "void describe"), "the plugin does not describe itself"),
    "no constructor": (plugin().replace("explicit NAME(const Options&)", "NAME()"),
                       "the plugin cannot be made from its options: add a public `explicit NAME(const Options& options)`"),
    "no options": (HEAD + "struct NAME : Schedule { double factor(const SchedulePoint&) const override { return 1.0; } };" + END,
                   "the plugin has no options: add a public `struct Options {};`"),
    "no kind": (HEAD + "struct NAME { struct Options {}; };" + END, "the plugin is of no kind: derive its class from that of a kind"),
    "a function left out": (plugin().replace("double factor(", "double factors(").replace(" override", ""),
                            "the plugin leaves out a function that its kind needs"),
    "save without load": (plugin("void save(StateWriter&) const override {}"), "the plugin overrides one of `save` and `load`"),
    "load without save": (plugin("void load(const StateReader&) override {}"), "the plugin overrides one of `save` and `load`"),
    "options that cannot be made": (plugin(options="explicit Options(int) {}"), "Options must be constructible without arguments"),
}


# The body of a function of x that is differentiated, and the sentence about it.
NOT_DIFFERENTIABLE = {
    "what jumps": ("using std::floor; return floor(x[0]) * x[0];", "floor() does not propagate the derivative: it jumps"),
    "a plain number on the way": ("const double y = x[0]; return y * x[1];", "a plain number made of this one does not propagate the derivative"),
    "a function of plain numbers": ("return plain(x[0]);", "a plain number made of this one does not propagate the derivative"),
    "a number as a condition": ("if (x[0]) return x[0]; return x[1];", "a plain number made of this one does not propagate the derivative"),
    "a remainder": ("return x[0] % 2;", "% does not propagate the derivative: it is of integers"),
    "a plain result": ("return ad::value(x[0]);", "this function loses the derivative: let it return the number type that it is given"),
}
DIFFERENTIATED = """
#include <trainyard/ad/gradient.hpp>
using namespace trainyard;
inline double plain(double x) { return x * x; }
void of(const std::vector<double>& at) { ad::gradient([]<class T>(std::span<const T> x) { BODY }, at); }
"""
NO_TEMPLATE = DIFFERENTIATED.replace("<class T>(std::span<const T> x) { BODY }", "(std::span<const double> x) { return x[0]; }")


def compiled(compiler, source):
    return subprocess.run([compiler, *FLAGS], input=source, text=True, capture_output=True)


class Sentences(unittest.TestCase):
    def test_each_mistake_has_its_sentence(self):
        self.assertTrue(COMPILERS)
        for compiler in COMPILERS:
            for mistake, (source, sentence) in MISTAKES.items():
                with self.subTest(mistake, compiler=compiler):
                    done = compiled(compiler, source)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(sentence, done.stderr)

    def test_what_cannot_be_differentiated_has_its_sentence(self):
        mistakes = {name: (DIFFERENTIATED.replace("BODY", body), sentence) for name, (body, sentence) in NOT_DIFFERENTIABLE.items()}
        mistakes["a function of one type"] = (NO_TEMPLATE, "make it a template of its number type T, with an argument std::span<const T>")
        mistakes["integers"] = ("#include <trainyard/ad/dual.hpp>\ntrainyard::ad::Dual<2, int> x;", "a derivative is of real numbers")
        for compiler in COMPILERS:
            for mistake, (source, sentence) in mistakes.items():
                with self.subTest(mistake, compiler=compiler):
                    done = compiled(compiler, source)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(sentence, done.stderr)
            done = compiled(compiler, DIFFERENTIATED.replace("BODY", "using std::sin; return plain(ad::value(x[1])) * sin(x[0]);"))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_right_compiles(self):
        right = plugin("void hook(StepContext&) noexcept {} void other(StepContext&) const {} void save(StateWriter&) const override {} "
                       "void load(const StateReader&) override {}",
                       options="std::vector<double> betas{0.9, 0.999}; std::optional<std::vector<int>> sizes;",
                       described='m.option("betas", &Options::betas, "b").count(2); m.option("sizes", &Options::sizes, "s").count(3); '
                                 "m.template hook<&NAME::hook>(Event::before_step); m.template hook<&NAME::other>(Event::before_step);")
        for compiler in COMPILERS:
            done = compiled(compiler, right)
            self.assertEqual(done.returncode, 0, done.stderr)


NEEDLESS = """
#include <trainyard/hook.hpp>
using namespace trainyard;
struct Name : Hook {
  struct Options { int every = 1; std::vector<double> betas{0.9, 0.999}; };
  static void describe(Manifest<Options>& m) {
    m.name("name").version("1.0.0").summary("Has options that it cannot have.");
    m.option("every", &Options::every, "distance");
    m.option("betas", &Options::betas, "decays").count(3);
  }
  explicit Name(const Options&) {}
};
TRAINYARD_PLUGIN(Name)
"""

PROJECT = f"""
cmake_minimum_required(VERSION 3.24)
project(mine LANGUAGES NONE)
function(add_library)
endfunction()
foreach(command target_link_libraries target_compile_features target_compile_options target_link_options set_target_properties
        add_custom_command get_target_property)
  function(${{command}})
  endfunction()
endforeach()
include({SOURCE}/sdk/cmake/TrainyardAddPlugin.cmake)
trainyard_add_plugin(mine SOURCES mine.cpp)
"""


class Build(HostTest):
    def test_the_sealing_tool_refuses_options_that_cannot_be(self):
        version = re.search(r'TRAINYARD_LIBTORCH_VERSION=\\*"([^"\\]+)', (BUILD / "compile_commands.json").read_text()).group(1)
        torch = re.search(r"^TRAINYARD_LIBTORCH:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M).group(1)
        library = self.folder / "libname.so"
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", "-fno-gnu-unique", "-fvisibility=hidden", f'-DTRAINYARD_LIBTORCH_VERSION="{version}"',
                        f"-I{SOURCE}/sdk/include", f"-I{torch}/include", f"-Wl,--version-script={SOURCE}/sdk/cmake/plugin.map", "-x", "c++", "-",
                        "-o", str(library)], input=NEEDLESS, text=True, check=True)
        done = subprocess.run([BUILD / "bin/trainyard-seal", library, SOURCE / "sdk/include"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("option `every`: is a key of the host in [[hooks]] of a run file; give it another name", done.stderr)
        self.assertIn("option `betas`: has a default of 2 elements, and a count of 3", done.stderr)

    def test_a_source_with_all_of_libtorch_is_told(self):
        self.write("CMakeLists.txt", PROJECT)
        for line, told in (("#include <torch/torch.h>", True), ("  # include <ATen/ATen.h>", True), ("#include <ATen/core/Tensor.h>", False)):
            self.write("mine.cpp", f"// a plugin\n{line}\n")
            done = subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=self.folder, text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("includes all of LibTorch" in done.stderr, told, done.stderr)


if __name__ == "__main__":
    unittest.main()
