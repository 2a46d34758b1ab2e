"""LLaMA, Mistral, Qwen2 and Qwen3 against transformers, on folders that transformers writes."""

import random

import pytest
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import zoo

from .support import agrees, agrees_from_folder, reference

VOCAB = 99


def shape(seed):
    """Random sizes, grouped heads among them."""
    draw = random.Random(seed)
    heads, head_dim = draw.choice([(4, 8), (6, 16), (8, 4)])
    return dict(
        vocab_size=VOCAB,
        hidden_size=heads * head_dim,
        intermediate_size=draw.choice([48, 80]),
        num_hidden_layers=draw.choice([2, 3]),
        num_attention_heads=heads,
        num_key_value_heads=draw.choice([1, 2, heads]),
        max_position_embeddings=64,
        rms_norm_eps=draw.choice([1e-5, 1e-3]),
    )


SCALINGS = {
    "default": dict(rope_type="default", rope_theta=500.0),
    "linear": dict(rope_type="linear", factor=4.0, rope_theta=10000.0),
    "dynamic": dict(rope_type="dynamic", factor=4.0, rope_theta=10000.0),
    "llama3": dict(
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=16,
        rope_theta=10000.0,
    ),
    "yarn": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=10000.0),
    "yarn with every field": dict(
        rope_type="yarn",
        factor=4.0,
        original_max_position_embeddings=16,
        rope_theta=1000.0,
        beta_fast=16.0,
        beta_slow=2.0,
        mscale=0.8,
        mscale_all_dim=0.5,
        truncate=False,
    ),
    "yarn with a factor of its own": dict(
        rope_type="yarn",
        factor=4.0,
        original_max_position_embeddings=16,
        rope_theta=1000.0,
        attention_factor=1.7,
    ),
}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_llama_with_each_rope(scaling, tmp_path):
    config = LlamaConfig(**shape(1), rope_parameters=SCALINGS[scaling])
    # Beyond 64 positions dynamic scaling changes every angle; both are then asked for one full forward.
    agrees_from_folder(reference(LlamaForCausalLM, config), tmp_path, VOCAB, lengths=(1, 40, 64, 90))


@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize(
    "extra",
    [
        dict(),
        dict(tie_word_embeddings=True),
        dict(attention_bias=True, mlp_bias=True),
        dict(head_dim=12, hidden_act="gelu_pytorch_tanh"),
        dict(hidden_act="relu"),
        dict(hidden_act="gelu"),
    ],
)
def test_llama(seed, extra, tmp_path):
    config = LlamaConfig(**shape(seed), **extra)
    agrees_from_folder(reference(LlamaForCausalLM, config, seed), tmp_path, VOCAB)


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize("window", [5, 16, None])
def test_mistral(seed, window, tmp_path):
    config = MistralConfig(**shape(seed), sliding_window=window)
    agrees_from_folder(reference(MistralForCausalLM, config, seed), tmp_path, VOCAB)


@pytest.mark.parametrize("seed", [7, 8])
@pytest.mark.parametrize(
    "extra",
    [
        dict(),
        dict(use_sliding_window=True, sliding_window=6, max_window_layers=1),
        dict(use_sliding_window=True, sliding_window=6, layer_types=["sliding_attention", "full_attention"]),
        dict(tie_word_embeddings=True),
    ],
)
def test_qwen2(seed, extra, tmp_path):
    layers = {"num_hidden_layers": 2} if "layer_types" in extra else {}
    config = Qwen2Config(**(shape(seed) | layers), **extra)
    agrees_from_folder(reference(Qwen2ForCausalLM, config, seed), tmp_path, VOCAB)


@pytest.mark.parametrize("seed", [9, 10])
@pytest.mark.parametrize(
    "extra",
    [
        dict(head_dim=16),
        dict(head_dim=8, tie_word_embeddings=True, attention_bias=True),
        dict(head_dim=8, use_sliding_window=True, sliding_window=6, max_window_layers=0),
        dict(head_dim=8, rope_parameters=SCALINGS["yarn"]),
    ],
)
def test_qwen3(seed, extra, tmp_path):
    config = Qwen3Config(**shape(seed), **extra)
    agrees_from_folder(reference(Qwen3ForCausalLM, config, seed), tmp_path, VOCAB)


def test_shards_written_by_transformers(tmp_path):
    model = reference(LlamaForCausalLM, LlamaConfig(**shape(11)))
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    agrees(model, zoo.load(tmp_path), VOCAB)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_transformers_runs_the_pockets(name):
    from zoo.host.registry import default_registry

    folder = default_registry().architecture(name).preset("pocket").folder
    kind = {"llama": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM}[name]
    model = kind.from_pretrained(folder, dtype="float32", attn_implementation="eager").eval()
    agrees(model, zoo.load(name), model.config.vocab_size)
