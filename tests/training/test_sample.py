"""What a model makes of a held-out text while it is trained."""

import pytest

import zoo
from zoo.training.run import beginnings, cut, ending, one_line, sample


@pytest.mark.parametrize(
    ("name", "prompt", "words"),
    [
        ("llama", "The capital of France is", "→ Paris."),
        ("llada", "The capital of France is", "→"),
        ("bert", "The capital of France is", " or "),
        ("transformer", "I love NLP", "→ 我爱NLP"),
    ],
)
def test_each_kind_of_model_shows_its_text(name, prompt, words):
    shown = sample(zoo.load(name), prompt)
    assert shown.startswith(f"{prompt} →") and words in shown and "\n" not in shown
    assert shown.removeprefix(f"{prompt} →").strip()


def test_a_strategy_that_fails_ends_no_run(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr("zoo.training.run.generate", broken)
    assert sample(zoo.load("llama"), "The") is None


def test_prompts_are_beginnings_of_held_out_lines():
    assert beginnings(
        ["The capital of France is Paris.", "short", "x\n中国的首都是北京，人口很多很多。"], "generate"
    ) == [
        "The capital of",
        "中国的首都是北京，人",
    ]
    assert beginnings([("a source", "a target")], "translate") == ["a source"]
    assert beginnings([], "generate") == []
    assert len(beginnings((f"line number {i} of them" for i in range(100)), "generate")) == 8
    assert cut("word " * 100) == ("word " * 12).strip()


def test_nothing_that_steers_a_terminal_is_shown():
    assert one_line("a\x1b[31mb\u202ec\n\td\x9b") == "a [31mb c d"


def test_a_text_that_is_cut_begins_with_a_word_and_says_where_it_goes_on():
    assert ending("short") == "short"
    assert ending("wonderful " * 10) == "… " + "wonderful " * 5
    assert ending("国" * 100) == "… " + "国" * 60
    assert sample(zoo.load("llama"), [1], "x" * 61).startswith("… xxx")


def test_only_a_completion_that_goes_on_ends_with_an_ellipsis(monkeypatch):
    loaded = zoo.load("llama")
    assert sample(loaded, "The capital city of China is", "China").endswith(" Beijing.")
    monkeypatch.setattr("zoo.training.run.TOKENS", 1)
    assert sample(loaded, "The capital city of China is", "China") == "China → Bei…"
