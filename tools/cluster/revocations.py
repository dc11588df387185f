#!/usr/bin/env python3
"""What revocations cost a training: real ones that are killed and started again, against the same revocations played through.

  tools/cluster/revocations.py [--traces 12] [--work 20] [--between 8] [--seed 1] [--folder /dev/shm]

The job is a network on handwritten digits with a checkpoint at Young's interval, in memory (`--folder`), as what a disk takes to be sure of a
file differs from minute to minute; a restart takes about a second here, so that time is compressed: `--work` seconds of training, with
revocations every `--between` seconds in the mean. Measured first, on this machine: a step, what a checkpoint stops the training for, what a
restart takes. What is lost of a trace is against its own steps away from checkpoints, as a machine's speed changes in minutes. Each trace is drawn and played twice: by SIGKILL and
`trainyard train` with run.resume = "auto", and by the rules that the tool srifty plays by (plugins/tool/srifty/spot.hpp), which stand
here a second time in Python. Beside them: the formula of first order, and what the verb says of this scenario, of its own draws.

`--quick`: one short trace, nothing is worth quoting."""
import argparse
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time

import training

STEP = re.compile(rb'"what":"train","step":(\d+)')
TASK = training.DIGITS.replace("[64, 512, 512, 10]", "[64, 1024, 1024, 1024, 10]")


class Job:
    """A training in a folder of its own; `every`: steps between checkpoints, 0: none."""

    def __init__(self, folder, steps, every):
        self.folder, self.steps = folder, steps
        folder.mkdir()
        checkpoint = f'[checkpoint]\ntype = "full"\nkeep_last = 2\ninterval = "{every}ba"\n' if every else ""
        text = training.text(TASK, checkpoint, folder=folder, duration=f"{steps}ba", interval=1)
        (folder / "run.toml").write_text(text.replace("seed = 17", 'seed = 17\nresume = "auto"'))
        self.last, self.moved, self.ended = 0, None, None
        self.every, self.alone = every, []

    def start(self):
        return subprocess.Popen([training.TRAINYARD, "train", self.folder / "run.toml", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"})

    def look(self):
        """Notes the last step that it has told, when the first was after a start, and when the last of all. A start takes back what is behind its checkpoint."""
        path = self.folder / "run/metrics.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 2000))
                tail = file.read()
        except OSError:
            return
        found = [int(each) for each in STEP.findall(tail[:tail.rfind(b"\n") + 1])]
        if not found:
            return
        if found[-1] > self.last and self.moved is None:
            self.moved = time.monotonic()
        if found[-1] >= self.steps and self.ended is None:
            self.ended = time.monotonic()
        self.last = found[-1]

    def note_steps(self, saved):
        """Keeps what steps took since the start behind the checkpoint of that step, but for those around checkpoints."""
        times = [(line["step"], line["seconds"]) for line in told(self.folder) if line["step"] > saved]
        self.alone += [later - earlier for (_, earlier), (step, later) in zip(times, times[1:]) if step % self.every > 1]

    def begin_again(self):
        self.look()
        self.moved = self.ended = None
        return self.start()


def told(folder):
    """The whole lines of the training's steps."""
    lines = (folder / "run/metrics.jsonl").read_text().rpartition("\n")[0].splitlines()
    return [line for line in map(json.loads, lines) if line["what"] == "train"]


def check(process):
    if process.returncode != 0:
        raise RuntimeError(f"the training ended with {process.returncode}: {process.stderr.read().strip()}")


def seconds_of(folder, steps, every):
    """When each step ended, of a training without revocations."""
    process = Job(folder, steps, every).start()
    process.wait()
    check(process)
    return [line["seconds"] for line in told(folder)]


def whole(folder, steps):
    """Seconds of so many steps, without checkpoints."""
    times = seconds_of(folder, steps, 0)
    return (times[-1] - times[0]) / (len(times) - 1) * steps


def stop_of(folder, steps, every):
    """Seconds that a checkpoint stops the training for, in the mean: what the two steps around it take beyond two others of the same run."""
    times = seconds_of(folder, steps, every)
    usual = statistics.median(later - earlier for earlier, later in zip(times, times[1:]))
    around = [times[at] - times[at - 2] - 2 * usual for at in range(every, len(times) - 1, every)]
    return statistics.mean(around), statistics.stdev(around) / math.sqrt(len(around))


def restart_of(folder, steps, every, times):
    """Median seconds from a SIGKILL to the step behind the one that the checkpoint has."""
    took = []
    for number in range(times):
        job = Job(folder / f"restart-{number}", steps, every)
        process = job.start()
        while job.last < 3 * every + every // 2:
            job.look()
            time.sleep(0.002)
        process.kill()
        process.wait()
        killed = time.monotonic()
        process = job.begin_again()
        while job.moved is None:
            job.look()
            time.sleep(0.002)
        took.append(job.moved - killed)
        process.kill()
        process.wait()
    return statistics.median(took)


def real(folder, steps, every, revocations):
    """Seconds from the first step to the last of a training that is killed so many seconds after its first step; what its steps take
    without checkpoints and revocations, at the speed that the machine had meanwhile; how often it was killed."""
    job = Job(folder, steps, every)
    process, began, killed, saved = job.start(), None, 0, 0
    while process.poll() is None:
        job.look()
        began = began or job.moved
        if began and killed < len(revocations) and time.monotonic() - began >= revocations[killed] and job.ended is None:
            process.kill()
            process.wait()
            killed += 1
            job.note_steps(saved)
            saved = job.last // every * every
            process = job.begin_again()
        time.sleep(0.002)
    check(process)
    job.look()
    job.note_steps(saved)
    return job.ended - began, statistics.mean(job.alone) * steps, killed


def played(work, interval, checkpoint, restart, revocations):
    """The same by the rules of spot.hpp."""
    now, saved, coming = 0.0, 0.0, iter(revocations)
    following = next(coming, math.inf)
    while saved < work:
        segment = min(interval, work - saved)
        segment_ends = now + segment + (checkpoint if saved + segment < work else 0.0)
        if segment_ends <= following:
            now, saved = segment_ends, saved + segment
        else:
            now, following = following + restart, next(coming, math.inf)
    return now


def drawn(chance, between, until):
    times = [chance.expovariate(1 / between)]
    while times[-1] < until:
        times.append(times[-1] + chance.expovariate(1 / between))
    return times


def work():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=12)
    parser.add_argument("--work", type=float, default=20.0)
    parser.add_argument("--between", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default="/dev/shm", help="where runs and their checkpoints are")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.traces, given.work, given.between = 1, 1.0, 1.0
    with tempfile.TemporaryDirectory(prefix="trainyard-revoked-", dir=given.folder) as name:
        folder = pathlib.Path(name)
        few = 100 if given.quick else 600
        plain = whole(folder / "first", few) / few
        checkpoint, doubt = stop_of(folder / "often", few, 10)
        if checkpoint < 3 * doubt:
            raise RuntimeError(f"what a checkpoint stops is lost in the noise here: {1e3 * checkpoint:.1f} ms, with a standard error of {1e3 * doubt:.1f}")
        interval = math.sqrt(2 * checkpoint * given.between)
        every = max(2, round(interval / plain))
        steps = max(4 * every, round(given.work / plain))
        restart = restart_of(folder, steps, every, 1 if given.quick else 5)
        print(f"a step {1e3 * plain:.2f} ms, a checkpoint stops {1e3 * checkpoint:.1f} ms, a restart {restart:.2f} s; "
              f"{steps} steps, a checkpoint every {every}, revocations every {given.between:g} s", flush=True)
        chance = random.Random(given.seed)
        ours, theirs, works = [], [], []
        for trace in range(given.traces):
            revocations = drawn(chance, given.between, 100 * steps * plain)
            took, work, killed = real(folder / f"trace-{trace}", steps, every, revocations)
            works.append(work)
            ours.append(played(work, work * every / steps, checkpoint, restart, revocations) / work - 1)
            theirs.append(took / work - 1)
            print(f"  trace {trace}: {killed} revocations, overhead {theirs[-1]:.3f}, played through {ours[-1]:.3f}", flush=True)
        lost, expected = statistics.mean(theirs), statistics.mean(ours)
        apart = [a - b for a, b in zip(ours, theirs)]
        work = statistics.mean(works)
        interval = work * every / steps
        first = checkpoint / interval + (interval / 2 + restart) / given.between
        many = [played(work, interval, checkpoint, restart, drawn(chance, given.between, 100 * work)) / work - 1 for _ in range(100 if given.quick else 2000)]
        print(f"overhead of {given.traces} traces: {lost:.4f}; the same played through: {expected:.4f}, {100 * (expected / lost - 1) if lost else 0:+.1f} %"
              f", the mean difference {statistics.mean(apart):+.4f} with a standard error of {statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan:.4f}")
        print(f"of {len(many)} other traces, played through: {statistics.mean(many):.4f}; the verb's: {verb(folder, given.between, checkpoint, restart, work):.4f}; "
              f"of first order: {first:.4f}")


def verb(folder, between, checkpoint, restart, work):
    """The mean of what srifty plays through, of one machine in this scenario: its work is as long as this one's, of steps of its own."""
    home = folder / "verb"
    home.mkdir()
    (home / "run.toml").write_text(training.text(TASK, folder=home))
    words = [training.TRAINYARD, "srifty", home / "run.toml", "--weights", "initial"]

    def ask(*more):
        done = subprocess.run(list(map(str, [*words, "--format", "json", *more])), text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout)

    ask("--device", "here")
    (home / "prices.csv").write_text("# as_of: 2026-11-01\n# source: made up\ntype,accelerator,count,price_usd_h,net_gbit_s,spot_usd_h\nnode,here,1,,1,1\n")
    scenario = ["--catalogue", home / "prices.csv", "--profiles", json.dumps([str(home / "run/tools/srifty/here.profile.json")]), "--allow_spot", "true",
                "--max_machines", 1, "--spot_rate_per_hour", 3600 / between, "--checkpoint_seconds", checkpoint, "--restart_seconds", restart]
    facts = ask(*scenario, "--epochs", 1)["facts"]
    alone = 3600 * facts["hours"] / (1 + facts["spot overhead"])
    return ask(*scenario, "--epochs", work / alone)["facts"]["spot overhead, mean of 100 runs played through"]


if __name__ == "__main__":
    training.main("revocations.py", work)
