"""What a browser must have before it shows a page's first screen is small, on every page of the built docs."""

import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.helpers.site_of_docs import SITE, all_pages

MOST = 300_000  # bytes
LATER = {"defer", "async"}
DRAWINGS = 24  # more than a first screen has
HEAVIEST = 12  # pages that a browser opens


class Needed(HTMLParser):
    """The style sheets and scripts that a browser waits for, and all pictures, as they stand in a page."""

    def __init__(self, text):
        super().__init__()
        self.waited, self.pictures = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "link" and given.get("rel") == "stylesheet":
            self.waited.append(given["href"])
        elif (
            tag == "script"
            and given.get("src")
            and not LATER & given.keys()
            and given.get("type") != "module"
        ):
            self.waited.append(given["src"])
        elif tag == "img" and not given.get("src", "data:").startswith("data:"):
            self.pictures.append(given["src"])


@cache
def size(path):
    return path.stat().st_size


def target(page, address):
    """The file that an address on a page stands for."""
    return (page.parent / unquote(urlsplit(address).path)).resolve()


def shown_first(text):
    """What a browser needs of a page for its first screen: it shows the page while it comes. Later drawings do not count."""
    *ends, _ = [*re.finditer("</svg>", text), None]
    return text[: ends[DRAWINGS - 1].end()] if len(ends) > DRAWINGS else text


def first_paint(page, pictures=()):
    """Bytes of a page's beginning, of the style sheets and scripts that it waits for, and of some of its pictures."""
    text = page.read_text(encoding="utf-8")
    needed = Needed(text)
    files = {target(page, address) for address in (*needed.waited, *pictures)}
    return len(shown_first(text).encode()) + sum(map(size, files))


def test_no_page_waits_for_much():
    sizes = {str(page.relative_to(SITE)): first_paint(page) for page in all_pages()}
    assert {name: bytes for name, bytes in sizes.items() if bytes >= MOST} == {}


def test_the_heaviest_pages_with_the_pictures_of_their_first_screen(visit):
    heaviest = Counter({page: first_paint(page) for page in all_pages()}).most_common(HEAVIEST)
    pictured = [page for page in all_pages() if Needed(page.read_text(encoding="utf-8")).pictures]
    for page in {*(page for page, _ in heaviest), *pictured[:HEAVIEST]}:
        opened = visit(page, width=1280, height=800)
        seen = opened.evaluate(
            "[...document.images].filter(one => one.getBoundingClientRect().top < innerHeight && one.currentSrc)"
            ".map(one => one.getAttribute('src'))"
        )
        shown = first_paint(page, [one for one in seen if not one.startswith("data:")])
        assert shown < MOST, f"{page.relative_to(SITE)}: {shown:,} bytes"


@pytest.mark.parametrize(
    ("text", "waited"),
    [
        ('<link rel="stylesheet" href="a.css"><script src="b.js"></script>', ["a.css", "b.js"]),
        (
            '<script defer src="b.js"></script><script type="module" src="c.js"></script><link rel="icon" href="d">',
            [],
        ),
    ],
)
def test_what_is_fetched_later_does_not_count(text, waited):
    assert Needed(text).waited == waited
