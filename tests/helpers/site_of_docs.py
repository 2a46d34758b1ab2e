"""The built docs as tests see them: where they are, which pages there are, and what a page's HTML holds."""

import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
MADE = ("genindex", "search", "py-modindex", "404")  # without a source of their own
LIVE = ("_static/live/", "live/")  # the models that run in the page
DRAWINGS = 24  # more than a first screen has


class Page(HTMLParser):
    """The ids of a page, what it refers to, what a browser waits for, and its text.

    The text is `prose`: without code, scripts and the sources of formulas.
    """

    LEFT_OUT = ("pre", "code", "script", "style", "annotation", "textarea")

    def __init__(self, text, path=None):
        super().__init__()
        self.path, self.inside = path, 0
        self.ids, self.links, self.waited, self.prose = set(), [], [], []
        # A browser shows a page while it comes: later drawings are not waited for.
        *ends, _ = [*re.finditer("</svg>", text), None]
        beginning = text[: ends[DRAWINGS - 1].end()] if len(ends) > DRAWINGS else text
        self.bytes_first = len(beginning.encode())
        self.feed(text)

    @classmethod
    @cache
    def of(cls, path):
        """The page of a file."""
        return cls(path.read_text(encoding="utf-8"), path)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.inside += tag in self.LEFT_OUT
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links += [given[name] for name in ("href", "src", "xlink:href") if given.get(name)]
        if tag == "link" and given.get("rel") == "stylesheet":
            self.waited.append(given["href"])
        elif tag == "script" and given.get("src") and given.get("type") != "module":
            self.waited += [] if {"defer", "async"} & given.keys() else [given["src"]]

    def handle_endtag(self, tag):
        self.inside -= tag in self.LEFT_OUT

    def handle_data(self, text):
        if not self.inside:
            self.prose.append(text)

    def first_paint(self, pictures=()):
        """Bytes of the page's beginning, of the style sheets and scripts that it waits for, and of some of its pictures."""
        needed = (*self.waited, *pictures)
        files = {(self.path.parent / unquote(urlsplit(address).path)).resolve() for address in needed}
        return self.bytes_first + sum(file.stat().st_size for file in files)


def all_pages():
    """Every HTML file."""
    return sorted(SITE.rglob("*.html"))


def pages():
    """The pages that people read: all but those that Sphinx makes and those of source files."""
    return [
        path for path in all_pages() if path.stem not in MADE and "code" not in path.relative_to(SITE).parts
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
