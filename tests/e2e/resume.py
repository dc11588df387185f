"""Going on with a run: what may change in its file, which checkpoint it goes on from, what it says when it cannot."""
import json
import shutil
import struct
import unittest

from support.host import SMALL, HostTest

RUN = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"') + '[checkpoint]\ntype = "full"\ninterval = "2ba"\nkeep_last = 3\n'
# The first step is the last, and the run is to be gone on with. May change from start to start.
SHORT = ("--set", "trainer.max_wall_time=0.000001s")


def tensors(path):
    """Name to bytes of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: data[8 + size + each["data_offsets"][0]:8 + size + each["data_offsets"][1]] for name, each in header.items()}


class Resume(HostTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "runs" / "small"

    def undisturbed(self, text=RUN):
        """The digests of the run as it ends when nothing happens; nothing stays of it."""
        digest = self.train(text)["digest"]
        shutil.rmtree(self.folder / "runs")
        return digest

    def interrupted(self, text=RUN, *words):
        self.assertEqual(self.train(text, *SHORT, *words, code=75)["steps"], 1)

    def checkpoints(self):
        return sorted((self.run_folder / "checkpoints").glob("step-*"))

    def journal(self, what):
        lines = map(json.loads, (self.run_folder / "journal.jsonl").read_text().splitlines())
        return [line["why"] for line in lines if line["what"] == what]

    # --- the file changes

    def test_what_changes_nothing_of_the_training_may_change(self):
        expected = self.undisturbed()
        self.interrupted()
        words = ("logging.interval=1ba", "data.workers=2", "data.prefetch=1", "checkpoint.interval=3ba", "guard.deadline=9s")
        result = self.train(RUN, *(word for key in words for word in ("--set", key)))
        self.assertEqual((result["digest"], result["status"]), (expected, "completed"))
        self.assertEqual(self.journal("resume"), [])
        self.assertEqual(len(self.journal("resumed")), 1)

    def test_what_changes_the_training_is_journalled(self):
        expected = self.undisturbed()
        self.interrupted()
        result = self.train(RUN, "--set", "optimizer.lr=0.02")
        self.assertNotEqual(result["digest"], expected)
        self.assertEqual(self.journal("resume"), ["changed: optimizer.lr 0.01 -> 0.02"])
        self.assertIn("lr = 0.02", (self.run_folder / "config.toml").read_text())

    def test_what_does_not_fit_the_state_is_refused(self):
        expected = self.undisturbed()
        self.interrupted()
        before = (self.run_folder / "config.toml").read_text()
        for change, key in (("model.layers=[8,5,3]", "model.layers"), ("run.seed=4", "run.seed"), ("optimizer.type=sgd", "optimizer.type"),
                            ("data.train.batch_size=8", "data.train.batch_size")):
            with self.subTest(change=change):
                refused = self.host("train", "run.toml", "-q", "--set", change, code=2).stderr
                self.assertIn("E502", refused)
                self.assertIn(key, refused)
                self.assertNotIn("internal", refused)
        self.assertIn('run.load = "weights"', self.host("train", "run.toml", "-q", "--set", "model.layers=[8,5,3]", code=2).stderr)
        self.assertEqual((self.run_folder / "config.toml").read_text(), before)
        self.assertEqual(self.train(RUN)["digest"], expected)

    def test_dropout_draws_the_same_after_a_resume(self):
        language = (RUN.replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "gpt"\nn_layer = 2\nn_head = 2\nd_model = 8')
                    .replace('kind = "classification"\nshape = [8]\nclasses = 3', 'kind = "language"\nseq_len = 6\nvocabulary = 9'))
        attention = 'sites = ["*.attn_weights"]\n'
        plain = {text: self.undisturbed(text) for text in (RUN, language)}
        for text, table in ((RUN, 'type = "dropconnect"\ninference = "gaussian"\n'),
                            (RUN, 'type = "multi_sample"\nsamples = 3\n'),
                            (language, 'type = "standard"\n' + attention),
                            (language, 'type = "gyro"\nsigma = 4\ntau = 2\n' + attention),
                            (language, 'type = "spatial"\n' + attention)):
            with self.subTest(table):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                text += "[model.dropout]\n" + table
                whole = self.train(text)
                shutil.rmtree(self.folder / "runs")
                self.interrupted(text)
                resumed = self.train(text)
                for result in (whole, resumed):
                    del result["metrics"]["samples_per_second"]
                for key in ("digest", "metrics"):
                    self.assertEqual(resumed[key], whole[key])
                self.assertNotIn(whole["digest"], plain.values())

    def test_dropout_goes_on_after_every_step(self):
        """Cut after each step in turn: within stretches of masks, within and between epochs, where steps are ragged and so are
        their micro-batches, where rates rise, after a swap."""
        ragged = RUN.replace("size = 64, batch_size = 16", "size = 29, batch_size = 16, micro_batch_size = 8")

        def of(model, data=""):
            text = ragged.replace('type = "mlp"\nlayers = [8, 16, 3]', model)
            return text.replace('kind = "classification"\nshape = [8]\nclasses = 3', data) if data else text

        mlp = of('type = "mlp"\nlayers = [8, 64, 64, 3]')
        selu = of('type = "mlp"\nlayers = [8, 16, 16, 3]\nactivation = "selu"')
        images = 'kind = "classification"\nshape = [2, 8, 8]\nclasses = 3'
        blocks, branches = (of(f'type = "resnet"\ndepth = 8\nwidth = 2\ndropout_sites = "{sites}"', images)
                            for sites in ("blocks", "branches"))
        lstm = of('type = "lstm"\nn_layer = 1\nhidden = 6', 'kind = "language"\nseq_len = 6\nvocabulary = 9')
        blockwise = 'type = "blockwise"\nsigma = 8\ntau = 4\nblock = 8\n'
        gyro = 'type = "gyro"\nsigma = 8\ntau = 4\n'
        without = {text: self.undisturbed(text) for text in (mlp, selu, blocks, branches, lstm)}
        for text, table in ((mlp, blockwise),
                            (mlp, 'type = "blockwise"\nsigma = 40\ntau = 20\nblock = 8\n'),  # fewer rows than masks
                            (mlp, gyro + '[[swap]]\nat = "1ba"\nslot = "model.dropout"\nsigma = 6\n'),
                            (selu, 'type = "alpha"\np = 0.3\n'),
                            (blocks, 'type = "dropblock"\nblock = 3\np = 0.3\nramp = "linear"\n'),
                            (branches, 'type = "droppath"\np = 0.4\nwhen = "early"\nramp = "linear"\ncutoff = "90%"\n'),
                            (lstm, 'type = "variational"\n'),
                            (lstm, 'type = "zoneout"\nwhen = "late"\ncutoff = "1ba"\n'),
                            (mlp, gyro + '[[hooks]]\ntype = "rdrop"\n'),
                            (mlp, blockwise + '[[hooks]]\ntype = "mc_dropout"\nsamples = 3\n')):
            with self.subTest(table):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                plain = without[text]
                text += "[model.dropout]\n" + table
                whole = self.train(text)
                shutil.rmtree(self.folder / "runs")
                for _ in range(whole["steps"] - 1):
                    self.train(text, *SHORT, code=75)
                resumed = self.train(text)
                for result in (whole, resumed):
                    del result["metrics"]["samples_per_second"]
                for key in ("digest", "metrics"):
                    self.assertEqual(resumed[key], whole[key])
                self.assertNotEqual(whole["digest"], plain)

    # --- where it goes on from

    def test_must_needs_a_run(self):
        self.write("run.toml", RUN)
        refused = self.host("train", "run.toml", "-q", "--set", "run.resume=must", code=2).stderr
        self.assertIn("runs/small' holds no run", refused)
        self.assertFalse(self.run_folder.exists())
        expected = self.undisturbed()
        self.interrupted()
        shutil.rmtree(self.run_folder / "checkpoints")
        refused = self.host("train", "run.toml", "-q", "--set", "run.resume=must", code=2).stderr
        self.assertIn("no checkpoint to go on from", refused)
        self.assertEqual(self.train(RUN)["digest"], expected)  # auto begins anew

    def test_another_run_goes_on_from_a_checkpoint_or_a_folder(self):
        expected = self.undisturbed()
        self.interrupted()
        (checkpoint,) = self.checkpoints()
        for i, source in enumerate((self.run_folder, checkpoint)):
            result = self.train(RUN, "--set", f"run.resume={source}", "--set", f"run.name=other{i}", run=f"runs/other{i}")
            self.assertEqual((result["digest"], result["steps"]), (expected, 8))
        self.assertEqual(json.loads((self.run_folder / "result.json").read_text())["status"], "interrupted")
        refused = self.host("train", "run.toml", "-q", "--set", f"run.resume={checkpoint}", "--set", "run.name=wide",
                            "--set", "model.layers=[8,5,3]", code=2).stderr
        self.assertIn("E502", refused)
        self.assertFalse((self.folder / "runs/wide").exists())
        absent = self.host("train", "run.toml", "-q", "--set", "run.resume=nowhere", "--set", "run.name=lost", code=2).stderr
        self.assertIn("run.resume: nowhere does not exist", absent)
        (self.folder / "empty").mkdir()
        empty = self.host("train", "run.toml", "-q", "--set", "run.resume=empty", "--set", "run.name=lost", code=4).stderr
        self.assertIn("'empty' holds no checkpoint", empty)

    def test_weights_alone_by_pattern(self):
        still = ("--set", "schedule.type=constant", "--set", "schedule.value=0.0")  # the weights stay as they begin
        self.train(RUN)
        trained = tensors(self.run_folder / "model.safetensors")
        self.train(RUN, *still, "--set", "run.name=fresh", run="runs/fresh")
        fresh = tensors(self.folder / "runs/fresh/model.safetensors")
        load = ("--set", f"run.resume={self.run_folder}", "--set", "run.load=weights")
        self.train(RUN, *still, *load, "--set", "run.name=all", run="runs/all")
        self.assertEqual(tensors(self.folder / "runs/all/model.safetensors"), trained)
        self.train(RUN, *still, *load, "--set", 'run.load_match=["fc1.*"]', "--set", "run.name=some", run="runs/some")
        some = tensors(self.folder / "runs/some/model.safetensors")
        for name, value in some.items():
            self.assertEqual(value, (trained if name.startswith("fc1.") else fresh)[name], name)
        self.assertNotEqual(trained["fc1.weight"], fresh["fc1.weight"])
        none = self.host("train", "run.toml", "-q", *load, "--set", 'run.load_match=["fc9.*"]', "--set", "run.name=none", code=2).stderr
        self.assertIn("load_match", none)

    # --- damage

    def test_a_damaged_checkpoint_is_passed_over(self):
        expected = self.train(RUN)["digest"]
        (self.run_folder / "result.json").unlink()  # as if it had been killed at the end
        newest = self.checkpoints()[-1]
        path = newest / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        self.assertEqual(self.train(RUN)["digest"], expected)
        (passed,) = self.journal("resume")
        self.assertIn(f"passed over {newest.relative_to(self.folder)}", passed)
        self.assertIn("model.safetensors", passed)
        self.assertIn("step-00000006", self.journal("resumed")[-1])

    def test_none_but_damaged_ones_end_the_start(self):
        expected = self.train(RUN)["digest"]
        (self.run_folder / "result.json").unlink()
        for each in self.checkpoints():
            (each / "manifest.json").write_text("{")
        refused = self.host("train", "run.toml", "-q", code=4).stderr
        self.assertIn("none of the checkpoints in runs/small/checkpoints is whole", refused)
        self.assertIn("--overwrite", refused)
        self.assertEqual(len(refused.strip().splitlines()), 1, refused)
        self.assertEqual(len(self.checkpoints()), 3)
        self.assertEqual(self.train(RUN, "--overwrite")["digest"], expected)

    # --- the beginning and the end

    def test_a_complete_run_is_not_run_again(self):
        self.train(RUN)
        files = {path: path.stat().st_mtime_ns for path in self.run_folder.rglob("*") if path.is_file()}
        said = self.host("train", "run.toml")
        self.assertIn("complete already", said.stdout)
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.run_folder.rglob("*") if path.is_file()}, files)
        longer = self.train(RUN, "--set", "trainer.max_duration=3ep")
        self.assertEqual(longer["steps"], 12)
        self.assertEqual(self.journal("resume"), ['changed: trainer.max_duration "2ep" -> "3ep"'])

    def test_a_run_that_was_killed_while_its_folder_was_made_begins(self):
        expected = self.undisturbed()
        for left in (["journal.jsonl"], ["journal.jsonl", "config.toml.tmp"], ["journal.jsonl", "config.toml"]):
            with self.subTest(left=left):
                config = self.host("config", "show", "run.toml").stdout
                for name in left:
                    self.write(f"runs/small/{name}", config if name == "config.toml" else config[:99] if "tmp" in name else "")
                self.assertEqual(self.train(RUN)["digest"], expected)
                shutil.rmtree(self.folder / "runs")
        # What is not a run's is left alone.
        self.write("runs/small/journal.jsonl", "")
        self.write("runs/small/thesis.txt", "mine")
        self.assertIn("holds no run", self.host("train", "run.toml", "-q", code=2).stderr)
        self.assertEqual((self.run_folder / "thesis.txt").read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
