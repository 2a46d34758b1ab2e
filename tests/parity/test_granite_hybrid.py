"""Granite 4's hybrids against transformers and mlx-lm, their chunks crossed."""

import json

import mlx.core as mx
import pytest
from mlx_lm.models import granitemoehybrid as mlx_granite
from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

import zoo
from zoo_mlx_lm.tools import Served

from .support import TOLERANCE, agrees, compared, decodes_as, loads_as_mlx, pads_as, reference, texts
from .test_state_spaces import spread

VOCAB = 99
LENGTHS = (1, 17, 65, 150)  # about chunks of 64
SCALES = dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.5)


def model(seed=0, **changes):
    """Three layers, the second of which attends; states that fade at very different speeds."""
    sizes = dict(
        **dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=24, num_hidden_layers=3),
        **dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64),
        **dict(num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=20),
        **dict(mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=7, mamba_chunk_size=8),
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    )
    config = GraniteMoeHybridConfig(**sizes | SCALES | changes)
    return spread(reference(GraniteMoeHybridForCausalLM, config, seed))


def spelled_as_published(folder):
    """Rewrite a config.json as the published ones name positions and layers."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    config["layer_types"] = [names.get(kind, kind) for kind in config["layer_types"]]
    config["position_embedding_type"] = config.get("position_embedding_type") or "nope"
    path.write_text(json.dumps(config))


VARIANTS = [
    dict(),
    dict(num_local_experts=0, mamba_proj_bias=True, mamba_n_groups=1),
    dict(position_embedding_type="rope", attention_bias=True, tie_word_embeddings=True),
    dict(mamba_conv_bias=False, mamba_expand=3, mamba_n_heads=12, num_key_value_heads=None, mamba_d_conv=2),
]


@pytest.mark.filterwarnings("error:config.json")  # every key is read
@pytest.mark.parametrize("extra", VARIANTS)
def test_logits_and_what_is_written(tmp_path, extra):
    made = model(**extra)
    compared(made, tmp_path, "granite-hybrid", VOCAB, respelled=spelled_as_published, lengths=LENGTHS)
    decodes_as(made, zoo.load(tmp_path / "written"), VOCAB, prompt=9, length=24)


def test_left_padding(tmp_path):
    pads_as(model(1), tmp_path, VOCAB)


@pytest.mark.parametrize("experts", [5, 0])
def test_the_layout_of_mlx_conversions(tmp_path, experts):
    sizes = dict(
        num_local_experts=experts, mamba_n_groups=1, shared_intermediate_size=24
    )  # of both kinds of feed-forward
    made = model(2, tie_word_embeddings=True, **sizes)
    made.save_pretrained(tmp_path)
    arguments = made.config.to_dict() | dict(
        position_embedding_type="nope", time_step_limit=(0.0, float("inf"))
    )
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    arguments["layer_types"] = [names[kind] for kind in made.config.layer_types]
    theirs = mlx_granite.Model(mlx_granite.ModelArgs.from_dict(arguments))
    loaded = loads_as_mlx(tmp_path, theirs)
    agrees(made, loaded, VOCAB)
    tokens = mx.array(texts(VOCAB, 2, 17))
    found, expected = Served(loaded.model, {}, "granite-hybrid")(tokens, theirs.make_cache()), theirs(tokens)
    assert mx.abs(found - expected).max() <= TOLERANCE * (expected.max() - expected.min())
