"""What a small model was trained on is said where a prompt has words that it never saw, and only there."""

import json
import re
from pathlib import Path

import pytest

import zoo
from tests.helpers.terminal import Terminal
from zoo.cli.generation import model_hint, prompt_hint
from zoo.training.corpora import TextCorpus, unseen_words

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PROMPTS = re.findall(r'zoo (?:run|trace) (\w+) "(.+?)"(?! --adapter)', README)


def test_words_are_compared_in_any_case_and_han_characters_by_themselves():
    texts = TextCorpus("mine", lambda seed: iter(["Paris is in France.", "巴黎在法国。"]), lambda: iter(()))
    assert unseen_words("paris, FRANCE! 法国在 1989", texts) == []
    assert unseen_words("Paris has cats, many CATS 猫", texts) == ["has", "CATS", "many", "猫"]


@pytest.mark.parametrize(("name", "prompt"), sorted({*PROMPTS}))
def test_nothing_is_said_of_the_prompts_of_the_readme(name, prompt):
    assert prompt_hint(zoo.load(name), prompt) is None


def test_a_prompt_of_other_words_is_told_which():
    line = prompt_hint(zoo.load("llama"), "Write a poem about cats and a dog")
    assert '"Write", "poem", "about", "cats", … do not occur' in line
    assert line.startswith("zoo: llama:pocket was trained only on facts about the world's countries")


def test_of_a_model_that_no_record_tells_of_nothing_is_said(folder):
    loaded = zoo.load(folder())
    assert model_hint(loaded) is prompt_hint(loaded, "cats") is None
    (loaded.folder / "training.json").write_text(json.dumps({"settings": {"corpus": "diary.txt"}}))
    assert model_hint(loaded) is prompt_hint(loaded, "cats") is None
    (loaded.folder / "training.json").write_text("[]")
    assert model_hint(loaded) is prompt_hint(loaded, "cats") is None


def test_in_a_pipe_nothing_is_said(command):
    assert "trained only" not in command("run", "llama", "Write a poem", "--max-tokens", "2").stderr


@pytest.mark.slow
def test_on_a_terminal_it_is_said_after_the_answer():
    arguments = ("run", "llama", "Write a poem", "--max-tokens", "2")
    with Terminal(*arguments, columns=200) as terminal:
        status, seen = terminal.end()
    assert status == 0 and 'where "Write", "poem" do not occur' in seen
