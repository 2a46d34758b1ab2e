"""How a model that fills masks is asked for an answer."""

from itertools import islice
from types import SimpleNamespace

import pytest

from zoo.loading import Loaded
from zoo.testing import subject
from zoo.tokenizer import load_tokenizer
from zoo.training.vocabulary import save_tokenizer, train_tokenizer
from zoo_corpora.accuracy import fills_mask, is_right
from zoo_corpora.atlas import documents, names, questions
from zoo_corpora.question import Question

TEXTS = list(islice(documents("train", 0), 300))


def asked(monkeypatch, tmp_path, language, **settings):
    """The text that is filled, masks and all, and whether giving it back whole is right."""
    save_tokenizer(train_tokenizer(TEXTS, **settings), tmp_path)
    made = subject("bert")
    loaded = Loaded(made.model, load_tokenizer(tmp_path), made.architecture, made.recipe, {}, tmp_path)
    question = next(q for q in questions("capital", language) if q.country.name_en == "France")
    told = loaded.tokenizer.encode(question.prompt + question.continuation + question.ending)
    seen = []

    def fill(loaded, ids):
        seen.append(loaded.tokenizer.decode(ids, skip_special_tokens=False))
        return told

    monkeypatch.setattr("zoo_corpora.accuracy.fill", fill)
    assert fills_mask(loaded, question)
    monkeypatch.setattr("zoo_corpora.accuracy.fill", lambda loaded, ids: ids)
    assert not fills_mask(loaded, question)
    return seen[0]


@pytest.mark.parametrize(
    ("language", "text"), [("en", "The capital city of France is [MASK]."), ("zh", "法国的首都是[MASK]。")]
)
def test_a_name_is_one_mask_and_the_space_before_it_is_shown(monkeypatch, tmp_path, language, text):
    assert asked(monkeypatch, tmp_path, language, vocab=2048, names=names()) == text


def test_where_the_space_is_part_of_a_token_it_is_hidden_with_it(monkeypatch, tmp_path):
    text = asked(monkeypatch, tmp_path, "en", vocab=2048)
    assert text.replace("[MASK]", "") == "The capital city of France is."


@pytest.mark.parametrize(
    ("task", "text", "right"),
    [
        ("generate", " Niger.", True),
        ("generate", " Niger", True),
        ("generate", " Niger, in Africa", True),
        ("generate", " Nigeria.", False),
        ("generate", " Chad.", False),
        ("translate", " Niger", True),
        ("translate", " Niger.", False),
    ],
)
def test_an_answer_ends_where_its_word_does_and_a_translation_is_whole(monkeypatch, task, text, right):
    loaded = SimpleNamespace(
        architecture=SimpleNamespace(task=task), tokenizer=SimpleNamespace(encode=str.split)
    )
    monkeypatch.setattr("zoo_corpora.accuracy.generate", lambda *_, **__: SimpleNamespace(text=text))
    question = Question("The country is", " Niger", ".", "neighbour", "en", False)
    assert is_right(loaded, question) is right
