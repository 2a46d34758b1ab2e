"""The texts of the live page: the same in both languages, and all that its scripts and its markup ask for."""

import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from building import live_page

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = [DOCS / "_static" / "live" / f"{name}.js" for name in ("page", "change", "work")]


def places(text):
    return set(re.findall(r"\{(\w+)\}", text)) if isinstance(text, str) else None


def test_both_languages_have_the_same_texts_with_the_same_places():
    english, chinese = (live_page.words(language) for language in ("en", "zh"))
    assert list(english) == list(chinese)
    for name, text in english.items():
        assert places(text) == places(chinese[name]), name
        assert chinese[name] and text


def test_every_text_that_is_asked_for_is_there():
    words, scripts = live_page.words("en"), "".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    markup = (live_page.ASSETS / "live.html").read_text(encoding="utf-8")
    asked = set(re.findall(r'\bsay\("(\w+)"', scripts)) | set(re.findall(r"\bwords\.(\w+)", scripts + markup))
    assert len(asked) > 40
    assert sorted(asked - set(words) - {"prompts", "sizes", "length"}) == []


def test_no_text_is_left_over():
    words, scripts = live_page.words("en"), "".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    used = (
        scripts
        + (live_page.ASSETS / "live.html").read_text(encoding="utf-8")
        + (DOCS / "building/trace.py").read_text()
    )
    families = ("flow_", "switch_", "title_", "column_", "expect_", "placement:", "positions:", "changed_")
    assert [name for name in words if name not in used and not name.startswith(families)] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tasks_and_examples_are_of_models_that_run(language):
    words = live_page.words(language)
    assert set(words["models"]) == set(live_page.MODELS) == set(live_page.prompts(language))
    for task in words["task_list"]:
        for asked in (task["set"], *(link for _, link in task["links"])):
            values = parse_qs(asked)
            assert values["model"][0] in live_page.MODELS and values["prompt"][0], asked


def test_the_address_of_a_run_keeps_any_prompt():
    prompt = "a&b=c #1 + 中国"
    address = live_page.live_hash("llama", prompt=prompt, steps=2)
    assert parse_qs(address[1:]) == {"model": ["llama"], "prompt": [prompt], "steps": ["2"]}
    assert "+" not in address
