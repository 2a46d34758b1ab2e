"""The ten questions of the tour: each has an answer with a link to a page, and to a section of it, that there is."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FOLDERS = {"en": DOCS / "tour", "zh": DOCS / "zh" / "tour"}
QUESTION = re.compile(
    r"^## ([^\n]+[?？])\n\n<details class=\"zoo-answer\">\n<summary>.+?</summary>\n\n(.*?)^</details>$",
    re.MULTILINE | re.DOTALL,
)


def questions(language):
    return QUESTION.findall((FOLDERS[language] / "questions.md").read_text(encoding="utf-8"))


def sections(path):
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(answer):
    return re.findall(r"\]\(([\w-]+\.md)(?:#([^)]+))?\)", answer)


@pytest.mark.parametrize("language", FOLDERS)
def test_there_are_ten_questions_and_each_answer_says_where_the_tour_has_it(language):
    found = questions(language)
    assert len(found) == 10
    for question, answer in found:
        assert any(section or page == "kinds.md" for page, section in links(answer)), question
        for page, section in links(answer):
            path = FOLDERS[language] / page
            assert path.is_file(), f"{question}: {page}"
            assert not section or section in sections(path), f"{question}: {page}#{section}"


def test_both_languages_lead_to_the_same_pages():
    def pages(language):
        return [{page for page, _ in links(answer)} for _, answer in questions(language)]

    assert pages("en") == pages("zh")
