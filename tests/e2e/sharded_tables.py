"""Embedding tables whose rows lie on different ranks train as whole ones do, in the memory of a rank's own rows; and
where a rank is killed, the others load nothing, and its rows alone come from the disk."""
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest

from support.host import FAULTY, KILLER, tensors
from support.ranks import ReplacingTest

KILLS = int(os.environ.get("TRAINYARD_KILLS", 2))
RANKS = 4
RUN = """
schema = 1
[run]
name = "small"
seed = 5
resume = "auto"
deterministic = "strict"
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "dlrm"
dim = 6
bottom = [16]
top = [16]
tables = [10, 203, 5000, 20001]
sharded = true
[loss]
type = "bce_with_logits"
[data]
type = "ctr"
rows = [10, 203, 5000, 20001]
features = 4
train = { size = 6464, batch_size = 64, micro_batch_size = 8, shuffle = true, drop_last = true }
val = { size = 430, batch_size = 100 }
[[metrics]]
type = "auc"
[optimizer]
type = "rowwise_adagrad"
tables = ["tables.*"]
lr = 0.05
[trainer]
max_duration = "30ba"
eval_interval = "20ba"
[[logging.sinks]]
type = "jsonl"
[logging]
interval = "5ba"
[checkpoint]
type = "full"
interval = "10ba"
"""
WHOLE = RUN.replace("sharded = true", "sharded = false")
SIX = RUN.replace("batch_size = 64", "batch_size = 96")  # for 1 to 4 and 6 ranks
# One table that is nearly all of the model, with long rows: the data have some bytes for each row on every rank.
LARGE = (SIX.replace("dim = 6", "dim = 1024").replace("[10, 203, 5000, 20001]", "[ROWS]")
         .replace('"30ba"', '"4ba"').replace('"20ba"', '"2ba"').replace('interval = "10ba"', 'interval = "2ba"')
         .replace("size = 6464", "size = 640").replace("size = 430", "size = 130"))
MEBIBYTES = int(os.environ.get("TRAINYARD_TABLE", 64))  # of that table
LARGE_RANKS = int(os.environ.get("TRAINYARD_RANKS", 2))  # 12 at most, a divisor of it
LIMIT = int(os.environ.get("TRAINYARD_MEMORY", 0))  # MiB that each of them is given, with all that it needs; 0: no limit
CPR = (RUN.replace('type = "full"\ninterval = "10ba"', 'type = "cpr"\ntarget_pls = 0.3\nmtbf = 50')
       .replace("30ba", f"{60 * (KILLS + 1)}ba").replace('eval_interval = "20ba"', 'eval_interval = "1000ba"'))


def memory_group(name, limit):
    """A control group whose processes have so many bytes of memory together; None where this machine lets nobody make one."""
    for root, bound in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(root, name)
        try:
            group.mkdir()
            if (group / bound).exists():
                (group / bound).write_text(str(limit))
                return group
            group.rmdir()
        except OSError:
            continue
    return None


def digests(path):
    """Name to SHA-256 of each tensor of a safetensors file that may be larger than the memory."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        found = {}
        for name, each in header.items():
            begin, end = each["data_offsets"]
            file.seek(8 + size + begin)
            digest = hashlib.sha256()
            for at in range(begin, end, 1 << 20):
                digest.update(file.read(min(1 << 20, end - at)))
            found[name] = digest.hexdigest()
        return found


class ShardedTables(ReplacingTest):
    def test_tables_in_parts_train_as_whole_ones(self):
        expected = self.on(1, WHOLE)
        weights = self.weights()
        for ranks in (2, RANKS):
            with self.subTest(ranks=ranks):
                found = self.on(ranks, RUN)
                self.assertLess(self.furthest(self.weights(), weights), 1e-6)
                self.assertAlmostEqual(found["metrics"]["val/auc"], expected["metrics"]["val/auc"], delta=1e-6)
                self.assertAlmostEqual(found["metrics"]["val/loss"], expected["metrics"]["val/loss"], delta=1e-6)

    def test_a_checkpoint_of_parts_is_gone_on_from_with_another_number_of_ranks(self):
        self.on(1, WHOLE)
        weights = self.weights()
        shutil.rmtree(self.run_folder)
        for ranks, until in ((RANKS, 10), (2, 20), (1, 30)):
            self.train(RUN, *(("--ranks", ranks) if ranks > 1 else ()), "--set", f"trainer.max_duration={until}ba")
        self.assertLess(self.furthest(self.weights(), weights), 1e-6)

    def test_weights_of_whole_tables_are_loaded_into_parts(self):
        self.on(1, WHOLE)
        elsewhere = self.folder / "elsewhere.safetensors"
        shutil.copy(self.run_folder / "model.safetensors", elsewhere)
        words = ("--set", f"run.resume={elsewhere}", "--set", "run.load=weights", "--set", "trainer.max_duration=5ba")
        self.on(1, WHOLE, *words)
        weights = self.weights()
        self.on(2, RUN, *words)
        self.assertLess(self.furthest(self.weights(), weights), 1e-6)

    def peak(self, ranks, text, *words, limit=None, code=0):
        """The largest memory of a rank of the run, in bytes, or of this process where it begins. Each has a limit of its own."""
        self.write("run.toml", text)
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
            place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.getsockname()[1])}
        runs = []
        for rank in range(ranks):
            group = limit and memory_group(f"trainyard-{os.getpid()}-{rank}", limit)
            if group:
                self.addCleanup(lambda group=group: group.exists() and group.rmdir())
            elif limit:
                print("no control group to be had: the limit is of RLIMIT_DATA")

            def enter(group=group):
                if group:
                    (group / "cgroup.procs").write_text("0")
                elif limit:
                    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            with (self.folder / f"said-{rank}").open("w") as said:
                run = subprocess.Popen(self.command("train", self.folder / "run.toml", "-q", *words), cwd=self.folder, stdout=said,
                                       stderr=said, env=self.environment(RANK=str(rank), **place), preexec_fn=enter)
            runs.append((run, group))
        used = []
        for run, group in runs:
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            used.append(usage.ru_maxrss * 1024)
            if group:
                group.rmdir()
        said = "".join((self.folder / f"said-{rank}").read_text() for rank in range(ranks))
        self.assertEqual([run.returncode for run, _ in runs], [code] * ranks, said)
        return max(used)

    def test_a_rank_has_memory_for_its_own_rows_alone(self):
        """Where it draws, trains, evaluates and saves them, is killed, and loads them again, also on other numbers of ranks."""
        table = MEBIBYTES << 20
        large = LARGE.replace("ROWS", str(table // 4096)) + KILLER
        base = self.peak(LARGE_RANKS, LARGE.replace("ROWS", "1000"))
        print(f"a rank with a small table: {base >> 20} MiB")
        model = self.run_folder / "model.safetensors"

        def on(ranks, what, *words, copies=1, **more):
            peak = self.peak(ranks, large, "--plugins", FAULTY, *words, **more)
            print(f"{ranks} ranks, {what}: {peak >> 20} MiB, beside a small table {(peak - base) / table:.2f} of the table")
            if ranks > 1:  # one alone has the table whole
                self.assertLess((peak - base) / table, copies / ranks + 0.15)

        limit = LIMIT << 20
        on(LARGE_RANKS, "trained", "--overwrite", limit=limit)
        whole, metrics = digests(model), self.result()["metrics"]
        self.write("place", "before_step 3")
        on(LARGE_RANKS, "killed", "--overwrite", limit=limit, code=-signal.SIGKILL)
        (self.folder / "place").unlink()
        loads = 2  # what is loaded, and what it goes into
        on(LARGE_RANKS, "resumed", limit=limit, copies=loads)
        self.assertEqual(len(self.lines("journal.jsonl", "resumed")), 1)
        self.assertEqual(digests(model), whole)
        for each in ("val/auc", "val/loss"):
            self.assertEqual(self.result()["metrics"][each], metrics[each])
        for step, ranks in ((4, 2), (6, 3), (8, 1)):
            saved = self.run_folder / f"checkpoints/step-{step:08}"
            on(ranks, "with what others saved", "--set", f"run.resume={saved}", "--set", "run.output_dir=elsewhere",
               "--set", f"trainer.max_duration={step}ba", copies=loads)
            self.assertEqual(digests(self.folder / "elsewhere/model.safetensors"), digests(saved / "model.safetensors"))
            shutil.rmtree(self.folder / "elsewhere")
            on(ranks, "gone on with", "--set", f"trainer.max_duration={step + 2}ba", copies=loads)

    def test_ranks_take_over_the_bytes_of_any_other_number_of_them(self):
        """Of a run that is killed on two of them, goes on with three, which write beside the training, and with one."""
        run = self.going(2, SIX.replace('"30ba"', '"3000ba"'))
        self.until(lambda: run.poll() is not None or (self.run_folder / "checkpoints/latest").exists())
        for process in self.ranks_of(run.pid).values():
            os.kill(process, signal.SIGKILL)
        run.communicate(timeout=60)
        for ranks in (3, 1):
            on = ("--ranks", ranks) if ranks > 1 else ()
            saved = sorted((self.run_folder / "checkpoints").glob("step-" + 8 * "[0-9]"))[-1]
            step = int(saved.name.split("-")[1])
            self.train(SIX, *on, "--set", f"run.resume={saved}", "--set", "run.output_dir=elsewhere",
                       "--set", f"trainer.max_duration={step}ba", run="elsewhere")
            taken = tensors(self.folder / "elsewhere/model.safetensors")
            self.assertTrue(taken == tensors(saved / "model.safetensors"))  # too much to print
            shutil.rmtree(self.folder / "elsewhere")
            self.train(SIX, *on, "--set", f"trainer.max_duration={step + 10}ba", "--set", "checkpoint.type=async")

    def test_the_tools_know_checkpoints_in_parts(self):
        self.train(RUN, "--ranks", 2, "--set", "trainer.max_duration=20ba", "--set", "checkpoint.keep_last=2")
        first, last = (self.run_folder / f"checkpoints/step-{step:08}" for step in (10, 20))
        self.host("ckpt", "verify", self.run_folder)
        self.assertIn("tables.3.weight  F32 [20001, 6]", self.host("ckpt", "inspect", last).stdout)
        self.host("ckpt", "convert", last, "whole.safetensors")
        self.assertTrue(tensors(self.folder / "whole.safetensors") == tensors(last / "model.safetensors"))
        found = self.result()["metrics"]
        for weights in (self.run_folder / "model.safetensors", last):
            values = json.loads(self.host("eval", "run.toml", "--weights", weights, "--format", "json").stdout)
            self.assertAlmostEqual(values["val/auc"], found["val/auc"], delta=1e-6)
        entries = json.loads((last / "manifest.json").read_text())["tensors"]
        table = next(each for each in entries if each["name"] == "tables.3.weight")
        with open(last / "model.safetensors", "r+b") as file:
            file.seek(table["offset"] + table["length"] - 1)
            file.write(b"!")
        said = self.host("ckpt", "verify", self.run_folder, code=4).stdout
        self.assertIn('the part of rank 1 of tensor "tables.3.weight" is not as it was written', said)
        self.train(RUN, "--ranks", 2, "--set", "trainer.max_duration=30ba")
        self.assertTrue([line for line in self.lines("journal.jsonl", "resume") if "passed over" in line["why"]])
        self.assertIn(first.name, self.lines("journal.jsonl", "resumed")[-1]["why"])

    def test_an_optimizer_takes_the_gradients_of_rows_or_refuses_them(self):
        """Adam moves all rows: lazy_adam does so ahead of their being read, for another rank too."""
        def run(text, optimizer):
            return text.replace('type = "rowwise_adagrad"\ntables = ["tables.*"]\nlr = 0.05', optimizer)
        words = ("--set", "trainer.max_duration=12ba")
        self.on(1, run(WHOLE, 'type = "adam"\nlr = 0.01'), *words)
        weights = self.weights()
        self.on(2, run(RUN, 'type = "lazy_adam"\nlr = 0.01'), *words)
        self.assertLess(self.furthest(self.weights(), weights), 1e-4)
        said = self.host("train", self.write("run.toml", run(RUN, 'type = "adam"\nlr = 0.01')), "-q", "--ranks", 2, code=2).stderr
        self.assertRegex(said, 'the model "dlrm" needs an optimizer with updates of the rows that sparse gradients have.*, and the optimizer "adam" has none')

    def test_shares_of_a_batch_are_refused_before_a_run(self):
        said = self.host("validate", self.write("run.toml", RUN), "--ranks", 2, "--set", "distributed.shares=[3,1]", code=2).stderr
        self.assertIn('the model "dlrm" needs distributed.shares = none', said)

    def test_averaged_weights_are_refused(self):
        """Evaluations would read the tables themselves, and the average of one rank be that of all behind a resume."""
        for hook in ("ema", "swa"):
            said = self.host("train", self.write("run.toml", RUN + f'[[hooks]]\ntype = "{hook}"\n'), "-q", "--ranks", 2, code=2).stderr
            self.assertIn(f'the hook "{hook}" needs a model without tables whose rows lie on different ranks, and the model "dlrm" has it', said)
        self.on(1, RUN + '[[hooks]]\ntype = "ema"\n', "--set", "trainer.max_duration=2ba")  # they are whole

    def test_what_was_lost_counts_on_where_a_run_is_resumed_by_hand(self):
        run = self.going(RANKS, CPR)
        self.kill(run, RANKS, 2)
        before = self.losses()
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 75)
        run = self.start("--ranks", RANKS, text=CPR)
        self.addCleanup(lambda: run.poll() is None and (run.terminate(), run.communicate(timeout=60)))
        self.until(lambda: run.poll() is not None or self.journal(0, "resumed"))
        steps = len(self.steps())
        self.until(lambda: run.poll() is not None or len(self.steps()) > steps)
        self.kill(run, RANKS, 1)
        run.communicate(timeout=400)
        self.assertEqual(run.returncode, 0)
        after = self.losses()
        total = 64 * 60 * (KILLS + 1)
        self.assertEqual(len(after), 2)
        self.assertAlmostEqual(after[1][1] - before[0][1], after[1][0] / total / RANKS, delta=1e-4)

    def losses(self):
        """(samples, portion of lost samples by then) of each failure."""
        lines = [line["why"] for line in self.journal(0, "partial_recovery")]
        return [(int(re.search(r"(\d+) samples lost", line)[1]), float(line.rsplit(" ", 1)[1])) for line in lines]

    def test_a_killed_rank_loads_its_rows_and_the_others_load_nothing(self):
        undisturbed = self.on(RANKS, CPR)
        shutil.rmtree(self.run_folder)
        run = self.going(RANKS, CPR)
        chance, seconds = random.Random(3), []
        for kill in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.3))
            seconds.append(self.kill(run, RANKS, kill % RANKS))
            for rank in range(RANKS):
                self.until(lambda: len(self.journal(rank, "partial_recovery")) > kill)
                loaded = int(re.match(r"(\d+) bytes of the tables loaded", self.journal(rank, "partial_recovery")[kill]["why"])[1])
                (self.assertGreater if rank == kill % RANKS else self.assertEqual)(loaded, 0)
        said = run.communicate(timeout=400)[1]
        self.assertEqual(run.returncode, 0, said)
        print("resumed after", " ".join(f"{each:.2f}" for each in seconds), "s")
        self.assertLessEqual(max(seconds), 5.0)
        result = self.result()
        self.assertEqual(result["steps"], undisturbed["steps"])
        self.assertNotEqual(result["digest"], undisturbed["digest"])  # what the rows had learnt since is lost
        lost = [float(line["why"].rsplit(" ", 1)[1]) for line in self.journal(1 if KILLS < 2 else 3, "partial_recovery")]
        self.assertEqual(lost, sorted(lost))
        self.assertGreater(lost[-1], 0.0)


if __name__ == "__main__":
    unittest.main()
