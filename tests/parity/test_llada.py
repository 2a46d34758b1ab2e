"""LLaDA against transformers' LLaMA with the same weights and a mask that hides nothing."""

import json
import random

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

import zoo

from .support import TOLERANCE, difference, reference, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

NAMES = {
    "model.embed_tokens": "wte",
    "model.norm": "ln_f",
    "lm_head": "ff_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}


def renamed(name):
    """The name that LLaDA's checkpoints have for a tensor of LLaMA's."""
    path, _, kind = name.rpartition(".")
    if path.startswith("model.layers."):
        index, _, part = path.removeprefix("model.layers.").partition(".")
        return f"model.transformer.blocks.{index}.{NAMES[part]}.{kind}"
    return f"model.transformer.{NAMES[path]}.{kind}"


def published(numbers, rows, **changes):
    """LLaMA's numbers under the keys of LLaDA's published config.json, all of whose other keys are there."""
    return {
        "activation_type": "silu",
        "alibi": False,
        "alibi_bias_max": 8.0,
        "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0,
        "attention_layer_norm": False,
        "attention_layer_norm_with_affine": True,
        "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"},
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": numbers["hidden_size"],
        "embedding_dropout": 0.0,
        "embedding_size": rows,
        "eos_token_id": 2,
        "flash_attention": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "init_cutoff_factor": None,
        "init_device": "meta",
        "init_fn": "mitchell",
        "init_std": 0.02,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "mask_token_id": 3,
        "max_sequence_length": 64,
        "mlp_hidden_size": numbers["intermediate_size"],
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "n_heads": numbers["num_attention_heads"],
        "n_kv_heads": numbers["num_key_value_heads"],
        "n_layers": numbers["num_hidden_layers"],
        "pad_token_id": 2,
        "precision": "amp_bf16",
        "residual_dropout": 0.0,
        "rms_norm_eps": numbers["rms_norm_eps"],
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": numbers["rope_theta"],
        "scale_logits": False,
        "transformers_version": "4.46.3",
        "use_cache": False,
        "vocab_size": 99,
        "weight_tying": numbers["tie_word_embeddings"],
    } | changes


def shape(seed, **changes):
    """Random sizes, grouped heads among them."""
    draw = random.Random(seed)
    heads, head_dim = draw.choice([(4, 8), (6, 16), (8, 4)])
    numbers = dict(
        hidden_size=heads * head_dim,
        intermediate_size=draw.choice([48, 80]),
        num_hidden_layers=draw.choice([2, 3]),
        num_attention_heads=heads,
        num_key_value_heads=draw.choice([1, 2, heads]),
        rms_norm_eps=draw.choice([1e-5, 1e-3]),
        rope_theta=draw.choice([500.0, 500000.0]),
        tie_word_embeddings=False,
    )
    return numbers | changes


def llama(numbers, rows, folder, seed=0, **changes):
    """A LLaMA with random weights, and its folder under LLaDA's names."""
    theta = numbers["rope_theta"]
    rest = {key: value for key, value in numbers.items() if key != "rope_theta"}
    config = LlamaConfig(
        vocab_size=rows,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        attention_bias=changes.get("include_qkv_bias", False),
        **rest,
    )
    model = reference(LlamaForCausalLM, config, seed)
    tensors = {renamed(name): tensor.clone() for name, tensor in model.state_dict().items()}
    if numbers["tie_word_embeddings"]:
        del tensors["model.transformer.ff_out.weight"]
    for name in [name for name in tensors if name.endswith("attn_out.bias")]:
        model.get_parameter(f"model.layers.{name.split('.')[3]}.self_attn.o_proj.bias").data.zero_()
        del tensors[name]  # LLaDA has biases on queries, keys and values alone
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(published(numbers, rows, **changes)))
    return model


def agrees(model, loaded, rows, length):
    tokens = texts(rows, 2, length)
    with torch.no_grad():
        expected = model(torch.tensor(tokens), attention_mask=torch.zeros(2, 1, length, length)).logits
    assert difference(loaded.model(mx.array(tokens)), expected) <= TOLERANCE


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tied", [True, False])
def test_logits_with_attention_both_ways(tmp_path, seed, tied, recwarn):
    model = llama(shape(seed, tie_word_embeddings=tied), 99, tmp_path, seed)
    loaded = zoo.load(tmp_path)
    assert not [w for w in recwarn if "unknown to this architecture" in str(w.message)]
    for length in (1, 23):
        agrees(model, loaded, 99, length)


def test_a_table_with_more_rows_than_tokens(tmp_path):
    agrees(llama(shape(4), 128, tmp_path), zoo.load(tmp_path), 128, 9)


def test_biases_on_queries_keys_and_values(tmp_path):
    model = llama(shape(5), 99, tmp_path, include_qkv_bias=True)
    agrees(model, zoo.load(tmp_path), 99, 9)
