"""Kimi Delta Attention against its recurrence, and which layers have it."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.config import Config
from zoo.errors import ConfigError
from zoo.host.registry import default_registry
from zoo_kimi_linear import kimi_linear
from zoo_kimi_linear.block import delta_rule

TINY = default_registry().architecture("kimi-linear").preset("tiny").config


def test_chunks_give_what_a_token_at_a_time_gives_where_rates_are_extreme():
    random = np.random.default_rng(0)
    q, k = (random.normal(size=(2, 3, 70, 8)) / 8**0.5 for _ in range(2))
    v, beta = random.normal(size=(2, 3, 70, 5)), random.uniform(size=(2, 3, 70))
    rate = -np.exp(random.uniform(-6, 3, (2, 3, 70, 8)))  # down to e⁻²⁰ a token
    state, expected = random.normal(size=(2, 3, 8, 5)), []
    first = state
    for t in range(70):
        state = np.exp(rate[:, :, t])[..., None] * state
        read = np.einsum("bhk,bhkv->bhv", k[:, :, t], state)
        write = beta[:, :, t, None] * (v[:, :, t] - read)
        state = state + k[:, :, t][..., None] * write[:, :, None]
        expected.append(np.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    arrays = (mx.array(array.astype(np.float32)) for array in (q, k, v, rate, beta, first))
    found, last = delta_rule(*arrays)
    assert np.abs(np.array(found) - np.stack(expected, axis=2)).max() < 1e-4
    assert np.abs(np.array(last) - state).max() < 1e-4


def test_layers_are_numbered_from_one_as_released():
    changes = dict(layer_types=None, linear_attn_config=dict(full_attn_layers=[4], kda_layers=[1, 2, 3]))
    kinds = [layer.mixer.name for layer in kimi_linear(Config(TINY | changes)).layers]
    assert kinds == ["kimi-delta-net"] * 3 + ["latent-attention"]
    changes["linear_attn_config"] = dict(full_attn_layers=[4], kda_layers=[1, 2])
    with pytest.raises(ConfigError, match="kda_layers"):
        kimi_linear(Config(TINY | changes))


def test_latent_attention_with_positions_is_refused():
    with pytest.raises(ConfigError, match="mla_use_nope"):
        kimi_linear(Config(TINY | dict(mla_use_nope=False)))
    assert kimi_linear(Config(TINY)).layers[1].mixer.rope is None
