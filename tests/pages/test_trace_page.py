"""The page of a trace in a browser: sliders, heads, passes, by mouse and by keyboard."""

import math
import re

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.generation.sampling.draw import min_p, top_k, top_p
from zoo.inspect.trace_view.build_view import build_view
from zoo.inspect.trace_view.page import page as page_of

PROMPT = "The capital city of China is"
TEXTS = {"transformer": "I love natural language.", "bert": "The capital city of China is [MASK]."}
TEMPERATURE = "[data-part=choice] input[name=temperature]"
NAMES = ("llama", "mixtral", "deepseek-v3", "transformer", "bert", "llada", "mamba", "lstm")


@pytest.fixture(scope="module")
def trace():
    return zoo.trace(zoo.load("llama"), PROMPT, temperature=1.0, seed=2)


@pytest.fixture(scope="module")
def paths(trace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name in NAMES:
        run = trace if name == "llama" else zoo.trace(zoo.load(name), TEXTS.get(name, PROMPT))
        found[name] = folder / f"{name}.html"
        found[name].write_text(page_of(build_view(run)), encoding="utf-8")
    # As a large vocabulary: 40 tokens by themselves, the others in groups.
    found["grouped"] = folder / "grouped.html"
    found["grouped"].write_text(page_of(build_view(trace, candidates=40)), encoding="utf-8")
    return found


def expected(logits, temperature=1.0, k=0, p=1.0, least=0.0):
    """The probabilities of the next token by the zoo's own functions."""
    row = mx.array(logits)[None] / temperature
    row = top_k(row, k) if k else row
    row = top_p(row, p) if p < 1 else row
    row = min_p(row, least) if least else row
    return np.array(mx.softmax(row, axis=-1)[0])


def shown(page):
    """The probabilities in the bars by token: the model's, and those after the settings."""
    rows = page.eval_on_selector_all(
        "[data-part=choice] tr[data-token]",
        "rows => rows.map(r => [r.dataset.token, r.dataset.model, r.dataset.after])",
    )
    return {int(id): (float(model), float(after)) for id, model, after in rows}


def slide(page, name, value):
    page.eval_on_selector(
        f"[data-part=choice] input[name={name}]",
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }",
        str(value),
    )


@pytest.mark.parametrize("settings", [(0.5, 0, 1, 0), (1.5, 7, 1, 0), (2, 0, 0.8, 0), (1.2, 30, 0.9, 0.05)])
@pytest.mark.parametrize("name", ["llama", "grouped"])
def test_sliders_give_what_sampling_gives(visit, paths, trace, name, settings):
    page = visit(paths[name])
    temperature, k, p, least = settings
    for step, logits in enumerate(trace["head"][:2]):
        for slider, value in zip(("temperature", "top_k", "top_p", "min_p"), settings, strict=True):
            slide(page, slider, value)
        own, wanted = expected(logits), expected(logits, temperature, k, p, least)
        rows = shown(page)
        assert len(rows) >= 12 and trace.tokens[step] in rows
        for id, (model, after) in rows.items():
            assert model == pytest.approx(float(own[id]), abs=1e-5)
            # Where tokens stand in groups, their mass at another temperature is near, and not exact.
            assert after == pytest.approx(float(wanted[id]), abs=2e-3 if name == "grouped" else 1e-5)
        page.click(".forth")


def test_settings_of_the_run_show_what_it_drew_from(visit, tmp_path):
    settings = dict(temperature=2.0, typical_p=0.6, repetition_penalty=1.5, regex="[A-Z][a-z]+", seed=4)
    run, path = zoo.trace(zoo.load("llama"), PROMPT, max_tokens=3, **settings), tmp_path / "a.html"
    path.write_text(page_of(build_view(run)), encoding="utf-8")
    page = visit(path)
    for step, choice in enumerate(run.choices(2048)):
        if step:
            page.click(".forth")
        wanted = dict(zip(choice.candidates, choice.stages[-1].probabilities, strict=True))
        rows = shown(page)
        assert all(after == pytest.approx(wanted[id], abs=1e-3) for id, (_, after) in rows.items())
        best = sorted(wanted, key=lambda id: -wanted[id])[:12]
        assert {id for id in (*best, choice.token) if wanted[id]} <= set(rows)
        told = page.inner_text("[data-part=choice] .readout")
        assert f"typical_p 0.6: {choice.stages[-1].kept}" in told and "left out" not in told
    slide(page, "top_k", 3)
    told = page.inner_text("[data-part=choice] .readout")
    assert "repetition_penalty 1.5, regex, typical_p 0.6 is left out" in told
    page.click("[data-part=choice] .reset")
    assert "typical_p 0.6:" in page.inner_text("[data-part=choice] .readout")


def test_temperature_zero_takes_the_likeliest(visit, paths, trace):
    page = visit(paths["llama"])
    slide(page, "temperature", 0)
    best = int(np.argmax(trace["head"][0]))
    assert {id for id, (_, after) in shown(page).items() if after == 1} == {best}
    page.click("[data-part=choice] .reset")  # as in the run
    assert page.input_value(TEMPERATURE) == "1"


def test_temperature_by_keyboard(visit, paths, trace):
    page = visit(paths["llama"])
    page.focus(TEMPERATURE)
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    temperature = float(page.input_value(TEMPERATURE))
    assert temperature == pytest.approx(1.2)
    wanted = expected(trace["head"][0], temperature)
    assert all(after == pytest.approx(float(wanted[id]), abs=1e-5) for id, (_, after) in shown(page).items())


def test_head_is_picked_and_its_numbers_read(visit, paths, trace):
    page = visit(paths["llama"])
    head = page.locator("[data-address='layers.2'] .map").nth(1)
    head.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("[data-address='layers.2'] .map").nth(2).get_attribute("aria-pressed") == "true"
    assert page.inner_text("[data-address='layers.2'] .open .address") == "layers.2.mixer.pattern.2"
    cells = page.eval_on_selector_all(
        "[data-address='layers.2'] .open .cells tbody tr:not([hidden])",
        "rows => rows.map(r => [...r.querySelectorAll('td:not([hidden])')].map(c => +c.textContent))",
    )
    count = len(trace.prompt)
    assert np.abs(np.array(cells) - trace["layers.2.mixer.pattern.2"][:count, :count]).max() <= 0.0006


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_cell_opens_to_the_steps_of_its_weight(visit, paths, trace, width, scheme):
    page = visit(paths["llama"], width=width, scheme=scheme)
    layer = page.locator("[data-address='layers.1']")
    layer.locator(".map").nth(3).press("Enter")
    layer.locator(".cells tbody td").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    queries, keys, values = (trace[f"layers.1.mixer.{name}"] for name in ("queries", "keys", "values"))
    total = float(queries[3, 4] @ keys[1, 2])
    weights = trace["layers.1.mixer.pattern.3"][4, :5]
    assert layer.locator(".cell h4").inner_text() == f"␣China looks at ␣city: weight {weights[2]:.3f}"
    told = layer.locator(".cell > p").first.inner_text()
    assert "which is 1/√32" in told
    found = [float(number) for number in re.findall(r"-?[\d.]+\d", told)]
    assert (found[0], found[-1]) == (pytest.approx(total, rel=0.01), pytest.approx(total / 32**0.5, rel=0.01))
    shown = layer.locator(".row-of tbody td:last-child").all_inner_texts()
    assert [float(weight) for weight in shown] == pytest.approx(weights.tolist(), abs=2e-3)
    assert layer.locator(".row-of .lit td").first.inner_text() == "␣city"
    # The row and the column of the cell are lit, and its numbers can be read.
    lit = "cells => cells.filter(cell => cell.checkVisibility()).length"
    assert layer.locator(".cells td.lit").evaluate_all(lit) == 2 * len(trace.prompt) - 1
    layer.locator(".cell summary").click()
    rows = layer.locator(".cell details table").nth(1).locator("tbody tr")
    rows.first.wait_for()
    weighted = [float(row.split()[2]) for row in rows.all_inner_texts()]
    assert weighted == pytest.approx((weights[2] * values[1, 2]).tolist(), abs=5e-3)
    layer.locator(".cells td[tabindex='0']").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert "the mask sets the score to −∞" in layer.locator(".cell").inner_text()


def test_a_head_of_another_formula_has_no_steps(visit, paths):
    page = visit(paths["deepseek-v3"])
    page.locator(".map").first.click()
    assert page.locator(".open .cells").count() == 1 and page.locator(".cell").count() == 0


def test_arrow_keys_move_the_token_that_is_followed(visit, paths):
    page = visit(paths["llama"])
    page.locator(".map").first.click()
    page.locator(".chip").nth(4).focus()
    assert page.inner_text(".open .readout").startswith("␣China looks at")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".chip[aria-selected=true]").inner_text().startswith("␣of")
    assert page.inner_text(".open .readout").startswith("␣of looks at")
    assert page.locator(".strip .labels .chosen").first.inner_text() == "␣of"


def test_scrubbing_reads_more_tokens_and_the_cache_grows(visit, paths, trace):
    page = visit(paths["llama"])
    page.focus(".step")
    told = []
    for _ in range(3):
        told.append(
            (
                page.inner_text(".turn"),
                page.locator(".chip.later").count(),
                page.inner_text("[data-part=choice] h3"),
            )
        )
        page.keyboard.press("ArrowRight")
    numbers = [p.cached_numbers for p in trace.passes]
    for (turn, later, choice), count, index in zip(told, numbers, range(3), strict=False):
        assert f"{count:,} numbers" in turn
        assert later == len(page.query_selector_all(".chip")) - len(trace.prompt) - index
        assert choice.startswith(f"Token {index + 1} of")


def test_lens_cells_are_read_by_keyboard(visit, paths, trace):
    page = visit(paths["llama"])
    page.locator("[data-part=lens] tbody td").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    reading = trace.lens(5)[1]
    bits = float(page.inner_text("[data-part=lens] .readout").rpartition("entropy ")[2].split()[0])
    assert math.isclose(bits, reading.entropy_bits[1], abs_tol=0.006)


def test_unmasking_shows_each_pass(visit, paths):
    page = visit(paths["llada"])
    masked = []
    for _ in range(4):
        masked.append(
            page.eval_on_selector_all(".chip", "cs => cs.filter(c => c.firstChild.data === '░').length")
        )
        page.click(".forth")
    assert masked == sorted(masked, reverse=True) and masked[0] > masked[-1]


def test_theme_is_switched(visit, paths):
    page = visit(paths["llama"])
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != light and page.inner_text("#theme") == "Light"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", NAMES)
def test_everything_opens_without_error_and_fits(visit, paths, name, width, scheme):
    page = visit(paths[name], width=width, scheme=scheme)
    if head := page.query_selector(".map"):
        head.click()
    for summary in page.query_selector_all("section details > summary")[:8]:
        summary.click()
    assert page.locator("h2").count() >= 5
