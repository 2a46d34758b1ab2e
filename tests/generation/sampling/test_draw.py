"""Logits to ids: what each filter keeps, and the order in which they act."""

import math

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.errors import PromptError
from zoo.generation.sampling.draw import greedy, min_p, sampler, top_k, top_p
from zoo.generation.sampling.logits import logprobs
from zoo.generation.settings import Settings, checked_shared, settings_for

LOGITS = mx.log(mx.array([[0.5, 0.25, 0.15, 0.07, 0.03], [0.03, 0.07, 0.15, 0.25, 0.5]]))


def kept(logits):
    return [[i for i, value in enumerate(row) if value > -math.inf] for row in logits.tolist()]


def test_greedy_takes_the_largest_of_each_row():
    assert greedy(LOGITS).tolist() == [0, 4]


def test_top_k_keeps_k():
    assert kept(top_k(LOGITS, 2)) == [[0, 1], [3, 4]]
    assert kept(top_k(LOGITS, 9)) == [[0, 1, 2, 3, 4]] * 2
    assert [len(row) for row in kept(top_k(mx.zeros((1, 5)), 2))] == [2]


@pytest.mark.parametrize(("p", "count"), [(0.4, 1), (0.5, 1), (0.51, 2), (0.76, 3), (0.999, 5)])
def test_top_p_keeps_the_smallest_set_that_reaches_p(p, count):
    assert [len(row) for row in kept(top_p(LOGITS, p))] == [count, count]
    assert kept(top_p(LOGITS, p))[0] == list(range(count))


def test_min_p_keeps_what_is_likely_enough():
    assert kept(min_p(LOGITS, 0.25)) == [[0, 1, 2], [2, 3, 4]]


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


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        (dict(temperature=-1.0), "`temperature`"),
        (dict(temperature=math.nan), "`temperature`"),
        (dict(temperature=10**400), "`temperature`"),
        (dict(temperature=1e-320), "`temperature`"),
        (dict(temperature="hot"), "`temperature`"),
        (dict(top_k=2.5), "`top_k`"),
        (dict(top_k=[1]), "`top_k`"),
        (dict(top_p=True), "`top_p`"),
        (dict(top_p=0.0), "`top_p`"),
        (dict(top_p=1.5), "`top_p`"),
        (dict(top_k=-1), "`top_k`"),
        (dict(min_p=1.1), "`min_p`"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(llama, setting, word):
    with pytest.raises(PromptError, match=word):
        settings_for(llama, checked_shared(setting))
