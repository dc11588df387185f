"""What can be broken: the places of the syntax tree where one line is changed so that it still compiles.

A place is a range of a file with what stands there instead. Left out are preprocessor lines and macros, what the compiler
computes (template arguments, case labels, constexpr, enumerators, variables that begin with a constant), and what a plugin says of itself (`describe`): it is read
when the plugin is sealed, so that a switch in the running program cannot change it.
"""
import bisect
import concurrent.futures
import functools
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
    def __init__(self, tree, path):
        self.path, self.text = path, (tree / path).read_bytes()
        self.lines = [0] + [found.end() for found in re.finditer(rb"\n", self.text)]

    def line(self, offset):
        return bisect.bisect_right(self.lines, offset)

    def of(self, cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def slice(self, start, end):
        return self.text[start:end].decode("latin-1")  # a character a byte, as the parser counts


class Unit:
    """Walks one parsed unit and collects the places in the files of the tree that it takes."""

    def __init__(self, files, wanted):
        self.files, self.wanted, self.found, self.file = files, wanted, [], None

    def add(self, kind, start, end, form, broken):
        """form: how the place is rewritten (see mutate); broken: what stands there instead, where the form takes it."""
        text = self.file.slice(start, end)
        if MACRO.search(text) or ("\n" in text and ("//" in text or 'R"' in text)) or not text.strip():
            return
        self.found.append({"file": self.file.path, "line": self.file.line(start), "kind": kind, "start": start, "end": end,
                           "form": form, "broken": " ".join(broken.split())})

    def top(self, cursor):
        for child in cursor.get_children():
            where = child.location.file
            path = self.wanted(where.name) if where else None
            if path is None:
                continue
            self.file = self.files[path]
            if child.kind in (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL):
                self.top(child)
            else:
                self.walk(child, None)

    def walk(self, node, function):
        if node.kind in STATIC or node.spelling == "describe" and node.kind in FUNCTIONS:
            if node.kind == Kind.CASE_STMT:  # the label is computed by the compiler, the statement is not
                for child in list(node.get_children())[1:]:
                    self.walk(child, function)
            return
        if node.kind == Kind.VAR_DECL and re.search(r"\b(constexpr|constinit)\b", self.file.slice(*self.file.of(node)).split("=")[0]):
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
        text = self.file.slice(start, end) if start < end else ""
        found = re.fullmatch(r"\s*(\S+)\s*", text)
        return (start + text.index(found.group(1)), start + text.index(found.group(1)) + len(found.group(1)), found.group(1)) if found else None

    def expression(self, node, children):
        kind = node.kind
        start, end = self.file.of(node)
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
            sign = self.file.slice(start, start + 1)
            if sign == "-" and self.file.slice(start, start + 2) != "--":
                self.add("sign", start, end, "either", self.file.slice(start + 1, end))
            elif sign == "!" and self.file.slice(start, start + 2) != "!=":  # `a != b` of a class reads as !(a == b)
                self.add("condition", start, end, "either", "!!" + self.file.slice(start + 1, end))
        elif kind == Kind.INTEGER_LITERAL:
            text = self.file.slice(start, end)
            if re.fullmatch(r"\d+", text):
                self.add("constant", start, end, "either", str(int(text) + 1))
                if int(text) > 0:
                    self.add("constant", start, end, "either", str(int(text) - 1))
        elif kind == Kind.FLOATING_LITERAL:
            text = self.file.slice(start, end)
            if re.fullmatch(r"[\d.]+(e-?\d+)?f?", text):
                self.add("constant", start, end, "either", f"{float(text.rstrip('f')) * 1.5 + 0.5!r}{'f' if text.endswith('f') else ''}")
        elif kind == Kind.CXX_BOOL_LITERAL_EXPR:
            text = self.file.slice(start, end)
            if text in ("true", "false"):
                self.add("condition", start, end, "either", "false" if text == "true" else "true")
        if kind in (Kind.IF_STMT, Kind.WHILE_STMT, Kind.CONDITIONAL_OPERATOR) and children and children[0].kind not in (Kind.DECL_STMT, Kind.VAR_DECL):
            head = self.file.slice(start, children[0].extent.start.offset)
            if kind == Kind.CONDITIONAL_OPERATOR or re.fullmatch(r"(if|while)\s*\(\s*", head):
                self.add("negated", *self.file.of(children[0]), "negated", "!(" + self.file.slice(*self.file.of(children[0])) + ")")

    def operator(self, start, end, place):
        if place is None:
            return
        first, last, sign = place
        for other in OTHER.get(sign, ()):
            kind = "comparison" if sign in COMPARISONS else "condition" if sign in LOGIC else "sign"
            self.add(kind, start, end, "either", self.file.slice(start, first) + other + self.file.slice(last, end))

    def arguments(self, start, end, arguments):
        for one, two in zip(arguments, arguments[1:]):
            if one is None or two is None or one.type.get_canonical().spelling != two.type.get_canonical().spelling:
                continue
            a, b = self.file.of(one), self.file.of(two)
            if not start <= a[0] < a[1] <= b[0] < b[1] <= end or self.file.slice(*a) == self.file.slice(*b):
                continue
            if TypeKind.INVALID == one.type.kind or re.fullmatch(r"\s*", self.file.slice(*b)):
                continue
            self.add("arguments", start, end, "either", self.file.slice(start, a[0]) + self.file.slice(*b) + self.file.slice(a[1], b[0]) +
                     self.file.slice(*a) + self.file.slice(b[1], end))

    def statement(self, node, function):
        start, end = self.file.of(node)
        if end <= start or not node.kind.is_expression() and node.kind not in (Kind.BREAK_STMT, Kind.CONTINUE_STMT, Kind.RETURN_STMT):
            return
        tail = re.match(rb"\s*;", self.file.text[end:])
        if not tail:
            return
        if node.kind == Kind.RETURN_STMT and list(node.get_children()):
            return  # something has to be given back
        if node.kind == Kind.RETURN_STMT and self.file.slice(start, end) != "return":
            return
        end += tail.end()
        self.add("dropped", start, end, "dropped", "")
        result = function.result_type.spelling if function is not None and function.kind in (Kind.FUNCTION_DECL, Kind.CXX_METHOD) else ""
        if result == "void" and node.kind.is_expression() and node.kind != Kind.CXX_THROW_EXPR:
            self.add("early return", start, end, "early", "return;")


def read_unit(tree, entry):
    """(the places in a unit and in the headers that it takes, why it could not be read)"""
    parsed = cindex.Index.create().parse(entry["file"], args=command_of(entry))
    if errors := [each for each in parsed.diagnostics if each.severity >= cindex.Diagnostic.Fatal]:
        return [], f"{entry['file']} is not read: {errors[0]}"
    names = {entry["file"], *(each.include.name for each in parsed.get_includes())}
    inside = {name: os.path.normpath(name)[len(str(tree)) + 1:] for name in names if name.startswith(str(tree) + "/")}
    wanted = {name: path for name, path in inside.items() if path.startswith(FOLDERS)}
    unit = Unit({path: File(tree, path) for path in wanted.values()}, wanted.get)
    unit.top(parsed.cursor)
    return unit.found, None


def sites(tree, database, jobs, say):
    """All places, in the order of files and lines. Takes minutes: each unit is parsed with all its headers."""
    units = [entry for entry in json.loads(database.read_text()) if entry["file"].endswith(".cpp") and
             entry["file"].startswith(tuple(f"{tree}/{folder}" for folder in FOLDERS))]
    unique = {}
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        for count, (found, problem) in enumerate(pool.map(functools.partial(read_unit, tree), units), 1):
            say(problem or f"read {count} of {len(units)} units", end="\n" if problem or count == len(units) else "\r")
            for each in found:
                unique[(each["file"], each["start"], each["end"], each["form"], each["broken"])] = each
    return sorted(unique.values(), key=lambda each: (each["file"], each["line"], each["start"], each["end"], each["broken"]))
