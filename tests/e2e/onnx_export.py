"""What `export --to onnx` writes: ONNX's checker takes it, and onnxruntime gives what the network gives, for every model that has a graph."""
import json
import sys
import unittest

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import numpy_helper
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"skipped: {error}; tools/test makes an environment that has it")
    sys.exit(77)

from support.exported_runs import DATA, MODEL, SEQUENTIAL, images, run
from support.host import BUILD, SMALL, SOURCE, HostTest

QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level = 4

TOKENS = 'type = "synthetic"\nkind = "language"\nseq_len = 6\nvocabulary = 9'
CLICKS = 'type = "ctr"\nrows = [3, 9, 20]\nfeatures = 4'
RUNS = {
    "mlp": run(MODEL),
    "mlp with dropout": run(MODEL) + '[model.dropout]\ntype = "standard"\np = 0.5\n',
    "sequential": run(SEQUENTIAL, images(3, 13, 11)),
    "lenet": run('type = "lenet"', images(1, 28, 28)),
    "resnet": run('type = "resnet"\ndepth = 8', images(3, 12, 12)),
    "resnet with group norm": run('type = "resnet"\ndepth = 8\nactivation = "pre"\nnorm = "group"', images(3, 12, 12)),
    "residual_mlp": run('type = "residual_mlp"\nwidth = 8\nblocks = 2'),
    "gpt": run('type = "gpt"\nn_layer = 2\nn_head = 2\nd_model = 8', TOKENS),
    "gpt like LLaMA": run('type = "gpt"\nn_layer = 2\nn_head = 4\nn_kv_head = 2\nd_model = 16\nposition = "rope"\nnorm = "rms"\nmlp = "swiglu"\n'
                          'bias = false\ntied = false', TOKENS),
    "gpt with more positions": run('type = "gpt"\nn_layer = 1\nn_head = 2\nd_model = 8\nn_positions = 9\nmlp = "gelu"', TOKENS),
    "vit": run('type = "vit"\nn_layer = 2\nn_head = 2\nd_model = 8', images(3, 12, 8)),
    "vit of the mean": run('type = "vit"\nn_layer = 1\nn_head = 2\nd_model = 8\npool = "mean"', images(3, 12, 8)),
    "resnet_imagenet": run('type = "resnet_imagenet"\nwidth = 4', images(3, 40, 48)),
    "lstm": run('type = "lstm"\nn_layer = 2\nembedding = 4\nhidden = 8', TOKENS),
    "dlrm": run('type = "dlrm"\ndim = 2\nbottom = [4]\ntop = [4]', CLICKS).replace("cross_entropy", "bce_with_logits"),
    "onnx": run('type = "onnx"\nfile = "before.onnx"\nreshape_input = true', images(2, 4)),
}


class Export(HostTest):
    def outputs(self, text, *words):
        """Trains; gives the network's outputs, onnxruntime's for the same inputs, and the file."""
        self.train(text, "--overwrite")
        self.host("predict", "run.toml", "--inputs", "true", "--out", "said.safetensors")
        self.host("export", "run.toml", "--to", "onnx", "--file", "net.onnx", *words)
        said = load_file(self.folder / "said.safetensors")
        path = str(self.folder / "net.onnx")
        onnx.checker.check_model(path, full_check=True)
        session = onnxruntime.InferenceSession(path, QUIET, providers=["CPUExecutionProvider"])
        inputs = {each.name: said[f"input/{i}"] for i, each in enumerate(session.get_inputs())}
        return said["output"], session.run(None, inputs)[0], onnx.load(path)

    def test_every_model_that_has_a_graph(self):
        models = {path.stem for path in (SOURCE / "plugins/model").rglob("*.cpp") if 'provides("graph")' in path.read_text()}
        self.assertEqual(models, {name.split()[0] for name in RUNS})
        for name, text in RUNS.items():
            with self.subTest(name):
                if name == "onnx":
                    self.train(RUNS["mlp"], "--overwrite")
                    self.host("export", "run.toml", "--to", "onnx", "--file", "before.onnx")
                found, expected, proto = self.outputs(text)
                self.assertEqual(found.shape, expected.shape)
                self.assertGreater(float(np.abs(found).max()), 1e-3)
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
                self.assertEqual((proto.opset_import[0].version, proto.producer_name), (23, "trainyard"))
                self.assertEqual([each.type.tensor_type.shape.dim[0].dim_param for each in proto.graph.input], ["batch"] * len(proto.graph.input))

    def test_networks_that_were_pruned_and_trained_on(self):
        for scorer in ("pfp", "magnitude"):
            self.write("base.toml", RUNS["resnet"])
            self.host("train", "base.toml", "-q", "--overwrite")
            self.host("prune", "base.toml", "--scorer", f'{{ type = "{scorer}" }}', "--ratio", "0.6", "--samples", "16", "--out", "pruned")
            found, expected, proto = self.outputs('schema = 1\nextends = ["base.toml", "pruned/run.toml"]\n[run]\nname = "small"\n')
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            before = sum(each.size for each in load_file(self.folder / "runs/small/model.safetensors").values())
            self.assertEqual(scorer == "pfp", before < 40000)
            self.assertEqual(sum(int(np.count_nonzero(numpy_helper.to_array(each))) for each in proto.graph.initializer if each.name.startswith("layer3")) < 25000, True)

    def test_networks_in_double_precision(self):
        for name in ("mlp", "residual_mlp"):  # onnxruntime has no convolutions of doubles
            with self.subTest(name):
                found, expected, _ = self.outputs(RUNS[name].replace("[trainer]", '[trainer]\nprecision = "fp64"'))
                self.assertEqual(expected.dtype, np.float64)
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)

    def test_what_is_written_is_read_again(self):
        """A file that `onnx` reads, exported again: the same weights, by the same names."""
        self.train(RUNS["resnet"])
        self.host("export", "run.toml", "--to", "onnx", "--file", "before.onnx")
        self.host("predict", "run.toml", "--out", "before.safetensors")
        still = run('type = "onnx"\nfile = "before.onnx"', images(3, 12, 12)).replace('"adamw"\nlr = 0.01', '"sgd"\nlr = 1e-30')
        self.train(still, "--overwrite", "--set", "trainer.max_duration=1ba")
        self.host("export", "run.toml", "--to", "safetensors", "--file", "after.safetensors")
        weights = {each.name: numpy_helper.to_array(each) for each in onnx.load(self.folder / "before.onnx").graph.initializer}
        after = load_file(self.folder / "after.safetensors")
        trained = [name for name in after if "running" not in name]
        self.assertGreater(len(trained), 20)
        for name in trained:
            self.assertEqual(after[name].tobytes(), weights[name].tobytes(), name)

    def test_weights_in_a_file_beside(self):
        one, _, inside = self.outputs(RUNS["sequential"])  # with tensors of odd sizes
        found, expected, outside = self.outputs(RUNS["sequential"], "--external", "true")
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        self.assertEqual(found.tobytes(), one.tobytes())
        read = lambda proto: {each.name: numpy_helper.to_array(each).tobytes() for each in proto.graph.initializer}
        self.assertEqual(read(inside), read(outside))
        raw = onnx.load(self.folder / "net.onnx", load_external_data=False).graph.initializer
        self.assertEqual([each.name for each in raw if each.data_type == onnx.TensorProto.FLOAT and each.raw_data], [])
        offsets = [int(entry.value) for each in raw for entry in each.external_data if entry.key == "offset"]
        self.assertEqual([offset % 64 for offset in offsets], [0] * len(offsets))
        self.assertGreater(len(offsets), 9)

    def test_averages_of_weights(self):
        text = RUNS["mlp"] + '[[hooks]]\ntype = "ema"\ndecay = 0.5\n[checkpoint]\ntype = "full"\ninterval = "1ep"\n'
        _, _, trained = self.outputs(text)
        _, _, averaged = self.outputs(text, "--weights_of", "ema")
        self.host("export", "run.toml", "--weights_of", "ema", "--file", "ema.safetensors")
        expected = load_file(self.folder / "ema.safetensors")
        for one, other in zip(trained.graph.initializer, averaged.graph.initializer):
            self.assertNotEqual(one.raw_data, other.raw_data)
            self.assertEqual(other.raw_data, expected[other.name].tobytes())

    def test_what_is_refused(self):
        slide = (SMALL.replace(DATA, 'type = "xc"\nlayout = "synthetic"\nfeatures = 40\nclasses = 10\nprototype = 6\nown = 4\nnoise = 3')
                 .replace('type = "synthetic"\n', "").replace(MODEL, 'type = "slide"\nhidden = 8')
                 .replace('type = "cross_entropy"', 'type = "cross_entropy"\nmulti_label = true').replace('type = "accuracy"', 'type = "precision_at_k"\nk = [1]')
                 .replace('"adamw"', '"lazy_adam"'))
        self.train(slide)
        said = self.host("export", "run.toml", "--to", "onnx", code=2).stderr
        self.assertIn("this model has no graph of operators", said)
        self.train(RUNS["mlp"], "--overwrite")
        said = self.host("export", "run.toml", "--to", "torch", "--external", "true", code=2).stderr
        self.assertIn('external is of to = "onnx"', said)
        said = self.host("export", "run.toml", "--to", "onnx", "--file", "none/net.onnx", code=4).stderr
        self.assertIn("none/net.onnx: cannot be written: No such file or directory", said)
        self.assertEqual(list(self.folder.glob("**/*.tmp")), [])
        drop = RUNS["mlp"] + '[model.dropout]\ntype = "dropconnect"\np = 0.5\ninference = "INFERENCE"\n'
        self.train(drop.replace("INFERENCE", "gaussian"), "--overwrite")
        said = self.host("export", "run.toml", "--to", "onnx", code=2).stderr
        self.assertIn("[model.dropout] evaluates layers in its own way", said)
        self.host("export", "run.toml", "--to", "onnx", "--set", "model.dropout.p=0")
        found, expected, _ = self.outputs(drop.replace("INFERENCE", "mean"))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


class Predict(HostTest):
    def test_outputs_are_those_that_the_metrics_are_of(self):
        self.train(RUNS["mlp"])
        report = json.loads(self.host("predict", "run.toml", "--format", "json").stdout)
        said = load_file(self.folder / "runs/small/tools/predict/outputs.safetensors")
        self.assertEqual(sorted(said), ["index", "output", "target"])
        self.assertEqual(sorted(said["index"]), list(range(32)))
        accuracy = float((said["output"].argmax(1) == said["target"]).mean())
        shifted = said["output"].astype(np.float64) - said["output"].max(1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(32), said["target"]]
        metrics = self.result()["metrics"]
        self.assertAlmostEqual(accuracy, metrics["val/accuracy"], 6)
        self.assertAlmostEqual(float(losses.mean()), metrics["val/loss"], 5)
        self.assertEqual(report["facts"]["samples"] if "facts" in report else report["samples"], 32)

    def test_batches_inputs_and_another_split(self):
        self.train(RUNS["mlp"])
        self.host("predict", "run.toml", "--batches", "1", "--inputs", "true", "--out", "one.safetensors", "--split", "train")
        one = load_file(self.folder / "one.safetensors")
        self.assertEqual((one["output"].shape, one["input/0"].shape, len(set(one["index"]))), ((16, 3), (16, 8), 16))
        self.assertIn("test", self.host("predict", "run.toml", "--split", "test", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
