"""The glossary has each term of the tour in both languages, with a link to where it is explained."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"en": DOCS / "glossary.md", "zh": DOCS / "zh" / "glossary.md"}
CHINESE = re.compile(r"(?:[一-鿿]|KV |–)+")


def entries(language):
    """Each entry: the list of its terms, and these with what is said of them."""
    found = re.findall(r"^### (.+)\n\n((?:.+\n)+)", PAGES[language].read_text(encoding="utf-8"), re.MULTILINE)
    comma = "、" if language == "zh" else ", "
    return [(names.split(comma), " ".join([names, *text.splitlines()])) for names, text in found]


def page_of(language, text):
    """The page that an entry leads to, and the section; nothing where it is another language's page."""
    if found := re.search(r"\]\(((?:tour|compare|plugins|guides)/[\w-]+\.md)(?:#([^)]+))?\)", text):
        return PAGES[language].parent / found[1], found[2]
    return None


@pytest.mark.parametrize("language", PAGES)
def test_each_entry_leads_to_a_page_and_stands_once(language):
    terms = [term for names, _ in entries(language) for term in names]
    assert len(terms) == len(set(terms)) > 60
    for names, text in entries(language):
        assert page_of(language, text) or re.search(r"href=\"\.\./plugins/", text), names


@pytest.mark.parametrize("language", PAGES)
def test_the_page_that_an_entry_leads_to_has_its_term(language):
    for names, text in entries(language):
        if found := page_of(language, text):
            page, section = found
            words = {re.sub(r" \(.*\)$", "", name) for name in names}
            if language == "zh" and (latin := re.search(r"（([^）]*)）", text)):
                words |= set(latin[1].split("，"))  # a term of the language that most papers are in
            shown = page.read_text(encoding="utf-8").lower()
            assert any(word.lower() in shown for word in words), f"{names}: {page}"
            headings = re.findall(r"^#+ (.*)$", shown, re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading).strip().replace(" ", "-") for heading in headings]
            assert section is None or section in slugs, f"{names}: {page} has no section {section}"


ABBREVIATIONS = ("MHA", "MQA", "GQA", "MLA", "FFN", "MoE", "LN", "SSM", "RoPE")


@pytest.mark.parametrize("language", PAGES)
@pytest.mark.parametrize("word", ABBREVIATIONS)
def test_an_abbreviation_is_a_term_and_is_written_where_it_is_explained(language, word):
    [text] = [text for names, text in entries(language) if word in names]
    page, _ = page_of(language, text)
    assert re.search(rf"(?<![A-Za-z]){word}(?![A-Za-z])", page.read_text(encoding="utf-8")), page


@pytest.mark.parametrize("language", PAGES)
def test_the_page_has_sections_and_entries_alone(language):
    text = PAGES[language].read_text(encoding="utf-8")
    assert len(re.findall(r"^###", text, re.MULTILINE)) == len(entries(language)) > 60
    assert "```" not in text


def test_both_languages_have_the_same_entries_in_the_same_order():
    english, chinese = entries("en"), entries("zh")
    assert len(english) == len(chinese)
    for (names, text), (other, translated) in zip(english, chinese, strict=True):
        called = set(CHINESE.findall(text)) | set(names)
        assert called & set(other), f"{names}: {other} is not what it is called"
        assert any(name.lower() in translated.lower() for name in names), f"{other}: no English name"
