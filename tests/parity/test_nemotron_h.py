"""Nemotron-H against transformers and mlx-lm, its chunks crossed."""

import json

import mlx.core as mx
import pytest
from mlx_lm.models import nemotron_h as mlx_nemotron_h
from transformers import NemotronHConfig, NemotronHForCausalLM

import zoo

from .support import TOLERANCE, agrees, compared, decodes_as, loads_as_mlx, pads_as, reference, texts
from .test_state_spaces import spread

VOCAB = 99
LENGTHS = (1, 17, 65, 150)  # about chunks of 64
TYPES = ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"]


def model(seed=0, **changes):
    """Five layers, each of one part; states that fade at very different speeds."""
    sizes = dict(
        **dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=24, max_position_embeddings=64),
        **dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, layers_block_type=TYPES),
        **dict(mamba_num_heads=8, mamba_head_dim=8, n_groups=2, ssm_state_size=7, chunk_size=8),
    )
    return spread(reference(NemotronHForCausalLM, NemotronHConfig(**sizes | changes), seed))


def spelled_as_published(folder):
    """Rewrite a config.json with a pattern of letters for the layers."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    names = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
    config["hybrid_override_pattern"] = "".join(names[kind] for kind in config.pop("layers_block_type"))
    path.write_text(json.dumps(config))


VARIANTS = [
    dict(),
    dict(use_bias=True, mlp_bias=True, n_groups=1, layer_norm_epsilon=1e-3),
    dict(use_conv_bias=False, num_key_value_heads=4, mlp_hidden_act="gelu", conv_kernel=2),
]


@pytest.mark.filterwarnings("error:config.json")  # every key is read
@pytest.mark.parametrize("extra", VARIANTS)
def test_logits_and_what_is_written(tmp_path, extra):
    made = model(**extra)
    compared(made, tmp_path, "nemotron-h", VOCAB, respelled=spelled_as_published, lengths=LENGTHS)
    decodes_as(made, zoo.load(tmp_path / "written"), VOCAB, prompt=9, length=24)


def test_left_padding(tmp_path):
    pads_as(model(1), tmp_path, VOCAB)


def test_the_layout_of_mlx_conversions(tmp_path):
    made = model(2)
    made.save_pretrained(tmp_path)
    arguments = made.config.to_dict() | dict(time_step_limit=(0.0, float("inf")))
    theirs = mlx_nemotron_h.Model(mlx_nemotron_h.ModelArgs.from_dict(arguments))
    loaded = loads_as_mlx(tmp_path, theirs)
    agrees(made, loaded, VOCAB)
    tokens = mx.array(texts(VOCAB, 2, 17))
    found, expected = loaded.model(tokens), theirs(tokens)
    assert mx.abs(found - expected).max() <= TOLERANCE * (expected.max() - expected.min())
