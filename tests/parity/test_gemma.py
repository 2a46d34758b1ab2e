"""Gemma 2 against transformers and mlx-lm, on folders that transformers writes."""

import json

import numpy as np
import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from .support import TOLERANCE, agrees, decodes_as, difference, exports_as_written, spelled_as_4, texts

VOCAB = 97
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    sliding_window=6,
    max_position_embeddings=64,
    pad_token_id=None,
)
SHAPES = {
    "grouped": dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=16),
    "multi-query, low caps": dict(
        num_attention_heads=6,
        num_key_value_heads=1,
        head_dim=8,
        query_pre_attn_scalar=20,  # not head_dim, as in the 27b
        sliding_window=5,
        tie_word_embeddings=False,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
    ),
    "uncapped, with biases": dict(
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        attention_bias=True,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        hidden_activation="gelu",
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    ),
}


def gemma(shape):
    """A reference model of random parameters, wide enough for its scores and logits to meet their caps."""
    torch.manual_seed(3)
    model = Gemma2ForCausalLM(Gemma2Config(**COMMON | SHAPES[shape], attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3 if parameter.ndim < 2 else 2.0 * parameter.shape[-1] ** -0.5)
    return model


@pytest.mark.filterwarnings("error::UserWarning:zoo")  # a key that nothing reads is warned of
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_transformers(shape, tmp_path):
    model = gemma(shape)
    model.save_pretrained(tmp_path)
    agrees(model, zoo.load(tmp_path), VOCAB)
    spelled_as_4(tmp_path)
    agrees(model, zoo.load(tmp_path), VOCAB)


def test_layers_without_types_alternate_as_in_transformers(tmp_path):
    model = gemma("grouped")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["layer_types"]
    path.write_text(json.dumps(config))
    agrees(model, zoo.load(tmp_path), VOCAB, lengths=(17,))


def test_cached_decode_past_the_window_equals_transformers(tmp_path):
    model = gemma("multi-query, low caps")
    model.save_pretrained(tmp_path)
    decodes_as(model, zoo.load(tmp_path), VOCAB, 3, 17)


@pytest.mark.parametrize("shape", SHAPES)
def test_export_is_what_transformers_wrote(shape, tmp_path):
    gemma(shape).save_pretrained(tmp_path)
    exports_as_written(tmp_path)


def test_logits_equal_mlx_lm(tmp_path):
    from mlx_lm.models.gemma2 import Model, ModelArgs

    gemma("grouped").save_pretrained(tmp_path)
    spelled_as_4(tmp_path)
    theirs = Model(ModelArgs.from_dict(json.loads((tmp_path / "config.json").read_text())))
    theirs.load_weights(str(tmp_path / "model.safetensors"), strict=True)
    tokens = mx.array(texts(VOCAB, 2, COMMON["sliding_window"]))  # mlx-lm gives this family no window
    assert difference(zoo.load(tmp_path).model(tokens), torch.tensor(np.array(theirs(tokens)))) <= TOLERANCE
