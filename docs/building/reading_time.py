"""How long the paths of docs/paths.md take to read, counted on the pages and sections that they name. Needs no Sphinx."""

from __future__ import annotations

import re
from collections.abc import Iterator

from building.build_cache import DOCS

SPEED = 200  # words a minute: a little slower than adults read silently, 238 (Brysbaert, 2019)
LINK = re.compile(r"\]\(([\w/-]+\.md)(?:#([^)]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
UNREAD = re.compile(
    r"<!--.*?-->|\$\$.*?\$\$|</?[a-z][^<>\n]*>|!\[[^\n]*?\]\([^)\n]*\)|(?<=\])\([^)\n]*\)|^```\w*$",
    re.DOTALL | re.MULTILINE,
)


def links_of(title: str) -> Iterator[tuple[str, str]]:
    """The page and the section ("" for all of it) of each link in the list of a path of the English page."""
    text = (DOCS / "paths.md").read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    for line in re.findall(r"^\d+\. (.*)$", text, re.MULTILINE):
        yield from LINK.findall(line)


def words_read(page: str, section: str = "") -> int:
    """The words of a page that a reader sees, code and outputs included; of a section, up to the next heading.

    ValueError for a section that there is not.
    """
    text = UNREAD.sub(" ", (DOCS / page).read_text(encoding="utf-8"))
    if not section:
        return len(text.split())
    starts = [(found.start(), anchor_of(found[1])) for found in HEADING.finditer(text)]
    for (start, anchor), (end, _) in zip(starts, [*starts[1:], (len(text), "")], strict=True):
        if anchor == section:
            return len(text[start:end].split())
    raise ValueError(f"{page} has no section {section}")


def anchor_of(heading: str) -> str:
    """The address of a heading within its page."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def minutes(title: str) -> int:
    """The minutes that a path takes to read; from half an hour on, in tens."""
    found = sum(words_read(page, section) for page, section in links_of(title)) / SPEED
    return round(found) if found < 30 else 10 * round(found / 10)
