"""Long texts: encoded while other threads run, and not at all where they surely have too many tokens."""

import pytest

from tests.helpers.tokenizer_kinds import KINDS, tokenizer_of
from zoo.tokenizer import Tokenizer, huggingface, tokenizer
from zoo.tokenizer.backend import Backend

UNITS = [
    "a",
    " ",
    "\n",
    "the cat sat ",
    "a" * 300 + " ",
    "😀",
    "\u200d",
    "e\u0301",
    "1",
    "<unk>",
    "</s>",
    ". ",
]


class Counting(Backend):
    """Every character is a token, every space none. `read` counts the characters that were encoded."""

    vocab_size, special_tokens = 2, {}
    read = 0

    def encode(self, text, special_tokens):
        self.read += len(text)
        return [0] * len(text.replace(" ", ""))

    def id(self, token):
        return None

    def token(self, id):
        return None

    def detokenizer(self, skip_special_tokens):
        raise NotImplementedError


@pytest.mark.parametrize("unit", ["a", "aaaa   "])
def test_a_text_with_too_many_tokens_is_read_only_as_far_as_that_is_sure(unit):
    backend = Counting()
    text = unit * (10_000_000 // len(unit))
    beginning = Tokenizer(backend).beginning(text, 1000)
    assert text.startswith(beginning) and len(Counting().encode(beginning, False)) > 2000
    assert len(beginning) == backend.read == tokenizer.PIECE


@pytest.mark.parametrize("length", [1, tokenizer.PIECE, 16_000])
def test_a_text_of_a_usual_length_is_not_looked_at(length):
    backend = Counting()
    assert Tokenizer(backend).beginning("a" * length, 1000) == "a" * length
    assert backend.read == 0


def test_a_long_text_of_few_tokens_is_whole():
    text = "a" + " " * 1_000_000
    assert Tokenizer(Counting()).beginning(text, 1) == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_only_a_text_with_too_many_tokens_is_cut(kind):
    encoding = tokenizer_of(kind)
    for unit in UNITS:
        text = unit * (3 * tokenizer.PIECE // len(unit))
        whole = len(encoding.encode(text, special_tokens=False))
        for most in (whole, whole + 100, 2 * whole):
            assert encoding.beginning(text, most) == text, (unit, most)
        assert len(encoding.encode(encoding.beginning(text, 5), special_tokens=False)) >= min(whole, 6), unit


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_has_the_ids_of_a_short_one(kind, monkeypatch):
    encoding = tokenizer_of(kind)
    texts = [unit * 50 for unit in UNITS]
    short = [encoding.encode(text) for text in texts]
    monkeypatch.setattr(huggingface, "LONG", 0)
    assert [encoding.encode(text) for text in texts] == short
