"""Repetitions are those that a search over the whole text finds; what DRY takes for them."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.generation.sampling.penalties import HIGHEST, LONGEST, Dry


def searched(pieces, least):
    """The answer by definition. `pieces` are the runs between breaks; repetitions end in the last of them."""
    end = pieces[-1]
    found = {}
    for piece in pieces:
        for place in range(len(piece)):
            length = 0
            while length < min(place, len(end)) and piece[place - 1 - length] == end[len(end) - 1 - length]:
                length += 1
            if length >= least:
                found[piece[place]] = max(found.get(piece[place], 0), min(length, least + LONGEST))
    return found


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(st.integers(0, 3), max_size=45),
    least=st.integers(1, 3),
    breaker=st.sampled_from([None, 3]),
)
def test_repetitions_are_those_of_the_whole_text(text, least, breaker):
    dry, pieces = Dry(1.0, 2.0, least, [] if breaker is None else [(breaker,)]), [[]]
    for token in text:
        dry.update(token)
        if token == breaker:
            pieces.append([])
        else:
            pieces[-1].append(token)
        assert dry.repetitions() == searched(pieces, least)


@pytest.mark.parametrize("period", [1, 2, 7])
def test_a_long_run_is_found_whatever_its_length(period, monkeypatch):
    monkeypatch.setattr("zoo.generation.sampling.penalties.LONGEST", 3)
    dry, text = Dry(1.0, 2.0, 1), []
    for token in [*(list(range(period)) * 12), 99, *(list(range(period)) * 12), 98, 0]:
        dry.update(token)
        text.append(token)
        found = {token: min(length, 4) for token, length in searched([text], 1).items()}
        assert dry.repetitions() == found


def penalties(*settings, **given):
    """What DRY takes from the logits of ten tokens, but for those from which it takes nothing."""
    taken = -np.array(Dry(*settings, **given)(mx.zeros((1, 10))))[0]
    return {token: pytest.approx(value) for token, value in enumerate(taken.tolist()) if value}


def test_the_penalty_grows_with_the_repetition():
    text = [1, 2, 3, 4, 5, 1, 2, 3]
    assert penalties(0.8, 1.75, 2, given=text) == {4: 0.8 * 1.75}  # three tokens, one more than allowed
    assert penalties(0.8, 1.75, 2, given=[*text, 4]) == {5: 0.8 * 1.75**2}


def test_a_shorter_repetition_than_allowed_costs_nothing():
    logits = mx.zeros((1, 9))
    assert Dry(1.0, 2.0, 3, given=[1, 2, 7, 1, 2])(logits) is logits


def test_each_continuation_has_its_own_longest_repetition():
    assert penalties(1.0, 2.0, 1, given=[1, 2, 3, 9, 2, 4, 8, 1, 2]) == {3: 2.0, 4: 1.0}


@pytest.mark.parametrize(
    ("breakers", "penalty"),
    [([], 2.0**4), ([(0,)], 2.0), ([(2, 0)], 2.0), ([(0, 2)], 2.0**4)],
    ids=["none", "one token", "a run of two", "one that does not come"],
)
def test_no_repetition_goes_across_a_breaker(breakers, penalty):
    text = [1, 2, 0, 3, 4, 5, 1, 2, 0, 3, 4]
    assert penalties(1.0, 2.0, 1, breakers, given=text) == {5: penalty}


def test_a_breaker_itself_is_not_penalised():
    assert penalties(1.0, 2.0, 1, [(0,)], given=[1, 2, 0, 1, 2]) == {}
    assert penalties(1.0, 2.0, 1, given=[1, 2, 0, 1, 2]) == {0: 2.0}


def test_the_penalty_has_an_end():
    assert penalties(1.0, 1.5, 2, given=[5] * 500) == {5: 1.5**LONGEST}
    assert penalties(100.0, 100.0, 2, given=[5] * 500) == {5: HIGHEST}
