"""A reader's way through the docs, by clicks and keys: home, a comparison of three, a page of the tour, its trace, the glossary."""

from itertools import product

import pytest

from tests.helpers.invoked import invoke
from tests.helpers.site_of_docs import SITE

MODELS = ("llama:8b", "deepseek-v3:671b", "mamba:2.8b")


def said_by_the_command(folder, context):
    """The row of the cache that `zoo compare` prints for a context."""
    done = invoke(folder, ["compare", *MODELS, "--context", str(context)], environment={"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if f"cache at {context:,} tokens" in line)
    return row.split("tokens", 1)[1]


def in_order(cells, line):
    """Whether the line holds the texts of these cells, one after the other."""
    for cell in cells:
        _, found, line = line.partition(cell)
        if not found:
            return False
    return True


def fits(page):
    """The page is no wider than its window."""
    wide, room = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= room, f"{page.url}: {wide} pixels wide in a window of {room}"


def through_the_menu(page, ending):
    """Follow a link of the side bar, which is behind a button where the window is narrow."""
    link = page.locator(f'.sidebar-tree a[href$="{ending}"]').first
    if not link.is_visible() or link.bounding_box()["x"] < 0:
        page.locator("label.nav-overlay-icon, .mobile-header label").first.click()
        page.wait_for_timeout(400)  # it slides in
    link.click()
    page.wait_for_load_state()
    fits(page)


@pytest.mark.parametrize(
    ("language", "width", "scheme"),
    [
        pytest.param(
            *way, marks=[] if way in (("en", 1280, "light"), ("zh", 390, "dark")) else pytest.mark.nightly
        )
        for way in product(["en", "zh"], [1280, 390], ["light", "dark"])
    ],
)
def test_a_reader_gets_from_home_to_the_glossary(language, width, scheme, visit, tmp_path):
    page = visit(SITE / "index.html", width=width, scheme=scheme)
    fits(page)
    if language == "zh":
        if (
            not page.locator(".zoo-language a").is_visible()
            or page.locator(".zoo-language a").bounding_box()["x"] < 0
        ):
            page.locator("label.nav-overlay-icon, .mobile-header label").first.click()
            page.wait_for_timeout(400)
        page.locator(".zoo-language a").click()
        page.wait_for_load_state()
        assert page.locator("html").get_attribute("lang") == "zh-CN"
        fits(page)

    page.locator('main a[href$="compare/index.html"], article a[href$="compare/index.html"]').first.click()
    page.wait_for_selector(".zoo-compare [role=combobox]")
    page.locator(".zoo-compare .add").click()
    for number, name in enumerate(MODELS):
        box = page.locator(".zoo-compare [role=combobox]").nth(number)
        box.click()
        box.fill(name)
        box.press("Enter")
    assert page.locator(".zoo-compare .picture").count() == len(MODELS)
    slider = page.locator(".zoo-compare input[type=range]")
    slider.focus()
    before = slider.input_value()
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    assert slider.input_value() != before
    context = int(page.locator(".zoo-compare input[type=number]").input_value())
    # The first is the table itself: a box that the mouse is over shows its rows again at the edge.
    row = page.locator('.zoo-compare tr[data-fact="cache.context"]').first.locator("td")
    said = said_by_the_command(tmp_path, context)
    for _ in range(600):  # the table follows the slider a moment later
        if in_order(row.all_text_contents(), said):
            break
        page.wait_for_timeout(100)
    assert in_order(row.all_text_contents(), said), (row.all_text_contents(), said)
    fits(page)
    assert all(name in page.url for name in MODELS) and f"context={context}" in page.url

    through_the_menu(page, "tour/index.html")
    page.locator('article a[href$="attention.html"]').first.click()
    page.wait_for_load_state()
    fits(page)
    trace = page.locator(".zoo-trace").first
    trace.scroll_into_view_if_needed()
    trace.locator("button, [tabindex='0'], input").first.focus()
    fits(page)

    page.locator('article a[href*="glossary.html#"]').first.click()
    page.wait_for_load_state()
    assert page.evaluate("document.getElementById(decodeURIComponent(location.hash.slice(1))) !== null")
    fits(page)
