"""Repetitions are those that a search over the whole text finds; what DRY takes for them."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.generation.sampling.penalties import HIGHEST, LONGEST, Dry, Repetitions


def searched(pieces, most, least):
    """The answer by definition. `pieces` are the runs between breaks; repetitions end in the last of them."""
    end = pieces[-1]
    found = {}
    for piece in pieces:
        for place in range(len(piece)):
            if piece is end and place == len(end):
                continue
            length = 0
            while length < min(place, len(end)) and piece[place - 1 - length] == end[len(end) - 1 - length]:
                length += 1
            if length >= least:
                found[piece[place]] = max(found.get(piece[place], 0), min(length, most))
    return found


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(st.integers(0, 3), max_size=45),
    most=st.integers(3, 7),
    least=st.integers(1, 3),
    breaker=st.sampled_from([None, 3]),
)
def test_repetitions_are_those_of_the_whole_text(text, most, least, breaker):
    repeats, pieces = Repetitions(most), [[]]
    for token in text:
        if token == breaker:
            repeats.cut()
            pieces.append([])
        else:
            repeats.add(token)
            pieces[-1].append(token)
        assert repeats.continuations(least) == searched(pieces, most, least)


@pytest.mark.parametrize("period", [1, 2, 5, 7])
def test_a_long_run_is_found_whatever_its_length(period):
    repeats, text = Repetitions(4), []
    for token in [*(list(range(period)) * 12), 99, *(list(range(period)) * 12), 98, 0]:
        repeats.add(token)
        text.append(token)
        assert repeats.continuations(1) == searched([text], 4, 1)


def test_the_penalty_grows_with_the_repetition():
    dry = Dry(0.8, 1.75, 2, given=[1, 2, 3, 4, 5, 1, 2, 3])
    assert dry.penalties() == {4: pytest.approx(0.8 * 1.75)}  # three tokens, one more than allowed
    dry.update(4)
    assert dry.penalties() == {5: pytest.approx(0.8 * 1.75**2)}
    logits = np.arange(8, dtype=np.float32)[None]
    wanted = logits.copy()
    wanted[0, 5] -= 0.8 * 1.75**2
    assert np.allclose(np.array(dry(mx.array(logits))), wanted, atol=1e-6)


def test_a_shorter_repetition_than_allowed_costs_nothing():
    logits = mx.zeros((1, 9))
    dry = Dry(1.0, 2.0, 3, given=[1, 2, 7, 1, 2])
    assert dry.penalties() == {} and dry(logits) is logits


def test_each_continuation_has_its_own_longest_repetition():
    dry = Dry(1.0, 2.0, 1, given=[1, 2, 3, 9, 2, 4, 8, 1, 2])
    assert dry.penalties() == {3: 2.0, 4: 1.0}


def test_no_repetition_goes_across_a_breaker():
    text = [1, 2, 0, 3, 4, 5, 1, 2, 0, 3, 4]
    assert Dry(1.0, 2.0, 1, given=text).penalties() == {5: 2.0**4}
    assert Dry(1.0, 2.0, 1, [(0,)], given=text).penalties() == {5: 2.0}
    assert Dry(1.0, 2.0, 1, [(2, 0)], given=text).penalties() == {5: 2.0}  # a run of two
    assert Dry(1.0, 2.0, 1, [(0, 2)], given=text).penalties() == {5: 2.0**4}  # which does not come


def test_a_breaker_itself_is_not_penalised():
    assert Dry(1.0, 2.0, 1, [(0,)], given=[1, 2, 0, 1, 2]).penalties() == {}
    assert Dry(1.0, 2.0, 1, given=[1, 2, 0, 1, 2]).penalties() == {0: 2.0}


def test_the_penalty_has_an_end():
    dry = Dry(1.0, 1.5, 2, given=[5] * 500)
    assert dry.penalties() == {5: pytest.approx(1.5**LONGEST)}
    assert Dry(100.0, 100.0, 2, given=[5] * 500).penalties() == {5: HIGHEST}
