"""Writes weights.json: what Hugging Face's transformers 5 and torchvision 0.26 (PyTorch 2.11) compute of weights in their own files. Weights
and inputs are made by NumPy of the names of tensors (tests/e2e/support/made_weights.py), so that the test makes the same files: here
are names, shapes, settings and outputs alone. transformers reads the files by its own from_pretrained, strictly."""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import torchvision
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
from support.made_weights import image, made, tokens  # noqa: E402

transformers.logging.set_verbosity_error()


def shapes(path):
    with safe_open(path, "np") as file:
        return {name: list(file.get_slice(name).get_shape()) for name in sorted(file.keys())}


def of_transformers(kind, config, inputs):
    """A model of random weights says how its file looks; that file is made again with ours, and read."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        kind(config).save_pretrained(path)
        names = shapes(path / "model.safetensors")
        save_file({name: made(name, shape) for name, shape in names.items()}, path / "model.safetensors", {"format": "pt"})
        model, told = kind.from_pretrained(path, output_loading_info=True, attn_implementation="eager")
        assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"], told
        with torch.no_grad():
            output = model.eval()(torch.from_numpy(inputs)).logits
        return {"config": json.loads((path / "config.json").read_text()), "tensors": names, "output": rounded(output)}


def of_torchvision(model, inputs):
    names = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: torch.from_numpy(made(name, shape)) for name, shape in names.items()}, strict=True)
    with torch.no_grad():
        output = model.eval()(torch.from_numpy(inputs))
    return {"tensors": names, "output": rounded(output)}


def rounded(output):
    return [float(f"{each:.9g}") for each in output.flatten().tolist()]


GPT2 = dict(vocab_size=19, n_positions=12, n_embd=16, n_layer=2, n_head=4, n_inner=40)
LLAMA = dict(vocab_size=19, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False, rope_theta=5000.0)
VIT = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, image_size=12, patch_size=4, num_labels=5)
golden = {
    "gpt2": of_transformers(transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2), tokens(2, 9, 19)),
    "llama": of_transformers(transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA), tokens(2, 9, 19)),
    "llama of tied weights": of_transformers(transformers.LlamaForCausalLM, transformers.LlamaConfig(
        **{**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 6, "attention_bias": True, "mlp_bias": True}), tokens(2, 9, 19)),
    "vit": of_transformers(transformers.ViTForImageClassification, transformers.ViTConfig(**VIT), image(2, 3, 12, 12)),
    "vit_torchvision": of_torchvision(torchvision.models.VisionTransformer(
        image_size=12, patch_size=4, num_layers=2, num_heads=4, hidden_dim=16, mlp_dim=40, num_classes=5), image(2, 3, 12, 12)),
    "resnet18": of_torchvision(torchvision.models.resnet18(num_classes=5), image(2, 3, 40, 48)),
}
bottleneck = torchvision.models.ResNet(torchvision.models.resnet.Bottleneck, [3, 4, 6, 3], num_classes=3)
golden["resnet50"] = of_torchvision(bottleneck, image(2, 3, 40, 48))
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
