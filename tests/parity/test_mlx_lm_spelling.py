"""Folders that transformers 5 writes for families that only mlx-lm has: its logits are transformers'."""

import warnings

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import zoo

from .support import agrees

VOCAB = 120
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=96,
    max_position_embeddings=128,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, rope_theta=5e4)
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, rope_theta=5e4
) | dict(original_max_position_embeddings=32)


def rope(theta, **others):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta, **others))


MIXTURE = dict(moe_intermediate_size=48, num_experts_per_tok=2)
BIASES = dict(attention_bias=True, lm_head_bias=True)
FAMILIES = {
    "exaone": rope(3e3),
    "exaone_moe": rope(3e3)
    | MIXTURE
    | dict(num_experts=4, sliding_window=8, mlp_layer_types=["dense", "sparse"])
    | dict(layer_types=["sliding_attention", "full_attention"]),
    "granitemoe": dict(rope_parameters=LLAMA3, num_local_experts=4, num_experts_per_tok=2),
    "helium": rope(3e3) | dict(head_dim=16),
    "internlm3": dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=3e3), head_dim=16),
    "mellum": MIXTURE
    | dict(
        num_local_experts=4, head_dim=16, layer_types=["full_attention"] * 2, mlp_layer_types=["sparse"] * 2
    ),
    "phimoe": rope(3e3) | BIASES | dict(num_local_experts=4, num_experts_per_tok=2),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_of_transformers_5_has_its_logits(tmp_path, name):
    torch.manual_seed(1)
    config = CONFIG_MAPPING[name](**SIZES | FAMILIES[name])
    model = AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*rope")
        loaded = zoo.load(tmp_path)
    assert loaded.architecture.bridged
    agrees(model, loaded, VOCAB, lengths=(40,))
