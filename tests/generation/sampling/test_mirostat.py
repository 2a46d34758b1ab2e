"""Mirostat: the bound after each token, and the surprise that it comes to."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.generation.sampling.draw import Mirostat, surprise

LOGITS = np.random.default_rng(3).normal(size=(6, 30)).astype(np.float32) * 2


def bits(row):
    p = np.exp(row.astype(np.float64))
    return -np.log2(p / p.sum())


def test_surprise_is_in_bits():
    assert np.allclose(np.array(surprise(mx.array(LOGITS)))[0], bits(LOGITS[0]), atol=1e-4)


@pytest.mark.parametrize("bound", [0.01, 2.0, 4.5, 40.0])
def test_tokens_within_the_bound_are_kept_and_the_likeliest_in_any_case(bound):
    found = np.isfinite(np.array(Mirostat(bound / 2, 0.1)(mx.array(LOGITS))))
    wanted = [(bits(row) <= bound) | (row == row.max()) for row in LOGITS]
    assert found.tolist() == np.array(wanted).tolist()


def test_the_bound_follows_the_surprise():
    tau, eta = 3.0, 0.25
    mirostat, bound = Mirostat(tau, eta), 2 * tau
    for row, token in zip(LOGITS, (0, 4, 9, 2, 29, 7), strict=True):
        kept = np.isfinite(np.array(mirostat(mx.array(row[None]))))[0]
        assert kept.tolist() == ((bits(row) <= bound) | (row == row.max())).tolist()
        mirostat.update(mx.array([token]))
        bound -= eta * (bits(row)[token] - tau)
        assert mirostat.bound.item() == pytest.approx(bound, abs=1e-4)


@pytest.mark.parametrize("tau", [4.0, 6.0])
def test_the_mean_surprise_comes_to_the_target(tau):
    logits = mx.log(1 / mx.arange(1, 2001))[None]  # Zipf's law, 8.1 bits of entropy
    mirostat, key, drawn = Mirostat(tau, 0.1), mx.random.key(0), []
    for _ in range(500):
        key, use = mx.random.split(key)
        token = mx.random.categorical(mirostat(logits), key=use)
        mirostat.update(token)
        drawn.append(token)
        mx.eval(mirostat.bound)
    each = bits(np.array(logits)[0])[np.array(mx.concatenate(drawn))]
    assert each[100:].mean() == pytest.approx(tau, abs=0.1)
