"""Texts as tokens: the runs that a tokenizer writes them with."""

import pytest

import zoo
from zoo.errors import PromptError
from zoo.generation.sampling.logits_processors import (
    banned_sequences,
    breaker_sequences,
    encodings,
    tokens_with,
)
from zoo.tokenizer import load_tokenizer

POCKETS = ("llama", "gpt2", "gemma2", "bert", "mamba")


@pytest.fixture(scope="module", params=POCKETS)
def tokenizer(request):
    return zoo.load(request.param).tokenizer


def test_a_text_is_spelled_as_at_a_start_and_after_a_space(tokenizer):
    for text in ("Paris", "city of", "北京"):
        runs = encodings(tokenizer, text)
        assert tuple(tokenizer.encode(text, special_tokens=False)) in runs
        assert {tokenizer.decode(run).strip().lower() for run in runs} == {text.lower()}


def test_a_text_is_found_where_the_tokenizer_puts_it_after_others(tokenizer):
    runs = encodings(tokenizer, "Paris")
    for before in ("The capital is ", "It is:\n"):
        ids = tokenizer.encode(f"{before}Paris", special_tokens=False)
        assert any(tuple(ids[-len(run) :]) == run for run in runs)


def test_the_tokens_that_hold_a_text():
    tokenizer = zoo.load("llama").tokenizer
    found = tokens_with(tokenizer, "capital")
    assert found and all("capital" in tokenizer.decode([id]) for id in found)
    others = set(range(tokenizer.vocab_size)) - set(found)
    assert not any(b"capital" in (tokenizer.token_bytes(id) or b"") for id in others)
    assert all("\n" in tokenizer.decode([id]) for id in tokens_with(tokenizer, "\n"))


def test_breakers_are_tokens_that_hold_one_and_runs_that_spell_one():
    tokenizer = zoo.load("llama").tokenizer
    comma = tokenizer.encode(",", special_tokens=False)[-1]
    runs = breaker_sequences(tokenizer, [","])
    assert (comma,) in runs and all(run[-1] == comma for run in runs)
    several = breaker_sequences(tokenizer, ["Beijing."])
    assert tuple(tokenizer.encode("Beijing.", special_tokens=False)) in several


def test_without_a_tokenizer_nothing_can_be_banned_by_its_text():
    assert banned_sequences(None, []) == breaker_sequences(None, ["\n"]) == ()
    with pytest.raises(PromptError, match=r"`banned` needs a tokenizer.* 'x'"):
        banned_sequences(None, ["x"])


def test_a_text_without_tokens_is_refused(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert banned_sequences(tokenizer, ["a"]) == ((5,),)
    for text in ("\u0000", "b"):  # one is dropped, the other unknown
        with pytest.raises(PromptError, match="`banned`: the tokenizer has no tokens for"):
            banned_sequences(tokenizer, ["a", text])
