"""Pages read as files: by any viewer of Markdown, without Sphinx."""

import base64
import re
from pathlib import Path

import pytest
from building.marked import for_the_site
from building.picture import FOLDER
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = ("_build", "examples")  # by the build, or pages of packages
READER = MarkdownIt("commonmark", {"html": True}).enable("table")


def pages():
    for path in sorted(DOCS.rglob("*.md")):
        parts = path.relative_to(DOCS).parts
        if not set(MADE) & set(parts) and (path.name == "index.md" or "architectures" not in parts):
            yield path


def tokens(path):
    """The tokens of a page, those within lines too."""
    for token in READER.parse(path.read_text(encoding="utf-8")):
        yield token
        yield from token.children or ()


def slugs(path):
    """The anchors that a viewer gives to a page's headings."""
    found, seen = set(), {}
    for token in READER.parse(path.read_text(encoding="utf-8")):
        if token.type == "inline" and token.level == 1 and token.map and token.content:
            words = re.sub(r"<!--.*?-->|[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", token.content)
            slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            found.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
            seen[slug] = seen.get(slug, 0) + 1
    return found


@pytest.mark.parametrize("page", list(pages()), ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_page_has_no_directives_and_its_pictures_and_links_are_there(page):
    before = None
    for token in tokens(page):
        if token.type == "fence":
            allowed = ("{eval-rst}",) if page.name == "api.md" else ()
            assert not token.info.startswith("{") or token.info in allowed, token.info
        if token.type == "code_inline" and before is not None and before.type == "text":
            role = re.search(r"\{\w+\}$", before.content)
            assert role is None, f"{role} `{token.content}`"
        for target in (token.attrs.get("href"), token.attrs.get("src")):
            if not target or re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            assert path.exists() and path.is_relative_to(ROOT), target
            if anchor and path.suffix == ".md" and re.fullmatch(r"[\w-]+", anchor):
                assert anchor in slugs(path), f"{target}: only {sorted(slugs(path))}"
        before = token


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_every_picture_on_a_ground_of_its_theme(language, scheme, visit, tmp_path):
    folder = (DOCS / "zh" if language == "zh" else DOCS) / FOLDER
    pictures = [base64.b64encode(path.read_bytes()).decode() for path in sorted(folder.glob("*.svg"))]
    page = tmp_path / "pictures.html"
    drawn = "".join(
        f'<img src="data:image/svg+xml;base64,{data}" style="max-width:100%">' for data in pictures
    )
    page.write_text(drawn, encoding="utf-8")
    shown = visit(page, scheme=scheme)
    shown.wait_for_function("[...document.images].every((one) => one.complete)")
    assert len(pictures) > 100 and shown.evaluate("[...document.images].every((one) => one.naturalWidth)")
    grounds = shown.evaluate(
        """() => [...document.images].map((one) => {
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [one.naturalWidth, one.naturalHeight];
          const context = canvas.getContext("2d");
          context.drawImage(one, 0, 0);
          return [...context.getImageData(one.naturalWidth / 2, 2, 1, 1).data];
        })"""
    )
    assert all((sum(ground[:3]) > 600) == (scheme == "light") and ground[3] == 255 for ground in grounds)


def test_the_site_reads_what_is_for_it_and_not_what_is_for_the_file():
    text = (
        "A<!-- site: , B -->.\n\n<!-- site\n```{live}\n```\n-->\n<!-- file -->\nC\n<!-- end -->\n\n"
        "<!-- pages: a b -->\n- [A](a.md)\n- [B](b.md)\n<!-- end -->\n\n<!-- pages: c -->\n- [C](c.md)\n<!-- end -->\n"
    )
    assert for_the_site(text) == (
        "A, B.\n\n```{live}\n```\n\n```{toctree}\n:maxdepth: 1\n\na\nb\n```\n\n```{toctree}\n:maxdepth: 1\n\nc\n```\n"
    )
