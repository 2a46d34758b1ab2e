"""MPNet, Nomic-BERT and EmbeddingGemma against transformers, at texts without the padding's id, after which MPNet counts positions anew."""

import json

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import save_file

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


@pytest.mark.parametrize("window", [2, 7, 40])
def test_gemma3_that_attends_both_ways_equals_transformers_as_a_sentence_encoder(tmp_path, window):
    """EmbeddingGemma's folder: the mean of the states, two matrices, length 1, and a prompt by name."""
    sizes = dict(head_dim=8, query_pre_attn_scalar=8, num_key_value_heads=2, max_position_embeddings=64)
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    asked = dict(layer_types=kinds, sliding_window=window, use_bidirectional_attention=True)
    model = reference(tf.Gemma3TextModel, tf.Gemma3TextConfig(**SIZES | sizes | asked))
    model.save_pretrained(tmp_path)
    assert agree(model, tmp_path, "last_hidden_state").architecture.task == "encode"
    matrices = [
        np.random.default_rng(n).normal(size=shape).astype(np.float32)
        for n, shape in enumerate([(64, 32), (32, 64)])
    ]
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    modules += [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    written = {"1_Pooling": dict(word_embedding_dimension=32, pooling_mode_mean_tokens=True)}
    for number, matrix in enumerate(matrices, 2):
        name, (rows, columns) = f"{number}_Dense", matrix.shape
        modules += [{"path": name, "type": "sentence_transformers.models.Dense"}]
        activation = "torch.nn.modules.linear.Identity"
        written[name] = dict(
            in_features=columns, out_features=rows, bias=False, activation_function=activation
        )
        (tmp_path / name).mkdir()
        save_file({"linear.weight": torch.tensor(matrix)}, tmp_path / name / "model.safetensors")
    modules += [{"path": "4_Normalize", "type": "sentence_transformers.models.Normalize"}]
    for name, settings in written.items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.json").write_text(json.dumps(settings))
    order = [{"idx": number, "name": str(number), **module} for number, module in enumerate(modules)]
    (tmp_path / "modules.json").write_text(json.dumps(order))
    rows = [texts(97, 1, 24)[0].tolist(), [5, 6, 7]]
    found = zoo.embed(zoo.load(tmp_path), rows, dimensions=16, normalise=True)
    for row, vector in zip(rows, found, strict=True):
        with torch.no_grad():
            states = model(torch.tensor([row])).last_hidden_state[0].mean(0).numpy()
        expected = matrices[1] @ (matrices[0] @ states)
        expected = expected[:16] / np.linalg.norm(expected[:16])
        assert difference(vector, torch.tensor(expected)) <= TOLERANCE
