"""What can be broken: the places of the syntax tree where one line is changed so that it still compiles.

A place is a range of a file with what stands there instead. Left out are preprocessor lines and macros, what the compiler
computes (template arguments, case labels, constexpr, enumerators, variables that begin with a constant), and what a plugin says of itself (`describe`): it is read
when the plugin is sealed, so that a switch in the running program cannot change it.
"""
import bisect
import concurrent.futures
import itertools
import json
import os
import re
import shlex
import subprocess

from clang import cindex
from clang.cindex import CursorKind as Kind, TypeKind

FOLDERS = ("core/", "lib/", "sdk/src/", "sdk/include/", "plugins/")
OTHER = {"<": ("<=", ">"), "<=": ("<", ">"), ">": (">=", "<"), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
         "&&": ("||",), "||": ("&&",), "+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("/",), "&": ("|",), "|": ("&",),
         "+=": ("-=",), "-=": ("+=",), "*=": ("/=",), "/=": ("*=",), "|=": ("&=",), "&=": ("|=",)}
COMPARISONS, LOGIC = {"<", "<=", ">", ">=", "==", "!="}, {"&&", "||"}
STATIC = {Kind.STATIC_ASSERT, Kind.ENUM_CONSTANT_DECL, Kind.CASE_STMT, Kind.ENUM_DECL, Kind.TEMPLATE_NON_TYPE_PARAMETER}
FUNCTIONS = {Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.FUNCTION_TEMPLATE, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION}
BODIES = {Kind.IF_STMT, Kind.FOR_STMT, Kind.CXX_FOR_RANGE_STMT, Kind.WHILE_STMT}
MACRO = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*\(")


def command_of(entry):
    """The arguments of a unit for the parser, which takes headers as the unit's compiler finds them."""
    words = itertools.dropwhile(lambda word: not word.startswith("-D") and not word.startswith("-I"), shlex.split(entry["command"]))
    kept, skip = [], False
    for word in words:
        if skip or word in ("-c", "-o", "-include"):  # what is included is GCC's precompiled headers
            skip = word != "-c" and not skip
            continue
        if word.startswith(("-W", "-fno-gnu", "-O")) or word == entry["file"]:
            continue
        kept.append(word)
    resources = subprocess.run(["clang", "-print-resource-dir"], text=True, capture_output=True, check=True).stdout.strip()
    return [*kept, "-w", "-resource-dir", resources]


def calls(node):
    """Whether the first value of a variable takes a call; else the compiler computes it."""
    return any(each.kind in (Kind.LAMBDA_EXPR, Kind.CALL_EXPR) for each in node.walk_preorder())


class File:
    """Walks what was parsed and collects the places of one file of the tree."""

    def __init__(self, tree, path):
        self.path, self.text, self.found = path, (tree / path).read_bytes(), []
        self.lines = [0] + [found.end() for found in re.finditer(rb"\n", self.text)]

    def line(self, offset):
        return bisect.bisect_right(self.lines, offset)

    def of(self, cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def slice(self, start, end):
        return self.text[start:end].decode("latin-1")  # a character a byte, as the parser counts

    def add(self, kind, start, end, form, broken):
        """form: how the place is rewritten (see mutate); broken: what stands there instead, where the form takes it."""
        text = self.slice(start, end)
        if MACRO.search(text) or ("\n" in text and ("//" in text or 'R"' in text)) or not text.strip():
            return
        self.found.append({"file": self.path, "line": self.line(start), "kind": kind, "start": start, "end": end,
                           "form": form, "broken": " ".join(broken.split())})

    def top(self, cursor, name):
        for child in cursor.get_children():
            if child.location.file is None or child.location.file.name != name:
                continue
            if child.kind in (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL):
                self.top(child, name)
            else:
                self.walk(child, None)

    def walk(self, node, function):
        if node.kind in STATIC or node.spelling == "describe" and node.kind in FUNCTIONS:
            if node.kind == Kind.CASE_STMT:  # the label is computed by the compiler, the statement is not
                for child in list(node.get_children())[1:]:
                    self.walk(child, function)
            return
        if node.kind == Kind.VAR_DECL and re.search(r"\b(constexpr|constinit)\b", self.slice(*self.of(node)).split("=")[0]):
            return
        if node.kind == Kind.VAR_DECL and (function is None or node.storage_class == cindex.StorageClass.STATIC) and not calls(node):
            return
        if node.kind in FUNCTIONS or node.kind == Kind.LAMBDA_EXPR:
            if node.kind in FUNCTIONS and not node.is_definition():
                return
            function = node
        children = list(node.get_children())
        self.expression(node, children)
        if node.kind == Kind.COMPOUND_STMT:
            for child in children:
                self.statement(child, function)
        elif node.kind in BODIES and children:
            bodies = children[1:] if node.kind == Kind.IF_STMT else children[-1:]
            for body in bodies:
                self.statement(body, function)
        for child in children:
            if child.kind not in (Kind.TYPE_REF, Kind.TEMPLATE_REF, Kind.PARM_DECL):
                self.walk(child, function)
            elif child.kind == Kind.PARM_DECL:
                self.walk(child, None)

    def between(self, first, second):
        """(start, end) of the operator between two operands."""
        start, end = first.extent.end.offset, second.extent.start.offset
        text = self.slice(start, end) if start < end else ""
        found = re.fullmatch(r"\s*(\S+)\s*", text)
        return (start + text.index(found.group(1)), start + text.index(found.group(1)) + len(found.group(1)), found.group(1)) if found else None

    def expression(self, node, children):
        kind = node.kind
        start, end = self.of(node)
        if kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            self.operator(start, end, self.between(*children))
        elif kind == Kind.CALL_EXPR:
            arguments = list(node.get_arguments())
            if re.fullmatch(r"operator\W+", node.spelling) and len(arguments) == 2:
                if node.spelling not in ("operator()", "operator[]") and "string" not in node.type.spelling:
                    self.operator(start, end, self.between(*arguments))
            else:
                self.arguments(start, end, arguments)
        elif kind == Kind.UNARY_OPERATOR and len(children) == 1:
            sign = self.slice(start, start + 1)
            if sign == "-" and self.slice(start, start + 2) != "--":
                self.add("sign", start, end, "either", self.slice(start + 1, end))
            elif sign == "!" and self.slice(start, start + 2) != "!=":  # `a != b` of a class reads as !(a == b)
                self.add("condition", start, end, "either", "!!" + self.slice(start + 1, end))
        elif kind == Kind.INTEGER_LITERAL:
            text = self.slice(start, end)
            if re.fullmatch(r"\d+", text):
                self.add("constant", start, end, "either", str(int(text) + 1))
                if int(text) > 0:
                    self.add("constant", start, end, "either", str(int(text) - 1))
        elif kind == Kind.FLOATING_LITERAL:
            text = self.slice(start, end)
            if re.fullmatch(r"[\d.]+(e-?\d+)?f?", text):
                self.add("constant", start, end, "either", f"{float(text.rstrip('f')) * 1.5 + 0.5!r}{'f' if text.endswith('f') else ''}")
        elif kind == Kind.CXX_BOOL_LITERAL_EXPR:
            text = self.slice(start, end)
            if text in ("true", "false"):
                self.add("condition", start, end, "either", "false" if text == "true" else "true")
        if kind in (Kind.IF_STMT, Kind.WHILE_STMT, Kind.CONDITIONAL_OPERATOR) and children and children[0].kind not in (Kind.DECL_STMT, Kind.VAR_DECL):
            head = self.slice(start, children[0].extent.start.offset)
            if kind == Kind.CONDITIONAL_OPERATOR or re.fullmatch(r"(if|while)\s*\(\s*", head):
                self.add("negated", *self.of(children[0]), "negated", "!(" + self.slice(*self.of(children[0])) + ")")

    def operator(self, start, end, place):
        if place is None:
            return
        first, last, sign = place
        for other in OTHER.get(sign, ()):
            kind = "comparison" if sign in COMPARISONS else "condition" if sign in LOGIC else "sign"
            self.add(kind, start, end, "either", self.slice(start, first) + other + self.slice(last, end))

    def arguments(self, start, end, arguments):
        for one, two in zip(arguments, arguments[1:]):
            if one is None or two is None or one.type.get_canonical().spelling != two.type.get_canonical().spelling:
                continue
            a, b = self.of(one), self.of(two)
            if not start <= a[0] < a[1] <= b[0] < b[1] <= end or self.slice(*a) == self.slice(*b):
                continue
            if TypeKind.INVALID == one.type.kind or re.fullmatch(r"\s*", self.slice(*b)):
                continue
            self.add("arguments", start, end, "either", self.slice(start, a[0]) + self.slice(*b) + self.slice(a[1], b[0]) +
                     self.slice(*a) + self.slice(b[1], end))

    def statement(self, node, function):
        start, end = self.of(node)
        if end <= start or not node.kind.is_expression() and node.kind not in (Kind.BREAK_STMT, Kind.CONTINUE_STMT, Kind.RETURN_STMT):
            return
        tail = re.match(rb"\s*;", self.text[end:])
        if not tail:
            return
        if node.kind == Kind.RETURN_STMT and list(node.get_children()):
            return  # something has to be given back
        if node.kind == Kind.RETURN_STMT and self.slice(start, end) != "return":
            return
        end += tail.end()
        self.add("dropped", start, end, "dropped", "")
        result = function.result_type.spelling if function is not None and function.kind in (Kind.FUNCTION_DECL, Kind.CXX_METHOD) else ""
        if result == "void" and node.kind.is_expression() and node.kind != Kind.CXX_THROW_EXPR:
            self.add("early return", start, end, "early", "return;")


def read_file(tree, path, entry):
    """(the places of a file, why it could not be read). `entry`: the unit whose arguments it is read with, another's for a header."""
    name = f"{tree}/{path}"
    parsed = cindex.Index.create().parse(name, args=["-x", "c++", *command_of(entry)])
    if errors := [each for each in parsed.diagnostics if each.severity >= cindex.Diagnostic.Fatal]:
        return [], f"{path} is not read: {errors[0]}"
    file = File(tree, path)
    file.top(parsed.cursor, name)
    unique = {(each["start"], each["end"], each["form"], each["broken"]): each for each in file.found}
    return [unique[key] for key in sorted(unique)], None


class Sites:
    """The places of the files of a tree. A file takes seconds to be read, with all its headers, and is read when it is asked for."""

    def __init__(self, tree, database, jobs, say, known):
        self.tree, self.jobs, self.say, self.known = tree, jobs, say, known  # known: by file
        self.units = [entry for entry in json.loads(database.read_text()) if entry["file"].startswith(tuple(f"{tree}/{folder}" for folder in FOLDERS))]

    def files(self):
        listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=self.tree, text=True, capture_output=True, check=True).stdout.split()
        return [path for path in listed if path.endswith((".cpp", ".hpp"))]

    def unit_of(self, path):
        """The unit of a file, or the nearest to a header."""
        name = f"{self.tree}/{path}"
        return max(self.units, key=lambda entry: (entry["file"] == name, len(os.path.commonprefix([entry["file"], name]))))

    def read(self, paths):
        missing = sorted(set(paths) - set(self.known))
        with concurrent.futures.ProcessPoolExecutor(self.jobs) as pool:
            found = pool.map(read_file, itertools.repeat(self.tree), missing, map(self.unit_of, missing))
            for count, (path, (places, problem)) in enumerate(zip(missing, found), 1):
                self.say(problem or f"read {count} of {len(missing)} files", end="\n" if problem or count == len(missing) else "\r")
                self.known[path] = places
