#!/usr/bin/env python3
"""The best model for a table within a minute, on one core: configs/studies/table/classes.toml (type flaml), random search of the same
learners and spaces, and the package flaml (tools/bench/peers/automl makes it). A fifth of each table is kept for the test, which no
search sees; the seed draws it.

  tools/bench/automl.py [--quick] [--seconds 60] [--seeds 3] [--tables later] [--systems ours,random,package] [--again]
  tools/bench/automl.py --systems ensemble   ours with an ensemble of its best at the end, beside the best configuration of the same search
  tools/bench/automl.py --systems ours,slow  beside a learner that takes a hundred times as long as trees and finds the same
  tools/bench/automl.py budget [--seconds 20] ...   total time of ours where the last training is to be within it (retrain = "budget")

Tables: six of TRAINYARD_DATA, or `later`: two that nobody looked at while defaults were chosen. Prints, for each table, the median test errors, configurations a minute, and when ours first had the test error that random search
ended with (of models that were not trained again on all rows). What was found is kept in build/automl and is not searched again.
--quick: the digits, 3 seconds, ours and random alone."""
import argparse
import csv
import gzip
import io
import itertools
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time
import tomllib

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRAINYARD = SOURCE / "build/release/bin/trainyard"
STUDY = SOURCE / "configs/studies/table/classes.toml"
DATA = pathlib.Path(os.environ.get("TRAINYARD_DATA", SOURCE / "data"))
TABLES = {  # files that are joined, what is between columns, whether there are names, the target
    "income": (["tabular/pycaret/income.csv.gz"], ",", True, "income >50K"),
    "bank": (["tabular/pycaret/bank.csv.gz"], ",", True, "deposit"),
    "telescope": (["tabular/pycaret/telescope.csv.gz"], ",", True, "Class"),
    "satellite": (["tabular/pycaret/satellite.csv.gz"], ",", True, "Class"),
    "higgs": (["tabular/lightgbm/binary.train.tsv.gz", "tabular/lightgbm/binary.test.tsv.gz"], "\t", False, "c0"),
    "digits": ([str(SOURCE / "data/optdigits/optdigits.tra.gz"), str(SOURCE / "data/optdigits/optdigits.tes.gz")], ",", True, "c64"),
}
SLOW = 5.0  # seconds of a round of the slow learner: four of them are a hundred trials of trees
LATER = {  # not looked at while defaults were chosen
    "five_classes": (["tabular/lightgbm/multiclass.train.tsv.gz", "tabular/lightgbm/multiclass.test.tsv.gz"], "\t", False, "c0"),
    "fashion": (["vision/fashion_mnist/t10k-images-idx3-ubyte.gz", "vision/fashion_mnist/t10k-labels-idx1-ubyte.gz"], None, False, "c784"),
}


def missing(what):
    print(f"automl: {what}", file=sys.stderr)
    sys.exit(77)


def file_of(name):
    if not (DATA / name).exists():
        missing(f"there is no {DATA / name}: TRAINYARD_DATA names the folder of the tables")
    return DATA / name


def rows_of(name):
    """The names of the columns, and the rows."""
    files, separator, named, _ = {**TABLES, **LATER}[name]
    names, rows = [], []
    if separator is None:
        images, labels = (gzip.decompress(file_of(each).read_bytes()) for each in files)
        rows = [[*map(str, images[16 + 784 * i:16 + 784 * (i + 1)]), str(label)] for i, label in enumerate(labels[8:])]
        files = []
    for file in files:
        text = gzip.decompress(file_of(file).read_bytes()).decode("utf-8-sig")
        lines = [[field.strip() for field in line] for line in csv.reader(io.StringIO(text), delimiter=separator) if line]
        names = lines.pop(0) if named else names
        rows += lines
    if not named or len(set(names)) < len(names) or name == "digits":
        names = [f"c{i}" for i in range(len(rows[0]))]
    return names, rows


def split(name, seed, folder):
    """Writes train.csv and test.csv; returns the answers of the test."""
    names, rows = rows_of(name)
    random.Random(seed).shuffle(rows)
    kept = len(rows) // 5
    for file, part in (("train.csv", rows[kept:]), ("test.csv", rows[:kept])):
        with open(folder / file, "w", newline="") as out:
            csv.writer(out).writerows([names, *part])
    return [row[names.index(target_of(name))] for row in rows[:kept]]


def target_of(name):
    return {**TABLES, **LATER}[name][3]


def run(folder, *words, seconds=None):
    """Runs our program; one that is stopped after so many seconds goes on when it is asked again."""
    process = subprocess.Popen([TRAINYARD, *map(str, words)], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env={**os.environ, "NO_COLOR": "1"})
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.communicate()[0]
    if process.returncode != 0 and "of its first" not in said:  # none of few trials at random ended in time
        sys.exit(f"automl: {' '.join(map(str, words))}: {said}")
    return said


def entries(ledger):
    """What ended well, in order: each end with the changes that it was begun with."""
    begun = {}
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        if "start" in entry:
            begun[entry["start"]["trial"]] = entry["start"]
        elif "end" in entry:
            yield {**begun[entry["end"]["trial"]], **entry["end"]}


def test_error(folder, model, answers):
    """The share of the test's rows that a run takes for another class."""
    run(folder, "predict", model, "test.csv", "--out", "answers.csv")
    with open(folder / "answers.csv", newline="") as file:
        given = [row["class"] for row in csv.DictReader(file)]
    assert len(given) == len(answers)
    return sum(a != b for a, b in zip(given, answers)) / len(answers)


def data_of(table, folder):
    return ["--set", f"vars.file={folder}/train.csv", "--set", f"vars.target={target_of(table)}"]


def configurations(ledger):
    """Those that were judged: (elapsed, accuracy, a run of it, learner), in the order in which they ended."""
    folds = {}
    for each in entries(ledger):
        name, _, fold = each["trial"].partition("/")
        accuracy = each["metrics"].get("val/accuracy") if each["end"] == "done" else None
        if name in ("best", "ensemble"):
            continue
        learner = next((change.split("=")[1] for change in each["set"] if change.startswith("model.hidden")), "trees")
        if not fold:
            folds.pop(name, None)
            yield each["elapsed"], accuracy, each["trial"], learner
            continue
        folds.setdefault(name, []).append(accuracy)
        if len(folds[name]) == 5 and None not in folds[name]:
            yield each["elapsed"], statistics.mean(folds[name]), each["trial"], learner


def ours(table, seed, seconds, folder, answers, *more, study=STUDY):
    began = time.monotonic()
    run(folder, "study", study, *data_of(table, folder), "--set", f"study.time={seconds}s", "--set", f"study.seed={seed}", *more, "--out", "out", "--jobs", "1")
    wall = time.monotonic() - began
    place = folder / "out" / study.stem
    tried = list(configurations(place / "ledger.jsonl"))
    best, incumbents = 0.0, []
    for elapsed, accuracy, name, learner in tried:
        if accuracy is not None and accuracy > best:
            best = accuracy
            incumbents.append((elapsed, test_error(folder, place / "runs" / name, answers), accuracy, learner))
    final = [each for each in entries(place / "ledger.jsonl") if each["trial"] == "best"]
    ensemble = [each for each in entries(place / "ledger.jsonl") if each["trial"] == "ensemble" and each["end"] == "done"]
    return {"error": test_error(folder, place / "runs" / "best", answers) if final else 1.0,
            "ensemble": test_error(folder, place / "runs" / "ensemble", answers) if ensemble else None,
            "ensembled": ensemble[0]["elapsed"] if ensemble else None, "trials": len(tried),
            "searched": max(each[0] for each in tried), "wall": wall, "incumbents": incumbents,
            "elapsed": (final or list(entries(place / "ledger.jsonl")))[-1]["elapsed"], "values": final[-1]["set"] if final else []}


def random_file(learner, seconds):
    """A study of type random over a learner of ours, with its space; a tenth is held out."""
    text = STUDY.read_text().split("\n[study]")[0]
    spaces = [{key: value for key, value in each.items() if key != "start"} for each in learner["space"]]
    toml = ",\n".join("  { " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in each.items()) + " }" for each in spaces)
    changes = [*learner.get("set", []), "data.train.take=all but fold 0 of 10", f"trainer.max_wall_time={seconds}s"]
    return f'{text}\n[study]\ntype = "random"\nmetric = "val/accuracy"\ntrials = 1\nset = {json.dumps(changes)}\nspace = [\n{toml}\n]\n'


def random_search(table, seed, seconds, folder, answers):
    """Draws a learner and its values for each trial. Trials of a learner are those of a study of type random; what counts is what trials
    took by themselves."""
    learners = tomllib.loads(STUDY.read_text())["study"]["learners"]
    for each in learners:
        (folder / f"random_{each['name']}.toml").write_text(random_file(each, seconds))
    draws, drawn, total, ended, spent = random.Random(seed), [], 8, [], 0.0
    while spent < seconds and total < 100_000:
        drawn += [draws.randrange(len(learners)) for _ in range(total - len(drawn))]
        queues, left = [], seconds - spent
        for number, each in enumerate(learners):
            name = f"random_{each['name']}"
            ledger = folder / "out" / name / "ledger.jsonl"
            known = len(list(entries(ledger))) if ledger.exists() else 0
            if drawn.count(number) > known:
                run(folder, "study", f"{name}.toml", *data_of(table, folder), "--set", f"study.seed={seed}", "--set", f"study.trials={drawn.count(number)}",
                    "--out", "out", "--jobs", "1", seconds=left + 1)
            queues.append(iter([(name, one) for one in entries(ledger)] if ledger.exists() else []))
        ended, spent = [], 0.0
        for number in drawn:
            name, one = next(queues[number], (None, None))
            spent += one["seconds"] if one else seconds  # it was stopped: it would have taken all that was left
            if spent >= seconds:
                break
            ended.append((spent, name, one))
        total = max(total + 4, min(2 * total, int(total * seconds / spent) + 1))
    good = [(one["metrics"]["val/accuracy"], name, one) for _, name, one in ended if one["end"] == "done" and "val/accuracy" in one["metrics"]]
    if not good:
        return {"error": 1.0, "alone": 1.0, "trials": len(ended), "searched": seconds, "wall": seconds}
    _, name, best = max(good, key=lambda each: each[0])
    changes = [change for change in best["set"] if not change.startswith(("data.train.take", "trainer.max_wall_time"))]
    run(folder, "train", f"{name}.toml", "-q", "--overwrite", *itertools.chain(*(("--set", each) for each in [*changes, "run.name=again"])))
    return {"error": test_error(folder, folder / "runs/again", answers), "alone": test_error(folder, folder / "out" / name / "runs" / best["trial"], answers),
            "trials": len(ended), "searched": seconds, "wall": seconds, "values": best["set"]}


def package(table, seed, seconds, folder, _):
    done = subprocess.run([SOURCE / "tools/bench/peers/automl", "train.csv", "test.csv", target_of(table), str(seconds), str(seed)], cwd=folder,
                          text=True, capture_output=True)
    if done.returncode != 0:
        missing(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[-1])


def budget(table, seed, seconds, folder, answers):
    return ours(table, seed, seconds, folder, answers, "--set", "study.retrain=budget")


def with_ensemble(table, seed, seconds, folder, answers):
    return ours(table, seed, seconds, folder, answers, "--set", "study.ensemble=20")


def beside_slow(table, seed, seconds, folder, answers):
    """Trees a second time, whose rounds sleep: with few rounds a trial takes a hundred times what it takes without."""
    trees = tomllib.loads(STUDY.read_text())["study"]["learners"][0]
    sleeps = f'hooks=[{{ type = "dawdling", steps = 1, seconds = {SLOW} }}]'
    space = ",\n".join("    { " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in each.items()) + " }" for each in trees["space"])
    slow = f'  {{ name = "slow", cost = 100, set = {json.dumps([*trees["set"], sleeps])}, space = [\n{space}\n  ] }},\n]\n'
    study = folder / "slow.toml"
    study.write_text(STUDY.read_text().rstrip().removesuffix("]") + slow)
    found = ours(table, seed, seconds, folder, answers, "--plugins", SOURCE / "build/release/tests/faulty", study=study)
    ended = list(entries(folder / "out/slow/ledger.jsonl"))
    return found | {"slow": sum(any("dawdling" in change for change in each["set"]) for each in ended), "ended": len(ended)}


SYSTEMS = {"ensemble": with_ensemble, "ours": ours, "random": random_search, "package": package, "slow": beside_slow}


def measured(system, function, table, seed, seconds, place, again):
    """What a system found; of an earlier call, where it is known."""
    file = place / f"{table}-{seed}-{seconds}-{system}.json"
    if file.exists() and not again:
        return json.loads(file.read_text())
    folder = place / f"work-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = function(table, seed, seconds, folder, split(table, seed, folder))
    file.write_text(json.dumps(found) + "\n")
    shutil.rmtree(folder)
    print(f"  {table}, seed {seed}, {system}: test error {100 * found['error']:.2f} %, {found['trials']} configurations, {found['wall']:.1f} s", flush=True)
    return found


def reached(found, error):
    """When ours first had that test error; infinite where it never had."""
    return next((elapsed for elapsed, own, *_ in found["incumbents"] if own <= error), float("inf"))


def rate(found):
    return 60 * found["trials"] / found["searched"]


def report(found, tables, seeds, systems):
    print("table          " + "".join(f"{system:>22}" for system in systems) + "   random's reached after")
    times = []
    for table in tables:
        line = f"{table:15}"
        for system in systems:
            own = [found[table, seed, system] for seed in seeds]
            line += f"{100 * statistics.median(each['error'] for each in own):9.2f} % {statistics.median(map(rate, own)):7.0f}/min"
        if {"ours", "random"} <= set(systems):
            own = [reached(found[table, seed, "ours"], found[table, seed, "random"]["alone"]) for seed in seeds]
            times += own
            line += "   " + ", ".join(f"{each:.1f}" for each in own) + " s"
        print(line)
    if "slow" in systems:
        trials = [found[table, seed, "slow"] for table in tables for seed in seeds]
        print(f"of the slow learner: {sum(each['slow'] for each in trials)} of {sum(each['ended'] for each in trials)} trials")
        if "ours" in systems:
            worse = [found[table, seed, "slow"]["error"] - found[table, seed, "ours"]["error"] for table in tables for seed in seeds]
            print(f"test error beside it less that without it: mean {100 * statistics.mean(worse):+.2f} points, {100 * max(worse):+.2f} at most")
    if "ensemble" in systems:
        report_ensembles(found, tables, seeds)
    if times:
        print(f"random's error is reached after {statistics.median(times):.1f} s, median of {len(times)}")
    for other in [each for each in ("random", "package") if {each, "ours"} <= set(systems)]:
        behind = {table: statistics.median(found[table, seed, "ours"]["error"] for seed in seeds) -
                  statistics.median(found[table, seed, other]["error"] for seed in seeds) for table in tables}
        rates = [rate(found[table, seed, "ours"]) / rate(found[table, seed, other]) for table in tables for seed in seeds if found[table, seed, other]["trials"]]
        print(f"against {other}: not worse on {sum(each <= 0 for each in behind.values())} of {len(tables)} tables; at most "
              f"{100 * max(behind.values()):+.2f} points behind ({max(behind, key=behind.get)}); "
              f"{statistics.median(rates or [float('inf')]):.2f} times its configurations a minute, median")


def report_ensembles(found, tables, seeds):
    """Test errors of the ensemble and of the best configuration trained on all rows, of the same search."""
    better = []
    for table in tables:
        own = [found[table, seed, "ensemble"] for seed in seeds if found[table, seed, "ensemble"]["ensemble"] is not None]
        if not own:
            continue
        better += [each["error"] - each["ensemble"] for each in own]
        print(f"{table:15} ensemble {100 * statistics.median(each['ensemble'] for each in own):.2f} %, best {100 * statistics.median(each['error'] for each in own):.2f} %; "
              f"ready after {max(each['ensembled'] for each in own):.1f} s at most")
    print(f"the ensemble is better in {sum(each > 0 for each in better)} of {len(better)} searches, worse in {sum(each < 0 for each in better)}; "
          f"mean gain {100 * statistics.fmean(better):+.2f} points")


def report_budget(found, tables, seeds, seconds):
    for table in tables:
        for seed in seeds:
            own = found[table, seed, "budget"]
            print(f"{table:15} seed {seed}: {own['elapsed']:.2f} s of {seconds} s, {100 * (1 - own['elapsed'] / seconds):.1f} % unused; "
                  f"test error {100 * own['error']:.2f} %")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="?", choices=["compare", "budget"], default="compare")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--seconds", type=int)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--tables")
    options.add_argument("--systems")
    options.add_argument("--again", action="store_true")
    given = options.parse_args()
    is_budget = given.what == "budget"
    seconds = given.seconds or (20 if is_budget else 60)
    tables = list(TABLES if given.tables is None else LATER if given.tables == "later" else given.tables.split(","))
    systems = given.systems.split(",") if given.systems else ["ours", "random", "package"]
    seeds, place = range(given.seeds), SOURCE / "build/automl"
    if given.quick:
        tables, systems, seeds, seconds, place = ["digits"], ["ours", "random"], range(1), 3, SOURCE / "build/automl-quick"
    functions = {"budget": budget} if is_budget else {each: SYSTEMS[each] for each in systems}
    if not TRAINYARD.exists():
        missing(f"there is no {TRAINYARD}: build it")
    found = {}
    for seed, table, (name, function) in itertools.product(seeds, tables, functions.items()):
        found[table, seed, name] = measured(name, function, table, seed, seconds, place, given.again or given.quick)
    if is_budget:
        report_budget(found, tables, seeds, seconds)
    else:
        report(found, tables, seeds, systems)


if __name__ == "__main__":
    main()
