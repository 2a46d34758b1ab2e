"""Tokens that must not come after others: banned runs and n-grams, as a search over the whole text finds them."""

from hypothesis import given
from hypothesis import strategies as st

from zoo.generation.sampling.banned import NoRepeatNgrams, SequenceCompletions
from zoo.generation.sampling.constraints import completing, repeating

TOKENS = st.integers(0, 2)
TEXTS = st.lists(TOKENS, max_size=12)


@given(runs=st.lists(st.lists(TOKENS, min_size=2, max_size=4), max_size=4), before=TEXTS, text=TEXTS)
def test_what_would_complete_a_run(runs, before, text):
    endings = SequenceCompletions(runs, before)
    for count in range(len(text) + 1):
        assert endings.completing() == set(completing([*before, *text[:count]], runs))
        if count < len(text):
            endings.update(text[count])


@given(size=st.integers(1, 4), before=TEXTS, text=TEXTS)
def test_what_would_repeat_a_run(size, before, text):
    ngrams = NoRepeatNgrams(size, before)
    for count in range(len(text) + 1):
        assert ngrams.completing() == set(repeating([*before, *text[:count]], size))
        if count < len(text):
            ngrams.update(text[count])
