"""The built docs as tests see them: where they are, which pages there are, and what a page's HTML links to."""

from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
MADE = ("genindex", "search", "py-modindex", "404")  # without a source of their own
LIVE = ("_static/live/", "live/")  # the models that run in the page


class Links(HTMLParser):
    """The ids of a page, and what it refers to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.found = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src", "xlink:href") and value:
                self.found.append(value)


class Prose(HTMLParser):
    """The text of a page without its code, its scripts and the sources of its formulas."""

    LEFT_OUT = ("pre", "code", "script", "style", "annotation", "textarea")

    def __init__(self, text):
        super().__init__()
        self.inside, self.parts = 0, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside += tag in self.LEFT_OUT

    def handle_endtag(self, tag):
        self.inside -= tag in self.LEFT_OUT

    def handle_data(self, text):
        if not self.inside:
            self.parts.append(text)


@cache
def links_of(path):
    return Links(path.read_text(encoding="utf-8"))


def all_pages():
    """Every HTML file."""
    return sorted(SITE.rglob("*.html"))


def pages(code=False):
    """The pages that people read: all but those that Sphinx makes and, unless `code`, those of source files."""
    return [
        path
        for path in all_pages()
        if path.stem not in MADE and (code or "code" not in path.relative_to(SITE).parts)
    ]


def bytes_by_kind():
    """The bytes of the site's files by kind: "live" is what the models that run in the page are made of."""
    found = Counter()
    for path in SITE.rglob("*"):
        if path.is_file():
            name = path.relative_to(SITE).as_posix().removeprefix("zh/")
            live = name.startswith(LIVE) and path.suffix != ".html"
            folder = name.split("/")[1] if name.startswith("_static/") and name.count("/") > 1 else ""
            kind = "code pages" if name.startswith("code/") else f"{folder} {path.suffix}".strip()
            found["live" if live else kind] += path.stat().st_size
    return found
