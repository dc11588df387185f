"""Python's safetensors reads every file of a checkpoint, and `trainyard ckpt` tells what is in it and what is broken."""
import json
import os
import shutil
import subprocess
import unittest

from support.host import BUILD, FAULTY, SMALL, HostTest, tensors

try:
    import numpy
    from safetensors import safe_open
except ImportError:
    safe_open = None

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
          "U8": "uint8", "BOOL": "bool"}


class Checkpoints(HostTest):
    def setUp(self):
        super().setUp()
        # Steps 7 (one of every type), 8 and 9 (small, with different values).
        subprocess.run([BUILD / "bin" / "engine_tests", "[write-checkpoints]"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "TRAINYARD_TEST_OUT": str(self.folder), "OMP_NUM_THREADS": "1"})
        self.checkpoints = self.folder / "checkpoints"
        self.newest = self.checkpoints / "step-00000009"

    def ckpt(self, *words, code=0):
        return self.host("ckpt", *words, code=code).stdout

    @unittest.skipIf(safe_open is None, "Python has no safetensors; tools/test makes one that has")
    def test_python_reads_every_file(self):
        seen = 0
        for step in sorted(self.checkpoints.glob("step-*")):
            manifest = json.loads((step / "manifest.json").read_text())
            for file in manifest["files"]:
                with safe_open(step / file["name"], framework="np") as opened:
                    self.assertEqual(opened.metadata(), {"format": "pt"})
                    stored = {("" if each["owner"] == "model" else each["owner"] + ":") + each["name"]: each
                              for each in manifest["tensors"] if each["file"] == file["name"]}
                    self.assertEqual(set(opened.keys()), set(stored))
                    for name, entry in stored.items():
                        piece = opened.get_slice(name)
                        self.assertEqual((piece.get_dtype(), piece.get_shape()), (entry["dtype"], entry["shape"]))
                        if entry["dtype"] in DTYPES:  # numpy has no bfloat16
                            tensor = opened.get_tensor(name)
                            self.assertEqual(tensor.dtype, numpy.dtype(DTYPES[entry["dtype"]]))
                            self.assertEqual(tensor.nbytes, entry["length"])
                        seen += 1
        self.assertEqual(seen, 27)
        with safe_open(self.checkpoints / "step-00000007" / "optimizer.safetensors", framework="np") as opened:
            self.assertEqual(opened.get_tensor("optimizer:transposed").tolist(), [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]])

    def test_ls_and_inspect(self):
        for place in (self.folder, self.checkpoints, str(self.checkpoints) + "/"):
            lines = self.ckpt("ls", place).splitlines()
            self.assertEqual([line.split()[0] for line in lines], ["step-00000007", "step-00000008", "step-00000009"])
        listed = json.loads(self.ckpt("ls", self.folder, "--format", "json"))
        self.assertEqual([each["step"] for each in listed], [7, 8, 9])
        self.assertEqual(listed[2]["metrics"], {"val/loss": 9.0})
        for each in listed:
            files = [self.checkpoints / each["checkpoint"] / name["name"] for name in
                     json.loads((self.checkpoints / each["checkpoint"] / "manifest.json").read_text())["files"]]
            self.assertEqual(each["bytes"], sum(file.stat().st_size for file in files))
        self.assertIn("F32 [4, 3]", self.ckpt("inspect", self.folder))
        everything = self.ckpt("inspect", self.checkpoints / "step-00000007")
        for line in ("denormal = 5e-324", "one = 1\n", "one.0 = 1.0", "true = true", "infinity = inf", "BF16 [7]", "F32 []"):
            self.assertIn(line, everything)
        self.assertEqual(json.loads(self.ckpt("inspect", self.folder, "--format", "json"))["step"], 9)

    def test_verify_names_every_damage(self):
        self.assertEqual(self.ckpt("verify", self.folder).count(": whole"), 3)
        path = self.newest / "optimizer.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        (self.newest / "state.safetensors").unlink()
        told = self.ckpt("verify", self.folder, code=4)
        self.assertEqual(told.count(": whole"), 2)
        self.assertIn('optimizer.safetensors: tensor "optimizer/adamw:fc.weight.m" is not as it was written', told)
        self.assertIn("state.safetensors: No such file", told)
        damages = json.loads(self.ckpt("verify", self.newest, "--format", "json", code=4))
        self.assertEqual(len(damages[0]["damages"]), 2)
        (self.newest / "manifest.json").write_text("{}")
        self.assertIn("damaged", self.ckpt("ls", self.folder))
        self.assertIn("manifest.json", self.host("ckpt", "inspect", self.folder, code=4).stderr)
        self.assertIn("no checkpoint there", self.host("ckpt", "ls", self.folder / "absent", code=4).stderr)

    def test_diff(self):
        old = self.checkpoints / "step-00000008"
        self.assertEqual(self.ckpt("diff", old, old), "0 of 10 differ\n")
        self.assertIn("scalar run:step\n  - 8\n  + 9\n", self.ckpt("diff", old, self.folder))
        differences = json.loads(self.ckpt("diff", old, self.newest, "--format", "json"))
        self.assertEqual((len(differences["differences"]), differences["of"]), (6, 10))
        self.assertIn("absent", self.ckpt("diff", self.checkpoints / "step-00000007", old))

    def test_convert(self):
        out = self.folder / "weights.safetensors"
        self.ckpt("convert", self.folder, out)
        self.assertEqual(out.read_bytes(), (self.newest / "model.safetensors").read_bytes())
        if safe_open:
            with safe_open(out, framework="np") as opened:
                self.assertEqual(opened.get_tensor("fc.bias").tolist(), [9, 9, 9, 9])
        weights = self.newest / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"!")
        before = out.read_bytes()
        self.assertIn("fc.weight", self.host("ckpt", "convert", self.folder, out, code=4).stderr)
        self.assertEqual(out.read_bytes(), before)


class BestWeights(HostTest):
    def test_weights_called_best(self):
        """Verbs take them by that word: they give the value that the checkpoint was kept for."""
        text = SMALL.replace('max_duration = "2ep"', 'max_duration = "12ep"').replace("lr = 0.01", "lr = 0.3")
        self.write("run.toml", text + '[checkpoint]\ninterval = "1ep"\nkeep_last = 2\nkeep_best = { metric = "val/loss", mode = "min" }\n')
        summary = self.host("train", "run.toml").stdout
        listed = json.loads(self.host("ckpt", "ls", "runs/small", "--format", "json").stdout)
        losses = {each["step"]: each["metrics"]["val/loss"] for each in listed}
        best = min(losses, key=losses.get)
        self.assertNotEqual(best, max(losses))  # or this shows nothing
        self.assertEqual([each["step"] for each in listed if each["best"]], [best])
        marked = [line for line in self.host("ckpt", "ls", "runs/small").stdout.splitlines() if line.endswith("  best")]
        self.assertEqual([int(line.split()[0][5:]) for line in marked], [best])
        self.assertRegex(summary, rf"of the best, those of step {best}:  \S+ eval")
        tried = [line for line in summary.splitlines() if "change one thing:" in line][0].split(":", 1)[1].split()
        subprocess.run(tried, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)  # as it is printed
        self.assertTrue((self.folder / "runs/small-lr/result.json").exists())
        for words in (("--weights", "best"), ("--weights", f"runs/small/checkpoints/step-{best:08}")):
            found = json.loads(self.host("eval", "run.toml", "--format", "json", *words).stdout)
            self.assertEqual(found["val/loss"], losses[best])
        last = json.loads(self.host("eval", "run.toml", "--format", "json").stdout)["val/loss"]
        self.assertEqual(last, losses[max(losses)])
        facts = json.loads(self.host("audit", "run.toml", "--weights", "best", "--format", "json").stdout)
        self.assertIn(f"step-{best:08}", json.dumps(facts))
        self.host("audit", "run.toml", "--weights", "initial")

    def test_a_run_that_ends_with_its_best(self):
        """trainer.restore_best: its weights, its values and its words are those of the best checkpoint; a resume goes on from the last."""
        text = SMALL.replace('max_duration = "2ep"', 'max_duration = "12ep"').replace(
            "val = {", "test = { size = 16, batch_size = 16 }\nval = {")
        kept = '[checkpoint]\ninterval = "1ep"\nkeep_last = 2\nkeep_best = { metric = "val/loss", mode = "max" }\n'
        self.write("plain.toml", text + kept)
        self.host("train", "plain.toml", "-q", "--set", "run.name=plain")
        self.write("run.toml", text.replace("[trainer]", "[trainer]\nrestore_best = true") + kept)
        summary = self.host("train", "run.toml").stdout
        listed = json.loads(self.host("ckpt", "ls", "runs/small", "--format", "json").stdout)
        losses = {each["step"]: each["metrics"]["val/loss"] for each in listed}
        best, last = max(losses, key=losses.get), max(losses)  # so that it is an early one
        self.assertNotEqual(best, last)
        self.assertIn(f"of the best weights, those of step {best}, which the run ends with", summary)
        result = json.loads((self.folder / "runs/small/result.json").read_text())
        self.assertEqual((result["weights_step"], result["steps"]), (best, last))
        self.assertEqual(result["metrics"]["val/loss"], losses[best])
        tested = json.loads(self.host("eval", "run.toml", "--weights", "best", "--format", "json").stdout)
        self.assertEqual(result["metrics"]["test/loss"], tested["test/loss"])
        self.assertNotEqual(json.loads((self.folder / "runs/plain/result.json").read_text())["metrics"]["test/loss"], tested["test/loss"])
        self.assertEqual(tensors(self.folder / "runs/small/model.safetensors"),
                         tensors(self.folder / f"runs/small/checkpoints/step-{best:08}/model.safetensors"))
        self.assertEqual(tensors(self.folder / f"runs/small/checkpoints/step-{last:08}/model.safetensors"),
                         tensors(self.folder / "runs/plain/model.safetensors"))
        # Whoever names the run takes what it ended with.
        self.host("train", "run.toml", "-q", "--set", "run.name=next", "--set", "run.resume=runs/small", "--set", "run.load=weights",
                  "--set", "trainer.restore_best=false", "--set", "schedule.type=constant", "--set", "schedule.value=0.0")
        self.assertEqual(tensors(self.folder / "runs/next/model.safetensors"), tensors(self.folder / "runs/small/model.safetensors"))
        for words in (("run.toml", "--weights", "runs/small"), ("small",)):
            self.assertEqual(json.loads(self.host("eval", *words, "--format", "json").stdout)["val/loss"], losses[best], words)
        facts = json.loads(self.host("audit", "small", "--format", "json").stdout)["facts"]
        self.assertEqual(facts["val/loss"], losses[best])
        for name in ("plain", "small"):
            self.host("train", f"runs/{name}/config.toml", "-q", "--set", 'trainer.max_duration="14ep"', "--set", 'run.resume="auto"',
                      "--set", "trainer.restore_best=false")
        self.assertEqual(tensors(self.folder / "runs/small/model.safetensors"), tensors(self.folder / "runs/plain/model.safetensors"))

    def test_the_best_are_kept_at_evaluations_where_there_is_no_interval(self):
        text = SMALL.replace('max_duration = "2ep"', 'max_duration = "6ep"')
        text = text.replace("[trainer]", "[trainer]\nrestore_best = true")
        result = self.train(text + '[checkpoint]\nkeep_best = { metric = "val/loss", mode = "max" }\n')
        listed = json.loads(self.host("ckpt", "ls", "runs/small", "--format", "json").stdout)
        self.assertEqual([each["step"] for each in listed], [4, 24])  # the loss falls
        self.assertEqual([each["step"] for each in listed if each["best"]], [4])
        self.assertEqual(result["weights_step"], 4)

    def test_the_last_weights_are_among_the_best(self):
        """The loss falls to the end, which is no multiple of the evaluations: the last ones are the best, and are called so."""
        text = SMALL.replace('max_duration = "2ep"', 'max_duration = "22ba"').replace("[trainer]", "[trainer]\nrestore_best = true")
        for interval in ("", 'interval = "1ep"\n'):
            with self.subTest(interval):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                result = self.train(text + f'[checkpoint]\n{interval}keep_best = {{ metric = "val/loss", mode = "min" }}\n')
                (kept,) = json.loads(self.host("ckpt", "ls", "runs/small", "--format", "json").stdout)
                self.assertEqual((kept["step"], kept["best"], result["weights_step"]), (22, True, 22))
                found = json.loads(self.host("eval", "run.toml", "--weights", "best", "--format", "json").stdout)
                self.assertEqual((kept["metrics"]["val/loss"], result["metrics"]["val/loss"]), (found["val/loss"],) * 2)

    def test_a_checkpoint_has_the_values_of_its_own_weights_alone(self):
        self.train(SMALL.replace('max_duration = "2ep"', 'max_duration = "24ba"') + '[checkpoint]\ninterval = "3ba"\nkeep_last = 20\n')
        kept = json.loads(self.host("ckpt", "ls", "runs/small", "--format", "json").stdout)
        self.assertEqual([each["step"] for each in kept], list(range(3, 25, 3)))
        self.assertEqual([each["step"] for each in kept if "val/loss" in each["metrics"]], [12, 24])  # 4 steps are an epoch
        for each in kept:
            found = json.loads(self.host("eval", "run.toml", "--weights", f"runs/small/checkpoints/step-{each['step']:08}", "--format", "json").stdout)
            self.assertEqual(each["metrics"].get("val/loss", found["val/loss"]), found["val/loss"])

    def test_what_could_never_be_the_best_is_refused(self):
        text = SMALL.replace('max_duration = "2ep"', 'max_duration = "18ba"') + '[checkpoint]\ninterval = "%s"\nkeep_best = { metric = "val/loss" }\n'
        for interval, meet in (("5ba", False), ("7ba", False), ("6ba", True), ("1ep", True), ("18ba", True), ("50%", False)):
            with self.subTest(interval):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                self.write("run.toml", text % interval)
                said = [self.host(verb, "run.toml", code=0 if meet else 2).stderr for verb in ("validate", "train")]
                for each in said if not meet else ():
                    self.assertRegex(each, r"checkpoint.keep_best: a checkpoint every \d steps and an evaluation every 4 meet at no step")

    def test_whatever_ends_a_run_its_last_state_is_kept(self):
        """And goes on to the bits of a run that was as long from the beginning."""
        text = SMALL.replace("seed = 3", 'seed = 3\nresume = "auto"').replace("2ep", "20ba").replace('"1ep"', '"9ba"')
        longer = ("--set", "trainer.max_duration=31ba")
        whole = self.train(text, *longer)["digest"]
        stops = '[early_stopping]\nmetric = "val/loss"\nmode = "max"\npatience = 1\n'  # the loss falls
        vetoes = '[[hooks]]\ntype = "between"\nskip = 20\n'
        nap = '[[hooks]]\ntype = "slow"\nat = "batch_end"\nstep = 13\nseconds = 1\nsign = "asleep"\n'
        ends = (("complete", text, 0, 20), ("veto", text + vetoes, 0, 20), ("early", text + stops, 0, 18),
                ("time", text.replace("[trainer]", '[trainer]\nmax_wall_time = "1s"') + nap, 75, 13), ("time is its length", text.replace('"20ba"', '"1s"') + nap, 0, 13))
        for name, ended, code, step in ends:
            with self.subTest(name):
                shutil.rmtree(self.folder / "runs")
                (self.folder / "asleep").unlink(missing_ok=True)
                result = self.train(ended, "--plugins", FAULTY, code=code)
                self.assertEqual((result["steps"], self.kept_steps()[-1]), (step, step))
                self.assertEqual(tensors(self.folder / "runs/small/model.safetensors"),
                                 tensors(self.folder / f"runs/small/checkpoints/step-{step:08}/model.safetensors"))
                self.write("run.toml", text)
                self.host("resume", "small", "-q", "--plugins", FAULTY, *longer, "--set", "trainer.max_wall_time=1h",
                          *(("--set", "early_stopping.patience=99") if "stopping" in ended else ()))
                self.assertEqual((self.result()["steps"], self.result()["digest"]), (31, whole))

    def kept_steps(self):
        return [each["step"] for each in json.loads(self.host("ckpt", "ls", "runs/small", "--format", "json").stdout)]

    def test_best_weights_that_none_keeps(self):
        self.write("run.toml", SMALL.replace("[trainer]", "[trainer]\nrestore_best = true"))
        self.assertRegex(self.host("validate", "run.toml", code=2).stderr, r"run.toml:\d+:\d+: E217 trainer.restore_best: .*(\n.*)*keep_best")
        self.write("run.toml", SMALL.replace("[trainer]", "[trainer]\nrestore_best = true") + '[[hooks]]\ntype = "ema"\n'
                   '[checkpoint]\ninterval = "1ep"\nkeep_best = { metric = "val/loss", mode = "min" }\n')
        self.assertIn('"ema" puts other weights in place for evaluations', self.host("validate", "run.toml", code=2).stderr)

    def test_a_run_that_failed_at_once_leaves_its_name(self):
        self.write("run.toml", SMALL.replace("layers = [8, 16, 3]", "layers = [7, 16, 3]"))
        self.host("train", "run.toml", code=2)
        self.write("run.toml", SMALL)
        self.host("train", "run.toml", "-q")
        self.assertIn("holds a run already", self.host("train", "run.toml", code=2).stderr)

    def test_a_run_stands_for_its_file(self):
        """By its name and by its directory, also where that lies elsewhere by now; another name is another run."""
        self.write("run.toml", SMALL)
        self.host("train", "run.toml", "-q")
        loss = json.loads(self.host("eval", "run.toml", "--format", "json").stdout)["val/loss"]
        for run in ("small", "runs/small", "runs/small/", "runs/small/config.toml"):
            self.assertEqual(json.loads(self.host("eval", run, "--format", "json").stdout)["val/loss"], loss, run)
        self.host("validate", "small")
        self.host("audit", "small")
        self.assertEqual(self.host("ckpt", "ls", "small").stdout.split()[0], "step-00000008")
        self.host("train", "small", "-q", "--set", "run.name=other")
        self.assertTrue((self.folder / "runs/other/model.safetensors").exists())
        (self.folder / "runs/small").rename(self.folder / "elsewhere")
        self.assertEqual(json.loads(self.host("eval", "elsewhere", "--format", "json").stdout)["val/loss"], loss)
        self.assertIn("small", self.host("eval", "small", code=2).stderr)

    def test_a_run_without_an_interval_can_be_made_longer(self):
        longer = self.train(SMALL.replace("2ep", "3ep"))["digest"]
        shutil.rmtree(self.folder / "runs/small")
        self.train(SMALL)
        self.assertEqual(self.host("ckpt", "ls", "small").stdout.split()[0], "step-00000008")
        self.host("resume", "small", "-q", "--set", "trainer.max_duration=3ep")
        self.assertEqual(self.result()["digest"], longer)

    def test_a_run_that_holds_no_checkpoint(self):
        self.train()
        shutil.rmtree(self.folder / "runs/small/checkpoints")
        weights = tensors(self.folder / "runs/small/model.safetensors")
        for words in (("resume", "runs/small"), ("train", "run.toml", "--set", "run.resume=auto")):
            said = self.host(*words, "-q", "--set", "trainer.max_duration=3ep", code=2).stderr
            self.assertIn('\'runs/small\' holds no checkpoint to go on from', said)
            self.assertIn('run.resume = "runs/small" and run.load = "weights"', said)
        self.assertEqual(self.result()["status"], "completed")
        self.assertNotIn("max_duration", self.host("train", "run.toml", "--set", "run.resume=auto").stdout)
        still = ("--set", "schedule.type=constant", "--set", "schedule.value=0.0")  # the weights stay as they begin
        self.host("train", "run.toml", "-q", "--set", "run.name=next", "--set", "run.resume=runs/small",
                  "--set", "run.load=weights", *still)
        self.assertEqual(tensors(self.folder / "runs/next/model.safetensors"), weights)
        said = self.host("train", "run.toml", "--set", "run.name=last", "--set", "run.resume=runs/small", code=4).stderr
        self.assertIn('run.load = "weights" takes the weights that it ended with', said)
        self.assertFalse((self.folder / "runs/last").exists())
        evaluated = json.loads(self.host("eval", "run.toml", "--weights", "runs/small", "--format", "json").stdout)
        self.assertEqual(evaluated["val/loss"], self.result()["metrics"]["val/loss"])
        for verb in ("eval", "audit"):
            self.assertIn("keeps no best checkpoint; train with checkpoint.keep_best",
                          self.host(verb, "run.toml", "--weights", "best", code=4).stderr)


if __name__ == "__main__":
    unittest.main()
