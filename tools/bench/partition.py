#!/usr/bin/env python3
"""What `trainyard partition` makes of the card's graphs: the tables of its README.

  tools/bench/partition.py cuts      growing networks: replication and imbalance, by order, clusters and seed
  tools/bench/partition.py machine   a traced step of a network: cuts, and simulated speed-ups (needs clang-14, llvm-14-dev)
  tools/bench/partition.py modules FOLDER...   the programs in folders, sources in C or modules of LLVM (.c, .ll), as they run on numbers of chance: each cut, against
                                     the card's figures of its one trace and against METIS (the same needs)
  tools/bench/partition.py speed     10^7 edges of R-MAT: edges a second, bytes an edge, memory of the process

`--quick`: one row of cuts and of speed, of few edges, and no traced step; nothing is worth quoting."""
import json
import os
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(os.environ.get("TRAINYARD_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TRAINYARD = pathlib.Path(os.environ.get("TRAINYARD_BINARY_DIR", ROOT / "build/release")) / "bin/trainyard"
RUN = ROOT / "configs/digits_mlp.toml"
FLAGS = ["-O1", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops"]
ALL = ["random", "dbh", "ebv", "hdrf", "powergraph", "libra", "w_libra", "wb_libra", "wb_powergraph", "metis"]


def partition(folder, *words):
    command = [TRAINYARD, "partition", *words, "--set", f'run.output_dir="{folder}/run"', "--format", "json"]
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(done.stderr)
    report = json.loads(done.stdout)
    return report["facts"], {row["algorithm"]: row for row in report["rows"]}


def cut_text(row):
    return f"{row['replication']:.3f}/{row['imbalance by weight']:.3f}/{row['imbalance by count']:.3f}"


def print_row(head, rows, names, text):
    print(f"| {head} | " + " | ".join(text(rows[name]) if name in rows else "-" for name in names) + " |", flush=True)


def cuts(folder, quick):
    print("replication / imbalance by weight / by count; metis: the number of cut edges, their weight\n")
    print("| order, clusters, seed | " + " | ".join(ALL) + " | metis, weight |")
    for order in ("given", "shuffled")[:1 if quick else 2]:
        for clusters in (8, 64, 1024)[:1 if quick else 3]:
            for seed in range(1 if quick else 5):
                words = (RUN, "--made", "ba", "--made_nodes", 20000, "--made_degree", 3, "--order", order, "--clusters", clusters, "--seed", seed)
                facts, rows = partition(folder, *words, "--beside", json.dumps(ALL))
                rows["weight"] = partition(folder, *words, "--algorithm", "metis", "--beside", "[]", "--metis_cuts", "weight")[1]["metis"]
                print_row(f"{order}, {clusters}, {seed}", rows, [*ALL, "weight"], cut_text)


def built(folder):
    done = subprocess.run([ROOT / "tools/llvm_graph/build", folder / "llvm"], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return folder / "llvm"


def traced(folder):
    tools = built(folder)
    subprocess.run(["clang-14", *FLAGS, f"-fpass-plugin={tools}/libtrace_graph.so", ROOT / "tools/llvm_graph/mlp.c", tools / "trace.o", "-lm", "-o",
                    folder / "mlp"], env={**os.environ, "TRACE_FUNCTIONS": "step"}, check=True)
    subprocess.run([folder / "mlp"], env={**os.environ, "TRACE": str(folder / "trace.bin")}, check=True, capture_output=True)
    print(subprocess.run([tools / "llvm_graph", "trace.bin", "mlp.edges", "mlp.costs"], cwd=folder, text=True, capture_output=True, check=True).stdout)


def machine(folder, quick):
    if quick:
        return
    traced(folder)
    names = ["wb_libra", "wb_powergraph", "libra", "powergraph", "hdrf", "metis", "random"]
    words = ("mlp.edges", "--costs", "mlp.costs", "--beside", json.dumps(names))
    print("replication / imbalance by weight / by count, communication\n\n| clusters | " + " | ".join(names) + " |")
    for clusters in (2, 8, 64, 1024):
        facts, rows = partition(folder, *words, "--clusters", clusters)
        print_row(clusters, rows, names, lambda row: f"{cut_text(row)}, {row['communication']:.0f}")
    print("\nSimulated, not measured: speed-up over one core\n\n| clusters, latency | " + " | ".join([*names, "heft"]) + " | no more than |")
    for clusters, latency in ((2, 2), (8, 0), (8, 2), (8, 10), (64, 2), (64, 10), (1024, 0), (1024, 2), (1024, 10)):
        facts, rows = partition(folder, *words, "--clusters", clusters, "--latency", latency)
        most = facts["simulated, one core"] / facts["simulated, no less than"]
        text = " | ".join(f"{rows[name]['simulated speed-up']:.2f}" for name in [*names, "heft"])
        print(f"| {clusters}, {latency} | {text} | {most:.2f} |", flush=True)


CARD = {2: 1.042, 8: 1.085, 64: 1.217}  # replication of wb_libra on the card's trace
MOST = 1.03  # imbalance by weight that the card allows
BEST = 1.05  # of METIS's replication


def traced_module(tools, source, folder):
    """Makes module.edges and module.costs of what a program does; returns why there is none, or nothing."""
    for name in ("trace.bin", "module.edges", "module.costs"):
        (folder / name).unlink(missing_ok=True)
    if subprocess.run(["clang++-14" if source.suffix == ".ll" else "clang-14", *FLAGS, "-Wno-override-module", f"-fpass-plugin={tools}/libtrace_graph.so", source, tools / "trace.o", "-lm", "-o",
                       folder / "module"], capture_output=True).returncode != 0:
        return "not compiled by clang-14"
    draws = random.Random(source.name)
    numbers = " ".join(str(draws.randint(1, 9)) for _ in range(4000))
    limit = lambda: (resource.setrlimit(resource.RLIMIT_FSIZE, (60 << 20,) * 2), resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2))
    try:
        done = subprocess.run([folder / "module"], input=numbers.encode(), env={**os.environ, "TRACE": str(folder / "trace.bin")}, capture_output=True, timeout=5, preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode < 0:
        return "ended by a signal"
    made = subprocess.run([tools / "llvm_graph", "trace.bin", "module.edges", "module.costs"], cwd=folder, capture_output=True)
    return None if made.returncode == 0 else "no graph"


def modules(folder, places):
    """Each graph with as many edges as 25 a cluster has: fewer are a handful of instructions. The bound holds by an edge at most."""
    tools, left, found = built(folder), {}, {clusters: [] for clusters in CARD}
    for source in sorted(file for place in places for file in pathlib.Path(place).rglob("*") if file.suffix in (".c", ".ll")):
        why = traced_module(tools, source, folder)
        if why:
            left[why] = left.get(why, 0) + 1
            continue
        edges = [float(line.split()[2]) for line in (folder / "module.edges").read_text().splitlines() if line[0] not in "#%"]
        for clusters in CARD:
            if len(edges) < 25 * clusters:
                continue
            _, rows = partition(folder, "module.edges", "--clusters", clusters, "--beside", json.dumps(["libra", "metis", "random"]), "--metis_cuts", "weight")
            own, mean = rows["wb_libra"], sum(edges) / clusters
            found[clusters].append({"name": source.name, "edges": len(edges), "replication": own["replication"], "imbalance": own["imbalance by weight"],
                                    "bound": own["imbalance by weight"] * mean <= mean + max(edges) + 1e-6, "room": 1 + max(edges) / mean,
                                    **{f"{name} {what}": rows[name][key] for name in ("libra", "metis", "random") for what, key in
                                       (("replication", "replication"), ("imbalance", "imbalance by weight"))}})
    print("programs left out: " + ", ".join(f"{count} {why}" for why, count in sorted(left.items())) if left else "no program left out")
    print("| clusters | graphs, edges | bound of load | imbalance by weight: median, most; at most 1.03 | replication: median, most; at most the card's | over METIS: median, most; at most 1.05 "
          "| METIS's imbalance, most | libra's imbalance, median | replication of random, median |")
    broken = 0
    for clusters, rows in found.items():
        if not rows:
            continue
        broken += sum(not row["bound"] for row in rows)
        over = [row["replication"] / row["metis replication"] for row in rows]
        median = lambda key: statistics.median(row[key] for row in rows)
        tight = [row for row in rows if row["room"] <= MOST]
        print(f"| {clusters} | {len(rows)}, {min(row['edges'] for row in rows)} to {max(row['edges'] for row in rows)} | {sum(row['bound'] for row in rows)} "
              f"| {median('imbalance'):.3f}, {max(row['imbalance'] for row in rows):.3f}; {sum(row['imbalance'] <= MOST for row in rows)}, of {len(tight)} whose edges allow it {sum(row['imbalance'] <= MOST for row in tight)} "
              f"| {median('replication'):.3f}, {max(row['replication'] for row in rows):.3f}; {sum(row['replication'] <= CARD[clusters] for row in rows)} "
              f"| {statistics.median(over):.3f}, {max(over):.3f}; {sum(each <= BEST for each in over)} "
              f"| {max(row['metis imbalance'] for row in rows):.2f} | {median('libra imbalance'):.2f} | {median('random replication'):.3f} |", flush=True)
    if broken:
        sys.exit(f"partition.py: {broken} cuts beyond their bound and an edge")


def memory_of(process, most):
    """Keeps the most anonymous memory that a process has: what it maps of its files is not in it."""
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return
        for found in re.findall(r"RssAnon:\s+(\d+) kB", status):
            most[0] = max(most[0], int(found) * 1024)
        time.sleep(0.002)


def speed(folder, quick):
    """The edges are in a file, which the process maps."""
    nodes, degree = 1 << (10 if quick else 20), 10
    edges = nodes * degree
    write_rmat(folder / "rmat.edges", nodes, edges)
    (folder / "few.edges").write_text("0 1\n1 2\n")
    print("| clusters, algorithm | edges/s | bytes an edge | seconds ahead | memory of the process over one of 2 edges, bytes an edge | replication / weight / count |")
    missed = []
    for clusters, names in ((64, ALL[:-1]), (8, ["wb_libra", "hdrf"]), (1024, ["wb_libra", "hdrf"]))[:1 if quick else 3]:
        for name in names:
            taken = []
            for file in ("few.edges", "rmat.edges"):
                most = [0]
                process = subprocess.Popen([TRAINYARD, "partition", file, "--clusters", str(clusters if file[0] == "r" else 1), "--algorithm", name, "--beside",
                                            "[]", "--set", f'run.output_dir="{folder}/run"', "--format", "json"], cwd=folder, stdout=subprocess.PIPE, text=True,
                                           stderr=subprocess.DEVNULL)
                watch = threading.Thread(target=memory_of, args=(process, most))
                watch.start()
                out = process.communicate()[0]
                watch.join()
                taken.append(most[0])
            report = json.loads(out)
            (row,) = report["rows"]
            print(f"| {clusters}, {name} | {row['edges a second'] / 1e6:.2f} M | {row['bytes an edge']:.1f} | "
                  f"{report['facts']['seconds ahead of the algorithms']:.2f} | {(taken[1] - taken[0]) / edges:.1f} | {cut_text(row)} |", flush=True)
            if clusters == 64 and not quick and (row["edges a second"] < 1e6 or row["bytes an edge"] > 16):
                missed.append(name)
    if missed:
        sys.exit(f"partition.py: less than 10^6 edges a second, or more than 16 bytes an edge: {', '.join(missed)}")


def write_rmat(path, nodes, edges):
    """R-MAT by NumPy: an independent maker, so that a file is what is read."""
    try:
        import numpy
    except ImportError:
        print("partition.py: no numpy here, by which R-MAT's edges are made", file=sys.stderr)
        sys.exit(77)
    draws = numpy.random.default_rng(1)
    levels = nodes.bit_length() - 1
    ends = numpy.zeros((edges, 2), numpy.uint32)
    for _ in range(levels):
        draw = draws.random(edges, numpy.float32)
        ends[:, 0] = ends[:, 0] << 1 | (draw >= 0.76)
        ends[:, 1] = ends[:, 1] << 1 | ((draw >= 0.95) | (draw >= 0.57) & (draw < 0.76))
    ends = draws.permutation(nodes).astype(numpy.uint32)[ends]  # so that hubs do not lie side by side
    with open(path, "wb") as file:
        file.write(b"tyedges1" + numpy.array([edges, 1], numpy.uint64).tobytes())
        file.write(ends.tobytes())
        file.write(numpy.exp(draws.normal(size=edges)).tobytes())


def main():
    verbs = {"cuts": cuts, "machine": machine, "speed": speed}
    asked, quick = [each for each in sys.argv[1:] if each != "--quick"], "--quick" in sys.argv
    if asked[:1] == ["modules"] and len(asked) > 1:
        with tempfile.TemporaryDirectory(prefix="trainyard-partition-") as folder:
            return modules(pathlib.Path(folder), asked[1:])
    if not asked or not set(asked) <= set(verbs):
        sys.exit(__doc__)
    for verb in asked:
        with tempfile.TemporaryDirectory(prefix="trainyard-partition-") as folder:
            verbs[verb](pathlib.Path(folder), quick)


if __name__ == "__main__":
    main()
