"""Several ranks train as one would: the same weights, the same data once each, and all of them or none."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from own_data import IMAGES
from support.host import BUILD, ROWS, SOURCE, planned, rows
from support.images import png
from support.ranks import RUN, RankTest, load_file, numpy

OPTIMIZERS = ("adagrad", "adam", "adamw", "lamb", "lars", "rmsprop", "rowwise_adagrad", "sgd")
KILLS = int(os.environ.get("TRAINYARD_KILLS", 1))
LATE = float(os.environ.get("TRAINYARD_DOZE", 0.3))  # seconds
FAULTY = BUILD / "tests/faulty"
# Of the second rank alone.
ASKS = '[[hooks]]\ntype = "asking"\nrank = 1\n'


class Ranks(RankTest):
    # --- the same training

    def test_two_and_four_ranks_train_as_one_does_whatever_the_optimizer(self):
        for optimizer in OPTIMIZERS:
            text = RUN.replace('type = "adamw"', f'type = "{optimizer}"')
            often = ("--set", "logging.interval=1ba", "--set", "trainer.eval_interval=3ba")
            one = self.on(1, text, *often)
            alone, alone_saw = self.weights(), self.seen()
            for ranks in (2, 4) if optimizer == "adamw" else (2,):
                with self.subTest(optimizer=optimizer, ranks=ranks):
                    many = self.on(ranks, text, *often)
                    self.assertLess(self.furthest(self.weights(), alone), 1e-6)
                    self.assertEqual((many["steps"], many["samples"], many["epochs"]), (one["steps"], one["samples"], one["epochs"]))
                    found = self.seen()
                    self.assertEqual(found.keys(), alone_saw.keys())
                    for which, value in alone_saw.items():
                        self.assertAlmostEqual(found[which], value, delta=1e-6, msg=which)

    def seen(self):
        """Losses and metrics: of training and of evaluation, step by step."""
        lines = map(json.loads, (self.run_folder / "metrics.jsonl").read_text().splitlines())
        return {(line["step"], name): value for line in lines for name, value in line["values"].items() if name.endswith(("/loss", "/accuracy"))}

    def test_torchrun_starts_the_same(self):
        torchrun = pathlib.Path(os.environ.get("VIRTUAL_ENV", "")) / "bin/torchrun"
        found = shutil.which("torchrun") or (str(torchrun) if torchrun.exists() else None)
        if found is None:
            self.skipTest("no torchrun here")
        self.on(2)
        expected = self.weights()
        shutil.rmtree(self.run_folder)
        done = subprocess.run([found, "--no-python", "--nproc-per-node", "2", "--master-port", "0", *self.command("train", "run.toml", "-q")],
                              cwd=self.folder, text=True, capture_output=True, timeout=120, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.furthest(self.weights(), expected), 0.0)

    def test_a_run_goes_from_one_rank_to_two_to_four_and_back(self):
        self.on(1)
        expected = self.weights()
        shutil.rmtree(self.run_folder)
        for verb, ranks, until in (("train", 1, 11), ("train", 2, 23), ("resume", 4, 37), ("resume", 1, 50)):
            with self.subTest(verb=verb, ranks=ranks):
                which = "run.toml" if verb == "train" else self.run_folder
                self.host(verb, which, "-q", *(("--ranks", ranks) if ranks > 1 else ()), "--set", f"trainer.max_duration={until}ba")
                result = self.result()
                self.assertEqual(result["steps"], until)
        self.assertLess(self.furthest(self.weights(), expected), 1e-6)
        self.assertEqual(result["samples"], 50 * 16 - 10 * 8)  # each epoch of 72 has four whole steps and one of eight

    def kept_back(self, step, ranks, local):
        """What a checkpoint holds of gradients that no rank has sent, of all ranks together. `local`: those that hold a bucket in shards."""
        held = load_file(self.run_folder / f"checkpoints/step-{step:08}/state.safetensors")
        of_ranks = [held[(f"rank/{rank}/" if rank > 0 else "") + "distributed.compressor:residual/0"] for rank in range(ranks)]
        elements = sum(weight.size for weight in self.weights().values())
        return sum(numpy.concatenate(of_ranks[first:first + local])[:elements] for first in range(0, ranks, local))

    def test_what_compressors_keep_back_goes_along_from_four_ranks_to_two(self):
        """The first two steps on two ranks are skipped, so that their checkpoint holds what four ranks have handed on."""
        skips = '[[hooks]]\ntype = "skipping"\nfirst = 20\nperiod = 1\n'
        nodes = 'type = "hitopk"\nauto_dense = "never"\nlocal_world_size = LOCAL\n'
        for options, four_are, two_are in (('type = "topk"\n', 1, 1), (nodes, 1, 1), (nodes, 2, 1)):
            with self.subTest(options, local=four_are):
                text = RUN + skips + f"[distributed.compressor]\n{options}density = 0.1\nmin_compress_elements = 1\n"
                self.on(4, text.replace("LOCAL", str(four_are)), "--plugins", FAULTY, "--set", "trainer.max_duration=20ba")
                four = self.kept_back(20, 4, four_are)
                self.train(text.replace("LOCAL", str(two_are)), "--ranks", 2, "--plugins", FAULTY, "--set", "trainer.max_duration=22ba")
                self.assertEqual(self.result()["steps"], 22)
                self.assertGreater(float(numpy.abs(four).max()), 1e-4)
                self.assertLessEqual(float(numpy.abs(self.kept_back(22, 2, two_are) - four).max() / numpy.abs(four).max()), 1e-6)

    def test_one_rank_that_skips_a_batch_leaves_the_mean_to_the_others(self):
        asks = '[[hooks]]\ntype = "asking"\nask = "skip_batch"\nat = "batch_start"\nrank = 1\n'
        self.on(2, RUN + asks, "--plugins", FAULTY, "--set", "trainer.max_duration=1ba")
        skipped = self.weights()
        # The first rank has the first half of the batch.
        self.on(1, RUN.replace("batch_size = 16, micro", "batch_size = 8, micro"), "--set", "trainer.max_duration=1ba")
        self.assertLess(self.furthest(skipped, self.weights()), 1e-6)

    def test_running_means_are_those_of_the_first_rank_where_weights_are_looked_at(self):
        text = (RUN.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "sequential"\nlayers = [{ type = "linear", out = 16 }, { type = "batch_norm" },'
                            ' { type = "relu" }, { type = "linear", out = 3 }]')
                .replace('[model.dropout]\ntype = "standard"\np = 0.2\n', "").replace('eval_interval = "1ep"', 'eval_interval = "5ba"'))
        self.on(2, text + "keep_last = 50\n")
        seen = self.seen()
        for step in (5, 25):
            [file] = (self.run_folder / f"checkpoints/step-{step:08}").glob("model*.safetensors")
            found = json.loads(self.host("eval", "run.toml", "--weights", file, "--format", "json").stdout)
            self.assertAlmostEqual(found["val/loss"], seen[step, "val/loss"], delta=1e-6)

    # --- ranks of different speed

    def test_ranks_that_share_a_batch_unequally_train_as_one_does(self):
        """The last step of an epoch has 8 samples, which leaves nothing to the last ranks. Random numbers go by whole micro-batches."""
        self.on(1)
        alone = self.weights()
        for shares in ([3, 1], [1, 3], [1, 2, 1]):
            with self.subTest(shares=shares):
                self.on(len(shares), RUN + f"[distributed]\nshares = {shares}\n")
                self.assertLess(self.furthest(self.weights(), alone), 1e-6)
        # What a compressor sends of all elements is what all of them sum up to.
        whole = 'type = "topk"\ndensity = 1.0\nmin_compress_elements = 1\n'
        self.on(2, RUN + f"[distributed]\nshares = [1, 3]\n[distributed.compressor]\n{whole}")
        self.assertLess(self.furthest(self.weights(), alone), 1e-6)
        # One micro-batch a rank, of 10 and of 6 samples.
        text = RUN.replace(", micro_batch_size = 4", "").replace("p = 0.2", "p = 0.0")
        self.on(1, text)
        alone = self.weights()
        self.on(2, text + "[distributed]\nshares = [5, 3]\n")
        self.assertLess(self.furthest(self.weights(), alone), 1e-6)
        self.assertIn("micro 10 x accumulation 1", self.host("plan", "run.toml", "--ranks", 2).stdout)
        # Goes on with shares the other way round, and alone, which says so.
        self.host("resume", self.run_folder, "-q", "--ranks", 2, "--set", "distributed.shares=[3,5]", "--set", "trainer.max_duration=60ba")
        self.host("resume", self.run_folder, "-q", "--set", "trainer.max_duration=70ba")
        self.assertIn("one trains, which has the whole batch", (self.run_folder / "run.log").read_text())
        several, text = self.weights(), text.replace("50ba", "70ba")
        self.on(1, text)
        self.assertLess(self.furthest(several, self.weights()), 1e-6)

    def test_shares_that_do_not_fit_are_refused(self):
        for given, ranks, words in (("[2, 1]", 2, "a batch of 16 is no multiple of their sum, 3"), ("[2, 1, 1]", 2, "has 3 numbers, and 2 ranks train"),
                                    ("[1, 0]", 2, "0"), ("[1, 3]\n[data.train]\naccumulation = 2", 2, "accumulation 2 contradicts micro-batches of 4")):
            with self.subTest(given):
                self.write("more.toml", f"[distributed]\nshares = {given}\n")
                self.write("run.toml", RUN)
                said = self.host("validate", "run.toml", "more.toml", "--ranks", ranks, code=2).stderr
                self.assertIn(words, said)
        self.write("more.toml", "[distributed]\nshares = [1, 3]\n")
        self.host("validate", "run.toml", "more.toml", "--ranks", 2)
        self.assertIn("at most: distributed.shares", self.host("plan", "run.toml", "more.toml", "--ranks", 2).stdout)

    # --- what a step costs

    def counts(self, ranks, text):
        """Of steps that do nothing but train: exchanges, and looks at numbers that could lie on a device."""
        file = self.folder / "counts"
        self.on(ranks, text + f'[[hooks]]\ntype = "counting"\nfile = "{file}"\n', "--plugins", FAULTY, "--set", "trainer.max_duration=20ba",
                "--set", "trainer.eval_interval=1000ba", "--set", "checkpoint.interval=1000ba", "--set", "logging.interval=1000ba",
                TORCH_FR_BUFFER_SIZE="50")
        lines = [tuple(map(int, line.split())) for line in file.read_text().splitlines()]
        self.assertEqual([line[0] for line in lines], list(range(20)))
        return {line[1:] for line in lines[2:]}  # behind the first, which makes the buckets

    def test_a_step_is_an_exchange_a_bucket_and_the_host_looks_at_no_more_than_alone(self):
        wide = RUN.replace("layers = [8, 16, 3]", "layers = [8, 512, 512, 512, 3]")
        for text, buckets in ((RUN, 1), (wide, 2), (wide.replace("[optimizer]", "[distributed]\nbucket_cap_mb = 0.5\n[optimizer]"), 3)):  # 512 x 512 twice, and the rest
            with self.subTest(buckets=buckets):
                [(none, looks)] = self.counts(1, text)
                self.assertEqual(none, 0)
                self.assertEqual(self.counts(2, text), {(buckets, looks)})
        # A hook that may ask for something at before_step costs one more.
        self.assertEqual({exchanges for exchanges, _ in self.counts(2, RUN + ASKS + "step = 1000\n")}, {2})

    # --- what does not fit

    def test_batches_that_cannot_be_cut_are_refused(self):
        self.write("run.toml", RUN)
        said = self.host("validate", "run.toml", "--ranks", 3, code=2).stderr
        self.assertIn("E207", said)
        self.assertIn("x ranks 3", said)

    def test_ranks_that_were_started_differently_are_refused(self):
        said = self.unlike([("--set", "optimizer.lr=0.01"), ("--set", "optimizer.lr=0.02")], 2)
        self.assertRegex(said, "rank 1 differs from rank 0: it has lr = 0.02, and rank 0 has lr = 0.01")

    def unlike(self, words, code, text=RUN, folders=None, hosts=None):
        """Starts a rank with each of these words, in folders and with executables of their own; gives what they said."""
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
            place = {"WORLD_SIZE": str(len(words)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.getsockname()[1])}
        self.write("run.toml", text)
        started = []
        for rank, own in enumerate(words):
            command = self.command("train", self.folder / "run.toml", "-q", *own)
            if hosts is not None:
                command[0] = str(hosts[rank])
            started.append(subprocess.Popen(command, cwd=folders[rank] if folders else self.folder, text=True, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, env=self.environment(RANK=str(rank), **place)))
        said = "".join(each.communicate(timeout=60)[1] for each in started)
        self.assertEqual([each.returncode for each in started], [code] * len(words), said)
        return said

    def test_ranks_with_another_build_of_a_plugin_are_refused(self):
        [library] = FAULTY.rglob("libasking.so")
        built, other = library.read_bytes(), bytearray(library.read_bytes())
        mark = b"\x14\0\0\0\x03\0\0\0GNU\0"  # of the number that the linker gives to what it made
        other[built.index(mark) + len(mark)] ^= 1
        for folder, content in (("one", built), ("other", bytes(other))):
            file = self.write(f"{folder}/hook/libasking.so", content)
            subprocess.run([BUILD / "bin/trainyard-seal", file, SOURCE / "sdk/include"], check=True)
        said = self.unlike([("--plugins", self.folder / "one"), ("--plugins", self.folder / "other")], 2, RUN + ASKS)
        self.assertRegex(said, r"rank 1 differs from rank 0: it has plugin of hooks\S*: asking [0-9a-f]{64}, and rank 0 has plugin of hooks\S*: asking [0-9a-f]{64}")

    def test_ranks_with_another_release_of_libtorch_are_refused(self):
        other = self.folder / "other"
        (other / "bin").mkdir(parents=True)
        shutil.copy(BUILD / "bin/trainyard", other / "bin")
        (other / "lib").mkdir()
        for each in (BUILD / "lib").iterdir():
            if each.name != "libtrainyard_engine.so":
                (other / "lib" / each.name).symlink_to(each)
        engine = (BUILD / "lib/libtrainyard_engine.so").read_bytes()
        release = re.search(rb"LibTorch: (\d+\.\d+\.\d+)", engine)[1]
        for before, behind in ((b"LibTorch: " + release[:-1], b""), (release[1:-1], b"\nhost")):  # a compiler may store it in two parts
            engine = engine.replace(before + release[-1:] + behind, before + b"9" + behind)
        self.write("other/lib/libtrainyard_engine.so", engine)
        said = self.unlike([(), ()], 2, hosts=[BUILD / "bin/trainyard", other / "bin/trainyard"])
        release = release.decode()
        self.assertIn(f"rank 1 differs from rank 0: it has LibTorch: {release[:-1]}9, and rank 0 has LibTorch: {release}", said)

    def test_ranks_that_read_other_data_are_refused(self):
        # One name, which is another file for each process.
        text = ROWS.replace('path = "rows.csv"', 'path = "/proc/self/cwd/rows.csv"')
        for name, other in (("values", rows(feature=lambda row, column: row + column)), ("number", rows(32))):
            with self.subTest(name):
                folders = [self.write(f"{name}/{rank}/rows.csv", content).parent for rank, content in enumerate((rows(), other))]
                said = self.unlike([("--overwrite",), ("--overwrite",)], 4, text, folders)
                self.assertRegex(said, "rank 1 reads other data than rank 0: the (first batch|samples) of train differs?")

    def test_ranks_whose_data_differ_in_one_place_are_refused_and_told_where(self):
        lines = rows(120).splitlines(keepends=True)

        def others(**changed):
            return [changed.get(f"line_{number}", line) for number, line in enumerate(lines)]

        swapped = others(line_99=lines[102], line_102=lines[99])
        variants = [("first batch of train differs", others(line_2=lines[2][:-2] + "0\n")),  # a label
                    ("first batch of train differs", others(line_1="8" + lines[1][1:])),  # a value
                    # And what is read later: a label, a value, two rows of a class, a blank line.
                    ("classes of train differ", others(line_100=lines[100][:-2] + "0\n")),
                    ("file of data.train.path differs", others(line_100="9" + lines[100][1:])),
                    ("file of data.train.path differs", swapped),
                    (f"file of data.train.path differs ({len(''.join(lines)) + 1} bytes", [*lines, "\n"])]
        text = ROWS.replace('path = "rows.csv"', 'path = "/proc/self/cwd/rows.csv"').replace(
            "shuffle = true", "shuffle = false").replace(
            "train = { batch_size = 16", "train = { batch_size = 14, micro_batch_size = 2")
        contents = [lines, *(content for _, content in variants)]
        folders = [self.write(f"{rank}/rows.csv", "".join(each)).parent for rank, each in enumerate(contents)]
        said = self.unlike([("--overwrite",)] * len(folders), 4, text, folders)
        for rank, (expected, _) in enumerate(variants, 1):
            self.assertIn(f"rank {rank} reads other data than rank 0: the {expected}", said)

    def test_ranks_whose_folders_or_data_for_evaluations_differ_are_refused_and_told_where(self):
        def placed(text):
            return text.replace('path = "', 'path = "/proc/self/cwd/')

        evaluated = placed(ROWS.replace("batch_size = 16, shuffle", "batch_size = 18, shuffle").replace('path = "rows.csv"', "").replace("train = {", 'train = { path = "rows.csv",').replace(
            "val = {", 'val = { path = "val.csv", standardize_with = "/proc/self/cwd/statistics",'))
        val = rows(60).splitlines(keepends=True)
        val[50] = "8" + val[50][1:]
        images = placed(IMAGES.replace("shuffle = true", "shuffle = false"))
        begin, end = images.index('type = "image_folder"'), images.index("train = {")
        cached = (images[:begin] + 'type = "cache"\nof = [{ ' + images[begin:end].strip().replace("\n", ", ") + ', path = "/proc/self/cwd/train" }]\n'
                  + images[end:].replace('path = "/proc/self/cwd/train", ', "").replace('path = "/proc/self/cwd/val", ', ""))
        ranks = [self.folder / str(rank) for rank in range(4)]
        for rank, folder in enumerate(ranks):
            self.write(folder / "rows.csv", rows(60))
            self.write(folder / "val.csv", "".join(val) if rank == 1 else rows(60))
            self.write(folder / ("statistics/any" if rank == 2 else "statistics"), "1,2\n")
            for split in ("train", "val"):
                for i in range(40):
                    last = rank == 1 and split == "train" and i == 39
                    self.write(folder / split / ("day" if i < 20 else "night") / f"{i:02}.png", png((5 * i, 10, 21 if last else 20)))
        for text, expected in ((evaluated, ["file of data.val.path differs (1", "file of data.val.standardize_with differs (1 files of 4 bytes"]),
                               (images, ["file of data.train.path differs (40 files of "]),
                               (cached, ["file of data.train.of[0].path differs (40 files of "])):
            said = self.unlike([("--overwrite",)] * (1 + len(expected)), 4, text, ranks[:1 + len(expected)])
            for rank, each in enumerate(expected, 1):
                self.assertIn(f"rank {rank} reads other data than rank 0: the {each}", said)

    def test_copies_of_data_may_be_others_on_each_rank(self):
        text = ROWS.replace('type = "csv"\npath = "rows.csv"\nclasses = 3', """type = "graph"\nlayout = "synthetic"\ntask = "graph"
synthetic = { graphs = 80, nodes = 5, edges = 9, features = 2, classes = 3 }\nshares = [0.5, 0.5, 0.0]
keep_in = "/proc/self/cwd/kept" """).replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "gin"\nhidden = 4')
        folders = [self.write(f"{rank}/kept/of_rank_{rank}", str(rank)).parent.parent for rank in range(2)]
        self.unlike([("--overwrite",)] * 2, 0, text, folders)

    def test_a_plugin_that_writes_on_one_rank_alone_is_found_out(self):
        text = RUN + '[[hooks]]\ntype = "faulty"\nat = "after_step"\nstep = 50\ntouch = "model"\nrank = 1\n'
        said = self.on(2, text, "--plugins", FAULTY, code=6)["error"]
        self.assertIn("rank 1 has other weights than rank 0 at the end: a plugin writes", said)
        compressed = text.replace("step = 50", "step = 2") + '[distributed.compressor]\ntype = "fp16"\nmin_compress_elements = 1\n'
        said = self.on(2, compressed, "--plugins", FAULTY, "--set", "trainer.max_duration=2ba", code=6)["error"]
        self.assertIn("at the end: [distributed.compressor] fp16 gives them other sums, or a plugin writes", said)

    def test_a_loss_that_is_not_finite_on_one_rank_ends_all(self):
        text = RUN + '[[hooks]]\ntype = "poison"\ninto = "outputs"\nstep = 3\nrank = 1\n'
        said = self.on(2, text, "--plugins", FAULTY, "--set", "guard.nan=off", code=5)["error"]
        self.assertIn("the training loss is nan at step 3", said)

    # --- ranks that die

    def test_a_rank_that_is_killed_is_named_and_the_run_resumes_to_the_bit(self):
        text = RUN.replace('max_duration = "50ba"', f'max_duration = "{200 * KILLS}ba"')
        whole = self.on(4, text)
        shutil.rmtree(self.run_folder)
        chance, kills = random.Random(5), 0
        for attempt in range(KILLS):
            run = self.start("--ranks", 4, text=text)
            latest = self.run_folder / "checkpoints/latest"
            before = latest.read_text() if attempt > 0 else None
            self.until(lambda: run.poll() is not None or (latest.exists() and latest.read_text() != before))
            time.sleep(chance.uniform(0.0, 0.2))
            victim = chance.randrange(4)
            if run.poll() is not None:
                break
            pids = self.ranks_of(run.pid)
            os.kill(pids[victim], signal.SIGKILL)
            began = time.monotonic()
            said = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 6, said)
            self.assertLess(time.monotonic() - began, 10)
            self.assertIn(f"rank {victim} died by signal 9", said)
            kills += 1
        self.assertGreater(kills, 0)
        result = self.train(text, "--ranks", 4)
        self.assertEqual(result["digest"], whole["digest"])

    def test_a_first_rank_that_is_killed_before_the_ranks_meet_ends_the_others(self):
        run = self.start("--ranks", 2)
        self.until(lambda: len(self.ranks_of(run.pid)) == 2)
        os.kill(self.ranks_of(run.pid)[0], signal.SIGKILL)
        began = time.monotonic()
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 6, said)
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("rank 0 died by signal 9", said)

    def test_a_rank_that_ends_long_behind_the_first_looks_for_no_store_that_is_gone(self):
        late = '[[hooks]]\ntype = "faulty"\nat = "shutdown"\nway = "doze"\nrank = 1\n'
        self.on(2, RUN + late, "--plugins", FAULTY, TRAINYARD_DOZE="2", timeout=60)

    def test_where_another_program_starts_the_ranks_none_is_replaced_and_the_run_says_so(self):
        self.unlike([(), ()], 0, RUN.replace('type = "full"', 'type = "cpr"').replace("50ba", "2ba"))
        self.assertIn("a rank that is killed ends the run: `trainyard train --ranks` alone replaces it", (self.run_folder / "run.log").read_text())

    def test_a_rank_that_only_went_silent_is_told_and_waited_for(self):
        text = RUN.replace('max_duration = "50ba"', 'max_duration = "1000ba"')
        whole = self.on(2, text)
        shutil.rmtree(self.run_folder)
        run = self.start("--ranks", 2, text=text)
        self.until(lambda: (self.run_folder / "metrics.jsonl").exists())
        silent = self.ranks_of(run.pid)[1]
        os.kill(silent, signal.SIGSTOP)
        log = self.run_folder / "run.log"
        self.until(lambda: "rank 1 has given no sign of life for 8 s; the others wait for it" in log.read_text())
        os.kill(silent, signal.SIGCONT)
        run.terminate()
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 75, said)
        result = self.train(text, "--ranks", 2)
        self.assertEqual(result["digest"], whole["digest"])

    # --- swaps

    def live(self, ranks, more="", run=RUN):
        """A run that goes on until it is told to stop."""
        text = run.replace('max_duration = "50ba"', 'max_duration = "1000000ba"') + '[[hooks]]\ntype = "faulty"\n' + more
        run = self.start("--ranks", ranks, "--plugins", FAULTY, text=text)
        self.addCleanup(lambda: (run.poll() is None and run.send_signal(signal.SIGTERM), run.communicate(timeout=60)))
        until = time.monotonic() + 60
        while not (self.run_folder / "checkpoints/latest").exists():
            self.assertIsNone(run.poll(), "it ended by itself")
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        return run

    def journals(self, ranks, what):
        folders = [self.run_folder, *(self.run_folder / f"ranks/{rank}" for rank in range(1, ranks))]
        return [[line for line in map(json.loads, (folder / "journal.jsonl").read_text().splitlines()) if line["what"] == what]
                for folder in folders]

    def test_a_swap_is_made_by_all_ranks_at_one_step_or_by_none(self):
        run = self.live(4)
        self.host("ctl", "small", "swap", "optimizer", "sgd", "lr=0.001")
        refused = self.host("ctl", "small", "swap", "hooks.faulty", "faulty", "at=construction", "way=throw", "rank=2", code=2).stderr
        self.assertIn("rank 2: ", refused)
        began = time.monotonic()
        self.host("ctl", "small", "swap", "hooks.faulty", "faulty", "at=construction", "way=doze", "rank=1")
        self.assertGreater(time.monotonic() - began, LATE)
        self.host("ctl", "small", "eval")
        self.host("ctl", "small", "stop")
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0)
        swaps = self.journals(4, "swap")
        self.assertEqual([len(each) for each in swaps], [2] * 4)
        for swap in range(2):
            self.assertEqual(len({each[swap]["step"] for each in swaps}), 1)
        self.assertEqual([len(each) for each in self.journals(4, "swap_refused")], [1] * 4)

    def test_a_paused_run_of_two_ranks_obeys_as_one_of_a_single_rank_does(self):
        run = self.live(2)
        ctl = lambda *words: self.host("ctl", "--timeout", "20", "small", *words).stdout
        step = int(re.search(r"paused at step (\d+)", ctl("pause"))[1])
        self.assertIn(f"at step {step}; several ranks do not go back", ctl("set", "optimizer.lr=0.002"))
        self.assertIn(f"at step {step}", ctl("swap", "schedule", "cosine"))
        self.assertIn("saved in", ctl("checkpoint"))
        self.assertIn(f"step-{step:08}", (self.run_folder / "checkpoints/latest").read_text())
        self.assertIn(f"evaluated at step {step}", ctl("eval"))
        self.assertIn(f"paused at step {step}", ctl("pause"))  # once more
        self.assertIn(f"step {step} of", ctl("status"))
        self.assertIn(f"goes on at step {step}", ctl("resume"))
        self.assertIn("was not paused", ctl("resume"))
        self.assertIn("paused at step", ctl("pause"))
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 75)
        self.assertEqual([[line["step"] for line in each] for each in self.journals(2, "swap")], [[step, step]] * 2)
        self.assertEqual([len(each) for each in self.journals(2, "pause")], [2, 0])

    def test_data_that_the_network_cannot_take_are_refused_by_ranks_which_do_not_go_back(self):
        text = RUN.split("[model]")[0] + (
            '[model]\ntype = "sage"\nlayers = 2\nhidden = 4\n[loss]\ntype = "cross_entropy"\n'
            '[data]\ntype = "graph"\nlayout = "synthetic"\nmode = "subgraph"\n'
            'synthetic = { nodes = 256, edges = 1024, features = 4, classes = 3 }\ntrain = { batch_size = 16, shuffle = true }\n'
            '[optimizer]\ntype = "adam"\nlr = 0.01\n[trainer]\nmax_duration = "50ba"\n'
            '[checkpoint]\ntype = "full"\ninterval = "5ba"\n')
        run = self.live(2, run=text)
        refused = self.host("ctl", "small", "set", "data.mode=mfg", "data.fanouts=[3]", code=2).stderr
        self.assertRegex(refused, "rank [01]: .*2 layers")
        self.host("ctl", "small", "set", "data.synthetic.noise=0.5")
        self.host("ctl", "small", "stop")
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual([[len(self.journals(2, what)[rank]) for what in ("swap", "swap_refused")] for rank in (0, 1)], [[1, 1]] * 2)

    def test_a_rank_that_dies_while_it_prepares_a_swap_ends_the_run(self):
        run = self.live(4)
        self.host("ctl", "small", "swap", "hooks.faulty", "faulty", "at=construction", "way=segv", "rank=3", code=2)
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 6, said)
        self.assertIn("rank 3 died by signal 11", said)
        self.assertEqual(self.journals(4, "swap"), [[]] * 4)

    def test_a_compressor_hands_on_what_it_kept_back_or_the_run_says_what_is_lost(self):
        run = self.live(2, '[distributed.compressor]\ntype = "topk"\ndensity = 0.1\nmin_compress_elements = 1\n')
        log = self.run_folder / "run.log"
        lost = "has no place for what mstopk kept back of gradients (residual/0): it is lost"
        self.host("ctl", "small", "swap", "distributed.compressor", "mstopk", "density=0.1", "min_compress_elements=1")
        self.assertNotIn("kept back", log.read_text())
        self.host("ctl", "small", "swap", "distributed.compressor", "fp16", "min_compress_elements=1")
        self.host("ctl", "small", "stop")
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 0, said)
        self.assertIn(f"[distributed.compressor] fp16 {lost}", log.read_text())

    def test_a_rank_that_cannot_prepare_a_swap_leaves_no_other_waiting_for_a_group(self):
        options = ("local_world_size=1", "density=0.1", "min_compress_elements=1")
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                run = self.live(ranks, '[distributed.compressor]\ntype = "topk"\nmin_compress_elements = 1\n')
                ctl = lambda *words, code=0: self.host("ctl", "small", *words, code=code).stderr  # noqa: E731
                ctl("swap", "distributed.compressor", "hitopk", *options)
                # Ahead of its groups, as the hook is made first; ahead of the second one; and each time the next swap goes well.
                said = ctl("set", "hooks.faulty.at=construction", "hooks.faulty.way=throw", "hooks.faulty.rank=1", "distributed.compressor.density=0.2",
                           code=2)
                self.assertRegex(said, "refuses: rank 1: .*hook faulty .*its constructor threw: thrown on purpose")
                ctl("set", "distributed.compressor.density=0.3")
                said = ctl("swap", "distributed.compressor", "quitting", "at=1", "rank=1", code=2)
                self.assertIn("refuses: rank 1: [distributed.compressor] quitting: thrown on purpose", said)
                ctl("swap", "distributed.compressor", "quitting")
                ctl("swap", "distributed.compressor", "hitopk", *options)
                ctl("stop")
                said = run.communicate(timeout=60)[1]
                self.assertEqual(run.returncode, 0, said)
                self.assertEqual([len(each) for each in self.journals(ranks, "swap")], [4] * ranks)
                self.assertEqual([len(each) for each in self.journals(ranks, "swap_refused")], [2] * ranks)
                shutil.rmtree(self.run_folder)

    def test_a_run_with_a_compressor_is_used_and_gone_on_with_by_one_rank(self):
        text = RUN + '[distributed.compressor]\ntype = "topk"\ndensity = 0.1\nmin_compress_elements = 1\n'
        self.on(2, text)
        self.assert_used_alone()
        text += planned(20, "distributed.compressor", "mstopk", 0, density=0.2) + planned(55, "distributed.compressor", "topk", 0, density=0.1)
        self.on(2, text)
        self.assertEqual(len(self.lines("journal.jsonl", "swap")), 1)
        self.assert_used_alone()
        said = self.host("validate", "run.toml", code=2).stderr
        self.assertIn("needs a run of several ranks", said)
        said = self.host("resume", "runs/small", "-q", "--set", "trainer.max_duration=60ba").stderr
        self.assertIn("distributed.compressor is left out: a single rank has no gradients to sum", said)
        self.assertEqual(self.result()["steps"], 60)
        (changed,) = [line["why"] for line in self.lines("journal.jsonl", "resume") if "compressor.type" in line["why"]]
        self.assertIn('"topk" -> (none)', changed)
        self.assertEqual(len(self.lines("journal.jsonl", "swap", "swap_refused")), 1)
        self.host("train", "runs/small/config.toml", "-q", "--set", "trainer.max_duration=65ba")

    # --- signals, requests

    def test_what_one_rank_asks_for_behind_the_sum_all_ranks_do(self):
        for ask in ("skip_step", "repeat_step"):
            asks = f'[[hooks]]\ntype = "asking"\nask = "{ask}"\nat = "before_step"\nstep = 3\nperiod = 7\nrank = '
            all_ask = self.on(2, RUN + asks + "-1\n", "--plugins", FAULTY)
            for rank in (0, 1):
                with self.subTest(ask=ask, rank=rank):
                    self.assertEqual(self.on(2, RUN + asks + f"{rank}\n", "--plugins", FAULTY)["digest"], all_ask["digest"])
            if ask == "skip_step":
                self.assertNotEqual(self.on(2)["digest"], all_ask["digest"])

    def test_what_one_rank_asks_for_all_ranks_do(self):
        text = RUN.replace('max_duration = "50ba"', 'max_duration = "1000000ba"') + ASKS
        result = self.on(2, text, "--plugins", FAULTY)
        self.assertEqual(result["status"], "stopped")
        self.assertLess(result["steps"], 12)

    def test_a_rule_scales_the_rate_of_all_ranks_at_the_same_step(self):
        """Its threads come to it at other times. A run ends with an error where the weights of the ranks differ."""
        rule = '[[rules]]\ntype = "probe"\nevery = "1ba"\nfire_at = 0\nrepeat = true\n'
        rule += 'action = "lr_scale"\nlr_scale = 0.97\n'
        result = self.on(2, RUN + rule, "--plugins", FAULTY)
        scaled = [float(re.search(r"multiplied by (\S+)", line["why"])[1]) for line in self.journals(2, "lr_scale")[1]]
        self.assertEqual(scaled, sorted(scaled, reverse=True))
        self.assertAlmostEqual(result["metrics"]["lr"], 0.01 * scaled[-1], 6)
        self.assertLess(scaled[-1], 0.9)

    def test_a_rule_that_one_rank_does_not_take_leaves_no_other_waiting_for_a_rate(self):
        rule = '[[rules]]\ntype = "probe"\nevery = "1ba"\n'
        swap = '[[swap]]\nat = "3ba"\nslot = "rules.probe"\naction = "lr_scale"\nlr_scale = 0.5\nrefused_by = 1\n'
        expected = self.on(2, RUN + rule, "--plugins", FAULTY)["digest"]
        result = self.on(2, RUN + rule + swap, "--plugins", FAULTY)
        self.assertEqual(result["swaps"], {"made": 0, "refused": 1, "rolled_back": 0})
        self.assertEqual(result["digest"], expected)

    def test_what_a_compressor_kept_back_at_the_end_is_where_the_log_says(self):
        text = RUN.replace("50ba", "12ba") + '[distributed.compressor]\ntype = "topk"\ndensity = 0.1\nmin_compress_elements = 1\n'
        longer = self.on(2, text.replace("12ba", "20ba"))["digest"]
        for file in (text, text.replace('interval = "5ba"\n', "")):
            shutil.rmtree(self.run_folder)
            self.on(2, file)
            self.assertRegex((self.run_folder / "run.log").read_text(),
                             r"gradients of norm \d+\.\d+ are kept back: the last checkpoint has them, the weights have not")
            self.assertEqual(self.train(file.replace("12ba", "20ba"), "--ranks", 2, "--set", "run.resume=auto")["digest"], longer)

    def test_a_request_that_waits_for_the_others_is_in_the_checkpoint(self):
        place = self.folder / "place"
        text = RUN + f'[[hooks]]\ntype = "asking"\nat = "safe_point"\nstep = 10\nrank = 1\n[[hooks]]\ntype = "killer"\nplace = "{place}"\n'
        whole = self.on(2, text, "--plugins", FAULTY)
        self.assertEqual((whole["status"], whole["steps"]), ("stopped", 11))
        shutil.rmtree(self.run_folder)
        self.write("place", "batch_end 11")  # in the step that tells everybody
        run = self.start("--ranks", 2, "--plugins", FAULTY, text=text)
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 6, said)
        place.unlink()
        result = self.train(text, "--ranks", 2, "--plugins", FAULTY)
        self.assertEqual((result["status"], result["steps"], result["digest"]), ("stopped", 11, whole["digest"]))

    def test_a_signal_stops_all_ranks_at_one_step_and_the_run_goes_on(self):
        text = RUN.replace('max_duration = "50ba"', 'max_duration = "500ba"')
        whole = self.on(2, text)
        for who in ("launcher", 0, 1):  # of a rank alone, the others hear
            with self.subTest(who=who):
                shutil.rmtree(self.run_folder)
                run = self.start("--ranks", 2, text=text)
                self.until((self.run_folder / "checkpoints/latest").exists)
                os.kill(run.pid if who == "launcher" else self.ranks_of(run.pid)[who], signal.SIGTERM)
                run.communicate(timeout=60)
                self.assertEqual(run.returncode, 75)
                self.assertEqual(self.train(text, "--ranks", 2)["digest"], whole["digest"])


if __name__ == "__main__":
    unittest.main()
