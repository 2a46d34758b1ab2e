"""Mixtral and the Qwen mixtures of experts against transformers and mlx-lm, on small random models."""

import json

import numpy as np
import pytest
import torch
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

import zoo  # isort: skip
import mlx.core as mx

from .support import (
    TOLERANCE,
    agrees,
    agrees_from_folder,
    decodes_as,
    difference,
    exports_as_written,
    reference,
    texts,
)

pytestmark = pytest.mark.filterwarnings("error:config.json")  # a key that nothing reads

VOCAB = 97
COMMON = dict(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=3, max_position_embeddings=64
)
MIXTRAL, QWEN2, QWEN3 = (
    (MixtralForCausalLM, MixtralConfig),
    (Qwen2MoeForCausalLM, Qwen2MoeConfig),
    (Qwen3MoeForCausalLM, Qwen3MoeConfig),
)
SHAPES = {
    "mixtral": (MIXTRAL, dict(num_attention_heads=4, num_key_value_heads=2, num_local_experts=4)),
    "mixtral, windowed": (
        MIXTRAL,
        dict(
            num_attention_heads=6,
            num_key_value_heads=6,
            head_dim=16,
            num_local_experts=5,
            num_experts_per_tok=3,
            sliding_window=6,
            tie_word_embeddings=True,
            hidden_act="gelu",
            rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=5000.0),
        ),
    ),
    "qwen2-moe": (
        QWEN2,
        dict(
            num_attention_heads=4,
            num_key_value_heads=4,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
        ),
    ),
    "qwen2-moe, mixed": (
        QWEN2,
        dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            num_experts=5,
            num_experts_per_tok=5,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=24,
            norm_topk_prob=True,
            qkv_bias=False,
            mlp_only_layers=[1],
            use_sliding_window=True,
            sliding_window=6,
            max_window_layers=1,
        ),
    ),
    "qwen3-moe": (
        QWEN3,
        dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=24,
            norm_topk_prob=True,
        ),
    ),
    "qwen3-moe, every second layer": (
        QWEN3,
        dict(
            num_attention_heads=4,
            num_key_value_heads=1,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            attention_bias=True,
            decoder_sparse_step=2,
            use_sliding_window=True,
            sliding_window=5,
        ),
    ),
}


def made(shape, **changes):
    (kind, config), numbers = SHAPES[shape]
    return reference(kind, config(**COMMON | numbers | changes, pad_token_id=None))


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_transformers(shape, tmp_path):
    agrees_from_folder(made(shape), tmp_path, VOCAB)


def test_num_experts_is_read_as_published(tmp_path):
    made("qwen3-moe").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"num_experts": config.pop("num_local_experts"), "max_window_layers": 3, "sliding_window": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config))
    agrees(made("qwen3-moe"), zoo.load(tmp_path), VOCAB, lengths=(17,))


@pytest.mark.parametrize("shape", ["mixtral", "qwen2-moe"])
def test_stacked_tensors_as_transformers_holds_them(shape, tmp_path):
    model = made(shape)
    model.save_pretrained(tmp_path, save_original_format=False)
    names = mx.load(str(tmp_path / "model.safetensors")).keys()
    assert "model.layers.0.mlp.experts.gate_up_proj" in names
    agrees(model, zoo.load(tmp_path), VOCAB, lengths=(17,))


@pytest.mark.parametrize("shape", ["mixtral", "qwen2-moe, mixed", "qwen3-moe"])
def test_what_is_exported_is_what_transformers_wrote(shape, tmp_path):
    made(shape).save_pretrained(tmp_path)
    exports_as_written(tmp_path)


def test_cached_decode_past_the_window_equals_transformers(tmp_path):
    model = made("mixtral, windowed")
    model.save_pretrained(tmp_path)
    decodes_as(model, zoo.load(tmp_path), VOCAB, 5, 24)


@pytest.mark.parametrize(
    ("shape", "module"),
    [("mixtral", "mixtral"), ("qwen2-moe", "qwen2_moe"), ("qwen3-moe", "qwen3_moe")],
)
def test_a_folder_that_mlx_lm_wrote(shape, module, tmp_path):
    from importlib import import_module

    from mlx_lm.utils import save_model

    (tmp_path / "hf").mkdir()
    made(shape).save_pretrained(tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    config |= {"rope_theta": config["rope_parameters"]["rope_theta"]}
    config |= {"num_experts": config.get("num_local_experts", config.get("num_experts"))}
    module = import_module(f"mlx_lm.models.{module}")
    theirs = module.Model(module.ModelArgs.from_dict(config))
    weights = theirs.sanitize(dict(mx.load(str(tmp_path / "hf" / "model.safetensors"))))
    theirs.load_weights(list(weights.items()), strict=True)
    save_model(tmp_path / "mlx", theirs)
    (tmp_path / "mlx" / "config.json").write_text((tmp_path / "hf" / "config.json").read_text())
    assert any("switch_mlp" in name for name in mx.load(str(tmp_path / "mlx" / "model.safetensors")))
    tokens = mx.array(texts(VOCAB, 2, 17))
    mx.disable_compile()  # compiling on the CPU calls the C++ compiler
    try:
        expected = np.array(theirs(tokens))
    finally:
        mx.enable_compile()
    assert difference(zoo.load(tmp_path / "mlx").model(tokens), torch.tensor(expected)) <= TOLERANCE
