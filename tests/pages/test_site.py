"""The docs as a reader's browser has them: each page is opened once, and all that holds for every page is checked there."""

import re
from importlib import import_module
from urllib.parse import unquote, urlsplit

import pytest

from tests.helpers.accessibility import violations
from tests.helpers.site_of_docs import SITE, Page, all_pages, bytes_by_kind, pages
from zoo.host.registry import default_registry

WEIGHTS = 22_000_000  # bytes of the models that run in the page
OF_ONE = 325_000  # of the rest of the site, for each architecture: its pages and cards in two languages, with their words
FIRST = 305_000  # bytes that a browser waits for before it shows a page
SERIOUS = ("serious", "critical")
VIEWS = [(theme, width) for theme in ("light", "dark") for width in (390, 1280)]
READ = [str(path.relative_to(SITE)) for path in pages()]
ICON = re.compile(r'<svg class="(?:[\w-]+ )?(svg-[\w-]+)"></svg>')
MARKUP = re.compile(
    r"\$\S.{,30}|\\[a-z]{3,}.{,30}|\]\(.{,30}|\{[a-z]{3,}\}|```"
)  # formulas, links, roles, code
# What is wider than its place, the strips of shapes in every view; on a page of the tour that fills a wide screen, all.
WIDER = """wide => {
  const named = element => `${element.tagName}.${element.className.baseVal ?? element.className}: ` +
    element.textContent.trim().slice(0, 60);
  const scrolling = "article pre, article .zoo-drawing, article .table-wrapper, article figure, article .math-wrapper, article .zoo-formula, ";
  const inside = [...document.querySelectorAll((wide ? scrolling : "") + ".zoo-shapes")]
    .filter(element => element.clientWidth && element.scrollWidth > element.clientWidth + 1);
  const over = wide ? [...document.querySelectorAll("article table, article figure, article svg, article math")]
    .filter(element => element.getBoundingClientRect().width > element.closest("section").clientWidth + 1) : [];
  return [...inside, ...over].map(named);
}"""
SIZES = "[document.documentElement.scrollWidth, window.innerWidth]"
PICTURES = """[...document.images].filter(one => one.getBoundingClientRect().top < innerHeight && one.currentSrc)
    .map(one => one.getAttribute('src')).filter(src => !src.startsWith('data:'))"""


def visits():
    """Each page with the view in which it is opened, and whether Axe looks at it there: at night at all, in all views.

    The pages of a folder are built alike: of each folder one is looked at. In Chinese it is another one than in English.
    """
    folders = {}
    for name in sorted(READ):
        folders.setdefault(name.rpartition("/")[0], []).append(name)
    templates = {names[(len(names) // 2) * folder.startswith("zh")] for folder, names in folders.items()}
    for name in READ:
        chinese = name.startswith("zh/")
        often = ("light", 1280) if chinese else ("dark", 390)
        if name in templates or not chinese:
            yield pytest.param(name, often, name in templates, id=name)
        for view in VIEWS:
            if view != often or name not in templates:
                marks = pytest.mark.nightly
                yield pytest.param(name, view, True, marks=marks, id=f"{name}-{view[0]}-{view[1]}")


def test_the_site_is_built():
    assert len(READ) > 100, "run `make docs` first"
    assert (SITE / "zh" / "index.html").is_file()


def test_the_whole_site_is_small():
    found = bytes_by_kind()
    told = ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in found.most_common())
    assert found["live"] < WEIGHTS, told
    assert found.total() - found["live"] < OF_ONE * len(default_registry().architectures), told


def test_every_icon_of_a_page_is_drawn_by_the_style_sheet():
    sheet = (SITE / "_static" / "zoo-colours.css").read_text(encoding="utf-8")
    icons = {name for path in all_pages() for name in ICON.findall(path.read_text(encoding="utf-8"))}
    assert "svg-menu" in icons and {name for name in icons if f".{name}{{" not in sheet} == set()


def test_the_math_font_has_every_character_of_the_formulas(monkeypatch):
    monkeypatch.syspath_prepend(SITE.parents[2] / "tools")
    tool = import_module("math_font")
    style = (SITE / "_static" / "math.css").read_text(encoding="utf-8")
    ranges = [
        range(int(one[1], 16), int(one[2] or one[1], 16) + 1)
        for one in re.finditer(r"U\+([0-9A-F]+)(?:-([0-9A-F]+))?", style)
    ]
    codes = {tool.ROOT, *tool.characters(SITE)}
    assert len(codes) > 100 and [chr(code) for code in codes if not any(code in one for one in ranges)] == []


def test_brackets_and_roots_grow_with_what_they_hold(visit):
    page = visit(SITE / "tour" / "formulas.html")
    assert page.evaluate("document.fonts.ready.then(all => [...all].map(one => one.status))") == ["loaded"]
    heights = page.eval_on_selector_all(
        "math mo",
        "all => all.filter(one => one.textContent === '(').map(one => one.getBoundingClientRect().height)",
    )
    assert max(heights) > 1.7 * min(heights)


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("tour/attention.html", "zoo-trace.css"),
        ("live/index.html", "page.css"),
        ("compare/index.html", "compare.css"),
        ("tour/formulas.html", "math.css"),
    ],
)
def test_a_page_waits_for_the_styles_of_what_it_shows_and_for_no_other(name, sheet):
    waited = [link.partition("?")[0].rpartition("/")[2] for link in Page.of(SITE / name).waited]
    assert sheet in waited and "furo-extensions.css" not in waited
    assert sheet not in [
        link.partition("?")[0].rpartition("/")[2] for link in Page.of(SITE / "install.html").waited
    ]


@pytest.mark.parametrize("place", ["", "zh/"])
def test_code_of_the_tour_is_folded_and_printed_open(place, visit):
    page = visit(SITE / f"{place}tour/attention.html")
    folded = page.locator("details.zoo-code")
    named = folded.locator("> summary code").all_text_contents()
    assert {"attention", "softmax", "causal_mask"} <= set(named) and folded.locator("pre").count() == len(
        named
    )
    closed = page.locator("article details:not([open])")
    before = closed.count()
    assert not folded.first.locator("pre").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert closed.count() == 0 and folded.first.locator("pre").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert closed.count() == before


@pytest.mark.parametrize("path", all_pages(), ids=lambda path: str(path.relative_to(SITE)))
def test_every_link_leads_somewhere_and_little_is_waited_for(path):
    lost = []
    for link in Page.of(path).links:
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
            if fragment not in Page.of(target).ids and "compare/index" not in str(target):
                lost.append(link)
    assert lost == []
    assert Page.of(path).first_paint() < FIRST


@pytest.mark.parametrize("name, view, accessible", list(visits()))
def test_a_page_fits_every_window_and_is_accessible(name, view, accessible, visit):
    assert MARKUP.findall("".join(Page.of(SITE / name).prose)) == []
    page = visit(SITE / name, width=view[1], height=844)  # which fails on an error in the console
    page.evaluate("theme => document.body.dataset.theme = theme", view[0])
    if accessible:
        assert violations(page, SERIOUS) == []
    for theme, width in VIEWS:
        page.set_viewport_size({"width": width, "height": 844})
        page.evaluate("theme => document.body.dataset.theme = theme", theme)
        wide, room = page.evaluate(SIZES)
        assert wide <= room, f"{wide} pixels wide in a window of {room}"
        assert page.evaluate(WIDER, False) == []
    assert Page.of(SITE / name).first_paint(page.evaluate(PICTURES)) < FIRST
    if name.removeprefix("zh/").startswith("tour/"):
        page.set_viewport_size({"width": 1440, "height": 900})
        assert page.evaluate(WIDER, True) == []


SEARCHES = [
    ("", "KV cache", "tour/cache"),
    ("", "LoRA", "guides/tune"),
    ("", "tokens", "tour/tokens"),
    ("zh/", "注意力", "tour/attention"),
    ("zh/", "KV 缓存", "tour/cache"),
]
MORE_SEARCHES = [
    ("", "RoPE", "tour/positions"),
    ("", "attention", "tour/attention"),
    ("", "causal mask", "tour/attention"),
    ("", "quantize", "guides/convert"),
    ("", "temperature", "tour/sampling"),
    ("", "GGUF", "reference/gguf"),
    ("", "serve", "guides/serve"),
    ("zh/", "因果掩码", "tour/attention"),
    ("zh/", "量化", "tour/real-model"),
    ("zh/", "位置编码", "tour/positions"),
    *(
        (place, words, leads)
        for place in ("", "zh/")
        for words, leads in (
            ("MHA", "tour/attention"),
            ("GQA", "tour/attention-variants"),
            ("MLA", "tour/attention-variants"),
            ("MoE", "tour/experts"),
        )
    ),
]


@pytest.mark.parametrize(
    ("place", "words", "leads"),
    [*SEARCHES, *(pytest.param(*one, marks=pytest.mark.nightly) for one in MORE_SEARCHES)],
)
def test_the_search_finds_the_page_that_explains_a_term_first(place, words, leads, served, browser):
    page = browser.new_page()
    page.goto(f"{served}/{place}search.html")
    page.fill("input[name=q] >> nth=0", words)
    page.keyboard.press("Enter")
    first = page.locator("#search-results li > a").first
    first.wait_for(timeout=120_000)
    page.wait_for_function("document.querySelector('.search-summary').innerText")
    assert first.get_attribute("href").partition("?")[0] == f"{leads}.html"
    page.close()


@pytest.mark.parametrize(("place", "words"), [("", "KV cache"), ("zh/", "KV 缓存")])
def test_search_shows_pages_before_the_glossary_and_their_text_in_excerpts(place, words, served, browser):
    page = browser.new_page()
    page.goto(f"{served}/{place}search.html?q={words}")
    page.wait_for_selector("#search-results li:nth-child(10) p.context", state="attached", timeout=120_000)
    leads = page.eval_on_selector_all(
        "#search-results li > a", "all => all.map((a) => a.getAttribute('href'))"
    )
    assert not any("glossary" in lead for lead in leads[:3])
    hidden = (
        "<div class=zoo-shapes>(B, T, D)</div>",
        "<div class=zoo-output>0.5</div>",
        "<svg><text>a</text></svg>",
    )
    html = f"<div role=main><article>{''.join(hidden)}text</article></div>"
    found = page.evaluate("html => Search.htmlToText(html)", html)
    assert found == "text"
    page.close()


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
def test_what_is_fetched_later_is_not_waited_for(text, waited):
    assert Page(text).waited == waited
