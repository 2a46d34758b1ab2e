"""What is taken from the logits of tokens that the text has, and for how long."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.generation.sampling import LogitsProcessors
from zoo.generation.sampling.penalties import Counts, exponential_decay, frequency, presence, repetition
from zoo.generation.settings import Constraints, Settings

V = 7
LOGITS = np.array([[2.0, -1.0, 0.5, 0.0, -3.0, 1.0, 4.0]], np.float32)


def test_repetition_divides_positive_logits_and_multiplies_negative_ones():
    seen = np.array([1, 1, 0, 1, 1, 0, 0], bool)
    found = np.array(repetition(mx.array(LOGITS), mx.array(seen), 1.5))
    wanted = np.where(seen, np.where(LOGITS < 0, LOGITS * 1.5, LOGITS / 1.5), LOGITS)
    assert np.allclose(found, wanted, atol=1e-6)


def test_presence_is_taken_once_and_frequency_every_time():
    counts = np.array([0, 1, 3, 0, 0, 2, 0])
    found = np.array(frequency(presence(mx.array(LOGITS), mx.array(counts), 0.5), mx.array(counts), -0.25))
    assert np.allclose(found, LOGITS - 0.5 * (counts > 0) + 0.25 * counts, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 3, 50])
def test_counts_are_those_of_the_last_tokens(size):
    random = np.random.default_rng(size)
    text = random.integers(0, V, 4).tolist()
    counts = Counts(V, text, size)
    for token in random.integers(0, V, 30).tolist():
        text.append(token)
        counts.update(mx.array([token]))
        assert counts.array.tolist() == np.bincount(text[-size:] if size else text, minlength=V).tolist()


def test_the_prompt_counts_for_repetition_alone():
    settings = Settings(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5)
    processors = LogitsProcessors(settings, Constraints(prompt=(0, 1, 99)), V)
    for token in (2, 2, 5):
        processors.follow(mx.array([token]))
    wanted = LOGITS[0].copy()
    for token in (0, 1, 2, 5):
        wanted[token] *= 2.0 if wanted[token] < 0 else 0.5
    wanted[[2, 5]] -= 1.0
    wanted[[2, 5]] -= [1.0, 0.5]
    assert np.allclose(np.array(processors(mx.array(LOGITS)))[0], wanted, atol=1e-6)


def test_end_tokens_gain_more_with_each_token_after_the_start():
    for count, growth in ((2, 0.0), (3, 0.5), (5, 1.5**3 - 1)):
        found = np.array(exponential_decay(mx.array(LOGITS), (0, 1, 3, 99), 2, 1.5, count))
        wanted = LOGITS + np.abs(LOGITS) * growth * np.isin(range(V), (0, 1, 3))
        assert np.allclose(found, wanted, atol=1e-6)
    # A decay below 1 takes from the logits of end tokens.
    assert np.array(exponential_decay(mx.array(LOGITS), (0,), 0, 0.5, 2))[0, 0] == pytest.approx(0.5)
    # A removed token stays removed, and a text of any length has numbers.
    removed = mx.array([[-np.inf, -2.0]])
    assert np.array(exponential_decay(removed, (0,), 0, 1.5, 9)).tolist() == [[-np.inf, -2.0]]
    assert np.isfinite(np.array(exponential_decay(mx.array(LOGITS), (0, 1), 0, 100, 10**6))).all()


def test_nothing_asked_changes_nothing():
    assert LogitsProcessors(Settings(), Constraints(prompt=(0, 1)), V).chain == ()


def test_a_token_that_is_not_evaluated_counts():
    token = mx.argmax(mx.array(LOGITS), axis=-1)
    counts = Counts(V)
    counts.update(token)
    assert counts.array.tolist() == [0, 0, 0, 0, 0, 0, 1]
