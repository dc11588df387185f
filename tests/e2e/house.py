"""The rules of the house: headers that compile alone, dependencies that point one way, a thin front, a small core, one
format."""
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from support.host import BUILD, SOURCE, TRAINYARD

SDK = SOURCE / "sdk/include"
HEADERS = sorted((SDK / "trainyard").rglob("*.hpp"))
HEAVY = re.compile(r"/(ATen|torch|c10|caffe2)/")
CODE = ("*.cpp", "*.hpp", "*.cu", "*.cuh", "*.h")


def cache(name):
    return re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M).group(1)


COMPILER = cache("CMAKE_CXX_COMPILER")
TORCH = pathlib.Path(cache("TRAINYARD_LIBTORCH"))
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", '-DTRAINYARD_LIBTORCH_VERSION="0"',
         f"-I{SOURCE}/sdk/include", "-isystem", f"{TORCH}/include", "-isystem", f"{TORCH}/include/torch/csrc/api/include"]


def sources(folder):
    return sorted(path for pattern in CODE for path in (SOURCE / folder).rglob(pattern))


def includes(path):
    """(line number, quoted or angled, what) of each #include."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
        if found:
            yield number, found.group(1) == '"', found.group(2)


# Comments, strings, characters and directives: a brace in them opens nothing.
NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"""
                     r"""|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""", re.S | re.M)
NO_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$|=\s*$")


def functions(text):
    """(line, signature, length in lines) of each function in a file; a lambda belongs to the one that it stands in."""
    text = NO_CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    scopes, head, line, first = [], "", 1, 1  # of each open brace: its function, or None
    for token in re.findall(r"[{};\n]|[^{};\n]+", text):
        line += token == "\n"
        if token == "{":
            other = any(scopes) or NO_FUNCTION.search(re.sub(r"<[^<>]*>", "", head).strip())
            scopes.append(None if other else (first, " ".join(head.split())))
        elif token == "}" and (function := scopes.pop()):
            yield *function, line - function[0] + 1
        if token in "{};":
            head = ""
        elif not any(scopes):
            first = first if head.strip() or not token.strip() else line
            head += token


def classes(text):
    """(name, how many functions it declares, of which those that override are its base's) of each class in a header."""
    text = NO_CODE.sub("", text)
    for found in re.finditer(r"\b(?:class|struct) (\w+)(?: final)?\s*(?::[^;{()]*)?\{", text):
        depth, own = 1, ""
        for token in re.findall(r"[{}]|[^{}]+", text[found.end():]):
            depth += (token == "{") - (token == "}")
            if depth == 0:
                break
            own += token if depth == 1 and token not in "{}" else ";" if token == "}" else ""
        flat = own
        while (less := re.sub(r"<[^<>]*>", "", flat)) != flat:
            flat = less
        declared = [part for part in re.sub(r"\b(?:public|private|protected)\s*:", "", flat).split(";")
                    if re.search(r"[\w\])]\s*\(", part) and not re.match(r"\s*(?:using|friend|static_assert|enum|class|struct)\b", part)]
        yield found[1], sum("override" not in part for part in declared)


def dependencies(words, directory=None):
    done = subprocess.run([*words, "-M", "-MF", "-"], text=True, capture_output=True, cwd=directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\\\n", " ").split()[1:]


def code_before_an_include(header):
    """What stands ahead of an #include would be read after what was included before."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(), flags=re.S)
    *_, last = [0, *(found.start() for found in re.finditer(r"^[ \t]*#[ \t]*include\b", text, re.M))]
    return re.sub(r"^[ \t]*#[ \t]*(include\b[^\n]*|pragma once)", "", text[:last], flags=re.M).strip()


def first_of_libtorch(name, seen=None):
    """The first header of LibTorch that one of ours comes to, through others of ours."""
    seen = {name} if seen is None else seen
    for _, _, what in includes(SDK / name):
        if (TORCH / "include" / what).exists():
            return what
        if (SDK / what).exists() and what not in seen:
            seen.add(what)
            if found := first_of_libtorch(what, seen):
                return found
    return None


class Headers(unittest.TestCase):
    """Compiled through ccache where it is there, as the build is: it goes by the content of everything that a unit reads. It caches
    objects alone, and knows a unit again by its path, too."""
    FOLDER = BUILD / "headers"
    CCACHE = [each] if (each := shutil.which("ccache")) else []

    @classmethod
    def setUpClass(cls):
        cls.FOLDER.mkdir(exist_ok=True)

    def compile(self, compiler, unit, output, *flags):
        """A finished process; what it makes stays beside the unit."""
        return subprocess.run([*self.CCACHE, compiler, *FLAGS, *flags, unit, "-o", output, "-MD", "-MF", f"{output}.d"], text=True, capture_output=True,
                              env={**os.environ, "CCACHE_DEPEND": "1", "CCACHE_SLOPPINESS": "pch_defines,time_macros"})

    def check(self, compiler, headers, *flags):
        """Error messages of one unit that includes them; none where it compiles."""
        unit = self.FOLDER / ("_".join(headers[0].relative_to(SDK).parts) + f".{len(headers)}.cpp")
        unit.write_text("".join(f"#include <{header.relative_to(SDK)}>\n" for header in headers))
        done = self.compile(compiler, unit, f"{unit}.o", *flags, "-c")
        self.assertEqual(done.returncode, 0, "\n".join(done.stderr.splitlines()[:20]))

    def precompiled(self, what):
        """Flags by which a unit begins with this header, read already; without the text of it, so that nothing else is taken."""
        text = self.FOLDER / what.replace("/", "_")
        text.write_text(f"#include <{what}>\n")
        done = self.compile(COMPILER, text, f"{text}.gch", "-x", "c++-header")
        self.assertEqual(done.returncode, 0, done.stderr)
        text.unlink()
        return ["-Winvalid-pch", "-include", str(text)]

    def test_each_compiles_alone(self):
        """Those whose first header of LibTorch is the same begin with it, compiled once: what would stand before it there are headers
        of the standard library and others of ours, and each of these is tried by itself, too."""
        self.assertGreater(len(HEADERS), 20)
        alike = {}
        for header in HEADERS:
            first = None if code_before_an_include(header) else first_of_libtorch(str(header.relative_to(SDK)))
            alike.setdefault(first, []).append(header)
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            tried = {}
            for first, headers in alike.items():
                flags = self.precompiled(first) if first and len(headers) > 5 else []
                tried.update({header: pool.submit(self.check, COMPILER, [header], *flags) for header in headers})
        self.assertEqual(set(tried), set(HEADERS))
        for header, done in tried.items():
            with self.subTest(str(header.relative_to(SDK))):
                done.result()

    @unittest.skipUnless(shutil.which("clang++"), "no clang++ here")
    def test_clang_takes_them(self):
        """A plugin's author may use it, and it warns of more; what each header lacks by itself was seen above."""
        self.check("clang++", HEADERS, "-ferror-limit=0")

    def test_light_ones_bring_no_libtorch(self):
        light = ("schedule", "sink", "manifest", "plugin", "duration", "error", "event", "value", "version", "host", "study")
        for name in light:
            with self.subTest(name):
                heavy = [path for path in dependencies([COMPILER, *FLAGS, "-x", "c++",
                                                        str(SOURCE / f"sdk/include/trainyard/{name}.hpp")])
                         if HEAVY.search(path)]
                self.assertEqual(heavy, [])

    def test_none_brings_all_of_torch(self):
        for header in HEADERS:
            for number, _, what in includes(header):
                self.assertNotIn(what, ("torch/torch.h", "torch/all.h", "ATen/ATen.h"), f"{header}:{number}")


class Contract(unittest.TestCase):
    """A type that a plugin shares with the host, the library or another plugin is declared in a header whose digest is in
    the host's list: a plugin that saw another text of it is refused, and does not crash."""

    LISTED = set(re.findall(r'\{"([\w./]+)", "', (BUILD / "core/contract.cpp").read_text()))
    TYPE = re.compile(r"^(?:class|struct|union|enum(?: class)?) (\w+)(?: final)?\s*(?::[^;{]*)?\{", re.M)  # of a namespace
    CAST = re.compile(r"dynamic_(?:pointer_)?cast<(?:const )?(?:\w+::)*(\w+)")
    # Helpers that plugins of several kinds include, and in which none of them relies on what another one was built with.
    CODE_ALONE = {
        "helpers/elementwise.hpp": "checks shapes that the contract describes; its words about labels are those of labels.hpp",
        "helpers/gather.hpp": "exchanges bytes between the ranks of one build, which are refused where their plugins differ",
        "helpers/shape_text.hpp": "writes shapes for messages",
        "helpers/sparse.hpp": "reads tensors that LibTorch describes",
    }

    def others(self):
        """Types by header, of those that are not listed; what lies below testing/ no plugin includes."""
        names = {str(header.relative_to(SDK / "trainyard")): header for header in HEADERS}
        return {name: set(self.TYPE.findall(NO_CODE.sub("", header.read_text()))) for name, header in names.items()
                if name not in self.LISTED and not name.startswith("testing/")}

    def check(self, types, how):
        self.assertGreater(len(types), 10)
        for header, own in self.others().items():
            with self.subTest(header):
                self.assertEqual(own & types, set(), f'{how}: say TRAINYARD_CONTRACT("{header}") there')

    def test_types_that_are_found_by_cast_are_listed(self):
        texts = [path.read_text() for folder in ("core", "plugins", "sdk/include", "sdk/src") for path in sources(folder)]
        self.check({name for text in texts for name in self.CAST.findall(text)}, "found by cast")

    def test_types_of_exported_symbols_are_listed(self):
        words = ["nm", "-DC", "--defined-only", *sorted((BUILD / "lib").glob("libtrainyard*.so"))]
        symbols = subprocess.run(words, text=True, capture_output=True, check=True).stdout
        self.check(set(re.findall(r"\btrainyard::(?:\w+::)*?([A-Z]\w*)", symbols)), "a symbol of a library")

    def test_types_that_a_listed_header_includes_are_listed(self):
        bare = {header for header, own in self.others().items() if own}
        self.assertGreater(len(self.LISTED), 30)
        for name in sorted(self.LISTED):
            for number, _, what in includes(SDK / "trainyard" / name):
                self.assertNotIn(what.removeprefix("trainyard/"), bare, f"{name}:{number}")

    def test_helpers_that_plugins_of_several_kinds_share_are_listed_or_code_alone(self):
        """A dataset and a loss that were built with different texts of one would misunderstand each other in silence."""
        kinds = {}
        def visit(header, kind):
            name = header.removeprefix("trainyard/")
            if name == header or kind in kinds.setdefault(name, set()):
                return
            kinds[name].add(kind)
            for _, _, further in includes(SDK / header):
                visit(further, kind)
        for path in sources("plugins"):
            for _, _, what in includes(path):
                visit(what, path.relative_to(SOURCE / "plugins").parts[0])
        shared = {name for name, several in kinds.items() if name.startswith("helpers/") and len(several) > 1}
        self.assertGreater(len(shared), 5)
        self.assertEqual(shared - self.LISTED, set(self.CODE_ALONE), "say TRAINYARD_CONTRACT there, or why it needs none here")


class Directions(unittest.TestCase):
    """plugins -> sdk, kernels, lib; core -> sdk, lib; the sources of the SDK -> lib; kernels and lib -> none; nothing includes core
    but core and tests."""

    def check(self, folder, allowed):
        for path in sources(folder):
            for number, quoted, what in includes(path):
                beside = quoted and (path.parent / what).exists()
                with self.subTest(f"{path.relative_to(SOURCE)}:{number}"):
                    self.assertTrue(beside or allowed(quoted, what), f'#include "{what}"' if quoted else f"#include <{what}>")

    def outside(self, what):
        return not (SOURCE / what).exists()

    def test_plugins(self):
        def allowed(quoted, what):
            if what.startswith(("kernels/", "lib/")):
                return True
            return not quoted and self.outside(what)

        self.check("plugins", allowed)
        self.assertGreater(len(sources("plugins")), 30)

    def test_plugins_leave_the_namespace_of_the_sdk_alone(self):
        """What a kind's plugins share has a namespace of the kind, `rules`, and a plugin of several files its own, `trial`."""
        for path in sources("plugins"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                with self.subTest(f"{path.relative_to(SOURCE)}:{number}"):
                    self.assertNotRegex(line, r"^\s*(inline )?namespace trainyard\b(?!.*=)")

    def test_core(self):
        self.check("core", lambda quoted, what: what.startswith(("core/", "lib/")) if quoted else self.outside(what))

    def test_sdk(self):
        self.check("sdk/src", lambda quoted, what: what.startswith(("operators/", "lib/")) if quoted else self.outside(what))
        for folder in ("sdk/include", "sdk/templates"):  # plugins that are built elsewhere see no lib
            self.check(folder, lambda quoted, what: not quoted and self.outside(what))

    def test_lib(self):
        self.check("lib", lambda quoted, what: what.startswith("lib/") if quoted
                   else self.outside(what) and not what.startswith("trainyard/") and not HEAVY.search(f"/{what}"))
        self.assertGreater(len(sources("lib")), 5)

    def test_kernels(self):
        if not (SOURCE / "kernels").exists():
            self.skipTest("there are no kernels yet")
        self.check("kernels", lambda quoted, what: what.startswith("kernels/") if quoted
                   else self.outside(what) and not what.startswith("trainyard/"))

    def test_only_core_and_tests_include_core(self):
        for folder in ("sdk", "plugins", "kernels"):
            for path in sources(folder) if (SOURCE / folder).exists() else ():
                for number, _, what in includes(path):
                    self.assertFalse(what.startswith("core/"), f"{path}:{number}")


class Rooms(unittest.TestCase):
    """A folder of core is a library, and knows those before it in this list."""

    ROOMS = ["plugins", "runfile", "rundir", "check", "report", "engine/log", "engine/events", "engine/save", "engine/distributed", "engine/train", "engine/recovery", "engine/swap",
             "engine/verbs", "engine/check", "engine", "cli", "cli/verbs", "programs/study", "programs", ""]
    APART = {"seal": {"plugins", "runfile"},  # a program of the build
             "nccl": {"engine/distributed"}}  # a library that this loads

    def room(self, path):
        return str(path.parent.relative_to(SOURCE / "core")).replace(".", "")

    def test_none_knows_one_above_it(self):
        for path in sources("core"):
            here = self.room(path)
            below = self.APART.get(here) or set(self.ROOMS[:self.ROOMS.index(here)])
            for number, quoted, what in includes(path):
                with self.subTest(f"{path.relative_to(SOURCE)}:{number}"):
                    self.assertTrue(not quoted or what.startswith("lib/") or self.room(SOURCE / what) in {here, *below}, what)

    def test_no_circle_of_files(self):
        """Of a header and its source as one: what a file brings in comes to no file that brings it in."""
        known = {}
        for path in sources("core"):
            name = str(path.relative_to(SOURCE).with_suffix(""))
            known.setdefault(name, set()).update(str(SOURCE.joinpath(what).relative_to(SOURCE).with_suffix(""))
                                                 for _, quoted, what in includes(path) if quoted)
        while known:
            free = [name for name, needs in known.items() if not (needs & known.keys()) - {name}]
            self.assertTrue(free, f"a circle among {sorted(known)}")
            for name in free:
                del known[name]

    def test_the_picture_is_of_this_code(self):
        drawn = subprocess.run([SOURCE / "tools/house"], text=True, capture_output=True, check=True).stdout
        self.assertIn(f"```mermaid\n{drawn}```", (SOURCE / "docs/architecture.md").read_text(), "tools/house --write")

    def test_no_header_of_a_kind_lies_loose(self):
        self.assertEqual([path.name for path in (SOURCE / "plugins").glob("*.hpp")], [])

    def test_each_is_within_its_budget(self):
        contract = [path for path in sources("sdk/include/trainyard") if path.parent.name in {"trainyard", "graph", "mixins"}]
        libraries = {library: sources(f"core/{library}") for library in ("plugins", "runfile", "rundir", "report", "engine", "cli", "programs", "check")}
        libraries |= {"lib": sources("lib"), "sdk contract": contract,
                      "sdk library": [path for path in [*sources("sdk/src"), *sources("sdk/include")] if path not in contract]}
        table = (SOURCE / "docs/architecture.md").read_text().partition("## Budgets")[2].partition("\n## ")[0]
        budgets = dict(re.findall(r"^\| `([\w ]+)` \| (\d+) \|", table, re.MULTILINE))
        self.assertEqual(budgets.keys(), libraries.keys())
        for library, files in libraries.items():
            with self.subTest(library):
                self.assertLessEqual(sum(len(path.read_text().splitlines()) for path in files), int(budgets[library]))

    def test_no_function_is_long(self):
        found = [(path, *function) for path in sources("core") for function in functions(path.read_text())]
        self.assertGreater(len(found), 1000)
        for path, line, signature, length in found:
            with self.subTest(f"{path.relative_to(SOURCE)}:{line}"):
                self.assertLessEqual(length, 60, signature)

    def test_no_class_is_long(self):
        """What overrides is declared by the interface, which is read by itself."""
        found = [(path, *each) for path in sources("core") for each in classes(path.read_text())]
        self.assertGreater(len(found), 300)
        self.assertGreater(max(count for *_, count in found), 30)
        for path, name, count in found:
            with self.subTest(f"{path.relative_to(SOURCE)}: {name}"):
                self.assertLessEqual(count, 40)

    def test_the_loop_is_read_at_a_sitting(self):
        self.assertLessEqual(len((SOURCE / "core/engine/train/loop.cpp").read_text().splitlines()), 600)


class Kinds(unittest.TestCase):
    """A kind is one row of core/plugins/kinds.hpp: what the rooms without LibTorch know of it, they read there. These
    places ask for one by name, as what they do has no sense for another."""

    NAMED = {
        "rundir/codecs.cpp": {"codec"},              # parts that read checkpoints
        "runfile/hook_order.cpp": {"transform"},     # the order of its list is one of hooks
        "runfile/find_plugin.cpp": {"data"},         # a dataset's options stand in the tables of the splits, too
        "runfile/live_config.cpp": {"dataset", "sampler",  # splits share a dataset; `shuffle` stands for a sampler
                                    "recorder", "rule",    # rules need one
                                    "metric",              # "loss" is no free id
                                    "hook"},               # keys of the host in its table
        "runfile/plugins_together.cpp": {"executor", "rule", "recorder"}, # it fires what others hear
        "runfile/rule_actions.cpp": {"rule"},        # one of its actions is a swap
        "runfile/swap.cpp": {"schedule", "recorder"},  # its curve can be carried over; the first rule that is added brings it
        "runfile/watched_metrics.cpp": {"metric"},   # whose names may be watched
        "rundir/manifest.cpp": {"model"},            # the owner of a state
        "rundir/run_directory.cpp": {"tools"},       # what they leave in the folder of a run that was not trained yet
        "rundir/quarantine.cpp": {"metric"},         # others may decide by its values
    }

    def test_only_these_are_named(self):
        table = (SOURCE / "core/plugins/kinds.hpp").read_text()
        names = set(re.findall(r'\.kind = \{"(\w+)"', table)) | set(re.findall(r'\.section = "([\w.]+)"', table))
        self.assertGreater(len(names), 13)
        found = {}
        for room in ("plugins", "runfile", "rundir"):
            for path in sources(f"core/{room}"):
                text = re.sub(r"//.*", "", path.read_text())
                named = set(re.findall(r'(?:[!=]=\s*|of_kind\()"([\w.]+)"', text)) | set(re.findall(r'"([\w.]+)"\s*[!=]=', text))
                named |= {kind.lower() for kind in re.findall(r"(\w+)::kind\b", text)}
                if named & names:
                    found[str(path.relative_to(SOURCE / "core"))] = named & names
        self.assertEqual(found, self.NAMED)


class Words(unittest.TestCase):
    def test_comments_are_sentences(self):
        """Those that begin so are mostly clauses without a subject or a verb."""
        found = [f"{path.relative_to(SOURCE)}:{number}: {line.strip()}" for where in ("sdk", "core", "lib") for path in sources(where)
                 for number, line in enumerate(path.read_text().splitlines(), 1)
                 if re.search(r"(?:^|\s)//[/<]*\s*(?:Of|What|Whether|That|Those)\b", line)]
        self.assertEqual(found, [])


class Front(unittest.TestCase):
    def test_its_sources_see_no_libtorch(self):
        """By what the build wrote down of each object. An object is of several files of one library, none of which is left out."""
        told = subprocess.run([cache("CMAKE_MAKE_PROGRAM"), "-t", "deps"], text=True, capture_output=True, check=True, cwd=BUILD).stdout
        seen = set()
        for head, *lines in map(str.splitlines, told.strip().split("\n\n")):
            if re.search(r"trainyard[_-](plugins|runfile|rundir|check|report|cli|command|programs)\.dir/", head):
                read = {os.path.normpath(BUILD / line.strip()) for line in lines}
                with self.subTest(head):
                    self.assertRegex(head, r"\(VALID\)$", "build it first")
                    self.assertEqual(sorted(filter(HEAVY.search, read)), [])
                seen |= read
        files = [SOURCE / "core/main.cpp", *(path for room in ("plugins", "runfile", "rundir", "check", "report", "cli", "programs")
                                             for path in (SOURCE / "core" / room).rglob("*.cpp"))]
        self.assertGreater(len(files), 100)
        self.assertEqual([str(path) for path in files if str(path) not in seen], [], "no object of the front is of these")

    def test_a_training_needs_no_other_program(self):
        """tools/quickstart builds trainyard and its plugins, and is to compile nothing for other verbs."""
        needed = subprocess.run([cache("CMAKE_MAKE_PROGRAM"), "-t", "inputs", "trainyard_command"], text=True, capture_output=True, check=True,
                                cwd=BUILD).stdout
        self.assertIn("/trainyard_cli.dir/", needed)
        self.assertNotRegex(needed, r"trainyard_(programs|report|check|checker|testing|nccl)\b|trainyard-(?!seal)")

    def test_it_links_no_libtorch(self):
        programs = sorted(set(TRAINYARD.parent.glob("trainyard*")) - {TRAINYARD.parent / "trainyard-seal"})
        self.assertGreater(len(programs), 10)
        for program, words in itertools.product(programs, (["readelf", "-d"], ["ldd"])):
            with self.subTest(f"{words[0]} {program.name}"):
                text = subprocess.run([*words, program], text=True, capture_output=True, check=True).stdout
                self.assertIn("libstdc++", text)
                self.assertNotRegex(text, "libtorch|libc10|libtrainyard")


class Format(unittest.TestCase):
    def test_sources_are_as_clang_format_leaves_them(self):
        done = subprocess.run([SOURCE / "tools/lint", "--format"], text=True, capture_output=True)
        if done.returncode == 77:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, "\n".join(done.stderr.splitlines()[:20]))


if __name__ == "__main__":
    unittest.main()
