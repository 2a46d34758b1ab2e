"""Tokens that must not come after others: banned runs and n-grams, as a search over the whole text finds them."""

from hypothesis import given
from hypothesis import strategies as st

from zoo.generation.sampling.penalties import BannedSequences

TOKENS = st.integers(0, 2)
TEXTS = st.lists(TOKENS, max_size=12)


def completing(text, runs):
    """The tokens that would complete one of some runs."""
    return [
        run[-1] for run in runs if len(run) <= len(text) + 1 and text[len(text) + 1 - len(run) :] == run[:-1]
    ]


def repeating(text, size):
    """The tokens that would complete a run of `size` that the text has already."""
    return completing(text, [text[i : i + size] for i in range(len(text) - size + 1)])


@given(runs=st.lists(st.lists(TOKENS, min_size=2, max_size=4), max_size=4), before=TEXTS, text=TEXTS)
def test_what_would_complete_a_run(runs, before, text):
    endings = BannedSequences(runs, before)
    for count in range(len(text) + 1):
        assert endings.completing() == set(completing([*before, *text[:count]], runs))
        if count < len(text):
            endings.update(text[count])


@given(size=st.integers(1, 4), before=TEXTS, text=TEXTS)
def test_what_would_repeat_a_run(size, before, text):
    ngrams = BannedSequences(given=before, repeats=size)
    for count in range(len(text) + 1):
        assert ngrams.completing() == set(repeating([*before, *text[:count]], size))
        if count < len(text):
            ngrams.update(text[count])
