"""On a wide screen nothing on the tour scrolls sideways, in either language."""

import pytest

from tests.helpers.site_of_docs import SITE

FOLDERS = ("tour", "zh/tour")
PAGES = [
    path.relative_to(SITE).as_posix() for folder in FOLDERS for path in sorted((SITE / folder).glob("*.html"))
]
# What is wider inside than it is, or than what it stands in; what is not shown has no width.
WIDER = """() => {
  const named = element => `${element.tagName}.${element.className.baseVal ?? element.className}: ` +
    element.textContent.trim().slice(0, 60);
  const inside = [...document.querySelectorAll("article pre, article .zoo-drawing, article .table-wrapper, article figure, article .math-wrapper, article .zoo-formula, .zoo-shapes")]
    .filter(element => element.clientWidth && element.scrollWidth > element.clientWidth + 1);
  const over = [...document.querySelectorAll("article table, article figure, article svg, article math")]
    .filter(element => element.getBoundingClientRect().width > element.closest("section").clientWidth + 1);
  return [...inside, ...over].map(named);
}"""

pytestmark = pytest.mark.nightly  # one of many like it: every run opens pages and runs the engine elsewhere


def test_there_are_pages_of_the_tour_in_both_languages():
    assert len(PAGES) > 40


@pytest.mark.parametrize("page", PAGES)
def test_nothing_scrolls_sideways_on_a_wide_screen(page, visit):
    assert visit(SITE / page, width=1440, height=900).evaluate(WIDER) == []


@pytest.mark.parametrize("width", [390, 1280, 1440])
@pytest.mark.parametrize(
    "page", [f"{folder}/{name}.html" for folder in FOLDERS for name in ("cache", "translation")]
)
def test_the_strip_of_shapes_wraps_in_its_place(page, width, visit):
    opened = visit(SITE / page, width=width)
    strip = opened.locator(".zoo-shapes")
    wide, room = strip.evaluate("element => [element.scrollWidth, element.clientWidth]")
    assert wide <= room
    assert strip.locator("[aria-current=step]").count() == 1
    assert strip.locator("ol[aria-label]").count() >= 2  # a list for each row and for its layers
