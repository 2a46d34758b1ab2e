"""LFM2 against transformers and mlx-lm."""

import json

import mlx.core as mx
import pytest
from mlx_lm.models import lfm2 as mlx_lfm2
from transformers import Lfm2Config, Lfm2ForCausalLM

import zoo
from zoo_mlx_lm.tools import Served

from .support import TOLERANCE, agrees, compared, decodes_as, loads_as_mlx, pads_as, reference, texts

VOCAB = 99
MIXED = ["conv", "full_attention", "conv", "conv", "full_attention"]


def model(seed=0, **changes):
    """Five layers, two of which attend."""
    sizes = dict(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=72,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        layer_types=MIXED,
        block_multiple_of=16,
    )
    return reference(Lfm2ForCausalLM, Lfm2Config(**sizes | changes), seed)


VARIANTS = [
    dict(),
    dict(conv_bias=True, tie_word_embeddings=False, norm_eps=1e-3),
    dict(conv_L_cache=5, block_auto_adjust_ff_dim=False, num_key_value_heads=4),
    dict(conv_L_cache=2, block_ffn_dim_multiplier=1.5, layer_types=["full_attention"] + ["conv"] * 4),
    dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0)),
]


@pytest.mark.filterwarnings("error:config.json")  # every key is read
@pytest.mark.parametrize("extra", VARIANTS)
def test_logits_and_what_is_written(tmp_path, extra):
    made = model(**extra)
    compared(made, tmp_path, "lfm2", VOCAB)
    decodes_as(made, zoo.load(tmp_path / "written"), VOCAB, prompt=9, length=24)


def test_left_padding(tmp_path):
    pads_as(model(1, conv_bias=True), tmp_path, VOCAB)


def test_the_layout_of_mlx_conversions(tmp_path):
    made = model(2)
    made.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= dict(rope_theta=1e6, full_attn_idxs=[1, 4], block_dim=32, block_ff_dim=72)
    theirs = mlx_lfm2.Model(mlx_lfm2.ModelArgs.from_dict(config))
    loaded = loads_as_mlx(tmp_path, theirs)
    agrees(made, loaded, VOCAB)
    tokens = mx.array(texts(VOCAB, 2, 17))
    found, expected = Served(loaded.model, {}, "lfm2")(tokens, theirs.make_cache()), theirs(tokens)
    assert mx.abs(found - expected).max() <= TOLERANCE * (expected.max() - expected.min())
