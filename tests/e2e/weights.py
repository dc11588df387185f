"""Weights of files that others write: transformers' GPT-2, Llama and ViT, torchvision's ViT and ResNet. What our networks compute of them is
what PyTorch does (tests/golden/weights.py); they go back to the same bits; what does not fit is told, to the last tensor."""
import json
import re
import shlex
import signal
import subprocess
import sys
import unittest

try:
    import numpy as np
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; tools/test makes an environment that has it")
    sys.exit(77)

from support.host import FAULTY, KILLER, SMALL, SOURCE, HostTest
from support.made_weights import image, made, tokens

GOLDEN = json.loads((SOURCE / "tests/golden/weights.json").read_text())
RUN = """
schema = 1
[run]
name = "small"
seed = 3
threads = { intra_op = 1, inter_op = 1 }
[model]
MODEL
[loss]
type = "cross_entropy"
[data]
DATA
[optimizer]
type = "sgd"
lr = 0.05
[trainer]
max_duration = "1ba"
[[logging.sinks]]
type = "jsonl"
"""
TOKENS = 'type = "tokens"\npath = "tokens.bin"\nvocabulary = 19\nseq_len = 9\ntrain = { batch_size = 2 }\nval = { batch_size = 2 }'
IMAGES = 'type = "npy"\ntrain = { inputs = "x.npy", targets = "y.npy", batch_size = 2 }\nval = { inputs = "x.npy", targets = "y.npy", batch_size = 2 }'
LLAMA = ('type = "gpt"\nn_layer = 2\nn_head = 6\nd_model = 24\nmlp_width = 40\nposition = "rope"\nrope_theta = 5000.0\nnorm = "rms"\nnorm_eps = 1e-6\n'
         'mlp = "swiglu"\n')
VIT = 'type = "vit"\npatch = 4\nn_layer = 2\nn_head = 4\nd_model = 16\nmlp_width = 40\n'
MODELS = {
    "gpt2": 'type = "gpt"\nn_layer = 2\nn_head = 4\nd_model = 16\nmlp_width = 40\nn_positions = 12',
    "llama": LLAMA + "n_kv_head = 2\nbias = false\ntied = false",
    "llama of tied weights": LLAMA,
    "vit": VIT + "norm_eps = 1e-12",
    "vit_torchvision": VIT,
    "resnet18": 'type = "resnet_imagenet"',
    "resnet50": 'type = "resnet_imagenet"\ndepth = 50',
}
MAPS = {"llama of tied weights": "llama", "resnet18": "resnet", "resnet50": "resnet"}
SHAPES = {"vit": (2, 3, 12, 12), "vit_torchvision": (2, 3, 12, 12), "resnet18": (2, 3, 40, 48), "resnet50": (2, 3, 40, 48)}


def files(name):
    """The tensors of such a file."""
    return {each: made(each, shape) for each, shape in GOLDEN[name]["tensors"].items()}


class WeightsTest(HostTest):
    def prepare(self, name, tensors=None, **config):
        """A folder as others write it, data whose samples are those of the golden outputs, and a run file."""
        folder = self.folder / "hf"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        save_file(files(name) if tensors is None else tensors, folder / "model.safetensors", {"format": "pt"})
        if "config" in GOLDEN[name]:
            (folder / "config.json").write_text(json.dumps({**GOLDEN[name]["config"], **config}))
        data = TOKENS
        if name in SHAPES:
            data, shape = IMAGES, SHAPES[name]
            np.save(self.folder / "x.npy", image(*shape))
            classes = len(GOLDEN[name]["output"]) // shape[0]
            # A sample that is of the last class, so that there are as many as the file has.
            np.save(self.folder / "y.npy", np.array([classes - 1, 0]))
        else:
            np.append(tokens(2, 9, 19).flatten(), 0).astype(np.uint16).tofile(self.folder / "tokens.bin")
        self.write("run.toml", RUN.replace("MODEL", MODELS[name]).replace("DATA", data))

    def convert(self, name, *words, code=0):
        return self.host("convert", "run.toml", "--map", MAPS.get(name, name), *words, code=code)

    def taken(self, name, *words, code=0, path="hf"):
        return self.convert(name, "--weights", "initial", "--from", path, "--file", "ours.safetensors", *words, code=code)

    def outputs(self):
        self.host("predict", "run.toml", "--weights", "ours.safetensors", "--out", "said.safetensors")
        said = load_file(self.folder / "said.safetensors")
        return said["output"][np.argsort(said["index"])]

    def check_outputs(self, name):
        expected = np.array(GOLDEN[name]["output"])
        found = self.outputs()
        self.assertEqual(found.size, expected.size)
        self.assertGreater(np.abs(expected).max(), 0.3)
        np.testing.assert_allclose(found.flatten(), expected, rtol=1e-5, atol=1e-5)


class Weights(WeightsTest):
    def test_outputs_are_those_of_pytorch_and_the_way_back_is_exact(self):
        for name in MODELS:
            with self.subTest(name):
                self.prepare(name)
                self.taken(name)
                self.check_outputs(name)
                self.convert(name, "--weights", "ours.safetensors", "--file", "back.safetensors")
                back, given = load_file(self.folder / "back.safetensors"), files(name)
                learned = {each for each in given if not each.endswith("num_batches_tracked")}
                self.assertEqual(set(back), learned)
                self.assertEqual([each for each in learned if back[each].tobytes() != given[each].tobytes()], [])

    def test_names_without_their_beginning_and_masks_that_nobody_learned(self):
        """As the file of GPT-2 itself is, which holds the model without its head."""
        bare = {name.removeprefix("transformer."): tensor for name, tensor in files("gpt2").items()}
        bare |= {f"h.{layer}.attn.bias": np.tril(np.ones((1, 1, 12, 12), np.float32)) for layer in range(2)}
        self.prepare("gpt2", bare)
        self.assertIn("transformer.h.1.attn.bias", self.taken("gpt2").stdout)
        self.check_outputs("gpt2")

    def test_several_files_with_an_index(self):
        self.prepare("llama")
        given = files("llama")
        names = sorted(given)
        shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        folder = self.folder / "hf"
        (folder / "model.safetensors").unlink()
        for file, own in shards.items():
            save_file({name: given[name] for name in own}, folder / file)
        index = {"metadata": {}, "weight_map": {name: file for file, own in shards.items() for name in own}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        self.taken("llama")
        self.check_outputs("llama")
        index["weight_map"]["model.more"] = "model-00002-of-00002.safetensors"
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        self.assertIn('lacks "model.more"', self.taken("llama", code=4).stderr)
        del index["weight_map"]["model.more"], index["weight_map"]["model.norm.weight"]
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        self.assertIn('holds "model.norm.weight"', self.taken("llama", code=4).stderr)

    def test_numbers_of_half_the_bytes(self):
        self.prepare("gpt2", {name: tensor.astype(np.float16) for name, tensor in files("gpt2").items()})
        self.taken("gpt2")
        ours = load_file(self.folder / "ours.safetensors")
        self.assertEqual(ours["wte.weight"].tobytes(), files("gpt2")["transformer.wte.weight"].astype(np.float16).astype(np.float32).tobytes())

    def test_training_goes_on_from_them(self):
        """The first loss is that of PyTorch's outputs, not that of chance, and falls; killed twice, the run ends with the same bits."""
        self.prepare("gpt2")
        self.taken("gpt2")
        text = ((self.folder / "run.toml").read_text().replace('"1ba"', '"8ba"').replace("seed = 3", 'seed = 3\nresume = "ours.safetensors"\nload = "weights"')
                + '[logging]\ninterval = "1ba"\n[checkpoint]\ntype = "full"\ninterval = "2ba"\n' + KILLER)
        whole = self.train(text, "--plugins", FAULTY)["digest"]
        losses = [line["values"]["train/loss"] for line in self.lines("metrics.jsonl", "train")]
        logits = np.array(GOLDEN["gpt2"]["output"]).reshape(18, 19)
        targets = np.append(tokens(2, 9, 19).flatten()[1:], 0)
        expected = (np.log(np.exp(logits).sum(1)) - logits[np.arange(18), targets]).mean()
        self.assertAlmostEqual(losses[0], expected, 5)
        self.assertGreater(abs(losses[0] - np.log(19)), 0.05)
        self.assertLess(losses[-1], losses[0] - 0.1)
        self.host("train", "run.toml", "-q", "--overwrite", "--plugins", FAULTY)
        self.killed_at(text, "before_step 4", "--overwrite")
        self.write("place", "batch_end 7")
        self.host("resume", "runs/small", "-q", "--plugins", FAULTY, code=-signal.SIGKILL)
        (self.folder / "place").unlink()
        self.host("resume", "runs/small", "-q", "--plugins", FAULTY)
        self.assertEqual(self.result()["digest"], whole)

    def test_a_compiled_step_is_the_plain_one(self):
        for name in ("llama", "vit", "resnet18"):
            with self.subTest(name):
                self.prepare(name)
                self.taken(name)
                text = (self.folder / "run.toml").read_text().replace('"1ba"', '"3ba"').replace("seed = 3", 'seed = 3\nresume = "ours.safetensors"\nload = "weights"')
                ends = []
                for executor in ("eager", "compiled"):
                    self.train(text, "--overwrite", "--set", f"executor.type={executor}", "--set", "optimizer.lr=0.001")
                    ends.append(load_file(self.folder / "runs/small/model.safetensors"))
                start = load_file(self.folder / "ours.safetensors")
                self.assertGreater(max(np.abs(ends[0][each] - start[each]).max() for each in start), 1e-4)
                for each in start:
                    np.testing.assert_allclose(ends[1][each], ends[0][each], rtol=1e-4, atol=2e-5, err_msg=each)


class Refused(WeightsTest):
    def said(self, name, tensors, *words, code=2, **config):
        self.prepare(name, tensors, **config)
        return self.taken(name, *words, code=code).stderr

    def test_what_is_missing_left_over_or_of_a_wrong_shape_is_told_at_once(self):
        tensors = files("gpt2")
        del tensors["transformer.h.1.ln_2.bias"]
        tensors["transformer.h.2.ln_1.weight"] = np.ones(16, np.float32)
        tensors["transformer.wpe.weight"] = np.ones((13, 16), np.float32)
        tensors["transformer.h.0.attn.c_attn.weight"] = tensors["transformer.h.0.attn.c_attn.weight"].T.copy()
        said = self.said("gpt2", tensors)
        self.assertIn('hf does not fit the model by map "gpt2":', said)
        self.assertIn('the file lacks "transformer.h.1.ln_2.bias", of which "h.1.ln_2.bias" [16] of the model is made', said)
        self.assertIn('the file\'s "transformer.h.2.ln_1.weight" [16] is of no tensor of the model', said)
        self.assertIn('"wpe.weight" [12, 16] of the model does not fit "transformer.wpe.weight" [13, 16] of the file: set model.n_positions', said)
        self.assertIn('"h.0.attn.qkv.weight" [48, 16] of the model does not fit "transformer.h.0.attn.c_attn.weight" [48, 16], transposed', said)
        self.assertFalse((self.folder / "ours.safetensors").exists())

    def test_a_head_that_stands_for_the_embedding_has_to_be_the_same(self):
        tensors = files("gpt2")
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].copy()
        self.prepare("gpt2", tensors)
        self.taken("gpt2")
        tensors["lm_head.weight"][3, 4] += 1e-6
        said = self.said("gpt2", tensors)
        self.assertIn('"lm_head.weight" [19, 16] of the file is not the same as "wte.weight"', said)
        self.assertIn("set model.tied = false", said)

    def test_settings_that_no_shape_tells(self):
        for name, config, words in (
                ("gpt2", {"n_head": 8}, "model.n_head is 4, and n_head 8"),
                ("gpt2", {"layer_norm_epsilon": 1e-6}, "model.norm_eps is 1e-05, and layer_norm_epsilon 1e-06"),
                ("gpt2", {"activation_function": "gelu"}, 'model.mlp is gelu_tanh, and activation_function "gelu": set it to "gelu"'),
                ("gpt2", {"activation_function": "relu"}, "activation_function is relu, which this model does not have"),
                ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is true"),
                ("llama", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}, "model.rope_theta is 5000.0, and rope_parameters.rope_theta 10000.0"),
                ("llama", {"rope_parameters": {"rope_theta": 5e3, "rope_type": "yarn"}}, "rope_parameters.rope_type is yarn"),
                ("llama", {"rope_scaling": {"type": "linear"}}, "rope_scaling is "),
                ("vit", {"hidden_act": "relu"}, "hidden_act is relu")):
            with self.subTest(str(config)):
                self.assertIn(words, self.said(name, None, **config))

    def test_other_models_maps_and_files(self):
        self.prepare("gpt2")
        said = self.host("convert", "run.toml", "--weights", "initial", "--map", "llama", "--from", "hf", code=2).stderr
        self.assertIn('the files of map "llama" are of models with other options', said)
        for each in ("model.position is learned, expected rope", "model.norm is layer, expected rms", "model.mlp is gelu_tanh, expected swiglu"):
            self.assertIn(each, said)
        self.assertIn('map "vit" is for [model] type = "vit", found "gpt"', self.host(
            "convert", "run.toml", "--weights", "initial", "--map", "vit", "--from", "hf", code=2).stderr)
        self.assertIn("there is no such map, expected one of gpt2, llama", self.host(
            "convert", "run.toml", "--weights", "initial", "--map", "gpt3", "--from", "hf", code=2).stderr)
        self.assertIn("none does not exist", self.taken("gpt2", path="none", code=4).stderr)
        one = json.loads(self.host("convert", "run.toml", "--weights", "initial", "--from", "hf", "--format", "json").stdout)
        self.assertEqual(one["facts"]["map"], "gpt2")  # the only one for such a model
        self.prepare("vit")
        self.assertIn("several maps fit the model: set map to one of vit, vit_torchvision", self.host(
            "convert", "run.toml", "--weights", "initial", "--from", "hf", code=2).stderr)
        self.write("run.toml", SMALL)
        self.assertIn("no map fits the model", self.host("convert", "run.toml", "--weights", "initial", code=2).stderr)

    def test_maps_of_a_users_own(self):
        own = (SOURCE / "plugins/tool/convert/maps/gpt2.toml").read_text()
        self.prepare("gpt2")
        self.write("own.toml", own)
        words = ("convert", "run.toml", "--weights", "initial", "--map", "own.toml", "--from", "hf", "--file", "ours.safetensors")
        self.host(*words)
        self.check_outputs("gpt2")
        for old, new, said in (
                ('ours = "wpe.weight"', 'our = "wpe.weight"', 'found the key "our", expected one of ours, file'),
                ('file = "transformer.h.{layer}.mlp.c_fc.bias"', 'file = "transformer.h.{n}.mlp.c_fc.bias"', "have different places"),
                ("tensors = [", "tensors = {", "own.toml:"), ("format = 1", "format = 2", "expected format = 1"),
                ('"transformer.wte.weight", hint', '"transformer.{.weight", hint', "expected a place such as {layer}"),
                ('  { ours = "wte.weight"', '  { ours = "wte.waste"', 'the map has no line for "wte.weight" [19, 16]')):
            with self.subTest(said):
                self.assertIn(old, own)
                self.write("own.toml", own.replace(old, new))
                self.assertIn(said, self.host(*words, code=2).stderr)


class Page(WeightsTest):
    def test_the_example_as_it_stands(self):
        """Its file is written and its commands are typed; the model is a small one, with the tokenizer of the unit tests."""
        page = (SOURCE / "docs/weights.md").read_text()
        tokenizer = json.loads((SOURCE / "tests/golden/tokenizer_files.json").read_text())["plain"]["file"]
        vocabulary = max(each["id"] for each in tokenizer["added_tokens"]) + 1
        sizes = {"n_layer": 2, "n_head": 4, "d_model": 16, "n_positions": 12, "seq_len": 8}
        (block,) = re.findall(r"```toml\n# story.toml\n(.*?)```", page, re.S)
        for name, size in sizes.items():
            block, count = re.subn(rf"^{name} = \d+", f"{name} = {size}", block, flags=re.M)
            self.assertEqual(count, 1, name)
        tensors = {}
        for name, shape in GOLDEN["gpt2"]["tensors"].items():
            shape = [64 if each == 40 else each for each in shape]  # four times the width, as it is by default
            tensors[name] = made(name, [vocabulary, 16] if name.endswith("wte.weight") else shape)
        self.prepare("gpt2", tensors)
        (self.folder / "hf").rename(self.folder / "gpt2")
        self.write("gpt2/tokenizer.json", json.dumps(tokenizer))
        self.write("story.toml", block)
        for split in ("train", "val"):
            self.write(f"{split}.txt", "the cat don't naïve 2026 слово\n" * 40)
        (typed,) = re.findall(r"```sh\n(.*?)```", page, re.S)
        said = [subprocess.run(self.command(*shlex.split(line)[1:]), cwd=self.folder, env=self.environment(), capture_output=True, timeout=60)
                for line in typed.splitlines()]  # generated bytes need not be UTF-8
        self.assertEqual([(done.returncode, done.stderr) for done in said], [(0, b"")] * 4)
        self.assertTrue(said[2].stdout.startswith(b"The cat"))
        back = load_file(self.folder / "model.safetensors")
        self.assertEqual({name: list(each.shape) for name, each in back.items()}, {name: list(each.shape) for name, each in tensors.items()})
        self.assertFalse(np.array_equal(back["transformer.wte.weight"], tensors["transformer.wte.weight"]))


class Options(WeightsTest):
    def test_options_of_gpt_that_do_not_fit_are_refused(self):
        self.prepare("llama")
        for words, said in ((["n_kv_head=4"], "model.n_kv_head = 4 does not divide model.n_head = 6"),
                            (["d_model=18"], 'model.position = "rope" turns pairs, and a head is model.d_model / model.n_head = 3 wide'),
                            (["n_positions=20"], "model.n_positions is of position"),
                            (["position=learned", "n_positions=8"], "model.n_positions is 8, and a sample has 9 tokens")):
            with self.subTest(said):
                sets = [word for each in words for word in ("--set", f"model.{each}")]
                self.assertIn(said, self.host("train", "run.toml", "-q", *sets, code=2).stderr)

    def test_options_of_images_that_do_not_fit_are_refused(self):
        self.prepare("vit")
        self.assertIn("model.patch = 5 does not divide", self.host("train", "run.toml", "-q", "--set", "model.patch=5", code=2).stderr)
        self.prepare("resnet18")
        self.assertIn("needs one of 18, 34, 50, 101, 152", self.host("train", "run.toml", "-q", "--set", "model.depth=20", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
