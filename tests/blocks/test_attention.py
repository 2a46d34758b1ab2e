"""Attention: when keys are rotated, and the projections that cross-attention shares."""

import mlx.core as mx
import pytest
from mlx_lm.models import cache as mlx_lm_cache

from zoo.assemble import build
from zoo.blocks.attention import caches_unrotated_keys
from zoo.cache import CrossCache, KVCache, WindowCache
from zoo.host.registry import default_registry
from zoo.recipe import Attention, CrossAttention, DynamicScaling, JointRMSNorm, LinearScaling, RoPE
from zoo.testing import randomise, same


def made(spec, dim=16):
    module = build(spec, dim, registry=default_registry())
    randomise(module)
    return module


@pytest.mark.parametrize(
    ("scaling", "cache", "late"),
    [
        (DynamicScaling(2.0, 8), KVCache(), True),
        (DynamicScaling(2.0, 8), WindowCache(4), True),
        (DynamicScaling(2.0, 8), mlx_lm_cache.RotatingKVCache(max_size=4), False),  # keys in any order
        (DynamicScaling(2.0, 8), None, False),
        (LinearScaling(2.0), KVCache(), False),
        (None, KVCache(), False),
    ],
)
def test_keys_are_cached_before_they_are_rotated_where_the_length_changes_their_angles(scaling, cache, late):
    assert caches_unrotated_keys(made(RoPE(scaling=scaling)), cache) is late


def test_cross_attention_is_attention_over_another_text():
    cross, own = made(CrossAttention(4, kv_heads=2, bias=True)), made(Attention(4, kv_heads=2, bias=True))
    own.update(cross.parameters())
    x = mx.random.normal((2, 5, 16), key=mx.random.key(1))
    same(cross(x, x), own(x), "of the text itself", 1e-6)
    memory, cache = mx.random.normal((2, 7, 16), key=mx.random.key(2)), CrossCache(KVCache())
    expected = cross(x, memory)
    same(cross(x, memory, cache=cache), expected, "first", 1e-6)
    same(cross(x, None, cache=cache), expected, "from the cache", 1e-6)


def test_a_joint_norm_gives_all_heads_together_a_mean_square_of_one():
    norm = build(JointRMSNorm(heads=3), 8, registry=default_registry())
    scale = mx.array([1.0, 10.0, 100.0])[:, None, None]  # heads of different sizes
    squares = mx.square(norm(scale * mx.random.normal((2, 3, 5, 8))))  # (B, H, T, K)
    assert mx.allclose(squares.mean(axis=(1, 3)), mx.ones((2, 5)), atol=1e-4).item()
    assert squares[:, 0].mean().item() < 0.01 < squares[:, 2].mean().item()
