"""Tokens to steps: the one place where text, stop texts, ends and limits become steps."""

from types import SimpleNamespace

import pytest

from zoo.generation.loop.step import Step
from zoo.generation.loop.text_stream import TextStream

END = 2


class Spelled:
    """A detokenizer that holds the last letter back, as a byte of a longer character would be."""

    def __init__(self):
        self.kept = ""

    def add(self, token):
        given, self.kept = self.kept, chr(ord("a") + token - 5)
        return given

    def finish(self):
        return self.kept


@pytest.fixture
def loaded():
    return SimpleNamespace(tokenizer=SimpleNamespace(detokenizer=Spelled, eos_ids=frozenset([END])))


def steps(loaded, tokens, limit=9, stop=()):
    return list(TextStream(loaded, limit, stop).steps(tokens))


def test_text_is_told_as_it_becomes_certain_and_whole_at_the_limit(loaded):
    found = steps(loaded, [5, 6, 7, 8], limit=3)
    assert found == [Step(5, ""), Step(6, "a"), Step(7, "bc", finish_reason="length")]


def test_an_end_token_has_no_text_and_what_was_held_comes_with_it(loaded):
    assert steps(loaded, [5, 6, END, 7])[1:] == [Step(6, "a"), Step(END, "b", finish_reason="stop")]
    assert steps(loaded, [5, END], limit=2)[-1].finish_reason == "stop"


def test_a_stop_text_ends_it_and_is_left_out(loaded):
    found = steps(loaded, [5, 6, 7, 8, 9], stop=("cd",))
    assert "".join(step.text for step in found) == "ab"
    assert [step.finish_reason for step in found] == [None, None, None, None, "stop"]
    assert "".join(step.text for step in steps(loaded, [5, 6, 7], limit=3, stop=("cd",))) == "abc"


def test_without_a_tokenizer_steps_have_no_text(loaded):
    bare = SimpleNamespace(tokenizer=None, config={"eos_token_id": END}, generation_config={})
    assert steps(bare, [5, END, 6], stop=("x",)) == [Step(5, ""), Step(END, "", finish_reason="stop")]


def test_log_probabilities_go_with_their_token(loaded):
    first, last = (5, -0.5, {5: -0.5, 6: -1.0}), (6, -1.5, {6: -1.5})
    assert steps(loaded, [first, last], limit=2) == [
        Step(5, "", -0.5, alternatives={5: -0.5, 6: -1.0}),
        Step(6, "ab", -1.5, "length", alternatives={6: -1.5}),
    ]
