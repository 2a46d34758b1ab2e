"""The embedded checkpoints: small, complete, trained alike, and right about the capitals."""

import json

import pytest

import zoo
from zoo.host.registry import default_registry
from zoo.training.run import settings_of
from zoo_corpora.accuracy import is_right, scores
from zoo_corpora.atlas import names, questions

FIRST = ["gpt2", "gpt2-postln", "llama", "qwen3"]
FILLING = ["bert", "llada"]  # they see both ways, and their tokenizer has whole names


def pockets(task="generate"):
    return [
        name
        for name, a in default_registry().architectures.items()
        if a.preset("pocket") and a.preset("pocket").embedded and a.task == task
    ]


def folder(name):
    return default_registry().architecture(name).preset("pocket").folder


def record(name, file="training.json"):
    return json.loads((folder(name) / file).read_text())


def test_the_first_four_are_there():
    assert set(FIRST) <= set(pockets())


@pytest.mark.slow
def test_every_other_answers_as_its_record_says():
    """The capital of every thirteenth country, for the pockets that continue text."""
    for name in sorted(set(pockets()) - set(FIRST)):
        loaded = zoo.load(name)
        asked = [q for language in ("en", "zh") for q in list(questions("capital", language))[::13]]
        right = sum(is_right(loaded, question) for question in asked) / len(asked)
        told = [s["accuracy"] for s in record(name, "accuracy.json")["scores"] if s["relation"] == "capital"]
        assert abs(right - sum(told) / len(told)) <= 0.1, name


def test_the_transformer_translates_what_it_never_saw():
    (score,) = record("transformer", "accuracy.json")["scores"]
    assert score["unseen_right"] / score["unseen"] >= 0.95
    loaded = zoo.load("transformer")
    assert zoo.generate(loaded, "I love NLP").text == "我爱NLP"
    assert zoo.generate(loaded, "Hello world", beams=4).text == "你好世界"


@pytest.mark.parametrize("name", FIRST)
def test_at_most_three_megabytes(name):
    assert sum(path.stat().st_size for path in folder(name).iterdir()) <= 3_000_000


@pytest.mark.parametrize("name", FIRST)
def test_trained_on_the_same_data_with_the_same_budget(name):
    mine, first = record(name), record(FIRST[0])
    for key in ("steps", "batch", "length", "rate", "seed", "corpus"):
        assert mine["settings"][key] == first["settings"][key]
    assert mine["tokens"] == first["tokens"]
    assert 0.95e6 <= mine["parameters"] <= 1.15e6
    tokenizers = {(folder(other) / "tokenizer.json").read_bytes() for other in FIRST}
    assert len(tokenizers) == 1


@pytest.mark.parametrize("name", FILLING)
def test_those_that_fill_in_are_small_and_were_trained_as_by_default(name):
    mine = record(name)
    assert 0.95e6 <= mine["parameters"] <= 1.15e6
    assert (folder(name) / "model.safetensors").stat().st_size <= 2_500_000
    assert mine["settings"]["corpus"] == "atlas" and mine["settings"]["seed"] == 0
    assert mine["settings"]["steps"] == mine["losses"][-1][0]
    default = settings_of(name, {})
    for key in ("steps", "batch", "length", "rate", "decay", "seed"):
        assert mine["settings"][key] == getattr(default, key)
    assert mine["documents"] == "sentences"
    preset = default_registry().architecture(name).preset("pocket").config
    assert preset.items() <= mine["settings"]["config"].items()
    assert mine["tokenizer"] == {"vocab": preset["vocab_size"], "names": len(names())}


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("[MASK] is the capital of France.", "Paris"),
        ("The capital city of Peru is [MASK].", "Lima"),
        ("[MASK] is the official language of Brazil.", "Portuguese"),
        ("日本位于[MASK]。", "亚洲"),
        ("中国的首都是[MASK]。", "北京"),
        ("[MASK]是法国的首都。", "巴黎"),
        ("Paris is the capital of [MASK].", "France"),
    ],
)
def test_bert_answers_what_a_person_types(prompt, answer):
    assert zoo.generate(zoo.load("bert"), prompt).candidates[0]["text"].strip() == answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("The capital city of China is", " Beijing."),
        ("The capital of Peru is", " Lima."),
        ("法国的首都是", "巴黎。"),
        ("中国的首都是", "北京。"),
    ],
)
def test_llada_answers_what_a_person_types(prompt, answer):
    assert zoo.generate(zoo.load("llada"), prompt).text.rstrip("\n") == answer


@pytest.mark.parametrize("name", FIRST + FILLING)
def test_the_record_says_at_least_95_percent_of_the_capitals(name):
    found = {(s["relation"], s["language"]): s for s in record(name, "accuracy.json")["scores"]}
    for language in ("en", "zh"):
        assert found["capital", language]["accuracy"] >= 0.95
        assert found["capital", language]["questions"] == 194


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST + FILLING)
def test_a_sample_of_capitals_is_right_now(name):
    loaded = zoo.load(name)
    asked = [q for language in ("en", "zh") for q in list(questions("capital", language))[::13]]
    right = sum(is_right(loaded, question) for question in asked)
    assert right >= 0.9 * len(asked)


def test_a_prefix_of_the_answer_or_a_longer_word_is_not_right():
    loaded = zoo.load("llama")
    question = next(q for q in questions("capital", "en") if q.answer == "Beijing")
    assert is_right(loaded, question)
    for wrong in (" Bei", " Beijin", " Tokyo"):
        assert not is_right(loaded, type(question)(**(vars(question) | {"continuation": wrong})))


def test_scores_count_questions_and_unseen_sentences(monkeypatch):
    monkeypatch.setattr("zoo_corpora.accuracy.is_right", lambda loaded, question: question.held_out)
    (score,) = scores(zoo.load("llama"), questions("capital", "en"))
    assert score.questions == 194 and score.right == score.unseen == score.unseen_right == 27
