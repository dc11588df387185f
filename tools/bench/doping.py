#!/usr/bin/env python3
"""A character LSTM of 128 cells on Tiny Shakespeare whose weights are 25 times fewer numbers, in the ways that there are:

  tools/bench/doping.py            3 seeds, 900 steps; the learning rate of each way is the best of four on rows of their own
  tools/bench/doping.py --long     2,700 steps
  tools/bench/doping.py --cost     seconds a step of the dense and the doped network in turn, the least of five runs each
  --quick                          few steps, to see that it works

Prints bits a character (held-out last tenth of the text) of the trained network, of its structured and its sparse terms alone,
and by how much the loss rose while elements were taken away. What was trained is kept in build/doping and not trained again."""
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

try:
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRAINYARD = SOURCE / "build/release/bin/trainyard"
QUICK = "--quick" in sys.argv
STEPS = 12 if QUICK else 2700 if "--long" in sys.argv else 900
SEEDS = [1] if QUICK else [1, 2, 3]
RATES = [0.006] if QUICK else [0.006, 0.012, 0.024, 0.048]
FOLDER = SOURCE / ("build/doping-quick" if QUICK else "build/doping")
DATA = pathlib.Path(os.environ.get("TRAINYARD_DATA", SOURCE.parent / "shared/data"))
TEXT = DATA / "text/tinyshakespeare/input.txt.gz"

RUN = f"""schema = 1
[run]
name = "NAME"
seed = SEED
threads = {{ intra_op = 1, inter_op = 1 }}
[model]
type = "lstm"
n_layer = 1
embedding = 128
hidden = 128
[loss]
type = "cross_entropy"
[data]
type = "text"
path = "{TEXT}"
seq_len = 48
train = {{ fraction = TRAIN, batch_size = 32, shuffle = true, drop_last = true }}
val = {{ fraction = VAL, batch_size = 64 }}
[optimizer]
type = "adam"
lr = RATE
[schedule]
type = "rex"
[trainer]
max_duration = "{STEPS}ba"
eval_interval = "{STEPS // 6}ba"
grad_clip = {{ type = "norm", max = 1.0 }}
[logging]
sinks = [{{ type = "jsonl" }}]
"""


def doped(structure, alone=False, every=20):
    text = f'[[transforms]]\ntype = "doped"\nstructure = "{structure}"\ntarget_cf = 25\nlayers = ["lstm1"]\n'
    return text + ("alone = true\n" if alone else f"sparse = {{ every = {2 if QUICK else every} }}\n")


def dropped(p):
    return f'[[hooks]]\ntype = "co_matrix"\np_sparse = {p}\n'


WAYS = {
    "dense": "",
    "doped kp": doped("kp"),
    "doped kp, p_sparse .3": doped("kp") + dropped(0.3),
    "doped kp, p_sparse .7": doped("kp") + dropped(0.7),
    "doped lmf": doped("lmf"),
    "doped hmd": doped("hmd"),
    "pruned": f'[[transforms]]\ntype = "prune"\nratio = 0.96\nallocation = "uniform"\nlayers = ["lstm1"]\nsparse = {{ every = {2 if QUICK else 20} }}\n',
    "kp alone": doped("kp", alone=True),
    "lmf alone": doped("lmf", alone=True),
    "hmd alone": doped("hmd", alone=True),
}
if QUICK:
    WAYS = {name: WAYS[name] for name in ("doped kp, p_sparse .3", "pruned", "hmd alone")}


def host(*words):
    done = subprocess.run([TRAINYARD, *map(str, words)], cwd=FOLDER, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"trainyard {' '.join(map(str, words))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def bits(folder, weights=None):
    said = host("eval", folder, "--format", "json", *(["--weights", weights] if weights else []))
    return json.loads(said)["val/loss"] / math.log(2)


def train(way, rate, seed, tuning):
    """Losses of the evaluations, and the folder of the run."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{way} {rate} {seed} {STEPS} {'tuned' if tuning else 'test'}")
    folder = FOLDER / "runs" / name
    if not (folder / "result.json").exists():
        text = RUN.replace("NAME", name).replace("SEED", str(seed)).replace("RATE", str(rate))
        text = text.replace("TRAIN", "[0.0, 0.8]" if tuning else "[0.0, 0.9]").replace(
            "VAL", "[0.9, 0.91]" if QUICK else "[0.8, 0.9]" if tuning else "[0.9, 1.0]")
        (FOLDER / f"{name}.toml").write_text(text + WAYS[way])
        host("train", f"{name}.toml", "-q", "--overwrite")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["values"]["val/loss"] / math.log(2) for line in lines if line["what"] == "eval"], folder


def alone(folder, term):
    """Bits of a doped network with the elements of the other term at 0."""
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if (".sparse" in name) == (term == "structured") and re.search(r"\.(sparse|kron|low_rank|hmd)", name) and ".mask" not in name:
            tensor[...] = 0
    save_file(tensors, folder / f"{term}.safetensors")
    return bits(folder, folder / f"{term}.safetensors")


def numbers(folder):
    """Of the LSTM's matrices, that are not 0."""
    tensors = load_file(folder / "model.safetensors")
    return sum(int((tensor != 0).sum()) for name, tensor in tensors.items() if name.startswith("lstm1.weight") and ".mask" not in name)


def rise(losses):
    return max(max(later - min(losses[: i + 1]) for later in losses[i:]) for i in range(len(losses)))


def shown(values):
    if not values:
        return "-"
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def seconds_a_step(way, again):
    """Between the first and the last line of a training without evaluations."""
    text = RUN.replace("NAME", f"cost-{again}").replace("SEED", "1").replace("RATE", "0.006").replace("TRAIN", "[0.0, 0.9]")
    text = text.replace("VAL", "[0.9, 0.91]").replace(f'"{STEPS}ba"', f'"{60 if QUICK else 400}ba"').replace(f'"{STEPS // 6}ba"', '"400ba"')
    (FOLDER / "cost.toml").write_text(text + WAYS[way])
    host("train", "cost.toml", "-q", "--overwrite", "--set", "logging.interval=20ba")
    lines = [json.loads(line) for line in (FOLDER / f"runs/cost-{again}/metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["what"] == "train"]
    return (lines[-1]["seconds"] - lines[0]["seconds"]) / (lines[-1]["step"] - lines[0]["step"])


def cost():
    ways = [way for way in ("dense", "doped kp", "doped kp, p_sparse .3", "pruned") if way in WAYS]
    least = {way: math.inf for way in ways}
    for again in range(1 if QUICK else 5):
        for way in ways:
            least[way] = min(least[way], seconds_a_step(way, again))
    for way, seconds in least.items():
        print(f"{way}: {seconds * 1e3:.2f} ms a step, {seconds / least[ways[0]]:.3f} of the first")


def main():
    if not TEXT.exists():
        print(f"skipped: no {TEXT}")
        sys.exit(77)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if "--cost" in sys.argv:
        return cost()
    print("| way | lr | numbers | bits a character | structured alone | sparse alone | rise |\n|---|---|---|---|---|---|---|", flush=True)
    finals = {}
    for way in WAYS:
        rate = min(RATES, key=lambda each: train(way, each, 11, True)[0][-1])
        ended = [train(way, rate, seed, False) for seed in SEEDS]
        finals[way] = [losses[-1] for losses, _ in ended]
        terms = {term: [alone(folder, term) for _, folder in ended] if "doped" in way else [] for term in ("structured", "sparse")}
        print(f"| {way} | {rate} | {numbers(ended[0][1]):,} | {shown(finals[way])} | {shown(terms['structured'])} | {shown(terms['sparse'])} "
              f"| {shown([rise(losses) for losses, _ in ended])} |", flush=True)
    if "doped kp" in finals:
        print("\nPaired by seed, others less doped kp: " + "; ".join(
            f"{way} {shown([a - b for a, b in zip(finals[way], finals['doped kp'])])}" for way in finals if way != "doped kp"))


main()
