"""Jamba against transformers; and the layout of mlx-lm, whose own code weighs experts in another way."""

import json

import pytest
import torch
from mlx_lm.models import jamba as mlx_jamba
from transformers import JambaConfig, JambaForCausalLM

import zoo

from .support import agrees, compared, decodes_as, loads_as_mlx, pads_as, reference

VOCAB = 99
LENGTHS = (1, 17, 65, 150)  # about chunks of 64


def model(seed=0, **changes):
    """Four layers, one with attention, two with experts; states that fade at very different speeds."""
    sizes = dict(
        **dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=4),
        **dict(num_attention_heads=4, num_key_value_heads=2, attn_layer_period=3, attn_layer_offset=1),
        **dict(num_experts=4, num_experts_per_tok=2, mamba_d_state=5, max_position_embeddings=64),
    )
    made = reference(JambaForCausalLM, JambaConfig(**sizes | changes), seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(-3, 3)
            elif name.endswith("dt_proj.bias"):
                parameter.uniform_(-4, 1)
    return made


VARIANTS = [
    dict(),
    dict(mamba_proj_bias=True, tie_word_embeddings=True, num_experts=1, rms_norm_eps=1e-3),
    dict(mamba_conv_bias=False, mamba_dt_rank=5, mamba_d_conv=2, expert_layer_offset=0, hidden_act="gelu"),
]


@pytest.mark.filterwarnings("error:config.json")  # every key is read
@pytest.mark.parametrize("extra", VARIANTS)
def test_logits_and_what_is_written(tmp_path, extra):
    made = model(**extra)
    compared(made, tmp_path, "jamba", VOCAB, lengths=LENGTHS)
    decodes_as(made, zoo.load(tmp_path / "written"), VOCAB, prompt=9, length=24)


def test_left_padding(tmp_path):
    pads_as(model(1), tmp_path, VOCAB)


def test_the_layout_of_mlx_conversions(tmp_path):
    made = model(2)
    made.save_pretrained(tmp_path)
    theirs = mlx_jamba.Model(
        mlx_jamba.ModelArgs.from_dict(json.loads((tmp_path / "config.json").read_text()))
    )
    agrees(made, loads_as_mlx(tmp_path, theirs), VOCAB)
