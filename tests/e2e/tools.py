"""Tools, the verbs that plugins are: what they print, what they write, what they refuse, and that they leave a run as it was."""
import io
import json
import math
import os
import pickle
import shutil
import signal
import struct
import subprocess
import time
import unittest
import zipfile

from safetensors.numpy import load_file, save_file

from support.host import BUILD, SMALL, HostTest, tensors

EMA = SMALL + '[[hooks]]\ntype = "ema"\ndecay = 0.5\n[checkpoint]\ntype = "full"\ninterval = "1ep"\n'

TOLD, OF_THE_HOST = BUILD / "tests/samples/told", BUILD / "tests/samples/doctor"  # a tool that does as it is told


class Storage:
    """Of LibTorch's zip, read without LibTorch: the file layout of torch.save."""

    def __init__(self, data, count):
        self.values = struct.unpack(f"<{count}f", data[:4 * count])


def read_torch(path):
    """{name: (shape, values)} of a dictionary of contiguous float tensors."""
    archive = zipfile.ZipFile(path)
    (index,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
    folder = index[:-len("data.pkl")]

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
                return lambda storage, offset, shape, stride, *_: (
                    tuple(shape), storage.values[offset:offset + math.prod(shape)])
            if (module, name) == ("collections", "OrderedDict"):
                return dict
            return (module, name)

        def persistent_load(self, saved):
            kind, storage, key, _, count = saved
            assert (kind, storage[1]) == ("storage", "FloatStorage"), saved
            return Storage(archive.read(f"{folder}data/{key}"), count)

    return Reader(io.BytesIO(archive.read(index))).load()


class Tools(HostTest):
    def call(self, *words, code=0, **more):
        done = subprocess.run(self.command(*words), cwd=self.folder, env=self.environment(**more), text=True,
                              capture_output=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def report(self, *words, code=0):
        return json.loads(self.call(*words, "--format", "json", code=code).stdout)

    def trained(self, text=EMA):
        self.write("run.toml", text)
        self.call("train", "run.toml", "-q")

    def files(self):
        return {path: path.read_bytes() for path in (self.folder / "runs").rglob("*") if path.is_file()}

    def test_listed_with_help_from_the_manifest(self):
        listed = self.call("tools").stdout
        self.assertIn("audit", listed)
        self.assertIn("export", listed)
        told = self.call("export", "--help").stdout
        for option in ("--to", "--weights_of", "--weights", "--format", "safetensors"):
            self.assertIn(option, told)

    def test_safetensors_are_the_weights_of_the_run(self):
        self.trained()
        report = self.report("export", "run.toml")
        saved, trained = load_file(self.folder / report["facts"]["file"]), load_file(self.folder / "runs/small/model.safetensors")
        self.assertEqual({name: tensor.tobytes() for name, tensor in saved.items()},
                         {name: tensor.tobytes() for name, tensor in trained.items()})
        self.assertEqual(report["facts"]["numbers"], sum(tensor.size for tensor in trained.values()))

    def test_a_run_is_trained_where_a_tool_has_looked_at_it_before(self):
        self.write("run.toml", SMALL)
        self.host("export", "run.toml", "--weights", "initial")
        self.train(SMALL)
        self.assertTrue((self.folder / "runs/small/tools/export/weights.safetensors").exists())
        self.write("runs/other/tools/mine.txt", "mine")
        self.write("runs/other/notes.txt", "mine")
        self.assertIn("is not empty and holds no run", self.host("train", "run.toml", "--set", "run.name=other", code=2).stderr)

    def test_predictions_of_training_data_are_those_of_an_epoch(self):
        self.train(SMALL)
        self.host("predict", "runs/small", "--split", "train", "--out", "said.csv", timeout=30)
        lines = (self.folder / "said.csv").read_text().splitlines()[1:]
        self.assertEqual(sorted(int(line.split(",")[0]) for line in lines), list(range(1, 65)))

    def test_torch_reads_them_too(self):
        self.trained()
        report = self.report("export", "run.toml", "--to", "torch")
        trained = load_file(self.folder / "runs/small/model.safetensors")
        read = read_torch(self.folder / report["facts"]["file"])
        self.assertEqual({name: (tensor.shape, tuple(tensor.ravel().tolist())) for name, tensor in trained.items()}, read)

    @unittest.skipUnless("TRAINYARD_TORCH_PYTHON" in os.environ, "TRAINYARD_TORCH_PYTHON names no Python with torch")
    def test_python_torch_reads_them(self):
        self.trained()
        path = self.report("export", "run.toml", "--to", "torch")["facts"]["file"]
        script = f"import torch; print(len(torch.load({path!r}, weights_only=True)))"
        done = subprocess.run([os.environ["TRAINYARD_TORCH_PYTHON"], "-c", script], text=True, capture_output=True, cwd=self.folder)
        self.assertEqual(done.stdout.strip(), "4", done.stderr)

    def test_averages_are_those_of_the_checkpoint(self):
        self.trained()
        path = self.folder / self.report("export", "run.toml", "--weights_of", "ema")["facts"]["file"]
        (newest,) = sorted((self.folder / "runs/small/checkpoints").glob("step-*"))[-1:]
        kept = {}
        for file in newest.glob("*.safetensors"):
            kept.update(load_file(file))
        for name, tensor in load_file(path).items():
            (average,) = [value for key, value in kept.items() if key.endswith("average/" + name)]
            self.assertEqual(tensor.tobytes(), average.tobytes())
        trained = load_file(self.folder / "runs/small/model.safetensors")
        self.assertTrue(all((tensor != trained[name]).any() for name, tensor in load_file(path).items()))

    def test_an_average_that_is_not_there(self):
        self.trained(SMALL)
        self.assertIn('holds no average of such a hook', self.call("export", "run.toml", "--weights_of", "ema", code=2).stderr)
        weights = self.folder / "runs/small/model.safetensors"
        self.call("export", "run.toml", "--weights_of", "ema", "--weights", weights, code=2)

    def test_options_of_the_run_file_and_of_the_line(self):
        self.trained(EMA + '[[tools]]\ntype = "export"\nto = "torch"\n[[tools]]\ntype = "audit"\nsteps = 3\n')
        self.assertEqual(self.report("export", "run.toml")["facts"]["format"], "torch")
        self.assertEqual(self.report("export", "run.toml", "--to", "safetensors")["facts"]["format"], "safetensors")
        self.assertEqual(self.report("export", "run.toml", "--set", "tools.0.to=safetensors")["facts"]["format"], "safetensors")
        self.assertIn("not moved in 3 steps", self.report("audit", "run.toml")["facts"])
        self.assertIn("not moved in 2 steps", self.report("audit", "run.toml", "--steps", "2")["facts"])
        self.assertIn("not moved in 4 steps", self.report("audit", "run.toml", "--set", "tools.0.steps=4")["facts"])

    def test_what_is_wrong_is_told(self):
        self.write("run.toml", EMA)
        self.assertIn("train first", self.call("export", "run.toml", code=4).stderr)
        self.trained()
        self.assertIn("to", self.call("export", "run.toml", "--to", "word", code=2).stderr)
        self.assertIn('there is no verb "exprot"', self.call("exprot", "run.toml", code=2).stderr)
        self.assertIn("did you mean", self.call("exprot", "run.toml", code=2).stderr)
        self.assertIn("a single process", self.call("export", "run.toml", code=2, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0",
                                                    LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29999").stderr)
        self.assertIn("asks for 999 steps", self.call("audit", "run.toml", "--steps", "999", code=2).stderr)
        self.write("two.toml", EMA + '[[tools]]\ntype = "audit"\nid = "a"\n[[tools]]\ntype = "audit"\nid = "b"\n')
        self.assertIn("two entries", self.call("audit", "two.toml", code=2).stderr)

    def test_no_swap_brings_one_into_a_training(self):
        self.write("run.toml", EMA + '[[tools]]\ntype = "audit"\n[[swap]]\nat = "2ba"\nslot = "tools.audit"\ntype = "export"\n')
        self.assertIn("no slot", self.call("validate", "run.toml", code=2).stderr)

    def test_steps_of_an_audit_are_undone(self):
        """What it trains moves the weights and the metrics; behind it, no file of the run is another, and it says the same."""
        self.trained()
        before = self.files()
        first = self.report("audit", "run.toml", "--steps", "3")
        self.assertEqual(before, self.files())
        facts = first["facts"]
        self.assertEqual(facts["not moved in 3 steps"], 0)
        self.assertNotEqual(facts["val/loss"], facts["val/loss after"])
        self.assertEqual(self.report("audit", "run.toml", "--steps", "3"), first)
        self.assertEqual([row["moved"] for row in first["rows"]], ["yes"] * 4)

    def test_what_no_step_moves_and_rules_that_look_on(self):
        self.trained(EMA.replace('lr = 0.01', 'lr = 0.01\ngroups = [{ match = ["*bias"], lr = 0.0, weight_decay = 0.0 }]')
                     + '[[rules]]\ntype = "all_zero"\n')
        before = self.files()
        moved = {row["parameter"].split(".")[-1]: row["moved"] for row in self.report("audit", "run.toml", "--steps", "2")["rows"]}
        self.assertEqual(moved, {"weight": "yes", "bias": "no"})
        self.assertEqual(before, self.files())

    def test_metrics_are_those_of_eval(self):
        self.trained()
        expected = json.loads(self.call("eval", "run.toml", "--format", "json").stdout)
        facts = self.report("audit", "run.toml", "--steps", "0", "--weights", self.folder / "runs/small/model.safetensors")["facts"]
        self.assertEqual({name: facts[name] for name in expected}, expected)

    def test_what_is_not_finite(self):
        self.trained()
        weights = load_file(self.folder / "runs/small/model.safetensors")
        bad = next(iter(weights))
        weights[bad].ravel()[1] = float("nan")
        save_file(weights, self.folder / "bad.safetensors")
        report = self.report("audit", "run.toml", "--steps", "0", "--weights", self.folder / "bad.safetensors", code=5)
        self.assertEqual(report["facts"]["val/loss"], "nan")
        self.assertEqual({row["parameter"]: row["not finite"] for row in report["rows"]}, {name: int(name == bad) for name in weights})
        facts = self.report("told", "run.toml", "--plugins", TOLD)["facts"]
        self.assertEqual(facts, {"nan": "nan", "up": "inf", "down": "-inf", "batches": 2, "parameters": 4})

    def test_what_a_tool_does_wrong_is_told_with_its_name(self):
        self.trained()
        self.assertIn("[tools[0]] told: shelf 7", self.call("told", "run.toml", "--plugins", TOLD, "--what", "throw", code=3).stderr)
        self.assertIn("told reports a row of 1 cells under 2 columns",
                      self.call("told", "run.toml", "--plugins", TOLD, "--what", "ragged", code=3).stderr)

    def test_a_name_that_the_host_has(self):
        self.assertIn('is a tool called "doctor", as the host\'s verb', self.call("plugins", "list", "--plugins", OF_THE_HOST, code=3).stdout)
        self.assertNotIn("Does as it is told", self.call("tools", "--plugins", OF_THE_HOST).stdout)

    def test_folders_of_the_run_file(self):
        self.trained(EMA + f'[plugins]\npaths = ["{TOLD}"]\n')
        self.assertEqual(self.report("told", "run.toml")["facts"]["batches"], 2)

    def test_two_of_one_name(self):
        self.trained()
        shutil.copy(BUILD / "lib/trainyard/plugins/tool/libexport.so", self.folder / "libexport.so")
        self.assertIn("more than one file provides", self.call("export", "run.toml", "--plugins", self.folder, code=2).stderr)

    def test_a_signal_ends_it_and_leaves_the_run_as_it_was(self):
        self.trained()
        before = self.files()
        for what, words in (("wait", ()), ("train", ("--set", "trainer.max_duration=1000000ba"))):
            with self.subTest(what=what):
                tool = subprocess.Popen(self.command("told", "run.toml", "--plugins", TOLD, "--what", what, *words), cwd=self.folder,
                                        env=self.environment(), text=True, stderr=subprocess.PIPE)
                waiting = self.folder / "runs/small/tools/told/waiting"
                end = time.monotonic() + (60 if what == "wait" else 3)
                while time.monotonic() < end and not (what == "wait" and waiting.exists()):
                    time.sleep(0.05)
                self.assertIsNone(tool.poll())
                tool.send_signal(signal.SIGINT)
                self.assertIn("told was interrupted", tool.communicate(timeout=60)[1])
                self.assertEqual(tool.returncode, 75)
        self.assertEqual(before, self.files())

    def test_weights_in_halves_are_exported_whole(self):
        text = (EMA.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3',
                            'type = "xc"\nlayout = "synthetic"\nfeatures = 40\nclasses = 10\nprototype = 6\nown = 4\nnoise = 3')
                .replace('type = "mlp"\nlayers = [8, 16, 3]', 'type = "slide"\nhidden = 8\nprecision = "bf16"')
                .replace('type = "cross_entropy"', 'type = "cross_entropy"\nmulti_label = true')
                .replace('type = "accuracy"', 'type = "precision_at_k"\nk = [1]').replace('type = "adamw"', 'type = "lazy_adam"'))
        self.trained(text)
        whole = load_file(self.folder / self.report("export", "run.toml")["facts"]["file"])
        kept = tensors(self.folder / "runs/small/model.safetensors")
        self.assertEqual(set(kept) - set(whole), {"output.weight_lower"})
        halves = zip(kept["output.weight_lower"][::2], kept["output.weight_lower"][1::2], kept["output.weight"][::2], kept["output.weight"][1::2])
        self.assertEqual(whole["output.weight"].tobytes(), b"".join(map(bytes, halves)))
        self.assertEqual(whole["output.weight"].dtype.name, "float32")

    def test_a_run_that_swapped(self):
        self.trained(EMA + '[[swap]]\nat = "3ba"\nslot = "optimizer"\ntype = "sgd"\nlr = 0.1\n')
        self.assertEqual(self.report("audit", "run.toml", "--steps", "2")["facts"]["not moved in 2 steps"], 0)


if __name__ == "__main__":
    unittest.main()
