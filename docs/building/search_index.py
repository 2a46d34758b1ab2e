"""What the search finds: the prose of pages, without pictures and outputs, and the page that the glossary names for a term."""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from typing import Any

from docutils import nodes
from sphinx import addnodes

from building.build_cache import DOCS

HIDDEN = {"zoo-output", "zoo-console"}  # classes of what is not prose
# Of HTML: drawings, strips of shapes, code, and the tables of facts, blocks and tensors of an architecture.
NO_PROSE = re.compile(
    r'<(svg|script|style|pre)\b.*?</\1>|<div class="zoo-shapes.*|<table class="zoo-\w+"><thead>.*?</table>',
    re.DOTALL,
)
TAG = re.compile(r"<[^<]+?>")
TERM = re.compile(r"^### (.+)\n\n((?:.+\n)+)", re.MULTILINE)
LEADS = re.compile(r"\]\(([\w/-]+)\.md[^)]*\)")
BETWEEN = re.compile(r", |、|，")


@cache
def terms(language: str) -> dict[str, list[str]]:
    """The terms of the glossary by the page that explains them: the last one to which an entry leads."""
    folder = DOCS / "zh" if language == "zh" else DOCS
    found: dict[str, list[str]] = {}
    for heading, text in TERM.findall((folder / "glossary.md").read_text(encoding="utf-8")):
        if pages := LEADS.findall(text):
            original = re.match(r"（([^）]+)）", text)
            names = BETWEEN.split(heading) + (BETWEEN.split(original[1]) if original else [])
            found.setdefault(pages[-1], []).extend(names)
    return found


def prose(doctree: nodes.document, named: list[str]) -> nodes.document:
    """A copy of a page's tree with what a search should find, and index entries for the terms `named`."""
    copy = doctree.deepcopy()
    for node in list(copy.findall(nodes.container)):
        if HIDDEN & set(node["classes"]) and node.parent is not None:
            node.parent.remove(node)
    for raw in list(copy.findall(nodes.raw)):
        raw.replace_self(nodes.Text(unescape(TAG.sub(" ", NO_PROSE.sub(" ", raw.astext())))))
    copy += addnodes.index(entries=[("single", name, "", "main", None) for name in named])
    return copy


def add_words(app: Any) -> None:
    """Let the builder index the prose of a page."""
    if app.builder.format != "html":
        return
    index = app.builder.index_page
    named = terms(app.config.zoo_language)

    def index_prose(page: str, doctree: nodes.document, title: str) -> None:
        index(page, prose(doctree, named.get(page, [])), title)

    app.builder.index_page = index_prose


def setup(app: Any) -> None:
    """Do so before pages are written."""
    app.connect("builder-inited", add_words)
