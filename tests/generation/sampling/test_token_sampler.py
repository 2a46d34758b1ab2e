"""The whole chain: its order, its distribution, and that a sequence's choices are its own."""

import math
from itertools import product

import mlx.core as mx
import numpy as np
import pytest

from zoo.errors import PromptError, ZooError
from zoo.generation.sampling import LogitsProcessors, TokenSampler
from zoo.generation.sampling.logits_processors import TokenStrings
from zoo.generation.settings import Constraints, Settings, biases

P = np.array([0.3, 0.22, 0.16, 0.12, 0.09, 0.06, 0.05])
LOGITS = mx.array(np.log(P).astype(np.float32))[None]
V = P.size


def sampler(
    given=(), ends=(), limit=100, forced=None, mask=None, filters=(), spelled=None, vocab=V, **settings
):
    settings = Settings(**settings)
    constraints = forced or Constraints(frozenset(ends), tuple(given), limit)
    strings = spelled or TokenStrings()
    return TokenSampler(settings, LogitsProcessors(settings, constraints, vocab, strings, mask), filters)


def taken(sampler, count, logits=LOGITS):
    """That many tokens, each told before the next is chosen."""
    tokens = []
    for _ in range(count):
        tokens.append(sampler.choose(logits).item())
        sampler.update(tokens[-1])
    return tokens


def distribution(sampler, logits=LOGITS):
    return np.array(mx.softmax(sampler.scores(logits), axis=-1))[0]


def fits(drawn, expected):
    """Whether draws, as indices, are of a distribution: chi-square within five standard deviations of its mean."""
    expected = np.asarray(expected, np.float64).reshape(-1)
    counts = np.bincount(drawn, minlength=expected.size)
    assert counts[expected < 1e-12].sum() == 0
    possible = expected >= 1e-12
    wanted = expected[possible] * len(drawn)
    assert wanted.min() > 5
    statistic = ((counts[possible] - wanted) ** 2 / wanted).sum()
    degrees = possible.sum() - 1
    return abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)


def renormalised(p):
    return p / p.sum()


class Mask:
    """Allows some tokens, the others never."""

    def __init__(self, *allowed):
        bits = np.zeros(32, np.uint8)
        bits[list(allowed)] = 1
        self.bits, self.seen = np.packbits(bits, bitorder="little").view(np.uint32), []

    def allowed(self):
        return self.bits

    def update(self, token):
        self.seen.append(token)


def test_greedy_with_nothing_set_is_one_argmax(monkeypatch):
    plain = sampler(ends=[3], given=[1, 2])
    assert plain.is_greedy and not plain.needs_last_token
    monkeypatch.setattr(mx, "where", None)
    monkeypatch.setattr(mx.array, "astype", None)
    assert plain.choose(LOGITS).item() == 0
    plain.update(0)


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        (dict(temperature=1.0, top_k=3, xtc_probability=1.0), False),
        (dict(temperature=1.0, mirostat=2), False),
        (dict(repetition_penalty=2.0, repetition_context_size=2), False),
        (dict(frequency_penalty=1.0, logit_bias={1: 2.0}, min_tokens=2), False),
        (dict(dry_multiplier=1.0), True),
        (dict(no_repeat_ngram_size=2), True),
        (dict(spelled=TokenStrings(banned=((1, 2),))), True),
        (dict(spelled=TokenStrings(banned=((1,),))), False),
        (dict(forced=Constraints(suppressed=(2,))), False),
        (dict(forced=Constraints(bad_words=((1, 2),))), True),
        (dict(mask=Mask(1)), True),
    ],
    ids=lambda value: str(value).partition(" object at ")[0],
)
def test_only_what_needs_the_last_token_waits_for_it(settings, waits):
    made = sampler(ends=[6], **settings)
    assert made.needs_last_token is waits and not made.is_greedy
    if not waits:  # one call ahead, nothing changes
        ahead, behind = sampler(ends=[6], seed=1, **settings), sampler(ends=[6], seed=1, **settings)
        upcoming, found = ahead.choose(LOGITS), []
        for _ in range(6):
            token, upcoming = upcoming, ahead.choose(LOGITS)
            found.append(token.item())
            ahead.update(found[-1])
        assert found == taken(behind, 6)


def test_draws_have_the_distribution_of_the_whole_chain():
    """Temperature, top-k, top-p and min-p, after a bias and a ban."""
    settings = dict(temperature=0.8, top_k=5, top_p=0.93, min_p=0.25, logit_bias={4: 0.7})
    made = sampler(seed=4, spelled=TokenStrings(banned=((1,),)), **settings)
    logits = np.log(P)
    logits[4] += 0.7
    p = np.exp(logits / 0.8)
    p[1] = 0
    order = np.argsort(-p)
    p[order[5:]] = 0
    p = renormalised(p)
    ordered = p[np.argsort(-p)]
    p[p < ordered[np.searchsorted(np.cumsum(ordered), 0.93)]] = 0
    p[p < 0.25 * p.max()] = 0
    p = renormalised(p)
    assert 2 < (p > 0).sum() < 5
    assert np.allclose(distribution(made), p, atol=1e-5)
    assert fits(np.array(mx.concatenate([made.choose(LOGITS) for _ in range(500)])), p)


def test_pairs_of_draws_have_the_distribution_of_the_penalties():
    """The second token's distribution depends on the first: that of pairs, each of a sampler of its own."""
    settings = dict(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.2, frequency_penalty=0.2)
    logits = np.log([0.45, 0.3, 0.25])

    def expected(seen, generated):
        changed = logits * np.where(np.isin(range(3), seen), 1.3, 1.0)  # all are negative
        return renormalised(np.exp(changed - 0.4 * np.isin(range(3), generated)))

    first = expected([2], [])
    pairs = [first[a] * expected([2, a], [a])[b] for a, b in product(range(3), range(3))]
    drawn, row = [], mx.array(logits.astype(np.float32))[None]
    for seed in range(400):
        made = sampler(given=[2], vocab=3, seed=seed, **settings)
        drawn.append(made.choose(row) * 3 + made.choose(row))
    assert fits(np.array(mx.concatenate(drawn)), pairs)


def test_xtc_throws_its_coin_anew_at_each_token():
    made = sampler(seed=2, temperature=1.0, xtc_probability=0.5, xtc_threshold=0.15)
    left = P.copy()
    left[:2] = 0
    expected = 0.5 * P + 0.5 * renormalised(left)
    assert fits(np.array(mx.concatenate([made.choose(LOGITS) for _ in range(500)])), expected)
    # Until a token is chosen the coin lies.
    assert len({tuple(np.array(made.scores(LOGITS))[0]) for _ in range(20)}) == 1


def test_line_breaks_and_ends_are_exempt_from_xtc():
    made = sampler(
        ends=[0], temperature=1.0, xtc_probability=1.0, xtc_threshold=0.1, spelled=TokenStrings(lines=(1,))
    )
    assert np.flatnonzero(distribution(made)).tolist() == [0, 1, 3, 4, 5, 6]


def test_a_seed_repeats_and_another_does_not():
    draw = lambda seed: taken(sampler(seed=seed, temperature=1.0), 20)  # noqa: E731
    assert draw(5) == draw(5) != draw(6)
    assert taken(sampler(temperature=1.0), 20) != taken(sampler(temperature=1.0), 20)


def test_a_sequence_draws_what_it_draws_alone():
    alone = taken(sampler(seed=5, temperature=1.0), 10)
    one, other, tokens = sampler(seed=5, temperature=1.0), sampler(seed=6, temperature=1.0), []
    for _ in range(10):
        other.choose(LOGITS)
        tokens.append(one.choose(LOGITS).item())
    assert tokens == alone


@pytest.mark.parametrize(
    "settings",
    [
        dict(temperature=1.0, mirostat=2, mirostat_tau=2.0),
        dict(temperature=1.0, repetition_penalty=1.5, repetition_context_size=3, presence_penalty=1.0),
        dict(temperature=1.0, xtc_probability=0.5),
        dict(dry_multiplier=2.0, dry_allowed_length=1),
        dict(no_repeat_ngram_size=2),
        dict(min_tokens=5),
    ],
    ids=lambda settings: ",".join(settings),
)
def test_tokens_chosen_elsewhere_lead_to_the_same_scores(settings):
    """Drafting asks for scores, decides by itself, and tells the token."""
    own, told = sampler(ends=[0], seed=3, **settings), sampler(ends=[0], seed=3, **settings)
    for _ in range(12):
        assert np.array_equal(np.array(own.scores(LOGITS)), np.array(told.scores(LOGITS)))
        token = own.choose(LOGITS).item()
        own.update(token)
        told.update(token)


def test_greedy_scores_are_the_logits_but_for_penalties_and_bans():
    assert np.array_equal(np.array(sampler(min_tokens=1).scores(LOGITS)), np.array(LOGITS))
    found = np.array(sampler(given=[0], repetition_penalty=2.0, top_k=2).scores(LOGITS.astype(mx.float16)))
    assert found.dtype == np.float32
    assert np.allclose(found[0], np.log(P) * np.where(np.arange(V) == 0, 2, 1), atol=2e-3)


def test_the_order_of_bias_penalty_and_ban():
    made = sampler(
        given=[0, 1],
        repetition_penalty=2.0,
        logit_bias={0: 3.0, 1: 5.0},
        spelled=TokenStrings(banned=((2,),)),
    )
    scores = np.array(made.scores(LOGITS))[0]
    assert scores[0] == pytest.approx((np.log(P[0]) + 3) / 2, abs=1e-5)  # the bias is penalised too
    assert scores[2] == -np.inf
    assert scores[3] == pytest.approx(np.log(P[3]), abs=1e-5)


def test_no_end_comes_before_the_least_number():
    assert taken(sampler(ends=[0], min_tokens=3), 4) == [1, 1, 1, 0]
    forced = Constraints(frozenset([0]), (5,), 9, min_tokens=1)
    assert taken(sampler(forced=forced), 2) == [1, 0]
    assert taken(sampler(forced=forced, min_tokens=2), 3) == [1, 1, 0]


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e9, "1", True])
def test_a_bias_that_leaves_no_numbers_is_refused(value):
    assert biases({"4": -math.inf, 5: 2}, V) == {4: -math.inf, 5: 2.0}
    with pytest.raises(PromptError, match="`logit_bias` of token 3 must be a number of at most"):
        biases({"3": value}, V)


def test_forced_tokens_come_where_they_must():
    forced = Constraints(
        eos_ids=frozenset([6]),
        prompt=(5,),
        max_tokens=4,
        first_token=4,
        last_tokens=(6,),
        suppressed_first=(0,),
    )
    assert taken(sampler(forced=forced, temperature=1.0, seed=1), 1) == [4]
    greedy = sampler(forced=forced)
    assert not greedy.needs_last_token and taken(greedy, 4) == [4, 1, 0, 6]


def test_runs_are_banned_token_by_token():
    made = sampler(given=[5, 0], spelled=TokenStrings(banned=((0, 0), (1, 1, 0))))
    assert taken(made, 5) == [1, 0, 1, 0, 1]
    assert taken(sampler(no_repeat_ngram_size=2), 5) == [0, 0, 1, 0, 2]


def test_a_grammars_mask_is_asked_for_every_token():
    mask = Mask(2, 4)
    made = sampler(mask=mask, temperature=1.0, seed=0)
    p = np.zeros(V)
    p[[2, 4]] = renormalised(P[[2, 4]])
    assert np.allclose(distribution(made), p, atol=1e-6)
    assert set(taken(made, 20)) == {2, 4} and len(mask.seen) == 20


def test_a_grammar_that_is_whole_ends_a_text_that_is_too_short():
    assert taken(sampler(mask=Mask(6), ends=[6], min_tokens=3), 1) == [6]
    assert taken(sampler(mask=Mask(6, 5), ends=[6], min_tokens=1), 1) == [5]


def test_where_no_token_is_left_it_is_said():
    made = sampler(mask=Mask(3), spelled=TokenStrings(banned=((3,),)), banned=("x",), regex="y")
    with pytest.raises(PromptError, match="token 1: no token is left to choose: `banned`, `regex`"):
        taken(made, 1)
    made = sampler(no_repeat_ngram_size=1, temperature=1.0, top_k=2, seed=0)
    with pytest.raises(ZooError, match=r"token 8: .* `no_repeat_ngram_size`"):
        taken(made, V + 1)
