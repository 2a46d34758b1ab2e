"""A page in Chinese runs the same commands and examples as in English, and leads to no English page without saying so."""

import re
from pathlib import Path

import pytest
from building.command_help import CommandHelp, command_help
from building.translated import BOUNDS, help_in, translations

from tests.helpers.code_of_pages import run
from zoo.cli.program import cli

DOCS = Path(__file__).parents[2] / "docs"
FOLDERS = ("guides", "plugins", "reference")
PAGES = [
    path.relative_to(DOCS / "zh").as_posix()
    for folder in FOLDERS
    for path in sorted((DOCS / "zh" / folder).glob("*.md"))
]
AGAIN = "translate it anew in docs/zh, or take it out"
ENGLISH_ALONE = {"changelog.md", "plugins/reference.md"}


def page(name, language):
    return (DOCS / ("zh" if language == "zh" else "") / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*PAGES, "architecture.md", "performance.md", "security.md", "sources.md"])
def test_it_runs_what_the_english_page_runs(name):
    assert run(page(name, "zh")) == run(page(name, "en"))


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_chinese_pages_where_there_are_such(name):
    text = page(name, "zh")
    for target in re.findall(r"\]\(((?!https?:)[^)#]+\.md)", text):
        path = ((DOCS / "zh" / name).parent / target).resolve()
        assert path.is_file(), target
        if not path.is_relative_to(DOCS / "zh"):
            assert not (DOCS / "zh" / path.relative_to(DOCS)).is_file(), f"{target} is there in Chinese"
    assert "<a href=" not in text


def test_every_guide_is_there_and_listed():
    names = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "guides").glob("*.md"))
    assert [name for name in PAGES if name.startswith("guides/")] == names
    listed = page("guides/index.md", "zh")
    assert all(
        f"\n{Path(name).stem}\n" in listed for name in PAGES if re.fullmatch(r"guides/(?!index).*", name)
    )


def test_every_page_but_a_few_is_there_in_chinese():
    pages = [*DOCS.glob("*.md"), *DOCS.glob("[a-z]*/*.md")]
    english = {
        path.relative_to(DOCS).as_posix() for path in pages if path.parts[-2] not in ("zh", "architectures")
    }
    assert {name for name in english if not (DOCS / "zh" / name).is_file()} == ENGLISH_ALONE


@pytest.mark.parametrize("name", ["plugins/hooks", "plugins/parts"])
def test_a_translated_paragraph_is_still_in_the_english_page(name):
    english = " ".join((DOCS / f"{name}.md").read_text(encoding="utf-8").split())
    assert [one for one in translations(name) if one not in english] == [], AGAIN


def test_a_translated_help_text_is_still_said():
    found = [
        command_help(cli, name)
        for name in re.findall(r"<!-- command: (.*) -->", page("reference/cli.md", "en"))
    ]
    texts = [text for one in found for text in one.text]
    texts += [
        text for one in found for title, rows in one.sections for text in (title, *(text for _, text in rows))
    ]
    said = {BOUNDS.fullmatch(text)[1] for text in texts}
    assert set(translations("reference/cli")) - said == set(), AGAIN


def test_a_help_text_keeps_its_bounds_and_stays_english_without_a_translation():
    texts = ["Rows a batch. [default: 8; x>=1]", "A text that nobody wrote."]
    assert help_in("zh", CommandHelp("x", "", texts)).text == ["每批的行数。 [默认：8; x>=1]", texts[1]]
    assert help_in("en", CommandHelp("x", "", texts)).text == texts
