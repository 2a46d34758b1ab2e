"""ModernBERT against transformers: masked-LM logits, hidden states without a head, padding, and what the zoo writes."""

import json

import pytest
import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM, ModernBertModel

import zoo

from .support import TOLERANCE, compared, difference, reference, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

VOCAB = 99


def config(heads=4, head_dim=8, **changes):
    """Four layers, of which two see a window."""
    tokens = dict.fromkeys((f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")), 0)
    values = dict(
        vocab_size=VOCAB,
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        num_hidden_layers=4,
        intermediate_size=48,
        local_attention=6,
        max_position_embeddings=64,
    )
    return ModernBertConfig(**values | tokens | changes)


VARIANTS = [
    dict(),
    dict(attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True, hidden_activation="relu"),
    dict(tie_word_embeddings=False, local_attention=5),
    dict(decoder_bias=False, layer_types=["sliding_attention", "full_attention"] * 2),
    dict(
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=2.0, rope_theta=500.0),
            sliding_attention=dict(rope_type="default", rope_theta=50.0),
        )
    ),
]


def spelled_as_modernbert(folder):
    """Rewrite a config.json as transformers 4 wrote those of ModernBERT, where it could."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope, types = config["rope_parameters"], config["layer_types"]
    if types[1] == types[2] and all(part["rope_type"] == "default" for part in rope.values()):
        del config["rope_parameters"], config["layer_types"]
        config |= {"global_attn_every_n_layers": 3, "global_rope_theta": rope["full_attention"]["rope_theta"]}
        config["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
    path.write_text(json.dumps(config))


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("heads, head_dim", [(4, 8), (3, 16)])
@pytest.mark.parametrize("extra", VARIANTS)
def test_logits_and_what_is_written(tmp_path, heads, head_dim, extra):
    model = reference(ModernBertForMaskedLM, config(heads, head_dim, **extra), heads)
    compared(model, tmp_path, "modernbert", VOCAB, respelled=spelled_as_modernbert)
    tokens = texts(VOCAB, 2, 30)
    mask = torch.tensor([[1] * 30, [1] * 19 + [0] * 11])
    with torch.no_grad():
        expected = model(torch.tensor(tokens), attention_mask=mask).logits
    found = zoo.load(tmp_path / "written").model(mx.array(tokens), mx.array(mask.numpy()))
    assert difference(found[:1], expected[:1]) <= TOLERANCE
    assert difference(found[1:, :19], expected[1:, :19]) <= TOLERANCE


def test_hidden_states_without_a_head(tmp_path):
    model = reference(ModernBertModel, config(), 2)
    model.save_pretrained(tmp_path)
    loaded, tokens = zoo.load(tmp_path), texts(VOCAB, 2, 23)
    assert loaded.recipe.head is None
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).last_hidden_state
    assert difference(loaded.model.encode(mx.array(tokens)), expected) <= TOLERANCE
