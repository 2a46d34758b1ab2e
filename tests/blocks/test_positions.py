"""Position embeddings against their formulas, computed here by numpy in float64."""

import math

import mlx.core as mx
import numpy as np
import pytest

from zoo.assemble import build
from zoo.blocks.mask import attention_mask
from zoo.blocks.position import frequencies
from zoo.host.registry import default_registry
from zoo.recipe import Llama3Scaling, QueryScale, RoPE, SinusoidalPositions, YarnScaling

DIMS, THETA, CONTEXT = 64, 10000.0, 512
BASE = np.array(frequencies(THETA, DIMS))
TURNS = CONTEXT * BASE / (2 * math.pi)  # of each pair of dimensions within the trained context


def growth(spec):
    """By how much a scaling lengthens the wavelength of each pair."""
    scaling = build(spec, DIMS, registry=default_registry())
    return np.array(scaling.wavelengths(list(BASE))) * BASE


def test_llama3_keeps_fast_pairs_and_divides_slow_ones():
    found = growth(Llama3Scaling(factor=8.0, low=1.0, high=4.0, context=CONTEXT))
    fast, slow = TURNS >= 4, TURNS <= 1
    between = ~fast & ~slow
    assert fast.any() and slow.any() and between.sum() >= 2
    assert np.allclose(found[fast], 1, rtol=1e-5) and np.allclose(found[slow], 8, rtol=1e-5)
    share = (TURNS[between] - 1) / 3  # of the frequency that is kept
    assert np.allclose(1 / found[between], share + (1 - share) / 8, rtol=1e-5)


@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_interpolates_on_a_ramp_over_the_pairs(truncate):
    found = growth(YarnScaling(factor=4.0, context=CONTEXT, fast=32.0, slow=1.0, truncate=truncate))
    # Section 3.2: the pair that makes so many turns within the context, by the inverse of TURNS.
    low, high = (
        DIMS * math.log(CONTEXT / (turns * 2 * math.pi)) / (2 * math.log(THETA)) for turns in (32, 1)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    ramp = np.clip((np.arange(DIMS // 2) - low) / (high - low), 0, 1)
    assert 0 < low < high < DIMS // 2
    assert np.allclose(1 / found, (1 - ramp) + ramp / 4, rtol=1e-5)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dims", [None, 4])
def test_rope_rotates_pairs_as_complex_numbers(interleaved, dims):
    rope = build(RoPE(theta=100.0, dims=dims, interleaved=interleaved), 8, registry=default_registry())
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 8))
    width = dims or 8
    part = x[..., :width]
    first, second = (
        (part[..., 0::2], part[..., 1::2])
        if interleaved
        else (part[..., : width // 2], part[..., width // 2 :])
    )
    angles = (7 + np.arange(5))[:, None] * 100.0 ** (-2 * np.arange(width // 2) / width)
    turned = (first + 1j * second) * np.exp(1j * angles)
    axes = (np.stack if interleaved else np.concatenate)([turned.real, turned.imag], axis=-1)
    expected = np.concatenate([axes.reshape(part.shape), x[..., width:]], axis=-1)
    given = mx.array(x.astype(np.float32))
    assert np.allclose(np.array(rope(given, 7)), expected, atol=1e-5)
    assert np.allclose(np.array(rope(given, mx.array([7, 7]))), expected, atol=1e-5)
    places = mx.broadcast_to(mx.arange(7, 12), (2, 5))
    assert np.allclose(np.array(rope(given, places)), expected, atol=1e-5)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("inclusive", [True, False])
def test_sinusoids_are_those_of_float64_far_into_a_text(interleaved, inclusive):
    spec = SinusoidalPositions(interleaved=interleaved, inclusive=inclusive, offset=2)
    found = np.array(build(spec, 16, registry=default_registry())(3, 20_000))
    span = 7 if inclusive else 8
    angles = (20_002 + np.arange(3))[:, None] * 10000.0 ** (-np.arange(8) / span)
    pairs = [np.sin(angles), np.cos(angles)]
    expected = np.stack(pairs, -1).reshape(3, 16) if interleaved else np.concatenate(pairs, -1)
    assert np.allclose(found, expected, atol=1e-4)


def test_queries_grow_by_the_logarithm_of_the_contexts_before_them():
    spec, x = QueryScale(beta=0.5, context=4, shift=1), mx.ones((2, 1, 9, 1))
    scale = build(spec, 1, registry=default_registry())
    factors = [1 + 0.5 * math.log(1 + (position + 1) // 4) for position in range(12)]
    assert np.allclose(scale(x, 2)[0, 0, :, 0], factors[2:11])
    # Rows of a padded batch have positions of their own; before the first there are none.
    assert np.allclose(
        scale(x, mx.array([3, -2]))[..., 0], [[factors[3:12]], [factors[:1] * 2 + factors[:7]]]
    )
    short = x[:, :, :3]
    assert scale(short, 0) is short


def test_a_token_sees_its_own_chunk_up_to_itself():
    seen = np.array(attention_mask(7, window=3, chunked=True))
    assert (seen == [[q // 3 == k // 3 and k <= q for k in range(7)] for q in range(7)]).all()
    assert attention_mask(3, window=3, chunked=True) == "causal"
    # The first token after a chunk sees itself alone, though the cache still holds the chunk.
    assert np.array(attention_mask(1, length=6, start=4, window=3, chunked=True)).tolist() == [
        [False, False, True]
    ]
    # Chunks of a padded row begin at its first token.
    padded = np.array(attention_mask(5, window=2, chunked=True, padding=mx.array([1])))[0, 0, 1:, 1:]
    assert (padded == np.array(attention_mask(4, window=2, chunked=True))).all()
