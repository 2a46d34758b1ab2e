"""Mamba against transformers and mlx-lm."""

import json
import random

import mlx.core as mx
import pytest
import torch
from mlx_lm.models import mamba as mlx_mamba
from transformers import MambaConfig, MambaForCausalLM

import zoo
from zoo.checkpoint.convert import save
from zoo_mlx_lm.tools import Served

from .support import TOLERANCE, agrees, agrees_from_folder, difference, loads_as_mlx, reference, texts

VOCAB = 99


def shape(seed):
    """Random sizes."""
    draw = random.Random(seed)
    return dict(
        vocab_size=VOCAB,
        hidden_size=draw.choice([24, 40]),
        num_hidden_layers=draw.choice([2, 3]),
        state_size=draw.choice([4, 7]),
        conv_kernel=draw.choice([3, 4]),
        layer_norm_epsilon=draw.choice([1e-5, 1e-3]),
    )


def mamba(seed, **extra):
    """A reference of random sizes, but for those in `extra`, whose states forget at very different speeds."""
    model = reference(MambaForCausalLM, MambaConfig(**(shape(seed) | extra)), seed)
    with torch.no_grad():
        for layer in model.backbone.layers:
            layer.mixer.A_log.uniform_(-3, 3)
            layer.mixer.dt_proj.bias.uniform_(-4, 1)
    return model


VARIANTS = [
    dict(),
    dict(use_bias=True, tie_word_embeddings=False),
    dict(use_conv_bias=False, expand=3, time_step_rank=5),
    dict(hidden_act="gelu", residual_in_fp32=False, conv_kernel=1),
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("extra", VARIANTS)
def test_mamba(seed, extra, tmp_path):
    agrees_from_folder(mamba(seed, **extra), tmp_path, VOCAB, lengths=(1, 17, 150))


def test_left_padding(tmp_path):
    model = mamba(3)
    model.save_pretrained(tmp_path)
    tokens, mask = texts(VOCAB, 2, 20), [[1] * 20, [0] * 6 + [1] * 14]
    with torch.no_grad():
        expected = model(torch.tensor(tokens), attention_mask=torch.tensor(mask)).logits
    found = zoo.load(tmp_path).model(mx.array(tokens), mask=mx.array(mask))
    assert difference(found[1:, 6:], expected[1:, 6:]) <= TOLERANCE
    assert difference(found[:1], expected[:1]) <= TOLERANCE


def test_transformers_loads_what_the_zoo_writes(tmp_path):
    model = mamba(4, use_bias=True)
    model.save_pretrained(tmp_path / "theirs")
    loaded = zoo.load(tmp_path / "theirs")
    save(tmp_path / "ours", loaded.model, loaded.architecture, loaded.recipe, loaded.config)
    again = MambaForCausalLM.from_pretrained(tmp_path / "ours", dtype="float32").eval()
    agrees(again, loaded, VOCAB)


def test_the_layout_of_mlx_conversions(tmp_path):
    model = mamba(5, tie_word_embeddings=False, layer_norm_epsilon=1e-5)  # the only one that mlx-lm has
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["intermediate_size"] = model.config.intermediate_size
    theirs = mlx_mamba.Model(mlx_mamba.ModelArgs.from_dict(config))
    loaded = loads_as_mlx(tmp_path, theirs)
    agrees(model, loaded, VOCAB)
    tokens = mx.array(texts(VOCAB, 2, 17))
    found, expected = Served(loaded.model, {}, "mamba")(tokens, theirs.make_cache()), theirs(tokens)
    assert mx.abs(found - expected).max() <= TOLERANCE * (expected.max() - expected.min())
