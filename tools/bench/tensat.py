#!/usr/bin/env python3
"""E-graphs beside egglog (`pip install egglog`, 13.2): egg's rules of mathematics, those that egglog can say, from the same terms, for as
many iterations as end below a number of nodes. After each the nodes and classes of both have to be the same.

  tools/bench/tensat.py [--nodes 1000000] [--rounds 3] [--classes 100000] [--quick]

Prints a line for each iteration, then the least seconds of both of interleaved rounds, by the clock and of the processor, and their ratios. Both compute on one thread."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
try:
    from egglog import bindings
except ImportError:
    print("skipped: this Python has no egglog (pip install egglog)")
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BENCH = pathlib.Path(os.environ.get("TRAINYARD_BINARY_DIR", SOURCE / "build/release")) / "bin/bench_tensat"
NAMES = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "pow": "Pow", "d": "Diff", "i": "Integral", "ln": "Ln", "sqrt": "Sqrt", "sin": "Sin",
         "cos": "Cos"}
HEAD = """(datatype Math (Diff Math Math) (Integral Math Math) (Add Math Math) (Sub Math Math) (Mul Math Math) (Div Math Math)
  (Pow Math Math) (Ln Math) (Sqrt Math) (Sin Math) (Cos Math) (Num i64) (Sym String))
"""


def translated(text):
    """A term as egglog writes it."""
    def word(found):
        opened, name = found[1], found[2]
        if opened:
            return f"({NAMES[name]}"
        if name.startswith("?"):
            return name[1:]
        return f"(Num {name})" if re.fullmatch(r"-?\d+", name) else f'(Sym "{name}")'
    return re.sub(r"(\()?([^\s()]+)", word, text)


def program(told):
    lines = [HEAD]
    for number, (text, condition) in enumerate(told["rules"]):
        source, target = (translated(part.strip()) for part in text.split("=>"))
        when = ""
        if condition:
            kind, variable = condition.split()
            when = f' :when ((= {variable[1:]} ({"Num" if kind == "constant" else "Sym"} value)))'
        lines.append(f"(rewrite {source} {target}{when})")
    lines += [f"(let $start{i} {translated(term)})" for i, term in enumerate(told["terms"])]
    return "\n".join(lines)


class Peer:
    def __init__(self, told):
        self.graph, self.processor = bindings.EGraph(), 0.0
        self.run(program(told))

    def run(self, text):
        return self.graph.run_program(*self.graph.parse_program(text))

    def step(self):
        commands = self.graph.parse_program("(run 1)")
        begin, processor = time.perf_counter(), time.process_time()
        self.graph.run_program(*commands)
        self.processor += time.process_time() - processor
        return time.perf_counter() - begin

    def nodes(self):
        text = " ".join(str(each) for each in self.run("(print-size)"))
        sizes = dict(re.findall(r"\((\w+) (\d+)\)", text))
        known = [*NAMES.values(), "Num", "Sym"]
        if not sizes:
            sys.exit(f"egglog's print-size says nothing that is known here: {text[:200]}")
        return sum(int(sizes.get(name, 0)) for name in known)

    def classes(self):
        dump = json.loads(self.graph.serialize([]).to_json())
        return len({node["eclass"] for name, node in dump["nodes"].items() if node["eclass"].startswith("Math")})


def ours(*words):
    done = subprocess.run([BENCH, "--json", *map(str, words)], text=True, capture_output=True, check=True)
    return json.loads(done.stdout)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=1_000_000, help="iterations that end with more are left out")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--classes", type=int, default=100_000, help="classes are counted up to so many nodes, as egglog's own count takes long")
    arguments.add_argument("--quick", action="store_true", help="20,000 nodes, one round")
    given = arguments.parse_args()
    if given.quick:
        given.nodes, given.rounds = 20_000, 1
    told = ours("--nodes", given.nodes)
    # One that its limit ended may have shrunk to fewer nodes than that since, as congruence was restored.
    whole = told["iterations"][:None if told["stop"] == "iterations" else -1]
    count = sum(each["nodes"] < given.nodes for each in whole)
    best, wrong = {name: ([], []) for name in ("ours", "egglog")}, 0
    for turn in range(given.rounds):
        told = ours("--iterations", count, "--nodes", 10 ** 9)
        if told["stop"] != "iterations":
            sys.exit(f"the last iteration is no whole one: it was ended by its limit of {told['stop']}")
        best["ours"][0].append(told["seconds"])
        best["ours"][1].append(told["processor"])
        peer, seconds = Peer(told), 0.0
        for number, each in enumerate(told["iterations"]):
            own = peer.step()
            seconds += own
            if turn == 0:
                nodes = peer.nodes()
                classes = peer.classes() if nodes <= given.classes else None
                same = nodes == each["nodes"] and classes in (None, each["classes"])
                wrong += not same
                print(f'{number + 1}: {each["nodes"]} nodes, {each["classes"]} classes; egglog {nodes}, {classes}; '
                      f'{each["seconds"]:.3f} s and {own:.3f} s{"" if same else "  NOT THE SAME"}', flush=True)
        best["egglog"][0].append(seconds)
        best["egglog"][1].append(peer.processor)
    for place, what in enumerate(("s", "s of processor time")):
        own, others = (min(best[name][place]) for name in ("ours", "egglog"))
        print(f"{count} iterations: {own:.3f} {what}, egglog {others:.3f}, {others / own:.1f} times")
    sys.exit(1 if wrong else 0)


main()
