"""partition on the real executable: clusters against sums in Python, refusals, signals and kills; and graphs of traced programs
(tools/llvm_graph) against an interpreter."""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from support.host import SMALL, SOURCE, HostTest
from support.llvm_ir import Program

LONGER = bool(os.environ.get("TRAINYARD_LONGER"))
ALL = ["wb_libra", "w_libra", "libra", "wb_powergraph", "w_powergraph", "powergraph", "hdrf", "ebv", "dbh", "random", "metis"]
EIGHT = "0 1 4\n0 2 1\n3 4 3\n0 3 2\n2 4 2\n1 2 1\n0 4 5\n5 0 1\n"
FLAGS = ["-O1", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops"]


class PartitionTest(HostTest):
    def call(self, *words, code=0):
        done = subprocess.run(self.command("partition", *words), cwd=self.folder, env=self.environment(), text=True, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, *words):
        return json.loads(self.call(*words, "--format", "json").stdout)

    def clusters(self, report):
        return [int(line) for line in (self.folder / report["facts"]["file"]).read_text().splitlines()]

    def rows(self, report):
        return {row["algorithm"]: row for row in report["rows"]}


class Partition(PartitionTest):
    def setUp(self):
        super().setUp()
        self.write("run.toml", SMALL)

    def test_the_cards_oracle_by_its_file_alone(self):
        self.write("eight.edges", EIGHT)
        report = self.report("eight.edges", "--clusters", "2", "--out", "out.txt")
        self.assertEqual(self.clusters(report), [0, 0, 1, 1, 0, 0, 1, 0])
        self.assertEqual((report["facts"]["nodes"], report["facts"]["edges"], report["facts"]["weight"], report["facts"]["bound of wb_"]), (6, 8, 19, 9.5))
        row = self.rows(report)["wb_libra"]
        self.assertAlmostEqual(row["replication"], 8 / 6)
        self.assertAlmostEqual(row["imbalance by weight"], 10 / 9.5)
        self.assertEqual(self.clusters(self.report("eight.edges", "--clusters", "2", "--algorithm", "libra", "--out", "out.txt")), [0, 0, 1, 1, 0, 0, 1, 1])

    def test_a_report_is_what_its_clusters_give(self):
        draws = random.Random(1)
        edges = [(int(draws.random() ** 2 * 200), draws.randrange(200), draws.choice((0, 1, 2.5, 7))) for _ in range(1500)]
        self.write("graph.edges", "".join(f"{u} {v} {w}\n" for u, v, w in edges))
        self.write("costs.txt", "".join(f"{1 + i % 3}\n" for i in range(210)))
        for clusters, algorithms in ((8, ("wb_libra", "powergraph", "dbh", "metis")), (100, ("wb_powergraph", "hdrf"))):
            for algorithm in algorithms:
                with self.subTest(algorithm, clusters=clusters):
                    report = self.report("run.toml", "--file", "graph.edges", "--costs", "costs.txt", "--clusters", str(clusters), "--algorithm", algorithm,
                                         "--beside", "[]", "--nodes_out", "nodes.txt")
                    (row,) = report["rows"]
                    made = self.clusters(report)
                    held, weights, counts = {}, [0.0] * clusters, [0] * clusters
                    for (u, v, w), cluster in zip(edges, made, strict=True):
                        held.setdefault(u, set()).add(cluster)
                        held.setdefault(v, set()).add(cluster)
                        weights[cluster] += max(w, 1e-12)
                        counts[cluster] += 1
                    self.assertEqual(report["facts"]["nodes"], 210)
                    self.assertAlmostEqual(row["replication"], (sum(map(len, held.values())) + 210 - len(held)) / 210)
                    self.assertAlmostEqual(row["imbalance by weight"], max(weights) / sum(weights) * clusters)
                    self.assertAlmostEqual(row["imbalance by count"], max(counts) / 1500 * clusters)
                    self.assertAlmostEqual(row["communication"], sum((len(some) - 1) * (1 + node % 3) for node, some in held.items()))
                    nodes = [[int(word) for word in line.split()] for line in (self.folder / "nodes.txt").read_text().splitlines()]
                    self.assertEqual(len(nodes), 210)
                    for node, (master, *mirrors) in enumerate(nodes):
                        self.assertEqual(mirrors, sorted(held.get(node, set()) - {master}))

    def test_the_same_clusters_on_one_and_two_threads(self):
        for made, order in (("ba", "given"), ("rmat", "shuffled"), ("ba", "bfs"), ("ba", "degrees")):
            found = []
            for threads in ("1", "2", "2") if made == "rmat" else ("1", "2"):
                report = self.report("run.toml", "--made", made, "--made_nodes", "4096", "--beside", json.dumps(ALL), "--threads", threads, "--order", order)
                found.append(([(row["algorithm"], row["hash"], row["replication"]) for row in report["rows"]], self.clusters(report)))
            with self.subTest(made, order=order):
                self.assertEqual(found[0][0], found[-1][0])
                self.assertEqual(found[1][0], found[-1][0])
                self.assertTrue(found[0][1] == found[1][1] == found[-1][1])  # lists whose difference would take minutes to print
                self.assertGreater(len({row[1] for row in found[0][0]}), 5)

    def test_the_bound_and_the_seed(self):
        def made(*words):
            return self.clusters(self.report("run.toml", "--made_nodes", "500", "--order", "shuffled", "--beside", "[]", *words))
        tight = made()
        self.assertTrue(made("--lambda", "0.5") == tight)
        self.assertTrue(made("--lambda", "8.0") == made("--algorithm", "w_libra"))
        self.assertFalse(made("--lambda", "8.0") == tight)
        self.assertFalse(made("--seed", "1") == tight)
        # By count the made-up weights are gone.
        self.assertTrue(made("--edge_weights", "count", "--algorithm", "w_libra") == made("--algorithm", "libra"))

    def test_text_and_bytes_are_the_same(self):
        self.write("a.edges", EIGHT)
        edges = [line.split() for line in EIGHT.splitlines()]
        self.write("b.edges", b"tyedges1" + struct.pack("<QQ", 8, 1) + b"".join(struct.pack("<II", int(u), int(v)) for u, v, _ in edges)
                   + b"".join(struct.pack("<d", float(w)) for _, _, w in edges))
        text, binary = (self.report(name, "--clusters", "3", "--out", "out.txt") for name in ("a.edges", "b.edges"))
        self.assertEqual([row["hash"] for row in text["rows"]], [row["hash"] for row in binary["rows"]])

    def test_a_table_of_speed_ups_has_metis_heft_and_random(self):
        self.write("chain.edges", "".join(f"{i} {i + 1}\n" for i in range(50)))
        report = self.report("chain.edges", "--clusters", "4", "--latency", "3.0", "--beside", "[]", "--out", "out.txt")
        self.assertEqual([row["algorithm"] for row in report["rows"]], ["wb_libra", "metis", "random", "heft"])
        self.assertIn("simulated, not measured", report["facts"]["machine"])
        for row in report["rows"]:
            self.assertGreaterEqual(row["simulated makespan"], 51)
            self.assertLessEqual(row["simulated speed-up"], 1)
        self.assertEqual(report["rows"][-1]["simulated makespan"], 51)
        self.assertNotIn("simulated makespan", self.report("chain.edges", "--clusters", "4", "--out", "out.txt")["rows"][0])

    def test_an_uneven_cut_is_warned_of(self):
        self.assertIn("powergraph gives one cluster 8.00 times the mean weight", self.call("run.toml", "--algorithm", "powergraph", "--beside", "[]").stderr)
        self.assertNotIn("times the mean", self.call("run.toml", "--beside", "[]").stderr)

    def test_what_is_wrong_is_told_once_and_nothing_is_left(self):
        for name, text, words, code, said in (
                ("negative", "0 1\n-1 2\n", (), 4, "graph.edges:2: node -1 is negative"),
                ("columns", "0 1\n3\n", (), 4, "graph.edges:2: has 1 column: expected two nodes"),
                ("empty", "", (), 4, "graph.edges: has no edges"),
                ("overflow", "0 18446744073709551616\n", (), 4, "is too large: expected at most 4294967294"),
                ("gaps", "0 4294967294\n", (), 4, "without large gaps"),
                ("not a number", "0 1 nan\n", (), 4, 'graph.edges:1: the weight is "nan"'),
                ("sum", "0 1 1e308\n1 2 1e308\n", (), 4, "sum up to more than a number can hold"),
                ("binary", "tyedges1" + "x" * 20, (), 4, "is damaged"),
                ("more clusters than edges", EIGHT, ("--clusters", "9"), 2, "clusters is 9, and the graph has 8 edges"),
                ("too many clusters", EIGHT, ("--clusters", "65536"), 2, "clusters"),
                ("a circle", "0 1\n1 0\n", ("--clusters", "1", "--latency", "1.0"), 2, "go round in a circle"),
                ("costs", EIGHT, ("--clusters", "2", "--costs", "few.txt"), 4, "the costs are those of 2 nodes"),
                ("made up", EIGHT, ("--made", "ba"), 2, "there is a file"),
                ("no folder", EIGHT, ("--clusters", "2", "--out", "no/where.txt"), 4, "there is no folder no"),
                ("lambda", EIGHT, ("--lambda", "nan"), 2, "lambda")):
            with self.subTest(name):
                self.write("graph.edges", text)
                self.write("few.txt", "1\n2\n")
                done = self.call("run.toml", "--file", "graph.edges", *words, code=code)
                self.assertEqual(done.stdout, "")
                self.assertIn(said, done.stderr)
                self.assertEqual(len(re.findall("^trainyard: |^--set:", done.stderr, re.M)), 1, done.stderr)
                self.assertEqual([str(path) for path in self.folder.rglob("*clusters.txt*")], [])
        self.assertIn("power of 2", self.call("run.toml", "--made", "rmat", "--made_nodes", "1000", code=2).stderr)
        self.assertIn("absent.edges", self.call("run.toml", "--file", "absent.edges", code=2).stderr)

    @staticmethod
    def catches(process, which):
        """Whether the process has a handler of the signal: before, it would end without a word."""
        with open(f"/proc/{process}/status") as status:
            mask = next(line for line in status if line.startswith("SigCgt"))
        return bool(int(mask.split()[1], 16) >> (which - 1) & 1)

    def begun(self, *words):
        return subprocess.Popen(self.command("partition", "run.toml", *words), cwd=self.folder, env=self.environment(), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)

    def test_a_signal_ends_it_with_nothing(self):
        for words in (("--made_nodes", "1048576", "--made", "rmat", "--made_degree", "40", "--beside", "[]"),
                      ("--made_nodes", "200000", "--algorithm", "metis", "--beside", "[]")):  # in its own process
            with self.subTest(words[-3]):
                tool = self.begun(*words)
                self.until(lambda: self.catches(tool.pid, signal.SIGINT))
                time.sleep(0.4)
                self.assertIsNone(tool.poll())
                began = time.monotonic()
                tool.send_signal(signal.SIGINT)
                out, error = tool.communicate(timeout=60)
                self.assertLess(time.monotonic() - began, 5)
                self.assertEqual((tool.returncode, out), (75, ""), error)
                self.assertIn("partition was interrupted", error)
                self.assertEqual([str(path) for path in self.folder.rglob("*clusters.txt*")], [])

    def test_killed_anywhere_the_file_is_whole(self):
        words = ("--made_nodes", "200000", "--beside", "[]")
        began = time.monotonic()
        self.call("run.toml", *words)
        took = time.monotonic() - began
        place = self.folder / "runs/small/tools/partition/clusters.txt"
        whole = place.read_bytes()
        draws, killed = random.Random(3), 0
        for turn in range(20 if LONGER else 5):
            place.unlink(missing_ok=True)
            tool = self.begun(*words)
            if turn % 2 == 0:
                time.sleep(draws.random() * took)
            else:  # while it is written
                while tool.poll() is None and not any(place.parent.glob("clusters.txt*")):
                    pass
            with contextlib.suppress(ProcessLookupError):  # it may have ended
                os.killpg(tool.pid, signal.SIGKILL)
            tool.communicate()
            killed += tool.returncode == -signal.SIGKILL
            if place.exists():
                self.assertTrue(place.read_bytes() == whole)
        self.assertGreater(killed, 0)
        self.call("run.toml", *words)
        self.assertTrue(place.read_bytes() == whole)
        self.assertEqual([path.name for path in place.parent.iterdir()], ["clusters.txt"])


# What the step of mlp.c does not have: calls that go on into other functions and come back into them, memory that is copied and set.
CALLS = """
#include <stdlib.h>
#include <string.h>
static int values[8] = {5, 3, 8, 1, 9, 2, 7, 4}, copies[8];
static int compare(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }
__attribute__((noinline)) int depth(int n) { return n == 0 ? values[0] : depth(n - 1) * 3 + values[n & 7]; }
__attribute__((noinline)) void move(int* to, const int* from, unsigned long count) { memcpy(to, from, count * sizeof(int)); }
__attribute__((noinline)) void fill(int* to, int n) { to[n & 3] = n; }
__attribute__((noinline)) int kept(int n) {
  int local[4] = {1, 2, 3, 4};
  fill(local, n);
  return local[(n + 1) & 3];
}
int main(int count, char** words) {
  (void)words;
  qsort(values, 8, sizeof(int), compare);
  memset(copies, 0, sizeof copies);
  values[count] = count + 40;
  move(copies, values, 4 + (unsigned long)count);
  copies[7] = depth(5) + kept(count);
  return copies[1] + copies[7] == 0;
}
"""


class LlvmGraph(PartitionTest):
    @classmethod
    def setUpClass(cls):
        cls.tools = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-llvm-"))
        cls.addClassCleanup(shutil.rmtree, cls.tools)
        done = subprocess.run([SOURCE / "tools/llvm_graph/build", cls.tools], text=True, capture_output=True)
        if done.returncode == 77:
            raise unittest.SkipTest(done.stdout.strip())
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def traced(self, source, functions):
        """The names of the nodes and the edges of a program."""
        built = {**os.environ, "TRACE_FUNCTIONS": functions}
        subprocess.run(["clang-14", *FLAGS, f"-fpass-plugin={self.tools}/libtrace_graph.so", source, self.tools / "trace.o", "-lm", "-o", "program"],
                       cwd=self.folder, env=built, check=True)
        subprocess.run(["./program"], cwd=self.folder, env={**os.environ, "TRACE": "trace.bin"}, check=True, capture_output=True)
        done = subprocess.run([self.tools / "llvm_graph", "trace.bin", "graph.edges", "graph.costs", "graph.nodes"], cwd=self.folder, text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / "graph.nodes").read_text().splitlines(), [tuple(map(int, line.split())) for line in
                                                                        (self.folder / "graph.edges").read_text().splitlines()]

    def test_the_cards_graph(self):
        source = SOURCE / "tools/llvm_graph/mlp.c"
        names, edges = self.traced(source, "step")
        self.assertLessEqual(abs(len(names) - 8507), 85)
        self.assertLessEqual(abs(len(edges) - 11546), 115)
        # The same by an interpreter of the program's text, which runs it by itself.
        text = subprocess.run(["clang-14", *FLAGS, "-S", "-emit-llvm", source, "-o", "-"], text=True, capture_output=True, check=True).stdout
        by_hand = Program(text, ["step"]).run()
        self.assertTrue(names == by_hand.nodes)
        self.assertTrue(sorted((u, v) for u, v, _ in edges) == sorted(by_hand.edges))
        memory = [(u, v) for u, v, _ in edges if names[u] == "store" and names[v] == "load"]
        self.assertTrue(sorted(memory) == sorted(by_hand.reads))
        self.assertGreater(len(memory), 200)
        costs = list(map(int, (self.folder / "graph.costs").read_text().split()))
        self.assertTrue(costs == [4 if name in ("load", "store") else 1 for name in names])
        self.assertTrue([w for _, _, w in edges] == [costs[u] for u, _, _ in edges])

        words = ("graph.edges", "--costs", "graph.costs", "--out", "clusters.txt", "--clusters", "8", "--beside", json.dumps(ALL))
        made = self.report(*words, "--latency", "2.0")
        rows = self.rows(made)
        speed = {name: row["simulated speed-up"] for name, row in rows.items()}
        self.assertGreaterEqual(speed["wb_powergraph"] / speed["powergraph"], 1.4)
        self.assertGreaterEqual(speed["wb_libra"] / speed["libra"], 1.1)
        self.assertEqual(made["facts"]["simulated, one core"], sum(costs))
        for name, row in rows.items():
            self.assertGreaterEqual(row["simulated makespan"], made["facts"]["simulated, no less than"], name)
        for name in ("wb_libra", "wb_powergraph"):
            self.assertLess(rows[name]["imbalance by weight"], 1.01)

    def test_calls_and_copies_are_followed(self):
        source = self.write("calls.c", CALLS)
        names, edges = self.traced(source, "")
        self.assertTrue(all(u < v for u, v, _ in edges))
        into = {}
        for u, v, _ in edges:
            into.setdefault(v, []).append(names[u])
        by_name = {name: [into.get(node, []) for node in range(len(names)) if names[node] == name] for name in set(names)}
        self.assertIn("call", [name for some in by_name["load"] for name in some])  # what was copied
        # By hand: qsort, memset, move, depth, kept; memcpy; depth five times more; fill, and what `local` begins with. How long it lives is none.
        self.assertEqual(names.count("call"), 13)
        self.assertIn("store", [name for some in by_name["call"] for name in some])  # what is copied
        self.assertGreater(len(by_name["sub"]), 7)  # comparisons, which a function of the library calls
        self.assertEqual(sum("ret" in some for some in by_name["mul"]), 5)  # what a function returns, on each level
        self.report("graph.edges", "--costs", "graph.costs", "--clusters", "4", "--latency", "1.0", "--out", "clusters.txt")

    def test_what_is_no_trace_is_told(self):
        self.traced(SOURCE / "tools/llvm_graph/mlp.c", "step")
        whole = (self.folder / "trace.bin").read_bytes()
        for name, content, said in (("empty", b"", "is no trace"), ("cut", whole[:len(whole) // 2 & ~7 | len(whole) & 7], "was it cut off")):
            self.write("bad.bin", content)
            done = subprocess.run([self.tools / "llvm_graph", "bad.bin", "e", "c"], cwd=self.folder, text=True, capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (1, ""), name)
            self.assertIn(said, done.stderr)

    def test_it_says_where_there_is_no_llvm(self):
        done = subprocess.run(["/bin/bash", SOURCE / "tools/llvm_graph/build", self.folder / "none"], text=True, capture_output=True,
                              env={"PATH": str(self.bare_path())})
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: there is no clang-14", done.stdout)

    def bare_path(self):
        """A folder with the program that the script needs to come so far."""
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "dirname").symlink_to(shutil.which("dirname"))
        return folder


if __name__ == "__main__":
    unittest.main()
