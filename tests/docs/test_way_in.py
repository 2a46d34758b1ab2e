"""The way into the site: the start page, installation, the paths, and the Chinese lists of English pages."""

import re
from pathlib import Path

import pytest
from building.reading_time import SPEED, anchor_of, links_of, minutes, words_read
from figures.start import COLUMNS, draw

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def links(text):
    """The pages that a page links to, from its own folder, in order."""
    return re.findall(r"\]\(([\w/.-]+?)\.md(?:#[^)]*)?\)", text)


def linked(name):
    """The same as paths from the root of a language."""
    folder = Path(name).parent.as_posix().removeprefix("zh").strip("./")
    found = []
    for own in links(page(name)):
        path = "/".join(part for part in (folder, own) if part)
        while ".." in path:
            path = re.sub(r"(?:^|[^/]+/)\.\./", "", path, count=1)
        found.append(path)
    return found


def test_the_start_page_begins_with_two_commands_of_the_readme():
    shown = re.findall(r"^\$ (.+?)(?:\s{2,}#.*)?$", page("index.md").partition("zoo-doors")[0], re.MULTILINE)
    assert len(shown) == 2
    for command in shown:
        assert re.search(rf"^    {re.escape(command)}(?:\s|$)", README, re.MULTILINE), command


@pytest.mark.parametrize("name", ["index.md", "zh/index.md"])
def test_the_first_screen_speaks_to_three_readers_with_pictures(name):
    doors = page(name).partition("zoo-doors")[2].partition("\n## ")[0]
    pictures = re.findall(r"!\[(.+)\]\(pictures/drawn/start\.(\w+)\.svg\)", doors)
    assert [kind for _, kind in pictures] == ["run", "look", "build"]
    assert all(len(words) > 20 for words, _ in pictures)


def test_the_pictures_hold_what_the_model_says_and_the_code_that_runs():
    run, look, build = (draw("en", name) for name in ("run", "look", "build"))
    assert ">Beijing.<" in run and ">北京。<" in run and "␣Bei" in look
    lines = re.findall(r"<text [^>]*>([^<]*)</text>", build)
    assert lines[0] == "def mistral(config):" and lines[-1].endswith("window=sliding_window(config)))")
    assert all(len(line) <= COLUMNS for line in lines)


def test_the_paths_are_the_same_in_both_languages_and_lead_to_pages_that_are_there():
    english, chinese = linked("paths.md"), linked("zh/paths.md")
    assert english == chinese and len(english) > 30
    assert [name for name in english if not (DOCS / f"{name}.md").is_file()] == []


@pytest.mark.parametrize("title, least, most", [("In ten minutes", 8, 10), ("In an afternoon", 50, 120)])
def test_a_path_can_be_read_in_its_time(title, least, most):
    assert least <= minutes(title) <= most
    words = sum(words_read(name, section) for name, section in links_of(title))
    assert words <= most * SPEED


def test_the_ten_minutes_begin_with_a_model_that_runs_and_name_sections_that_are_there():
    pages = [name for name, _ in links_of("In ten minutes")]
    assert pages[0] == "live/index.md" and pages[1] == "tour/questions.md" and pages[-1] == "tour/logits.md"
    for name in ("paths.md", "zh/paths.md"):
        folder = DOCS / Path(name).parent
        for target, section in re.findall(r"\]\(([\w/-]+\.md)#([^)]+)\)", page(name)):
            headings = re.findall(r"^#+ (.*)$", (folder / target).read_text(encoding="utf-8"), re.MULTILINE)
            assert section in map(anchor_of, headings), f"{name}: {target}#{section}"


def test_words_are_those_that_a_reader_sees(tmp_path, monkeypatch):
    monkeypatch.setattr("building.reading_time.DOCS", tmp_path)
    (tmp_path / "a.md").write_text(
        "# One\n\n<!-- run python hidden\nx = 1\n-->\n\nThree [words](https://x.y) here.\n\n![not read](a.svg)\n\n"
        "$$not read$$\n\n## Two\n\n```python\na < b > c\n```\n\n### Three\n\nNo.\n",
        encoding="utf-8",
    )
    assert words_read("a.md", "one") == 2 + 3
    assert words_read("a.md", "two") == 2 + 5  # a heading's mark counts as a word
    assert words_read("a.md") == 5 + 7 + 3
    with pytest.raises(ValueError, match="four"):
        words_read("a.md", "four")


@pytest.mark.parametrize("folder", ["guides", "plugins", "reference"])
def test_the_chinese_page_of_a_section_names_all_its_pages(folder):
    there = {path.stem for path in (DOCS / folder).glob("*.md")} - {"index"}
    named = {name.removeprefix(f"{folder}/") for name in linked(f"zh/{folder}/index.md")}
    assert there - named == set()
