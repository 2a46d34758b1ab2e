"""The glossary has each term of the tour in both languages, with a link to where it is explained."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"en": DOCS / "glossary.md", "zh": DOCS / "zh" / "glossary.md"}
CHINESE = re.compile(r"(?:[一-鿿]|KV |–)+")


def entries(language):
    """Each entry: the list of its terms, and what is said of them."""
    found = []
    for block in re.findall(
        r"```\{glossary\}\n(.*?)```", PAGES[language].read_text(encoding="utf-8"), re.DOTALL
    ):
        for entry in block.strip().split("\n\n"):
            lines = entry.splitlines()
            found.append(([line for line in lines if line[0] != " "], " ".join(lines)))
    return found


@pytest.mark.parametrize("language", PAGES)
def test_each_entry_leads_to_a_page_and_stands_once(language):
    terms = [term for names, _ in entries(language) for term in names]
    assert len(terms) == len(set(terms)) > 60
    for names, text in entries(language):
        assert re.search(r"\]\((?:tour|compare|plugins|guides)/[\w-]+\.md\)|href=\"\.\./plugins/", text), (
            names
        )


def test_both_languages_have_the_same_entries_in_the_same_order():
    english, chinese = entries("en"), entries("zh")
    assert len(english) == len(chinese)
    for (names, text), (other, translated) in zip(english, chinese, strict=True):
        called = set(CHINESE.findall(text)) | set(names)
        assert called & set(other), f"{names}: {other} is not what it is called"
        assert any(name.lower() in translated.lower() for name in names), f"{other}: no English name"
