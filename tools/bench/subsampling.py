#!/usr/bin/env python3
"""Sub-sampling on trainings of the digits, on one core:

  tools/bench/subsampling.py curves      324 networks of one hidden layer, 81 epochs each; then pools of 81 of these, with noise added
                                         to what was seen: regret and epochs of ss, modified_ss, successive halving
  tools/bench/subsampling.py brackets    boss, hyperband and random over 10 seeds, 1000 epochs each: accuracy of what each recommends
  --quick                                few and short, to see that it works

What was trained is kept in build/subsampling and not trained again."""
import json
import os
import pathlib
import statistics
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = SOURCE / "build/release"
QUICK = "--quick" in sys.argv
FOLDER = SOURCE / ("build/subsampling-quick" if QUICK else "build/subsampling")
DIGITS = SOURCE / "data/optdigits/optdigits"

RUN = f"""schema = 1
[run]
seed = 17
threads = {{ intra_op = 1, inter_op = 1 }}
[model]
type = "mlp"
hidden = [32]
[loss]
type = "cross_entropy"
[data]
type = "csv"
scale = 16.0
classes = 10
train = {{ path = "{DIGITS}.tra.gz", take = "first 1078", batch_size = 64, shuffle = true }}
val = {{ path = "{DIGITS}.tes.gz", take = "first 720", batch_size = 720 }}
[[metrics]]
type = "accuracy"
[schedule]
type = "constant"
[trainer]
eval_interval = "1ep"
[logging]
sinks = [{{ type = "jsonl" }}]
"""
ADAM = '[optimizer]\ntype = "adam"\n'
SGD = '[optimizer]\ntype = "sgd"\n'
SPACE = """  { key = "optimizer.lr", low = 3.2e-5, high = 2.0, log = true },
  { key = "optimizer.weight_decay", low = 1e-6, high = 1.0, log = true },
  { key = "data.train.batch_size", low = 16, high = 315, log = true, integer = true },
  { key = "model.hidden", choices = ["[4]", "[8]", "[16]", "[32]", "[64]", "[128]"] },
"""
MOMENTUM = '  { key = "optimizer.momentum", low = 0.0, high = 0.99 },\n'


def study(name, kind, run, space, **options):
    """The trials of a study in the order in which they ended, as its ledger has them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}-run.toml").write_text(RUN + run)
    lines = [f"{key} = {json.dumps(value)}" for key, value in options.items()]
    file = FOLDER / f"{name}.toml"
    file.write_text("\n".join(["schema = 1", "[study]", f'type = "{kind}"', f'run = "{name}-run.toml"', 'metric = "val/accuracy"', *lines, "space = [", space + "]", ""]))
    done = subprocess.run([BUILD / "bin/trainyard", "study", file, "--out", FOLDER, "--jobs", "1"], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"subsampling: {file}: {done.stdout}{done.stderr}")
    entries = map(json.loads, (FOLDER / name / "ledger.jsonl").read_text().splitlines())
    return [entry["end"] for entry in entries if "end" in entry]


def epochs(until):
    return float(until.removesuffix("ep"))


def curves():
    count, longest = (42, "3ep") if QUICK else (162, "81ep")
    ended = [one for name, run, space in (("adam", ADAM, SPACE), ("sgd", SGD, SPACE + MOMENTUM))
             for one in study(f"curves-{name}", "random", run, space, trials=count, budget=longest)]
    file = FOLDER / "curves.txt"
    file.write_text("".join(" ".join(map(str, one["curve"])) + "\n" for one in ended if len(one["curve"]) == epochs(longest)))
    subprocess.run([BUILD / "bin/plugins_tests", "[.subsampling_curves]"], check=True, env={
        **os.environ, "TRAINYARD_CURVES": str(file), "TRAINYARD_RUNS": os.environ.get("TRAINYARD_RUNS", "3" if QUICK else "300")})


def recommended(ended, most, windowed):
    """Accuracy of what was trained furthest within so many epochs, and of these is best: by the mean of the last third, or at the end."""
    reached, best, spent = {}, {}, 0.0
    for one in ended:
        spent += epochs(one["until"]) - reached.get(one["trial"], 0.0)
        if spent > most:
            break
        reached[one["trial"]] = epochs(one["until"])
        if not one["curve"]:  # it diverged
            continue
        last = one["curve"][-max(1, len(one["curve"]) // 3 if windowed else 1):]
        best[one["trial"]] = (reached[one["trial"]], statistics.mean(last), one["curve"][-1])
    return max(best.values())[2], min(spent, most)


def brackets():
    seeds, most, longest = (1, 12, "3ep") if QUICK else (10, 1000, "27ep")
    found = {}
    for seed in range(seeds):
        for name, kind, windowed, options in (
                ("boss, ss", "boss", True, {"inner": "ss", "repeat": 3}),
                ("boss, modified_ss", "boss", True, {"inner": "modified_ss", "repeat": 3}),
                ("hyperband", "hyperband", False, {})):
            ended = []
            for again in range(1 if kind == "boss" else 3):  # hyperband begins anew
                for one in study(f"{kind}-{options.get('inner', 'plain')}-{seed}-{again}", kind, ADAM, SPACE, max_budget=longest, seed=100 * seed + again, **options):
                    ended.append({**one, "trial": f"{again}/{one['trial']}"})
            found.setdefault(name, []).append(recommended(ended, most, windowed))
        trials = int(most / epochs(longest))
        found.setdefault("random", []).append(recommended(study(f"random-{seed}", "random", ADAM, SPACE, trials=trials, budget=longest, seed=100 * seed), most, False))
    for name, values in found.items():
        accuracies = [accuracy for accuracy, _ in values]
        wins = sum(a > b for a, (b, _) in zip(accuracies, found["hyperband"]))
        losses = sum(a < b for a, (b, _) in zip(accuracies, found["hyperband"]))
        print(f"{name:18} median {statistics.median(accuracies):.4f}  from {min(accuracies):.4f} to {max(accuracies):.4f}  "
              f"against hyperband {wins} won, {losses} lost  epochs {statistics.mean(spent for _, spent in values):.0f}")


def main():
    wanted = [each for each in sys.argv[1:] if not each.startswith("-")] or ["curves", "brackets"]
    for each in wanted:
        {"curves": curves, "brackets": brackets}[each]()


if __name__ == "__main__":
    main()
