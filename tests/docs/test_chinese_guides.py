"""A guide in Chinese runs the same commands and examples as in English, and leads to no English page without saying so."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = sorted(path.name for path in (DOCS / "zh" / "guides").glob("*.md"))


def page(name, language):
    return (DOCS / ("zh" if language == "zh" else "") / "guides" / name).read_text(encoding="utf-8")


def run(text):
    """The commands and the shown examples of a page; what is hidden or printed as Markdown has words of its language."""
    found = re.findall(r"^```\{(console|python|drawing)\}([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [
        block
        for block in found
        if block[0] == "console" or not block[2].startswith((":hidden:", ":markdown:"))
    ]


@pytest.mark.parametrize("name", GUIDES)
def test_it_runs_what_the_english_guide_runs(name):
    english, chinese = (
        [block for block in run(page(name, language)) if block[0] != "drawing"] for language in ("en", "zh")
    )
    assert chinese == english


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_to_chinese_pages_or_say_english(name):
    text = page(name, "zh")
    for target in re.findall(r"\]\(((?!https?:)[^)#]+\.md)", text):
        assert (DOCS / "zh" / "guides" / target).is_file(), target
    for target, words in re.findall(r'<a href="([^"#]+\.html)[^"]*">(.*?)</a>', text):
        assert target.startswith("../../")
        assert words.endswith("（英文）"), words
        assert not (DOCS / "zh" / target.removeprefix("../../").replace(".html", ".md")).is_file(), target


def test_every_guide_is_there_and_listed():
    assert sorted(path.name for path in (DOCS / "guides").glob("*.md")) == GUIDES
    listed = page("index.md", "zh")
    assert all(f"\n{name.removesuffix('.md')}\n" in listed for name in GUIDES if name != "index.md")
