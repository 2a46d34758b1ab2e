"""MPNet and Nomic-BERT against transformers, at texts without the padding's id, after which MPNet counts positions anew."""

import numpy as np
import pytest
import torch
import transformers as tf

import zoo
from zoo.checkpoint.convert import convert

from .support import TOLERANCE, difference, reference, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

SIZES = dict(vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)


def agree(model, folder, output):
    """The model's and the zoo's vectors of texts, one of them padded on the right."""
    loaded = zoo.load(folder)
    tokens = texts(97, 2, 24) + 2  # (2, S); 0 and 1 are padding
    mask = np.ones_like(tokens)
    tokens[1, 17:], mask[1, 17:] = 1, 0
    with torch.no_grad():
        expected = model(torch.tensor(tokens), attention_mask=torch.tensor(mask))[output]
    found = loaded.model(mx.array(tokens), mask=mx.array(mask))
    kept = mask[..., None].astype(np.float32)
    assert difference(found * mx.array(kept), expected * torch.tensor(kept)) <= TOLERANCE
    return loaded


@pytest.mark.parametrize("changes", [dict(), dict(hidden_act="relu", layer_norm_eps=1e-3)])
def test_mpnet_equals_transformers_with_and_without_a_head(tmp_path, changes):
    config = tf.MPNetConfig(**SIZES | dict(max_position_embeddings=130) | changes)
    model = reference(tf.MPNetForMaskedLM, config)
    model.save_pretrained(tmp_path / "headed")
    assert agree(model, tmp_path / "headed", "logits").architecture.name == "mpnet"
    model.mpnet.save_pretrained(tmp_path / "bare")
    agree(model.mpnet, tmp_path / "bare", "last_hidden_state")
    convert(tmp_path / "headed", tmp_path / "back", layout="hf")
    again = tf.MPNetForMaskedLM.from_pretrained(tmp_path / "back").eval()
    agree(again, tmp_path / "headed", "logits")


def test_nomic_bert_equals_transformers(tmp_path):
    config = tf.NomicBertConfig(**SIZES | dict(max_position_embeddings=64))
    model = reference(tf.NomicBertModel, config)
    model.save_pretrained(tmp_path)
    assert agree(model, tmp_path, "last_hidden_state").architecture.name == "nomic-bert"
