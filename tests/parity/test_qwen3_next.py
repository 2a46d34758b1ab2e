"""Qwen3-Next against transformers and mlx-lm, its chunks crossed."""

import json

import mlx.core as mx
import pytest
import torch
from mlx_lm.models import qwen3_next as mlx_qwen3_next
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

import zoo
from zoo_mlx_lm.tools import Served

from .support import (
    TOLERANCE,
    agrees,
    compared,
    decodes_as,
    loads_as_mlx,
    pads_as,
    reference,
    spelled_as_4,
    texts,
)

VOCAB = 99
LENGTHS = (1, 17, 64, 65, 150)  # about chunks of 64, and beyond two of them


def model(seed=0, **changes):
    """Four layers, of which the last attends; states that fade at very different speeds."""
    sizes = dict(
        **dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=4, head_dim=16),
        **dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64),
        **dict(
            linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=12
        ),
        **dict(
            num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=20
        ),
    )
    made = reference(Qwen3NextForCausalLM, Qwen3NextConfig(**sizes | changes), seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(-3, 2)
            elif name.endswith("dt_bias"):
                parameter.uniform_(-4, 1)
    return made


def spelled_as_published(folder):
    """Rewrite a config.json in the spelling of transformers 4, where the share of a head that turns is a key of its own."""
    path = folder / "config.json"
    share = json.loads(path.read_text())["rope_parameters"]["partial_rotary_factor"]
    spelled_as_4(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(partial_rotary_factor=share)))


VARIANTS = [
    dict(),
    dict(attention_bias=True, tie_word_embeddings=True, norm_topk_prob=False),
    dict(linear_num_key_heads=4, linear_conv_kernel_dim=2, mlp_only_layers=[1], num_key_value_heads=1),
    dict(linear_num_key_heads=1, layer_types=["full_attention", "linear_attention"] * 2, hidden_act="gelu"),
    dict(
        num_experts=0, rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5)
    ),
]


@pytest.mark.filterwarnings("error:config.json")  # every key is read
@pytest.mark.parametrize("extra", VARIANTS)
def test_logits_and_what_is_written(tmp_path, extra):
    made = model(**extra)
    compared(made, tmp_path, "qwen3-next", VOCAB, respelled=spelled_as_published, lengths=LENGTHS)
    decodes_as(made, zoo.load(tmp_path / "written"), VOCAB, prompt=9, length=24)


def test_left_padding(tmp_path):
    pads_as(model(1), tmp_path, VOCAB, length=80)


def test_the_layout_of_mlx_conversions(tmp_path):
    made = model(2)
    made.save_pretrained(tmp_path)
    arguments = made.config.to_dict() | dict(
        rope_theta=10000.0, partial_rotary_factor=0.25, mlp_only_layers=[]
    )
    arguments |= dict(full_attention_interval=4, decoder_sparse_step=1, rope_scaling=None)
    theirs = mlx_qwen3_next.Model(mlx_qwen3_next.ModelArgs.from_dict(arguments))
    loaded = loads_as_mlx(tmp_path, theirs)
    agrees(made, loaded, VOCAB, lengths=(1, 17))
    tokens = mx.array(texts(VOCAB, 2, 17))
    found, expected = Served(loaded.model, {}, "qwen3-next")(tokens, theirs.make_cache()), theirs(tokens)
    assert mx.abs(found - expected).max() <= TOLERANCE * (expected.max() - expected.min())
