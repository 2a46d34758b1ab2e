"""Several traces on one page of others: each with its own state, in the page's theme, in either language."""

import pytest

import zoo
from zoo.describe.diagram.svg import DARK, LIGHT, properties
from zoo.inspect.trace_view.build_view import build_view
from zoo.inspect.trace_view.page import embedded, script, style

PROMPT = "The capital city of China is"


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A page by language, with two traces of which the second shows one layer; its colours are set on `body`, as in the docs."""
    folder = tmp_path_factory.mktemp("embedded")
    view = build_view(zoo.trace(zoo.load("llama"), PROMPT, max_tokens=3), 100)
    found = {}
    for language in ("en", "zh"):
        traces = embedded(view, ["choice", "cache"], language) + embedded(view, ["layers"], language, [1])
        colours = f"body{{{properties(LIGHT)}}}body[data-theme=dark]{{{properties(DARK)}}}"
        found[language] = folder / f"{language}.html"
        found[language].write_text(
            f"<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<style>{colours}{style()}</style><body data-theme=light><article>{traces}</article>"
            f"<script>{script(language)}</script>",
            encoding="utf-8",
        )
    return found


def test_each_trace_has_its_own_pass_and_token(visit, paths):
    page = visit(paths["en"])
    first, second = (page.locator(".zoo-trace").nth(number) for number in range(2))
    before = second.locator(".turn").inner_text()
    first.locator(".forth").click()
    assert first.locator(".turn").inner_text().startswith("Pass 2 of 3")
    assert second.locator(".turn").inner_text() == before
    second.locator(".chip").nth(1).click()
    assert second.locator(".chip[aria-selected=true]").inner_text().startswith("␣capital")
    assert first.locator(".chip[aria-selected=true]").inner_text().startswith("␣is")


def test_pictures_follow_the_theme_of_the_page(visit, paths):
    page = visit(paths["en"])
    page.locator(".map").first.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('.map canvas').width > 1")
    corner = "[...document.querySelector('.map canvas').getContext('2d').getImageData(5, 0, 1, 1).data].slice(0, 3)"
    light = page.evaluate(corner)  # a weight above the diagonal: zero
    page.evaluate("document.body.dataset.theme = 'dark'")
    page.wait_for_function(f"String({corner}) !== '{','.join(map(str, light))}'")
    assert sum(page.evaluate(corner)) < 150 < 600 < sum(light)


def test_head_is_opened_by_keyboard_in_chinese(visit, paths):
    page = visit(paths["zh"], width=390)
    head = page.locator(".map").first
    head.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.inner_text(".open h3") == "头 1" and "关注" in page.inner_text(".open .readout")


def test_without_scripts_the_predictions_are_read(browser, paths):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(paths["en"].as_uri())
    rows = page.locator("noscript tr").all_inner_texts()
    assert any("Bei" in row and "is" in row for row in rows)
    context.close()


def test_what_is_far_from_the_window_is_drawn_before_it_is_printed(visit, paths):
    page = visit(paths["en"])
    page.evaluate(
        "document.querySelectorAll('canvas').forEach((canvas) => { canvas.near = false; canvas.width = 1; })"
    )
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('.map canvas')].every((canvas) => canvas.width > 1)")
