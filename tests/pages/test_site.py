"""The docs as a reader's browser has them: every page, every link, both languages, both themes, two widths."""

import re
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.helpers.site_of_docs import SITE, Prose, all_pages, bytes_by_kind, links_of, pages

WHOLE = 45_000_000  # bytes of the site
REST = 24_000_000  # of it, without the weights of the models that run in the page
SERIOUS = ("serious", "critical")
OPTIONS = {
    "resultTypes": ["violations"],
    "preload": False,
}  # it would fetch the style sheets, which a file may not
TOGETHER = 8  # pages a test
READ = [str(path.relative_to(SITE)) for path in pages()]


def templates():
    """One page of each folder: the pages of a folder are built alike. In Chinese another one than in English."""
    folders = {}
    for name in sorted(READ):
        folders.setdefault(name.rpartition("/")[0], []).append(name)
    return {names[(len(names) // 2) * folder.startswith("zh")] for folder, names in folders.items()}


def looked_at():
    """Each page in each theme and width; all are nightly but one page a template.

    These are on a dark phone in English, and on a light screen in Chinese.
    """
    ordinary = templates()
    for name in READ:
        for theme, width in (("light", 390), ("dark", 390), ("light", 1280), ("dark", 1280)):
            often = name in ordinary and (theme, width) == (
                ("light", 1280) if name.startswith("zh/") else ("dark", 390)
            )
            marks = [] if often else [pytest.mark.nightly]
            yield pytest.param(name, theme, width, marks=marks, id=f"{name}-{theme}-{width}")


def test_the_site_is_built():
    assert len(READ) > 100, "run `make docs` first"
    assert (SITE / "zh" / "index.html").is_file()


def test_the_whole_site_is_small():
    found = bytes_by_kind()
    told = ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in found.most_common())
    assert found.total() < WHOLE, told
    assert found.total() - found["live"] < REST, told


MARKUP = re.compile(
    r"\$\S.{,30}|\\[a-z]{3,}.{,30}|\]\(.{,30}|\{[a-z]{3,}\}|```"
)  # of formulas, links, roles and code


@pytest.mark.parametrize("name", READ)
def test_no_markup_is_left_in_the_text(name):
    prose = "".join(Prose((SITE / name).read_text(encoding="utf-8")).parts)
    assert MARKUP.findall(prose) == []


@pytest.mark.parametrize("path", all_pages(), ids=lambda path: str(path.relative_to(SITE)))
def test_every_link_leads_somewhere(path):
    lost = []
    for link in links_of(path).found:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if parts.scheme not in ("https", "data", "mailto"):
                lost.append(link)
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if path == SITE / "404.html":  # whose links climb to the top of the host
            target = SITE / unquote(parts.path).replace("../", "")
        if not target.is_file():
            lost.append(link)
        elif parts.fragment and target.suffix == ".html" and "=" not in parts.fragment:
            fragment = unquote(parts.fragment)
            if fragment not in links_of(target).ids and "compare/index" not in str(target):
                lost.append(link)
    assert lost == []


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.nightly] if READ[first].startswith("zh/") else [])
        for first in range(0, len(READ), TOGETHER)
    ],
)
def test_no_page_is_wider_than_a_phone(first, browser):
    page, errors = browser.new_page(viewport={"width": 390, "height": 844}), []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name in READ[first : first + TOGETHER]:
        page.goto((SITE / name).as_uri())
        wide, room = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert (wide <= room, errors) == (True, []), f"{name}: {wide} pixels wide in a window of {room}"
    page.close()


@pytest.mark.parametrize(("name", "theme", "width"), list(looked_at()))
def test_a_page_is_accessible(name, theme, width, visit):
    page = visit(SITE / name, width=width, height=844)
    page.evaluate("theme => document.body.dataset.theme = theme", theme)
    result = Axe().run(page, options=OPTIONS)
    found = [
        (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
        for one in result.response["violations"]
        if one["impact"] in SERIOUS
    ]
    assert found == []


@pytest.mark.parametrize(
    ("place", "words", "leads"),
    [
        ("", "causal mask", "tour/attention"),
        ("zh/", "因果掩码", "tour/attention"),
        *(
            (place, words, leads)
            for place in ("", "zh/")
            for words, leads in (
                ("MHA", "tour/attention.html"),
                ("GQA", "tour/attention-variants"),
                ("MLA", "tour/attention-variants"),
                ("MoE", "tour/experts"),
                ("quantization", "tour/real-model"),
            )
        ),
    ],
)
def test_search_finds_a_page(place, words, leads, served, browser):
    page = browser.new_page()
    page.goto(f"{served}/{place}search.html")
    page.fill("input[name=q] >> nth=0", words)
    page.keyboard.press("Enter")
    page.wait_for_selector(f'#search-results li a[href*="{leads}"]', state="attached", timeout=120_000)
    page.close()
