"""The exercises of the tour: each has an answer that code computes alone, the same in both languages."""

import re
from pathlib import Path

import pytest
from building.outputs import same
from building.page_code import run

DOCS = Path(__file__).parents[2] / "docs"
EXERCISE = re.compile(
    r"^## (?:Exercise|练习)\n\n(?P<question>.+?)\n\n<details class=\"zoo-answer\">\n<summary>(?:Answer|答案)</summary>\n\n.+?\n\n"
    r"<!-- run python -->\n```python\n(?P<code>.*?)^```\n\n```text\n(?P<printed>.*?)^```\n<!-- end -->\n\n</details>$",
    re.DOTALL | re.MULTILINE,
)


def exercises(language):
    """By the name of a page, its exercise."""
    folder = DOCS / ("" if language == "en" else "zh") / "tour"
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    found = {name: EXERCISE.search(text) for name, text in texts.items()}
    titled = {
        name for name, text in texts.items() if re.search(r"^## (?:Exercise|练习)$", text, re.MULTILINE)
    }
    assert titled == {name for name, one in found.items() if one}
    return {name: one for name, one in found.items() if one}


@pytest.mark.parametrize("name", exercises("en"))
def test_the_answer_is_what_its_code_prints(name):
    one = exercises("en")[name]
    assert same(one["printed"].rstrip(), run(one["code"], {"__name__": "page"}).rstrip())


def test_both_languages_have_the_same_exercises():
    english, chinese = exercises("en"), exercises("zh")
    assert len(english) >= 12
    assert {name: (one["code"], one["printed"]) for name, one in english.items()} == {
        name: (one["code"], one["printed"]) for name, one in chinese.items()
    }
