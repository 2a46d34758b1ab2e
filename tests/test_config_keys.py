"""Keys of config.json that change what a model computes are followed or refused by name; others change nothing."""

import pytest

from tests.helpers.config_keys import OF_FAMILIES, REASONS, effect
from zoo.config import Config, harmless_keys
from zoo.host.registry import default_registry

# What single keys do; the classes of transformers are gone through in tests/parity.
EFFECTS = [
    ("llama", "is_causal", False, "changed"),
    ("llama", "is_causal", True, "nothing"),
    ("bert", "is_causal", False, "nothing"),
    ("t5", "is_causal", False, "refused"),
    ("mamba", "is_causal", False, "refused"),
    ("llama", "per_layer_config", {"0": {"num_attention_heads": 2}}, "refused"),
    ("bart", "per_layer_config", {"0": {"d_model": 2}}, "refused"),
    ("gemma3", "use_bidirectional_attention", True, "changed"),
    ("llama", "use_bidirectional_attention", True, "refused"),
    ("gemma2", "use_bidirectional_attention", True, "refused"),
    ("bert", "is_decoder", True, "refused"),
    ("gpt2", "add_cross_attention", True, "refused"),
    ("gpt2", "scale_attn_by_inverse_layer_idx", True, "changed"),
    ("mamba2", "time_step_limit", [0.0, 0.1], "changed"),
    ("llama", "attention_bias", True, "changed"),
    ("llama", "partial_rotary_factor", 0.5, "changed"),
    ("qwen3-moe", "mlp_only_layers", [1], "changed"),
    ("gpt-oss", "hidden_act", "gelu", "refused"),
    ("llama", "a_key_that_nobody_knows", 1, "unknown"),
]


@pytest.mark.parametrize(
    "family, key, value, wanted",
    [pytest.param(*case, id=f"{case[0]}-{case[1]}-{case[3]}") for case in EFFECTS],
)
def test_what_a_key_does(family, key, value, wanted):
    assert effect(family, key, value) == wanted


@pytest.mark.parametrize("name", OF_FAMILIES)
def test_a_key_of_a_family_that_changes_nothing_is_not_called_unknown(name):
    family, _, key = name.rpartition(".")
    assert effect(family, key, 1) != "unknown"


def test_a_key_has_one_reason():
    assert not REASONS.keys() & harmless_keys()
    assert not REASONS.keys() & {name.rpartition(".")[2] for name in OF_FAMILIES}


@pytest.mark.parametrize("name, alias, key", [
    *((name, "hidden_size", "d_model") for name in ("bart", "marian", "m2m-100", "t5", "mt5")),
    ("bart", "num_attention_heads", "encoder_attention_heads"),
    ("marian", "num_hidden_layers", "encoder_layers"),
    ("t5", "head_dim", "d_kv"),
    ("gpt2", "hidden_size", "n_embd"),
])  # fmt: skip
def test_a_key_may_have_the_other_name_that_transformers_knows(name, alias, key):
    """Where both are there, the family's own counts."""
    architecture = default_registry().architecture(name)
    numbers = dict(architecture.preset("tiny").config)
    renamed = {alias if one == key else one: value for one, value in numbers.items()}
    assert key in numbers and architecture.recipe_of(Config(renamed)) == architecture.recipe_of(
        Config(numbers)
    )
