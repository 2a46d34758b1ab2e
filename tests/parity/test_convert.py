"""Folders that `zoo convert` writes, read by mlx-lm and by transformers, for every decoder that both know.

hf → zoo → mlx → mlx-lm gives the logits of hf → mlx-lm, and mlx → zoo → hf → transformers those of the model that the
mlx folder was made from.
"""

import json
import shutil

import mlx_lm.utils as mlx_lm
import numpy as np
import pytest
import torch
import transformers as tf

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
from mlx.utils import tree_map

from zoo.checkpoint.convert import convert
from zoo.inspect.perplexity import divergence

from .support import TOLERANCE, difference, reference, spelled_as_4, texts

VOCAB = 96
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=None,
    tie_word_embeddings=False,
)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)
# mlx-lm rounds the ends of yarn's ramp whatever `truncate` says.
YARN = dict(
    truncate=True, rope_type="yarn", factor=2.0, original_max_position_embeddings=32, rope_theta=5000.0
)

MODELS = {
    "gpt2": (
        tf.GPT2LMHeadModel,
        tf.GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=64),
    ),
    "llama": (
        tf.LlamaForCausalLM,
        tf.LlamaConfig(**COMMON, rope_parameters=dict(rope_type="default", rope_theta=500.0)),
    ),
    "mistral": (tf.MistralForCausalLM, tf.MistralConfig(**COMMON, head_dim=32, sliding_window=None)),
    "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config(**COMMON | dict(tie_word_embeddings=True))),
    "qwen3": (tf.Qwen3ForCausalLM, tf.Qwen3Config(**COMMON, head_dim=32, rope_parameters=YARN)),
    "mixtral": (tf.MixtralForCausalLM, tf.MixtralConfig(**COMMON, num_local_experts=4)),
    "qwen2-moe": (
        tf.Qwen2MoeForCausalLM,
        tf.Qwen2MoeConfig(
            **COMMON, **EXPERTS | dict(norm_topk_prob=False), shared_expert_intermediate_size=64
        ),
    ),
    "qwen3-moe": (tf.Qwen3MoeForCausalLM, tf.Qwen3MoeConfig(**COMMON, **EXPERTS, head_dim=16)),
    "gemma2": (
        tf.Gemma2ForCausalLM,
        tf.Gemma2Config(**COMMON | dict(tie_word_embeddings=True), head_dim=16, query_pre_attn_scalar=16),
    ),
    "gpt-oss": (
        tf.GptOssForCausalLM,
        tf.GptOssConfig(
            **COMMON, head_dim=16, num_local_experts=4, num_experts_per_tok=2, rope_parameters=YARN
        ),
    ),
    "deepseek-v3": (
        tf.DeepseekV3ForCausalLM,
        tf.DeepseekV3Config(
            **COMMON | dict(num_key_value_heads=4),
            first_k_dense_replace=1,
            moe_intermediate_size=32,
            n_routed_experts=8,
            n_group=2,
            topk_group=1,
            num_experts_per_tok=2,
            kv_lora_rank=32,
            q_lora_rank=32,
            qk_nope_head_dim=32,
            qk_rope_head_dim=8,
            v_head_dim=32,
        ),
    ),
    "mamba": (
        tf.MambaForCausalLM,
        tf.MambaConfig(
            vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, state_size=8, pad_token_id=None
        ),
    ),
}
# mlx-lm cannot read transformers' unquantized layout of these.
ONLY_MLX = ("gpt-oss", "gpt2")


def made(name):
    """A random transformers model, its config without what one test changes for the next."""
    kind, config = MODELS[name]
    return reference(kind, type(config).from_dict(config.to_dict()))


def by_mlx_lm(folder, tokens):
    """The logits that mlx-lm's own code computes from a folder, in float32."""
    model, _ = mlx_lm.load_model(folder)
    model.update(
        tree_map(
            lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a, model.parameters()
        )
    )
    return model(mx.array(tokens))


def far(found, expected):
    """The largest difference, as a share of the range."""
    return difference(found, torch.tensor(np.array(expected.astype(mx.float32))))


@pytest.fixture(params=MODELS)
def folder(request, tmp_path):
    """A folder of transformers in the older spelling, which mlx-lm reads, with its model."""
    model = made(request.param)
    model.save_pretrained(tmp_path / "hf")
    return request.param, model, tmp_path


def test_both_ways(folder):
    name, model, place = folder
    tokens = texts(VOCAB, 2, 20)
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits
    convert(place / "hf", place / "mlx")
    assert difference(by_mlx_lm(place / "mlx", tokens), expected) <= TOLERANCE
    # mlx-lm's own folder: what it saves after reading ours, or the one of transformers where it reads that.
    theirs, _ = mlx_lm.load_model(place / "mlx")
    if name not in ONLY_MLX:
        spelled_as_4(place / "hf")
        config = json.loads((place / "mlx" / "config.json").read_text())
        spelled = json.loads((place / "hf" / "config.json").read_text())
        (place / "hf" / "config.json").write_text(json.dumps(config | spelled))
        assert far(by_mlx_lm(place / "mlx", tokens), by_mlx_lm(place / "hf", tokens)) <= 1e-6
        theirs, _ = mlx_lm.load_model(place / "hf")
    mlx_lm.save_model(place / "theirs", theirs)
    shutil.copy(place / "mlx" / "config.json", place / "theirs" / "config.json")
    convert(place / "theirs", place / "back", layout="hf")
    again = type(model).from_pretrained(place / "back", attn_implementation="eager").eval()
    with torch.no_grad():
        found = again(torch.tensor(tokens)).logits
    assert float((found - expected).abs().max() / (expected.max() - expected.min())) <= TOLERANCE


@pytest.mark.parametrize(
    "how",
    [dict(quantize="4", group_size=32), dict(quantize="mxfp4"), dict(recipe="mixed-3-6", group_size=32)],
)
def test_quantized_folders_mean_the_same_to_mlx_lm(folder, how):
    _, _, place = folder
    tokens = texts(VOCAB, 2, 20)
    convert(place / "hf", place / "mlx", **how)
    assert far(zoo.load(place / "mlx").model(mx.array(tokens)), by_mlx_lm(place / "mlx", tokens)) <= TOLERANCE


def test_a_quantized_folder_goes_back_to_transformers_dequantized(tmp_path):
    model = made("llama")
    model.save_pretrained(tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "q", quantize="8", group_size=32)
    convert(tmp_path / "q", tmp_path / "back", layout="hf")
    again = type(model).from_pretrained(tmp_path / "back", attn_implementation="eager").eval()
    tokens = texts(VOCAB, 1, 20)
    with torch.no_grad():
        expected = again(torch.tensor(tokens)).logits
    assert difference(zoo.load(tmp_path / "q").model(mx.array(tokens)), expected) <= TOLERANCE
    assert divergence(tmp_path / "q", tmp_path / "back").worst <= 1e-5
