"""What each filter keeps of known logits, computed by its definition in numpy's float64."""

import math

import mlx.core as mx
import numpy as np
import pytest

from tests.helpers.chi_square import deviation
from zoo.generation.sampling.draw import (
    draw_processors,
    min_p,
    sampler,
    top_k,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)
from zoo.generation.settings import Settings

NEG_INF = -math.inf


def rows(spread, size=40):
    return np.random.default_rng(int(spread * 10)).normal(size=(4, size)).astype(np.float32) * spread


ROWS = [rows(0.5), rows(2.0), rows(8.0)]


def probabilities(row):
    p = np.exp(row.astype(np.float64) - row.max())
    return p / p.sum()


def kept(found, logits):
    """The tokens kept in each row, whose logits are what they were."""
    found = np.array(found)
    assert np.array_equal(found[np.isfinite(found)], logits[np.isfinite(found)])
    return [set(np.flatnonzero(np.isfinite(row)).tolist()) for row in found]


def until(order, p, mass):
    """The first tokens of an order, up to the one with which their probabilities reach `mass`."""
    found, total = set(), 0.0
    for token in order:
        found.add(int(token))
        total += p[token]
        if total >= mass:
            break
    return found


@pytest.mark.parametrize("logits", ROWS, ids=["flat", "medium", "sharp"])
@pytest.mark.parametrize("value", [0.05, 0.3, 0.9])
def test_filters_by_probability(logits, value):
    p = [probabilities(row) for row in logits]
    assert kept(top_p(mx.array(logits), value), logits) == [until(np.argsort(-q), q, value) for q in p]
    least = [set(np.flatnonzero(q >= value * q.max()).tolist()) for q in p]
    assert kept(min_p(mx.array(logits), value), logits) == least
    distances = [np.abs(-np.log(q) + (q * np.log(q)).sum()) for q in p]
    near = [until(np.argsort(d), q, value) for d, q in zip(distances, p, strict=True)]
    assert kept(typical(mx.array(logits), value), logits) == near


@pytest.mark.parametrize("logits", ROWS, ids=["flat", "medium", "sharp"])
def test_filters_by_rank_and_by_deviation(logits):
    for k in (1, 7, 40, 99):
        assert kept(top_k(mx.array(logits), k), logits) == [
            set(np.argsort(-row)[:k].tolist()) for row in logits
        ]
    for n in (0.0, 0.5, 1.5):
        bounds = logits.astype(np.float64).max(-1) - n * logits.astype(np.float64).std(-1)
        wanted = [set(np.flatnonzero(row >= b).tolist()) for row, b in zip(logits, bounds, strict=True)]
        assert kept(top_n_sigma(mx.array(logits), n), logits) == wanted


def test_equal_logits_do_not_let_in_more():
    assert [len(row) for row in kept(top_k(mx.zeros((1, 5)), 2), np.zeros((1, 5), np.float32))] == [2]


@pytest.mark.parametrize(
    "narrow",
    [
        lambda x: top_p(x, 0.999),
        lambda x: typical(x, 0.999),
        lambda x: top_n_sigma(x, 3.0),
        lambda x: min_p(x, 1e-9),
    ],
)
def test_a_token_that_was_removed_neither_comes_back_nor_counts(narrow):
    logits = ROWS[1]
    more = np.concatenate([logits, np.full((4, 9), NEG_INF, np.float32)], axis=1)
    assert kept(narrow(mx.array(more)), more) == kept(narrow(mx.array(logits)), logits)


def test_top_n_sigma_is_the_same_at_every_temperature():
    logits = ROWS[1]
    for temperature in (0.1, 3.0):
        found = np.array(top_n_sigma(mx.array(logits) / temperature, 1.0))
        assert np.array_equal(np.isfinite(found), np.isfinite(np.array(top_n_sigma(mx.array(logits), 1.0))))


P = np.array([0.35, 0.25, 0.2, 0.12, 0.08], np.float32)


def coins(probability, threshold, exempt=None, p=P, count=400):
    """What XTC keeps, by how often."""
    logits = np.log(np.repeat(p[None], count, 0))
    marked = None if exempt is None else mx.array(np.isin(np.arange(p.size), exempt))
    found = kept(xtc(mx.array(logits), probability, threshold, key=mx.random.key(0), exempt=marked), logits)
    return {tuple(sorted(row)): found.count(row) for row in found}


def test_xtc_leaves_out_all_top_choices_but_the_least_likely():
    assert coins(1.0, 0.1) == {(3, 4): 400}
    assert coins(1.0, 0.22) == {(1, 2, 3, 4): 400}
    assert coins(1.0, 0.3) == {(0, 1, 2, 3, 4): 400}  # one top choice alone stays
    assert coins(0.0, 0.1) == {(0, 1, 2, 3, 4): 400}


def test_xtc_throws_one_coin_a_row():
    found = coins(0.3, 0.1)
    assert set(found) == {(3, 4), (0, 1, 2, 3, 4)} and 80 < found[3, 4] < 160


def test_xtc_leaves_exempt_tokens_alone():
    assert coins(1.0, 0.1, exempt=[0]) == {(0, 3, 4): 400}
    # An exempt token is not the one that stays in place of the others, either.
    assert coins(1.0, 0.1, exempt=[3]) == {(2, 3, 4): 400}
    assert coins(1.0, 0.1, exempt=[0, 1, 2]) == {(0, 1, 2, 3, 4): 400}


def test_xtc_keeps_one_of_equal_top_choices():
    (row,) = coins(1.0, 0.2, p=np.array([0.3, 0.3, 0.3, 0.1], np.float32))
    assert len(row) == 2 and 3 in row


@pytest.mark.parametrize("logits", ROWS, ids=["flat", "medium", "sharp"])
@pytest.mark.parametrize("count", [1, 3, 99])
@pytest.mark.parametrize("name", ["top_n_sigma", "top_k", "top_p", "min_p", "typical_p"])
def test_each_filter_keeps_at_least_so_many_tokens(name, count, logits):
    value = {"top_n_sigma": 0.01, "top_k": 2, "min_p": 0.99}.get(name, 0.05)

    def filtered(count):
        settings = Settings(temperature=1.0, min_tokens_to_keep=count, **{name: value})
        return kept(draw_processors(settings)[-1].function(mx.array(logits)), logits)

    def likeliest(row):
        p = probabilities(row)
        order = np.argsort(np.abs(-np.log(p) + (p * np.log(p)).sum()) if name == "typical_p" else -p)
        return set(order[:count].tolist())

    wanted = [alone | likeliest(row) for alone, row in zip(filtered(1), logits, strict=True)]
    assert filtered(count) == wanted
    # A token that was removed before does not come back.
    more = np.concatenate([logits, np.full((4, 9), NEG_INF, np.float32)], axis=1)
    settings = Settings(temperature=1.0, min_tokens_to_keep=count, **{name: value})
    assert kept(draw_processors(settings)[-1].function(mx.array(more)), more) == wanted


def test_draws_have_the_distribution_of_the_tokens_that_are_kept():
    p = np.array([0.6, 0.2, 0.1, 0.06, 0.04])
    draw = sampler(Settings(temperature=1.0, top_p=0.5, min_p=0.9, min_tokens_to_keep=3, seed=5))
    drawn = np.array(draw(mx.array(np.log(np.repeat(p[None], 2000, 0)).astype(np.float32))))
    assert deviation(np.bincount(drawn, minlength=5), np.where(np.arange(5) < 3, p, 0)) < 4


def test_xtc_removes_nothing_where_too_few_tokens_would_be_left():
    logits = mx.array(np.log(P)[None])

    def left(count):
        found = xtc(logits, 1.0, 0.1, key=mx.random.key(0), count=count)
        return kept(found, np.array(logits))

    assert left(2) == [{3, 4}] and left(3) == [set(range(5))]


def test_the_order_of_the_filters():
    asked = dict(top_n_sigma=1.0, top_k=5, top_p=0.9, min_p=0.1, typical_p=0.8)
    names = [name for name, _ in draw_processors(Settings(temperature=0.5, **asked))]
    assert names == ["temperature", *asked]
    assert draw_processors(Settings(**asked)) == ()  # greedy
    # Each acts on what the one before left: of 0.4, 0.3, 0.2 and 0.1, two remain of which the first has 0.57.
    p = np.array([[0.4, 0.3, 0.2, 0.1]], np.float32)
    logits = mx.array(np.log(p))
    for _, narrow in draw_processors(Settings(temperature=1.0, top_k=2, top_p=0.5)):
        logits = narrow(logits)
    assert np.isfinite(np.array(logits)).tolist() == [[True, False, False, False]]
