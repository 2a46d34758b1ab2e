"""Adapters that mlx-lm's own code writes: the zoo's logits are those of mlx-lm with the same adapter."""

import json

import mlx_lm.utils as mlx_lm
import pytest
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.checkpoint.convert import convert

from .families import FAMILIES
from .family import VOCAB
from .support import TOLERANCE, far, texts

# Of a family, the variant that has what an adapter is for: biases on keys, a tied table.
VARIANTS = {"llama": 2, "qwen2": 3}
ADAPTERS = {
    "lora": ("llama", "lora", None),
    "dora": ("llama", "dora", None),
    "two kinds of matrices": ("llama", "lora", ["self_attn.q_proj", "mlp.down_proj"]),
    "a fused matrix": ("gpt2", "lora", ["attn.c_attn", "mlp.c_fc"]),
    "a fused matrix, dora": ("gpt2", "dora", ["attn.c_attn"]),
    "experts": ("mixtral", "lora", None),
    "a tied table": ("qwen2", "lora", ["model.embed_tokens", "self_attn.v_proj"]),
    "full": ("llama", "full", None),
    "a fused matrix of three": ("phi3", "lora", ["self_attn.qkv_proj"]),
    "a fused matrix of three, dora": ("phi3", "dora", ["self_attn.qkv_proj"]),
}


def train(folder, out, kind, keys):
    """An adapter folder with random numbers, as `mlx_lm.lora` writes it."""
    model, _ = mlx_lm.load_model(folder)
    how = dict(rank=4, scale=3.0, dropout=0.0) | ({"keys": keys} if keys else {})
    model.freeze()
    if kind == "full":
        for layer in model.layers[-2:]:
            layer.unfreeze()
    else:
        linear_to_lora_layers(model, 2, how, use_dora=kind == "dora")
    tensors = dict(tree_flatten(model.trainable_parameters()))
    mx.random.seed(5)
    tensors = {
        name: mx.abs(array) * 1.2 if name.endswith(".m") else array + 0.1 * mx.random.normal(array.shape)
        for name, array in tensors.items()
    }
    out.mkdir()
    mx.save_safetensors(str(out / "adapters.safetensors"), tensors)
    settings = dict(fine_tune_type=kind, num_layers=2, lora_parameters=how)
    (out / "adapter_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("quantize", [None, "4"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_the_same_as_mlx_lm(name, quantize, tmp_path):
    family, kind, keys = ADAPTERS[name]
    if quantize and kind == "full":
        quantize = None  # mlx-lm trains no packed matrices
    FAMILIES[family].make(VARIANTS.get(family, 0), wide=True).save_pretrained(tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "mlx", quantize=quantize, group_size=32 if quantize else None)
    train(tmp_path / "mlx", tmp_path / "adapter", kind, keys)
    theirs, _ = mlx_lm.load_model(tmp_path / "mlx")
    tokens = mx.array(texts(VOCAB, 2, 20))
    plain = theirs(tokens)
    theirs = load_adapters(theirs, str(tmp_path / "adapter"))
    theirs.eval()
    expected = theirs(tokens)
    assert far(plain, expected) > 0.01, "the adapter changes nothing"
    loaded = zoo.load(tmp_path / "mlx", adapter=tmp_path / "adapter")
    assert far(loaded.model(tokens), expected) <= TOLERANCE
    convert(
        tmp_path / "mlx",
        tmp_path / "fused",
        adapter=tmp_path / "adapter",
        quantize="none" if quantize else None,
    )
    assert far(zoo.load(tmp_path / "fused").model(tokens), expected) <= TOLERANCE
    again, _ = mlx_lm.load_model(tmp_path / "fused")
    assert far(again(tokens), expected) <= TOLERANCE
