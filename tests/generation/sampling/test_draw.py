"""Logits to ids, and their log-probabilities."""

import math

import mlx.core as mx
import numpy as np
import pytest

from zoo.generation.sampling.draw import greedy, sampler
from zoo.generation.sampling.logits import logprobs
from zoo.generation.settings import Settings

LOGITS = mx.log(mx.array([[0.5, 0.25, 0.15, 0.07, 0.03], [0.03, 0.07, 0.15, 0.25, 0.5]]))


def test_greedy_takes_the_largest_of_each_row():
    assert greedy(LOGITS).tolist() == [0, 4]


def test_draws_follow_the_probabilities_and_the_seed():
    draw = sampler(Settings(temperature=1.0, top_k=2, seed=3))
    rows = mx.concatenate([LOGITS[:1]] * 3000)
    drawn = draw(rows).tolist()
    assert set(drawn) == {0, 1}
    assert abs(drawn.count(0) / 3000 - 2 / 3) < 0.04
    again = sampler(Settings(temperature=1.0, top_k=2, seed=3))
    assert again(rows).tolist() == drawn
    assert again(rows).tolist() != drawn  # the next step has a key of its own


def test_temperature_acts_before_top_p():
    # At temperature 4 the likeliest token has 0.29 of the mass, so that p = 0.4 lets a second one in.
    drawn = {
        sampler(Settings(temperature=4.0, top_p=0.4, seed=seed))(LOGITS[:1]).item() for seed in range(60)
    }
    assert drawn == {0, 1}


@pytest.mark.parametrize("vocab", [255, 50_000])
def test_logprobs_of_a_large_vocabulary_keep_float32s_precision(vocab):
    logits = 3 * np.random.default_rng(0).normal(size=(2, vocab))
    logits[1, 300:600] = -np.inf
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    found = np.array(logprobs(mx.array(logits, dtype=mx.float32)))
    kept = np.isfinite(expected)
    assert np.abs(found[kept] - expected[kept]).max() < 5e-6 and (found[~kept] == -np.inf).all()


def test_logprobs_are_the_models_own_in_float32():
    found = logprobs(LOGITS.astype(mx.float16) * 1)
    assert found.dtype == mx.float32
    assert abs(found[0, 0].item() - math.log(0.5)) < 1e-2
