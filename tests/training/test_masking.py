"""What is hidden together: whole words, whole names; how much; and where a prompt ends."""

from itertools import islice
from random import Random

import pytest

from zoo.tokenizer import load_tokenizer
from zoo.training.masked_lm import Span, Spans, hidden
from zoo.training.vocabulary import save_tokenizer, train_tokenizer
from zoo_corpora.atlas import answers, documents, names
from zoo_llada.objective import prompt_length

TEXTS = list(islice(documents("train", 0), 400))
NAMES = {"New Delhi", "Niger", "Nigeria", "中国", "北京", "São Tomé"}


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """A tokenizer that knows no name: most are several tokens."""
    folder = tmp_path_factory.mktemp("split")
    save_tokenizer(train_tokenizer(TEXTS, 400), folder)
    return load_tokenizer(folder)


def texts_of(words, spans, ids):
    return [words.decode(ids[span.start : span.stop], False) for span in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The capital is New Delhi.", ["The", " capital", " is", " New Delhi", "."]),
        ("Nigeria, Niger and Nigerians", ["Nigeria", ",", " Niger", " and", " Nigerians"]),
        ("中国的首都是北京。", ["中国", "的", "首", "都", "是", "北京", "。"]),
        ("São Tomé écoute", ["São Tomé", " ", "écoute"]),
        ("", []),
    ],
)
def test_a_span_is_a_whole_name_or_a_whole_word(split, text, expected):
    ids = split.encode(text)
    found = Spans(split, NAMES)(ids)
    assert texts_of(split, found, ids) == expected
    assert any(span.stop - span.start > 1 for span in found) or not text
    assert [place for span in found for place in range(span.start, span.stop)] == list(range(len(ids)))


def test_the_names_that_answer_are_marked(split):
    ids = split.encode("中国的首都是北京。 New Delhi Niger")
    found = Spans(split, NAMES, {"北京", "New Delhi"})(ids)
    assert texts_of(split, [span for span in found if span.answer], ids) == ["北京", " New Delhi"]
    assert texts_of(split, [span for span in found if span.name], ids) == [
        "中国",
        "北京",
        " New Delhi",
        " Niger",
    ]


def test_no_name_of_the_atlas_is_hidden_by_half(split):
    spans, draw = Spans(split, names(), answers()), Random(0)
    several = 0
    for text in TEXTS:
        ids = split.encode(text)
        found = spans(ids)
        chosen = hidden(found, draw, words=0.3, names=0.6)
        assert set(chosen) <= set(found)
        several += sum(span.name and span.stop - span.start > 1 for span in chosen)
    assert several > 100


def test_words_and_names_have_their_own_share():
    spans = [Span(place, place + 1, place % 2 == 0) for place in range(20_000)]
    chosen = hidden(spans, Random(1), words=0.15, names=0.5)
    assert sum(span.name for span in chosen) / 10_000 == pytest.approx(0.5, abs=0.02)
    assert sum(not span.name for span in chosen) / 10_000 == pytest.approx(0.15, abs=0.02)
    assert chosen == hidden(spans, Random(1), words=0.15, names=0.5)
    assert chosen != hidden(spans, Random(2), words=0.15, names=0.5)


def test_a_prompt_ends_before_the_first_answer_and_the_space_before_it():
    spans = [Span(0, 1, True, True), Span(1, 2), Span(2, 4, True, True), Span(4, 5), Span(5, 6, True, True)]
    ids = [10, 7, 11, 12, 13, 14]  # 7 is a space
    assert prompt_length(ids, spans, {7}, Random(0)) == 1
    assert prompt_length(ids, spans, set(), Random(0)) == 2


def test_a_text_without_answers_is_cut_at_any_word_and_never_before_the_first():
    ids = [1, 2, 3, 4, 5]
    for first in (False, True):
        spans = [Span(0, 2, first, first), Span(2, 3), Span(3, 5)]
        assert {prompt_length(ids, spans, set(), Random(seed)) for seed in range(30)} == {2, 3}
    assert prompt_length([1, 2], [Span(0, 2)], set(), Random(0)) == 0
