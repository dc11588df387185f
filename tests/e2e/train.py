"""The trainyard executable as a user meets it: training, its result, its run directory, its signals."""
import json
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest
import xml.etree.ElementTree

from support.host import ROWS, SMALL, TRAINYARD, HostTest, rows, tensors


class Training(HostTest):
    def test_two_runs_give_the_same_bits(self):
        first = self.train(SMALL)
        second = self.train(SMALL, "--overwrite")
        self.assertRegex(first["digest"]["model"], "^[0-9a-f]{64}$")
        self.assertEqual(first["digest"], second["digest"])
        self.assertEqual(first["status"], "completed")
        self.assertEqual((first["steps"], first["epochs"], first["samples"]), (8, 2, 128))
        other = self.train(SMALL, "--overwrite", "--set", "run.seed=4")
        self.assertNotEqual(first["digest"]["model"], other["digest"]["model"])

    def test_the_resolved_file_trains_to_the_same_bits(self):
        first = self.train(SMALL)
        shown = self.host("config", "show", "run.toml").stdout
        self.write("shown.toml", shown)
        self.host("train", "shown.toml", "-q", "--overwrite")
        self.assertEqual(self.result()["digest"], first["digest"])
        # The run directory keeps the same file.
        (self.folder / "kept.toml").write_text((self.folder / "runs/small/config.toml").read_text())
        self.host("train", "kept.toml", "-q", "--overwrite")
        self.assertEqual(self.result()["digest"], first["digest"])

    def test_who_works_takes_time(self):
        plugins = self.train(SMALL, "--set", "trainer.max_duration=100ba")["plugins"]  # one step of 32 is timed
        for kind in ("dataset", "model", "loss", "optimizer"):
            self.assertGreater(sum(each["seconds"] for each in plugins if each["kind"] == kind), 0.0, plugins)

    def test_averages_of_what_gets_no_gradient_any_more_come_to_zero(self):
        """A feature is 0 from the second of a thousand steps on. In IEEE 754 nine tenths of the least number there is are that number again."""
        self.write("rows.csv", rows(1000, feature=lambda row, column: float(column > 0 or row == 0)))
        for keys, is_denormal in (((), False), (("--set", "run.threads.flush_denormals=false"), True)):
            with self.subTest(keys):
                self.train(ROWS.replace("shuffle = true", "shuffle = false").replace("train = { batch_size = 16", "train = { batch_size = 1"), "--overwrite",
                           "--set", "trainer.max_duration=1ep", "--set", "checkpoint.type=full", *keys)
                (state,) = (self.folder / "runs/small/checkpoints").glob("step-*/optimizer.safetensors")
                sizes = {abs(number) for name, data in tensors(state).items() if "exp_avg" in name for (number,) in struct.iter_unpack("<f", data)}
                self.assertGreater(len(sizes), 10)
                self.assertEqual(min(sizes - {0.0}) < 1.17e-38, is_denormal)

    def test_set_changes_a_key(self):
        self.train(SMALL, "--set", "trainer.max_duration=3ba", "--set", "run.name=other", run="runs/other")
        self.assertEqual(self.result("runs/other")["steps"], 3)
        refused = self.host("train", "run.toml", "--set", "optimizer.rl=1", code=2)
        self.assertIn("unknown key `rl` in [optimizer]", refused.stderr)

    def test_a_part_of_the_samples_is_trained_on(self):
        part = self.train(SMALL, "--set", "data.train.take=all but fold 1 of 4")
        self.assertEqual((part["steps"], part["samples"]), (6, 96))
        other = self.train(SMALL, "--overwrite", "--set", "data.train.take=all but fold 2 of 4")
        self.assertNotEqual(part["digest"]["model"], other["digest"]["model"])
        refused = self.host("train", "run.toml", "--overwrite", "--set", "data.train.take=first 65", code=2)
        self.assertIn('data.train.take = "first 65" asks for 65 samples, and there are 64', refused.stderr)

    def test_a_run_is_not_overwritten_without_a_word(self):
        before = self.train(SMALL)
        refused = self.host("train", "run.toml", "--set", "run.seed=9", code=2)
        self.assertIn("--overwrite", refused.stderr)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1, refused.stderr)
        self.assertEqual(self.result()["digest"], before["digest"])

    def test_the_run_directory_holds_what_it_should(self):
        self.train(SMALL)
        run = self.folder / "runs/small"
        names = sorted(path.name for path in run.iterdir())
        for name in ("config.toml", "journal.jsonl", "metrics.jsonl", "model.safetensors", "result.json", "run.log"):
            self.assertIn(name, names)
        self.assertFalse([name for name in names if name.endswith(".tmp")])
        for line in (run / "metrics.jsonl").read_text().splitlines():
            json.loads(line)

    def test_eval_reproduces_the_last_evaluation_of_training(self):
        trained = self.train(SMALL)["metrics"]
        found = json.loads(self.host("eval", "run.toml", "--format", "json").stdout)
        for key in ("val/loss", "val/accuracy"):
            self.assertEqual(found[key], trained[key])
        self.assertIn("val/accuracy", self.host("eval", "run.toml").stdout)
        weights = self.folder / "runs/small/model.safetensors"
        weights.rename(self.folder / "elsewhere.safetensors")
        missing = self.host("eval", "run.toml", code=4)
        self.assertIn("model.safetensors", missing.stderr)
        moved = json.loads(self.host("eval", "run.toml", "--format", "json", "--weights", "elsewhere.safetensors").stdout)
        self.assertEqual(found, moved)
        cut = (self.folder / "elsewhere.safetensors").read_bytes()[:-4]
        self.write("cut.safetensors", cut)
        self.assertIn("cut.safetensors", self.host("eval", "run.toml", "--weights", "cut.safetensors", code=4).stderr)
        other = self.host("eval", "run.toml", "--weights", "elsewhere.safetensors", "--set", "model.layers=[8, 5, 3]", code=2)
        self.assertIn("elsewhere.safetensors", other.stderr)

    def test_the_weights_are_a_safetensors_file(self):
        self.train(SMALL)
        bytes_ = (self.folder / "runs/small/model.safetensors").read_bytes()
        length = struct.unpack("<Q", bytes_[:8])[0]
        header = json.loads(bytes_[8:8 + length])
        header.pop("__metadata__", None)
        shapes = {name: entry["shape"] for name, entry in header.items()}
        self.assertEqual(shapes, {"fc1.weight": [16, 8], "fc1.bias": [16], "fc2.weight": [3, 16], "fc2.bias": [3]})
        self.assertEqual(max(entry["data_offsets"][1] for entry in header.values()), len(bytes_) - 8 - length)

    def test_the_weights_are_read_by_the_safetensors_package(self):
        try:
            from safetensors.numpy import load_file
        except ImportError as error:
            self.skipTest(str(error))
        self.train(SMALL)
        weights = load_file(self.folder / "runs/small/model.safetensors")
        self.assertEqual(weights["fc1.weight"].shape, (16, 8))

    def interrupted(self, number, begun):
        """Sends a signal to a run without end once begun() is true of its folder; gives its result.json."""
        self.write("run.toml", SMALL.replace('"2ep"', '"100000ep"').replace('eval_interval = "1ep"', ""))
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        running = subprocess.Popen(self.command("train", "run.toml", "-q"), cwd=self.folder, env=self.environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(running.kill)
        for _ in range(12000):
            if begun(self.folder / "runs/small") or running.poll() is not None:
                break
            time.sleep(0.005)
        running.send_signal(number)
        out, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 75, out + errors)
        result = self.result()
        self.assertEqual((result["status"], result["exit_code"]), ("interrupted", 75))
        self.assertRegex(result["digest"]["model"], "^[0-9a-f]{64}$")
        return result

    def test_ctrl_c_ends_at_a_step_boundary(self):
        def trains(run):
            metrics = run / "metrics.jsonl"
            return metrics.exists() and '"train"' in metrics.read_text()

        for number in (signal.SIGINT, signal.SIGTERM):
            stopped = self.interrupted(number, trains)
            self.assertGreater(stopped["steps"], 0)
            self.assertTrue((self.folder / "runs/small/model.safetensors").exists())
            self.check_resumed(stopped)

    def test_ctrl_c_before_the_first_step(self):
        # run.log is there before the data are read.
        stopped = self.interrupted(signal.SIGINT, lambda run: (run / "run.log").exists())
        self.check_resumed(stopped)

    def check_resumed(self, stopped):
        """The rest of the run leads to where an undisturbed one comes."""
        length = f"trainer.max_duration={stopped['steps'] + 30}ba"
        self.host("train", "run.toml", "-q", "--set", "run.resume=auto", "--set", length)
        resumed = self.result()
        self.assertEqual(resumed["steps"], stopped["steps"] + 30)
        self.host("train", "run.toml", "-q", "--set", length, "--set", "run.name=undisturbed")
        self.assertEqual(resumed["digest"], self.result("runs/undisturbed")["digest"])

    def test_a_wall_time_ends_the_run_as_resumable(self):
        text = SMALL.replace('"2ep"', '"100000ep"\nmax_wall_time = "1s"').replace('eval_interval = "1ep"', "")
        self.write("run.toml", text)
        said = self.host("train", "run.toml", code=75).stdout
        self.assertEqual(self.result()["status"], "interrupted")
        self.assertRegex(said, r"(?s)Try next:\n  go on: +\S+ resume runs/small\n")

    def test_early_stopping_ends_the_run_well(self):
        text = SMALL.replace('"2ep"', '"50ep"') + '[early_stopping]\nmetric = "val/loss"\nmode = "max"\npatience = 2\n'
        result = self.train(text)
        self.assertEqual((result["status"], result["epochs"]), ("stopped", 3))
        journal = (self.folder / "runs/small/journal.jsonl").read_text()
        self.assertIn("early_stopping", journal)


class Commands(HostTest):
    VERBS = ("train", "eval", "validate", "plan", "config", "plugins", "model", "schedule", "bench", "doctor")

    def test_help_with_a_verb(self):
        for words in ((), ("train",), ("ckpt", "ls"), ("audit",)):
            self.assertEqual(self.host("help", *words).stdout, self.host(*words, "--help").stdout)

    def test_help_lists_the_verbs(self):
        text = self.host("--help").stdout
        for verb in self.VERBS:
            self.assertRegex(text, rf"(?m)^  {verb} ")
        for verb in self.VERBS:
            self.assertIn(verb, self.host(verb, "--help").stdout)

    def test_a_wrong_verb_is_suggested(self):
        refused = self.host("trian", "run.toml", code=2)
        self.assertIn("did you mean `train`", refused.stderr)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1)
        self.assertIn("train, resume, eval", self.host("zzzzzz", code=2).stderr)

    def test_other_wrong_words_are_refused(self):
        self.write("run.toml", SMALL)
        self.host(code=2)
        self.host("train", code=2)
        self.assertIn("nowhere.toml", self.host("train", "nowhere.toml", code=2).stderr)
        self.host("train", "run.toml", "--no-such-option", code=2)

    def test_validate_plan_show_and_doctor(self):
        self.write("run.toml", SMALL)
        self.assertIn("valid", self.host("validate", "run.toml").stdout)
        self.assertEqual(json.loads(self.host("validate", "run.toml", "--format", "json").stdout)["errors"], 0)
        plan = self.host("plan", "run.toml").stdout
        self.assertRegex(plan, r"\b8\b")  # steps
        # 8 x 40000 + 40000 + 40000 x 3 + 3 floats, twice as much of adamw; of two inputs and outputs at once what 12 samples of them have.
        plan = self.host("plan", "run.toml", "--set", "model.layers=[8, 40000, 3]").stdout
        self.assertRegex(plan, r"parameters +1\.83\n +gradients +1\.83\n +optimizer +3\.66\n +activations +\d+\.\d\d at most\n")
        memory = dict(re.findall(r"  (\w+) +([\d.]+)", plan.partition("Memory")[2]))
        together = sum(float(memory[part]) for part in ("parameters", "gradients", "optimizer", "activations"))
        self.assertAlmostEqual(float(memory["together"]), together, delta=0.03)
        shown = self.host("model", "show", "run.toml").stdout
        self.assertRegex(shown, r"\b195\b")  # 8 x 16 + 16 + 16 x 3 + 3 parameters
        self.assertIn("LibTorch", self.host("doctor").stdout)
        self.assertFalse((self.folder / "runs").exists())  # none of them writes

    def test_the_schedule_is_drawn(self):
        self.write("run.toml", SMALL)
        change = ("--set", "schedule.type=linear", "--set", "schedule.warmup=2ba")
        rates = json.loads(self.host("schedule", "plot", "run.toml", *change, "--format", "json").stdout)["rates"]
        self.assertEqual([rate["step"] for rate in rates], list(range(1, 9)))
        for rate, expected in zip(rates, (0, 0.5, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6)):
            self.assertAlmostEqual(rate["lr"], 0.01 * expected, places=15)
        drawn = self.host("schedule", "plot", "run.toml", *change, "--svg", "lr.svg").stdout
        self.assertIn("learning rate: from 0", drawn)
        lines = drawn.splitlines()[2:]  # behind the title and the sentence
        self.assertEqual((len(lines), len(lines[-1].rstrip())), (16, 100))  # with the numbers of the steps below
        points = xml.etree.ElementTree.parse(self.folder / "lr.svg").getroot().find(".//{*}polyline").get("points").split()
        self.assertEqual(len(points), 8)
        self.assertEqual(points[2].split(",")[1], "40.00")  # the highest
        self.host("schedule", "plot", "run.toml", "--set", "schedule.type=one_cycle", "--set", "optimizer.type=sgd",
                  "--set", "optimizer.momentum=0.9", "--set", "run.name=a & <b>", "--svg", "both.svg")
        both = xml.etree.ElementTree.parse(self.folder / "both.svg").getroot()
        self.assertEqual(len(both.findall(".//{*}polyline")), 2)  # the rate and the momentum
        self.assertIn("a & <b>", " ".join(text.text for text in both.findall(".//{*}text")))
        self.assertIn("lr.svg", self.host("schedule", "plot", "run.toml", "--svg", "nowhere/lr.svg", code=4).stderr)
        self.host("schedule", "plot", "run.toml", "--set", "trainer.max_duration=10s", "--set", "schedule.type=constant", code=2)

    def test_plugins_are_listed_and_inspected(self):
        listed = self.host("plugins", "list").stdout
        for plugin in ("adamw", "cosine", "mlp"):
            self.assertIn(plugin, listed)
        self.assertIn("weight_decay", self.host("plugins", "inspect", "adamw").stdout)
        self.assertIn("adamww", self.host("plugins", "inspect", "adamww", code=3).stderr)

    def test_config_diff_and_schema(self):
        self.write("a.toml", SMALL)
        self.write("b.toml", SMALL.replace("0.01", "0.02"))
        self.assertEqual(self.host("config", "diff", "a.toml", "b.toml").stdout, "optimizer.lr\n  - 0.01\n  + 0.02\n")
        self.assertIn("max_duration", self.host("config", "schema").stdout)


if __name__ == "__main__":
    assert TRAINYARD.exists(), f"build {TRAINYARD} first"
    unittest.main()
