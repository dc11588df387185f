"""Bad data and bad surroundings: one clear message, the right exit code, nothing half-written."""
import gzip
import json
import os
import shutil
import subprocess
import time
import unittest

from support.host import BUILD, FAULTY, ROWS, SMALL, SPARSE, HostTest, rows

CONFIG, PLUGIN, FAILED_DATA, NUMERIC = 2, 3, 4, 5


class BadData(HostTest):
    def refused(self, code, text, *expected, **files):
        """Trains and fails; the message is the last line printed and holds all of `expected`."""
        for name, content in files.items():
            self.write(name.replace("__", "."), content)
        self.write("run.toml", text)
        done = self.host("train", "run.toml", "-q", code=code)
        for word in expected:
            self.assertIn(word, done.stderr)
        self.assertNotIn("internal error", done.stderr)
        self.assertNotIn("terminate called", done.stderr)
        run = self.folder / "runs/small"
        if run.exists():
            result = self.result()
            self.assertEqual((result["status"], result["exit_code"]), ("failed", code))
            self.assertIsNone(result["digest"]["model"])
            self.assertIn(result["error"], done.stderr)
            self.assertEqual(done.stderr.count(result["error"]), 1)
            self.assertFalse((run / "model.safetensors").exists())
            self.assertFalse(list(run.glob("*.tmp")))
        return done.stderr

    def test_a_good_file_trains(self):
        self.write("rows.csv", rows())
        self.assertEqual(self.train(ROWS)["status"], "completed")

    def test_missing_file(self):
        self.refused(CONFIG, ROWS, "rows.csv does not exist")
        self.assertFalse((self.folder / "runs").exists())

    def test_a_slip_is_answered_where_it_stands(self):
        self.write("table.csv", rows().replace(",", ";"))
        for text, code, words in ((SMALL.replace('"adamw"', '"adamW"'), CONFIG, ("did you mean `adamw`?",)),
                                  (SMALL.replace("schema = 1", "shcema = 1"), CONFIG, ("run.toml:2:1: E103", "shcema = 1", "begin it with: schema = 1")),
                                  ("\x08\x07\x12\x07pytorch\x1a\x052.1.0", CONFIG, ("run.toml: E102 is no text", "is this the right file?")),
                                  (ROWS.replace("rows.csv", "table.csv"), FAILED_DATA, ('set separator = ";"',))):
            self.write("run.toml", text)
            said = self.host("validate", "run.toml", code=code).stderr
            for word in words:
                self.assertIn(word, said)
            self.assertNotIn("pytorch", said)

    def test_a_name_that_is_no_run_is_answered_with_those_there_are(self):
        self.train(SMALL)
        for words in ("predict", "smal", "new.csv"), ("resume", "smal"), ("eval", "smal"):
            self.assertIn("smal does not exist; did you mean `small`?   runs/ has: small", self.host(*words, code=2).stderr)

    def test_truncated_gz(self):
        packed = gzip.compress(rows(2000).encode(), mtime=0)
        self.refused(FAILED_DATA, ROWS.replace("rows.csv", "rows.csv.gz"), "rows.csv.gz", "trunc",
                     rows__csv__gz=packed[:len(packed) // 2])

    def test_damaged_gz(self):
        packed = bytearray(gzip.compress(rows(2000).encode(), mtime=0))
        packed[len(packed) // 2] ^= 0xFF
        self.refused(FAILED_DATA, ROWS.replace("rows.csv", "rows.csv.gz"), "rows.csv.gz", rows__csv__gz=bytes(packed))

    def test_label_out_of_range(self):
        self.refused(FAILED_DATA, ROWS, "rows.csv", "18", rows__csv=rows(label=lambda row: 3 if row == 17 else row % 3))

    def test_negative_label(self):
        self.refused(FAILED_DATA, ROWS, "rows.csv", "-1", rows__csv=rows(label=lambda row: -1 if row == 4 else row % 3))

    def test_nan_in_data(self):
        for bad in ("nan", "inf"):
            self.refused(FAILED_DATA, ROWS, "rows.csv", bad,
                         rows__csv=rows(feature=lambda row, column: bad if (row, column) == (5, 2) else row + column))
            shutil.rmtree(self.folder / "runs")

    def test_text_where_a_number_should_be(self):
        self.refused(FAILED_DATA, ROWS, "rows.csv", "oops",
                     rows__csv=rows(feature=lambda row, column: "oops" if (row, column) == (5, 2) else row + column))

    def test_splits_of_different_samples(self):
        narrow = "\n".join(line.split(",", 1)[1] for line in rows().splitlines()) + "\n"
        of_two = ROWS.replace("val = { ", 'val = { path = "narrow.csv", ')
        self.refused(FAILED_DATA, of_two, "narrow.csv:1: found 8 columns, expected 9", rows__csv=rows(), narrow__csv=narrow)
        shutil.rmtree(self.folder / "runs")
        self.refused(FAILED_DATA, SMALL.replace("val = { size", "val = { shape = [7], size"), "[data.val] the shape of input",
                     "is [7], in [data.train] it is [8]")

    def test_empty_file(self):
        self.refused(FAILED_DATA, ROWS, "rows.csv", rows__csv="")

    def test_a_directory_in_place_of_a_file(self):
        (self.folder / "rows.csv").mkdir()
        self.refused(FAILED_DATA, ROWS, "rows.csv")

    def test_features_that_do_not_fit_the_model(self):
        self.refused(CONFIG, ROWS.replace("[8, 16, 3]", "[9, 16, 3]"), "layers", "9", "8", rows__csv=rows())

    def test_validate_sees_what_does_not_fit(self):
        """Unless it is told to look at the file alone. A GPU that is not here is no reason to leave it out."""
        self.write("rows.csv", rows())
        for name, text, words in (("widths", ROWS.replace("[8, 16, 3]", "[9, 16, 3]"), ("layers", "9", "8")),
                                  ("loss", ROWS.replace("cross_entropy", "mse"), ("mse",)),
                                  ("gpu", ROWS.replace("[8, 16, 3]", "[9, 16, 3]").replace("seed = 3", 'seed = 3\ndevice = "cuda"'), ("layers", "9", "8"))):
            with self.subTest(name):
                self.write("run.toml", text)
                message = self.host("validate", "run.toml", code=CONFIG).stderr
                for word in words:
                    self.assertIn(word, message)
                self.assertIn("valid", self.host("validate", "run.toml", "--level", "files").stdout)
        self.assertFalse((self.folder / "runs").exists())
        self.write("run.toml", ROWS)
        self.assertIn("valid", self.host("validate", "run.toml").stdout)
        self.write("rows.csv", "not,a,table\n")
        self.assertIn("rows.csv", self.host("validate", "run.toml", code=FAILED_DATA).stderr)

    def test_a_loss_that_does_not_fit_the_data(self):
        self.refused(CONFIG, ROWS.replace("cross_entropy", "mse"), "mse", rows__csv=rows())

    def test_batch_larger_than_the_data(self):
        text = ROWS.replace("batch_size = 16, shuffle = true", "batch_size = 1000, shuffle = true")
        self.refused(CONFIG, text, "data.train.batch_size = 1000", "24 samples", rows__csv=rows())
        # All of the data in one batch is a choice.
        shutil.rmtree(self.folder / "runs")
        self.assertEqual(self.train(text.replace("1000", "24"))["steps"], 2)

    def test_a_loss_that_explodes(self):
        text = SMALL.replace('type = "adamw"\nlr = 0.01', 'type = "sgd"\nlr = 1e30')
        self.refused(NUMERIC, text, "the training loss is", "at step", "optimizer.lr")

    def test_no_gpu(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("this machine may have a GPU")
        message = self.refused(CONFIG, SMALL.replace("seed = 3", 'seed = 3\ndevice = "cuda"'), 'run.device = "cuda:0"',
                               'set run.device = "cpu"')
        self.assertEqual(len(message.strip().splitlines()), 1, message)


    def test_data_after_gzip_data(self):
        packed = gzip.compress(rows().encode(), mtime=0)
        text = ROWS.replace("rows.csv", "rows.csv.gz")
        self.refused(FAILED_DATA, text, f"rows.csv.gz: byte {len(packed)}", rows__csv__gz=packed + b"0,0,0,0,0,0,0,0,1\n")
        shutil.rmtree(self.folder / "runs")
        self.write("rows.csv.gz", packed + packed)
        self.assertEqual(self.train(text)["status"], "completed")

    def test_rows_of_few_features(self):
        """Each mistake is told with its line; what is right is told to a model that cannot take it."""
        good = "2 9 3\n0,2 1:1 8:0.5\n1 2:1\n"
        for bad, place in ((good.replace("0,2", "0,3"), "rows.txt:2:3: label 3"), (good.replace("8:", "9:"), "rows.txt:2:9: feature 9"),
                           (good.replace("2:1", "2:nan"), "rows.txt:3:5: 'nan'"), (good.replace("8:", "1:"), "rows.txt:2: feature 1"),
                           (good.replace("2 9", "3 9"), "names 3 samples"), (good.replace("2 9", "1 9"), "rows.txt:3: "), ("", "rows.txt")):
            self.refused(FAILED_DATA, SPARSE, place, rows__txt=bad)
            shutil.rmtree(self.folder / "runs")
        self.refused(FAILED_DATA, SPARSE.replace("rows.txt", "rows.txt.gz"), "rows.txt.gz", "trunc",
                     rows__txt__gz=gzip.compress(good.encode(), mtime=0)[:-9])
        shutil.rmtree(self.folder / "runs")
        self.refused(CONFIG, SPARSE, "[model]", "free rows", rows__txt=good)

    def test_a_pipe_in_place_of_a_file(self):
        """Nobody writes into it: who waited for it would wait for ever."""
        os.mkfifo(self.folder / "rows.csv")
        os.mkfifo(self.folder / "pipe.toml")
        self.refused(CONFIG, ROWS, "rows.csv is a pipe, not a file")
        self.assertFalse((self.folder / "runs").exists())
        for verb in ("validate", "plan", "train"):
            self.assertIn("pipe.toml: E101 is a pipe", self.host(verb, "pipe.toml", code=CONFIG).stderr)
        self.write("run.toml", SMALL)
        self.host("eval", "run.toml", "--weights", "pipe.toml", code=FAILED_DATA)


class LongDurations(HostTest):
    """From 2^63 on no integer holds the steps: they are more than any run takes, not fewer than none."""

    def test_a_run_of_such_a_length_goes_on_until_something_else_ends_it(self):
        for number, length in enumerate(("1e19ba", "99999999999999999999ep", "1e300sp")):
            self.write("run.toml", SMALL)
            run = f"runs/{number}"
            self.host("train", "run.toml", "-q", "--set", f"trainer.max_duration={length}", "--set", "trainer.max_wall_time=0.2s",
                      "--set", f"run.output_dir={run}", code=75)
            result = self.result(run)
            self.assertEqual(result["status"], "interrupted")
            self.assertGreater(result["steps"], 10)

    def test_what_is_due_after_it_never_comes(self):
        far = "99999999999999999999"
        text = SMALL + f"""
[checkpoint]
interval = "{far}ba"
[[swap]]
at = "{far}ba"
slot = "optimizer"
lr = 0.5
[schedule]
type = "step"
every = "{far}ep"
sampling = "1ba"
"""
        plain = self.train(SMALL)
        shutil.rmtree(self.folder / "runs")
        result = self.train(text, "--set", f"logging.interval={far}sp", "--set", f"guard.deadline={far}d")
        self.assertEqual((result["status"], result["steps"]), ("completed", 8))
        self.assertEqual(result["digest"]["model"], plain["digest"]["model"])
        self.assertNotIn("swap", (self.folder / "runs/small/journal.jsonl").read_text())


class BadPlugins(HostTest):
    def damaged(self):
        """A folder with a plugin of which the second half is missing."""
        whole = next((BUILD / "lib/trainyard/plugins").rglob("libconstant.so")).read_bytes()
        return self.write("mine/librex2.so", whole[:len(whole) // 2]).parent

    def test_a_damaged_file_is_named(self):
        folder = self.damaged()
        self.write("run.toml", SMALL + '[schedule]\ntype = "rex2"\n')
        message = self.host("validate", "run.toml", "--plugins", folder, code=CONFIG).stderr
        self.assertIn('the schedule plugin "rex2" cannot be used', message)
        self.assertIn("mine/librex2.so: is truncated or damaged", message)
        for words in (["list"], ["list", "--format", "json"], ["inspect", "schedule/rex2"]):
            done = self.host("plugins", *words, "--plugins", folder, code=PLUGIN)
            self.assertIn("mine/librex2.so: is truncated or damaged", done.stdout + done.stderr)

    def test_a_time_that_nobody_waits_for(self):
        for seconds in ("0", "1000001"):
            self.assertIn("--timeout", self.host("ctl", self.folder, "status", "--timeout", seconds, code=CONFIG).stderr)

    def test_inspect_tells_all_that_a_plugin_says_of_itself(self):
        [swa] = json.loads(self.host("plugins", "inspect", "hook/swa", "--format", "json").stdout)
        self.assertLess({"kind", "name", "version", "summary", "path", "needs", "conflicts", "options", "hooks"}, swa.keys())

    def test_a_folder_that_is_not_there(self):
        self.write("run.toml", SMALL)
        for words in (["validate", "run.toml"], ["train", "run.toml"], ["plugins", "list"], ["plugins", "inspect", "rex"]):
            for folder in ("nowhere", "run.toml"):
                self.assertIn(f"--plugins names {folder}", self.host(*words, "--plugins", folder, code=CONFIG).stderr)
                self.assertIn(f"TRAINYARD_PLUGINS names {folder}", self.host(*words, code=CONFIG, TRAINYARD_PLUGINS=folder).stderr)
        self.write("run.toml", SMALL + '[plugins]\npaths = ["nowhere"]\n')
        self.assertRegex(self.host("validate", "run.toml", code=CONFIG).stderr, r"run.toml:\d+:10: E401 plugins.paths: there is no folder")
        self.assertFalse((self.folder / "runs").exists())


class OwnFiles(HostTest):
    def test_a_sink_takes_no_file_of_the_run(self):
        """Whatever a run leaves behind, and a sink did not write, is the run's."""
        text = SMALL + '[[logging.sinks]]\ntype = "tensorboard"\n[[rules]]\ntype = "dead_relu"\n[checkpoint]\ninterval = "1ep"\n'
        self.train(text)
        names = {path.name for path in (self.folder / "runs/small").iterdir()} - {"metrics.jsonl"}
        self.assertLess({"config.toml", "journal.jsonl", "result.json", "run.log", "checkpoints", "trial", "model.safetensors"}, names)
        for name in (*names, "ctl.sock", "report.json", "quarantine.json"):
            for written in (name, f"./{name}", f"x/../{name}", f"{name}/x"):
                with self.subTest(written):
                    message = self.host("validate", "run.toml", "--set", f"logging.sinks.0.file={written}", code=CONFIG).stderr
                    self.assertIn("E403 logging.sinks[0].file", message)
        self.host("validate", "run.toml", "--set", "logging.sinks.0.file=other.jsonl")


class BadSurroundings(HostTest):
    def test_output_dir_is_a_file(self):
        self.write("runs", "in the way")
        self.write("run.toml", SMALL)
        self.assertIn("runs", self.host("train", "run.toml", code=CONFIG).stderr)
        self.assertEqual((self.folder / "runs").read_text(), "in the way")

    def test_output_dir_cannot_be_made(self):
        self.write("run.toml", SMALL)
        done = subprocess.run(self.command("train", "run.toml", "--set", "run.output_dir=/proc/none/here"), cwd=self.folder,
                              env=self.environment(), text=True, capture_output=True)
        self.assertIn(done.returncode, (CONFIG, FAILED_DATA))
        self.assertIn("/proc", done.stderr)

    def test_a_foreign_folder_is_left_alone(self):
        self.write("runs/small/thesis.tex", "years of work")
        self.write("run.toml", SMALL)
        for words in ((), ("--overwrite",)):
            self.host("train", "run.toml", *words, code=CONFIG)
            self.assertEqual((self.folder / "runs/small/thesis.tex").read_text(), "years of work")

    def full_disk(self, size):
        """A file system of so many bytes; skips the test where it may not be mounted."""
        mount = self.folder / "disk"
        mount.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"no file system may be mounted: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", str(mount)], check=True)
        return mount

    def test_a_disk_without_room_for_checkpoints(self):
        mount = self.full_disk("64k")
        self.write("run.toml", SMALL.replace("[8, 16, 3]", "[8, 8000, 3]"))  # weights of 384 kB
        done = self.host("train", "run.toml", "-q", "--set", f"run.output_dir={mount}/run", code=CONFIG)
        self.assertIn("room for three is needed", done.stderr)
        self.assertFalse((mount / "run/model.safetensors").exists())

    def test_a_disk_that_fills_up(self):
        mount = self.full_disk("8m")
        checkpoints = '[checkpoint]\ninterval = "1ba"\nkeep_last = 1000\n'  # of 1.2 MB each
        self.write("run.toml", SMALL.replace("[8, 16, 3]", "[8, 8000, 3]").replace('"2ep"', '"100ep"') + checkpoints)
        done = self.host("train", "run.toml", "-q", "--set", f"run.output_dir={mount}/run", code=FAILED_DATA)
        self.assertIn("No space left on device", done.stderr)
        self.assertFalse((mount / "run/model.safetensors").exists())
        self.assertFalse(list((mount / "run").rglob("*.tmp*")))
        if (mount / "run/result.json").exists():
            self.assertEqual(self.result(mount / "run")["status"], "failed")
        self.assertGreaterEqual(self.host("ckpt", "verify", mount / "run").stdout.count(": whole"), 3)

    def test_a_file_that_may_not_grow(self):
        """Past `ulimit -f` a write fails; by itself its signal would end the process without a word."""
        self.write("run.toml", SMALL.replace("[8, 16, 3]", "[8, 80000, 3]") + '[checkpoint]\ninterval = "1ba"\n')  # weights of 3.8 MB
        done = subprocess.run(["bash", "-c", 'ulimit -f 2000; exec "$@"', "bash", *self.command("train", "run.toml", "-q")], cwd=self.folder,
                              env=self.environment(), text=True, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, FAILED_DATA, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(self.result()["status"], "failed")

    def test_a_folder_that_is_removed_ends_the_run(self):
        """It is noticed by whatever comes first: a log point, an evaluation or a checkpoint."""
        never, folder = "900000ep", self.folder / "runs/small"
        for what, first in (("logging.interval", "metrics.jsonl"), ("trainer.eval_interval", "metrics.jsonl"), ("checkpoint.interval", "checkpoints/latest")):
            with self.subTest(what):
                slow = SMALL.replace('type = "cross_entropy"', 'type = "delayed"\nseconds = 0.02')  # so that no checkpoint is half written
                self.write("run.toml", slow.replace('"2ep"', '"1000000ep"').replace('"1ep"', f'"{never}"')
                           + f'[logging]\ninterval = "{never}"\n[checkpoint]\ninterval = "{never}"\n')
                run = subprocess.Popen(self.command("train", "run.toml", "-q", "--plugins", FAULTY, "--set", what + "=25ba"), cwd=self.folder,
                                       env=self.environment(), text=True, stderr=subprocess.PIPE)
                while run.poll() is None and not ((folder / first).exists() and (folder / first).stat().st_size > 0):
                    time.sleep(0.01)
                shutil.rmtree(folder)
                said = run.communicate(timeout=30)[1]
                self.assertEqual(run.returncode, FAILED_DATA, said)
                self.assertIn("the run's folder 'runs/small' was removed while the run went on", said)
                shutil.rmtree(folder, ignore_errors=True)

    def test_standard_output_is_full(self):
        """Nobody reads what is printed: the training ends as it would."""
        self.write("run.toml", SMALL + '[[logging.sinks]]\ntype = "console"\n')
        with open("/dev/full", "w") as full:
            done = subprocess.run(self.command("train", "run.toml"), cwd=self.folder, env=self.environment(), text=True,
                                  stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.result()["status"], "completed")


if __name__ == "__main__":
    unittest.main()
