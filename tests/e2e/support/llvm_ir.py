"""An interpreter of the text that `clang-14 -S -emit-llvm` writes: enough of it for loops over arrays. It says which executed instruction
each value comes from, and keeps the last writer of every byte: what tools/llvm_graph is held against."""
import math
import re
import struct

POINTER = 8
TOKEN = re.compile(r'%[\w.$-]+|@[\w.$-]+|-?\d+\.\d+e[+-]\d+|0x[0-9A-F]+|-?\d+|[A-Za-z_][\w.]*|c"[^"]*"|"[^"]*"|.')


def single(value):
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


class Words:
    """The tokens of a line, taken from the left."""

    def __init__(self, text):
        self.words = [word for word in TOKEN.findall(text) if not word.isspace()]
        self.at = 0

    def look(self):
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, expected=None):
        word = self.look()
        if expected is not None and word != expected:
            raise ValueError(f"found {word!r}, expected {expected!r} in {self.words}")
        self.at += 1
        return word

    def has(self, *words):
        if self.look() in words:
            self.at += 1
            return True
        return False

    def type(self):
        word = self.take()
        if word == "[":
            count = int(self.take())
            self.take("x")
            kind = ("array", count, self.type())
            self.take("]")
        else:
            kind = word
        while self.has("*"):
            kind = ("pointer", kind)
        return kind


def size(kind):
    if isinstance(kind, tuple):
        return POINTER if kind[0] == "pointer" else kind[1] * size(kind[2])
    return {"float": 4, "double": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8}[kind]


class Program:
    """Follows `main`; the functions that are `wanted` are recorded: `nodes` has the name of each executed instruction, `edges` pairs of them."""

    def __init__(self, text, wanted, most=10 ** 9):
        self.functions, self.globals, self.memory, self.writers = {}, {}, {}, {}
        self.wanted, self.most, self.nodes, self.edges, self.reads = wanted, most, [], [], []
        self.free = 1 << 20
        name = block = None
        for line in text.splitlines():
            line = line.split(" ; ")[0].rstrip()
            if line.startswith("@") and (found := re.match(r"(@[\w.$-]+) = .*?(?:global|constant) (.*?)(?:, align \d+)?$", line)):
                words = Words(found[2])
                kind = words.type()
                self.globals[found[1]] = self.allocate(size(kind))
            elif line.startswith("define"):
                found = re.match(r"define .*?(@[\w.$-]+)\((.*?)\)", line)
                name = found[1]
                arguments = re.findall(r"%[\w.$-]+", found[2])
                block = str(len(arguments))
                self.functions[name] = (arguments, {block: []})
            elif line.startswith("}"):
                name = None
            elif name and (found := re.match(r"([\w.$-]+):", line)):
                block = found[1]
                self.functions[name][1][block] = []
            elif name and line.strip():
                self.functions[name][1][block].append(line.strip())

    def allocate(self, count):
        place = self.free
        self.free += (count + 15) // 16 * 16
        return place

    def run(self):
        try:
            self.call("@main", [], [])
        except StopIteration:
            pass
        return self

    def node(self, name):
        if len(self.nodes) == self.most:
            raise StopIteration
        self.nodes.append(name)
        return len(self.nodes) - 1

    # Operands are pairs: value, and the number of the instruction that it comes from.
    def operand(self, words, frame, kind):
        word = words.take()
        if word.startswith("%"):
            return frame[word]
        if word.startswith("@"):
            return self.globals[word], None
        if word in ("true", "false"):
            return int(word == "true"), None
        if word in ("zeroinitializer", "null", "undef"):
            return 0, None
        if word == "getelementptr":
            words.has("inbounds")
            words.take("(")
            value = self.pointer(words, frame, [])
            words.take(")")
            return value, None
        if word == "bitcast":
            words.take("(")
            value, _ = self.operand(words, frame, words.type())
            words.take("to")
            words.type()
            words.take(")")
            return value, None
        if word.startswith("0x"):
            return struct.unpack("d", bytes.fromhex(word[2:].zfill(16))[::-1])[0], None
        return (float(word) if kind in ("float", "double") else int(word)), None

    def pointer(self, words, frame, used):
        """Of getelementptr, behind its flags: source type, pointer, indices."""
        kind = words.type()
        words.take(",")
        address, origin = self.operand(words, frame, words.type())
        used.append(origin)
        first = True
        while words.has(","):
            value, origin = self.operand(words, frame, words.type())
            used.append(origin)
            if not first:
                kind = kind[2]
            address += value * size(kind)
            first = False
        return address

    def wrote(self, address, count, node):
        for i in range(address, address + count):
            self.writers[i] = node

    def read(self, address, count, node):
        seen = []
        for i in range(address, address + count):
            writer = self.writers.get(i)
            if writer is not None and writer not in seen:
                seen.append(writer)
        for writer in seen:
            self.edges.append((writer, node))
            self.reads.append((writer, node))

    def call(self, name, values, origins):
        arguments, blocks = self.functions[name]
        recorded = name[1:] in self.wanted
        frame = {argument: (value, origin) for argument, value, origin in zip(arguments, values, origins)}
        before, at = None, next(iter(blocks))
        while True:
            new = {}
            for line in blocks[at]:
                target = None
                if found := re.match(r"(%[\w.$-]+) = (.*)", line):
                    target, line = found[1], found[2]
                words = Words(line.split(", !")[0])
                for marker in ("tail", "notail"):
                    words.has(marker)
                what = words.take()
                if what == "call" and re.search(r"@llvm\.(lifetime|dbg|assume|experimental)", line):
                    continue
                if what != "phi":
                    frame.update(new)
                    new = {}
                self.self = self.node(what) if recorded else None
                self.used = []
                result = self.execute(what, words, frame, before, line)
                if recorded:
                    self.edges.extend((origin, self.self) for origin in self.used if origin is not None)
                    self.settle()
                if what == "ret":
                    return result, self.self if self.used and recorded else None
                if what in ("br", "switch"):
                    before, at = at, result
                    break
                if target:
                    (new if what == "phi" else frame)[target] = (result, self.self)

    def settle(self):
        pass

    def use(self, words, frame, kind):
        value, origin = self.operand(words, frame, kind)
        self.used.append(origin)
        return value

    def execute(self, what, words, frame, before, line):
        while words.has("nuw", "nsw", "exact", "inbounds", "volatile", "fast"):
            pass
        if what == "alloca":
            return self.allocate(size(words.type()))
        if what == "bitcast":
            return self.use(words, frame, words.type())
        if what in ("zext", "sext", "trunc", "sitofp", "uitofp", "fpext", "fptrunc"):
            kind = words.type()
            value = self.use(words, frame, kind)
            words.take("to")
            to = words.type()
            if what == "zext" and value < 0:
                value += 1 << 8 * size(kind)
            return single(value) if to == "float" else float(value) if to == "double" else value
        if what == "getelementptr":
            return self.pointer(words, frame, self.used)
        if what == "load":
            kind = words.type()
            words.take(",")
            address = self.use(words, frame, words.type())
            if self.self is not None:
                self.read(address, size(kind), self.self)
            return self.memory.get(address, 0)
        if what == "store":
            kind = words.type()
            value = self.use(words, frame, kind)
            words.take(",")
            address = self.use(words, frame, words.type())
            self.memory[address] = value
            self.wrote(address, size(kind), self.self)
            return None
        if what == "phi":
            kind = words.type()
            for text in re.findall(r"\[ (.*?) \]", line):
                value, block = text.rsplit(", %", 1)
                if block == before:
                    return self.use(Words(value), frame, kind)
            raise ValueError(f"no value from {before}: {line}")
        if what in ("icmp", "fcmp"):
            how = words.take()
            kind = words.type()
            a = self.use(words, frame, kind)
            words.take(",")
            b = self.use(words, frame, kind)
            if how[0] == "u" and what == "icmp":
                a, b = (value % (1 << 64) for value in (a, b))
            return int({"eq": a == b, "ne": a != b, "gt": a > b, "lt": a < b, "ge": a >= b, "le": a <= b}[how[-2:]])
        if what == "select":
            condition = self.use(words, frame, words.type())
            values = []
            for _ in range(2):
                words.take(",")
                values.append(self.use(words, frame, words.type()))
            return values[0 if condition else 1]
        if what == "br":
            if words.has("label"):
                return words.take()[1:]
            condition = self.use(words, frame, words.type())
            labels = re.findall(r"label %([\w.$-]+)", line)
            return labels[0 if condition else 1]
        if what == "ret":
            kind = words.type()
            return None if kind == "void" else self.use(words, frame, kind)
        if what == "fneg":
            return -self.use(words, frame, words.type())
        if what == "call":
            return self.external(words, frame, line)
        return self.arithmetic(what, words, frame)

    def arithmetic(self, what, words, frame):
        kind = words.type()
        a = self.use(words, frame, kind)
        words.take(",")
        b = self.use(words, frame, kind)
        if what in ("fadd", "fsub", "fmul", "fdiv"):
            value = {"fadd": lambda: a + b, "fsub": lambda: a - b, "fmul": lambda: a * b, "fdiv": lambda: a / b}[what]()
            return single(value) if kind == "float" else value
        value = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "and": lambda: a & b, "or": lambda: a | b, "xor": lambda: a ^ b,
                 "shl": lambda: a << b, "lshr": lambda: a >> b, "ashr": lambda: a >> b, "udiv": lambda: a // b, "urem": lambda: a % b,
                 "sdiv": lambda: int(a / b), "srem": lambda: a - b * int(a / b)}[what]()
        bits = 8 * size(kind)
        return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if kind != "i1" else value & 1

    def external(self, words, frame, line):
        name = re.search(r"(@[\w.$-]+)\(", line)[1]
        while words.look() != name:
            words.take()
        words.take()
        words.take("(")
        values = []
        while not words.has(")"):
            kind = words.type()
            while words.look() in ("noundef", "nonnull", "nocapture", "align", "writeonly", "readonly", "dereferenceable") or words.look().isdigit() and kind[0] == "pointer":
                if words.take() == "dereferenceable":
                    for _ in range(3):
                        words.take()
            values.append((self.use(words, frame, kind)))
            words.has(",")
        if name in self.functions:
            own, used = self.self, list(self.used)
            value, origin = self.call(name, values, used)
            self.self, self.used = own, used
            return value
        if name.startswith("@llvm.memset"):
            for i in range(values[0], values[0] + values[2]):
                self.memory.pop(i, None)
            self.wrote(values[0], values[2], self.self)
            return None
        if name.startswith("@llvm.fmuladd"):
            return single(values[0] * values[1] + values[2])
        if name == "@expf":
            return single(math.exp(values[0]))
        return 0
