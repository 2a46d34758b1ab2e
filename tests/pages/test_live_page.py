"""The live page: models run in the browser as in the zoo; every control does what it says, by mouse and by keyboard."""

import gzip
import re
from urllib.parse import quote

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import zoo
from tests.helpers.accessibility import violations

PROMPT = "The capital city of China is"
MASKED = "The capital city of [MASK] is Beijing."
SOURCE = "My mother drinks tea."
FIRST_PAINT = 300_000  # bytes, without compression
SCRIPTS = 25_600  # bytes of one model's scripts, each compressed as a server sends it
MASKS = 8  # that masked diffusion begins with
# Each model in a language, a width and a theme: every pair of values occurs.
MODELS = {
    "llama": (PROMPT, "en", 1440, "light"),
    "gpt2": (PROMPT, "zh", 390, "light"),
    "gpt2-postln": ("中国的首都是", "en", 390, "dark"),
    "qwen3": ("中国的首都是", "zh", 1440, "dark"),
    "mixtral": ("One of the countries of", "en", 390, "dark"),
    "bert": (MASKED, "zh", 1440, "light"),
    "transformer": (SOURCE, "en", 1440, "dark"),
    "llada": ("中国的首都是", "zh", 390, "light"),
}


def address(served, language="en", **settings):
    place = "zh/" if language == "zh" else ""
    given = "&".join(f"{name}={quote(str(value))}" for name, value in settings.items())
    return f"{served}/{place}live/index.html" + (f"#{given}" if given else "")


def ran(page):
    """Wait until the run that was asked for is shown."""
    page.wait_for_function("document.querySelector('.zoo-live .status')?.textContent.match(/ms|毫秒/)")
    return page


@pytest.fixture
def live(visit, served):
    """Open the page with a state, and wait for the run."""

    def go(language="en", width=1440, scheme="light", **settings):
        return ran(visit(address(served, language, **settings), width=width, scheme=scheme))

    return go


def visible(text):
    return text.replace(" ", "␣").replace("\n", "⏎")


def likeliest(name, text):
    """The token that the zoo finds likeliest: the next one, or the one in the place of the first mask."""
    loaded = zoo.load(name)
    ids = loaded.tokenizer.encode(text)
    if name == "transformer":
        logits = loaded.model(mx.array([ids]), mx.array([[loaded.recipe.start]]))[0]
    elif name in ("bert", "llada"):
        mask = loaded.tokenizer.encode("[MASK]")[0] if name == "bert" else loaded.tokenizer.id("[MASK]")
        ids = ids if name == "bert" else [*ids, *[mask] * MASKS]
        logits = loaded.model(mx.array([ids]))[0, ids.index(mask)][None]
    else:
        logits = loaded.model(mx.array([ids]))[0]
    return visible(loaded.tokenizer.decode([int(np.array(logits[-1]).argmax())]))


def shown(page, name):
    """The token that the page shows as the likeliest."""
    if name == "llada":
        cell = page.locator("[data-part=uncovering] tbody tr >> nth=0").locator("td >> nth=3").inner_text()
        return cell.rpartition(" ")[0]
    part = "masks" if name == "bert" else "choice"
    return page.locator(f"[data-part={part}] tbody tr td.piece").first.inner_text().removeprefix("● ")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_what_it_predicts_in_the_zoo(name, live):
    text, language, width, theme = MODELS[name]
    page = live(language, width, theme, model=name, prompt=text)
    assert shown(page, name) == likeliest(name, text)
    assert page.locator("[data-part=layers] .map").count() >= 16
    assert page.locator("[data-part=lens] td[role=gridcell]").count() > 0
    page.locator("[data-part=layers] .map").first.click()
    assert page.locator(".open table").first.is_visible()


@pytest.mark.parametrize("name", ["llama", "mixtral", "bert", "transformer", "llada"])
def test_the_scripts_of_a_model_are_small(name, served, browser):
    page, scripts = browser.new_page(), []
    page.on(
        "response",
        lambda answer: (
            scripts.append(answer) if "/live/" in answer.url and answer.url.endswith(".js") else None
        ),
    )
    page.goto(address(served, model=name))
    ran(page)
    assert 10 <= len(scripts) <= 14
    assert sum(len(gzip.compress(script.body(), mtime=0)) for script in scripts) < SCRIPTS
    page.close()


@pytest.mark.parametrize(
    ("model", "language", "width", "theme"),
    [("mixtral", "en", 390, "dark"), ("transformer", "zh", 1440, "light"), ("llada", "zh", 390, "light")],
)
def test_the_page_is_accessible_after_a_run(model, language, width, theme, live):
    page = live(language, width, theme, model=model, prompt=MODELS[model][0], steps=1)
    assert violations(page) == []


@pytest.mark.parametrize(
    ("language", "width", "theme"), [("en", 1440, "light"), ("zh", 390, "dark"), ("en", 390, "light")]
)
def test_a_recorded_run_is_shown_before_any_other(language, width, theme, visit, served):
    page = visit(address(served, language), width=width, scheme=theme)
    page.wait_for_selector("[data-part=choice] tbody tr")
    text = page.input_value("textarea")
    assert text == (PROMPT if language == "en" else "中国的首都是")
    assert shown(page, "llama") == likeliest("llama", text)
    assert "6 × 2048" in page.inner_text(".flow") or language == "zh"
    page.locator("[data-part=layers] .map").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".open table").first.is_visible()
    assert page.locator(".steps").is_hidden() and page.locator(".change").is_hidden()
    recorded = page.inner_text(".flow")
    page.click("button.run")
    ran(page)
    assert page.inner_text(".flow") == recorded
    assert page.locator(".steps").is_visible() and page.locator(".change").is_visible()


@pytest.mark.parametrize(
    ("language", "width", "theme"), [("en", 1440, "light"), ("zh", 390, "light"), ("en", 390, "dark")]
)
def test_the_start_page_shows_a_run_and_takes_a_prompt(language, width, theme, visit, served):
    page = visit(f"{served}/{'zh/' if language == 'zh' else ''}index.html", width=width, scheme=theme)
    assert page.locator("[data-part=layers] .map").count() == 4
    page.fill("form.zoo-ask [name=prompt]", "One of + the & countries of")
    page.press("form.zoo-ask [name=prompt]", "Enter")
    page.wait_for_url("**/live/index.html?**")
    ran(page)
    assert page.input_value("textarea") == "One of + the & countries of"


@pytest.mark.parametrize(("width", "theme"), [(700, "light"), (390, "dark")])
def test_one_part_stands_within_another_page(width, theme, visit, served):
    page = visit(f"{served}/live/index.html?embed=attention", width=width, scheme=theme)
    page.wait_for_selector("[data-part=layers] .map")
    hidden = (".flow", "[data-show=choice]", "[data-show=lens]", ".models", ".sidebar-drawer", "h1")
    assert [name for name in hidden if page.locator(name).first.is_visible()] == []
    page.click("button.run")
    ran(page)
    assert [name for name in (*hidden, ".change", ".work") if page.locator(name).first.is_visible()] == []
    assert page.locator(".tokens").is_visible() and page.locator("[data-show=layers]").is_visible()


def test_nothing_is_fetched_before_a_run_and_nothing_from_elsewhere(served, browser):
    page, asked, answered = browser.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("response", lambda answer: answered.append(answer))
    page.goto(address(served), wait_until="networkidle")
    page.wait_for_selector(".zoo-live form:not([hidden])")
    assert not [url for url in asked if "/models/" in url or url.endswith("/engine.js")]
    assert sum(len(answer.body()) for answer in answered if answer.ok) < FIRST_PAINT
    page.click("button.run")
    ran(page)
    assert [url for url in asked if url.endswith("/models/llama/weights.safetensors")]
    assert [url for url in asked if not url.startswith((served, "data:"))] == []
    page.close()


def test_a_switch_changes_the_prediction_and_says_so(live):
    page = live(model="llama", prompt=PROMPT)
    assert page.inner_text(".told").startswith("Everything is on")
    page.get_by_label("layer 0, feed-forward").uncheck()
    page.wait_for_function("document.querySelector('.told').textContent.includes('layer 0, feed-forward')")
    row = page.locator(".compared tr[data-token]").first
    assert float(row.locator("td.number >> nth=1").inner_text()) > 0
    assert "was ␣Bei (0.98)" in page.inner_text(".told")
    page.click("[data-do=all]")
    page.wait_for_function("document.querySelector('.told').textContent.startsWith('Everything is on')")
    assert page.get_by_label("layer 0, feed-forward").is_checked()


def test_three_heads_lose_the_answer_and_any_one_brings_it_back(live):
    page = live(task="heads", model="llama", prompt=PROMPT)
    page.locator(".tasks a").first.click()
    page.wait_for_function("document.querySelector('.told').textContent.includes('and is')")
    off = page.locator(".switches input:not(:checked)")
    assert off.count() == 3
    for address_of in [off.nth(at).get_attribute("data-address") for at in range(3)]:
        box = page.locator(f'.switches input[data-address="{address_of}"]')
        box.check()
        page.wait_for_function("document.querySelector('.told').textContent.includes('still ␣Bei')")
        box.uncheck()
        page.wait_for_function("document.querySelector('.told').textContent.includes('and is')")


def test_without_positions_an_encoder_does_not_see_the_order(live):
    def rows(text, variant):
        page = live(model="bert", prompt=text, variant=variant)
        return page.locator("[data-part=masks] tbody tr").all_inner_texts()

    swapped = "The city capital of [MASK] is Beijing."
    assert rows(MASKED, "positions:none") == rows(swapped, "positions:none")
    assert rows(MASKED, "") != rows(swapped, "")


def test_weights_of_one_norm_placement_fail_in_the_other(live):
    page = live(model="gpt2", prompt=PROMPT, variant="placement:post")
    assert "was ␣Bei" in page.inner_text(".told") and "trained" in page.inner_text(".expect")
    page.select_option("[name=variant]", "")
    page.wait_for_function("document.querySelector('.told').textContent.startsWith('Everything is on')")
    assert shown(page, "gpt2") == "␣Bei"


def test_both_ways_to_generate_write_the_same_and_count_differently(live):
    page = live(model="llama", prompt=PROMPT)
    found = {}
    for way in ("1", "0"):
        page.check(f"[name=cache][value='{way}']")
        page.wait_for_function(f"location.hash.includes('cache=0') === {'false' if way == '1' else 'true'}")
        for _ in range(3):
            page.click("[data-do=step]")
        tokens = page.locator(".chip.generated:not(.later)").all_inner_texts()
        steps = page.locator(".strips tbody tr")
        found[way] = (
            tokens,
            [int(steps.nth(at).get_attribute("data-computed")) for at in range(steps.count())],
        )
        page.click("[data-do=restart]")
        assert page.locator(".strips tbody tr").count() == 1
    assert found["1"][0] == found["0"][0] and len(found["1"][0]) == 3
    assert found["1"][1] == [6, 1, 1, 1]
    assert found["0"][1] == [6, 7, 8, 9]


def test_totals_are_the_sums_of_the_steps(live):
    page = live(model="llama", prompt=PROMPT, steps=3, cache=0)
    rows = page.locator(".strips tbody tr")
    work = [int(rows.nth(at).get_attribute("data-work")) for at in range(rows.count())]
    told = page.locator(".totals")
    assert int(told.get_attribute("data-without")) == sum(work)
    assert work[0] < int(told.get_attribute("data-with")) < sum(work)
    matrices = sum(one.size for _, one in tree_flatten(zoo.load("llama").model.parameters()) if one.ndim == 2)
    assert 6 * matrices < work[0] < 6.1 * matrices  # each number of a matrix once a token, and attention


def test_undo_takes_back_one_token(live):
    page = live(model="gpt2", prompt=PROMPT)
    page.click("[data-do=run]")
    many = page.locator(".chip.generated:not(.later)").all_inner_texts()
    page.click("[data-do=undo]")
    assert page.locator(".chip.generated:not(.later)").all_inner_texts() == many[:-1]
    page.click("[data-do=step]")
    assert page.locator(".chip.generated:not(.later)").all_inner_texts() == many


def test_masked_diffusion_uncovers_one_mask_a_pass(live):
    page = live(model="llada", prompt="中国的首都是")
    assert "1 of 1: 8 masks, 1 uncovered" in page.inner_text("[data-part=uncovering] h3")
    page.click("[data-do=step]")
    assert "2 of 2: 7 masks, 1 uncovered" in page.inner_text("[data-part=uncovering] h3")
    page.click("[data-do=run]")
    assert page.locator("[data-do=step]").is_disabled()
    assert "filled" in page.inner_text(".next")


def test_the_translator_shows_where_the_target_looks_in_the_source(live):
    page = live(model="transformer", prompt=SOURCE, steps=2)
    assert page.locator(".track").count() == 2
    assert page.locator(".map.across").count() == 8
    assert "cross-attention" in page.inner_text(".switches")


def test_the_address_restores_the_state(live, visit):
    page = live(model="llama", prompt="One of the countries of", temperature=1)
    page.get_by_label("layer 1, head 2").uncheck()
    page.wait_for_function("location.hash.includes('layers.1.mixer.head.2')")
    page.click("[data-do=step]")
    page.click("[data-do=step]")
    tokens = page.locator(".chip").all_inner_texts()
    again = ran(visit(page.url, width=1440))
    assert again.locator(".chip").all_inner_texts() == tokens
    assert not again.get_by_label("layer 1, head 2").is_checked()
    assert again.input_value("textarea") == "One of the countries of"
    assert again.input_value("input[name=temperature]") == "1"


def test_the_way_of_the_text_has_the_shapes_and_leads_to_the_parts(live):
    page = live(model="llama", prompt=PROMPT)
    said = page.locator(".flow button").all_inner_texts()
    assert said == ["6 tokens", "vectors 6 × 128", "4 layers of 4 heads", "logits 6 × 2048", "next ␣Bei"]
    page.locator(".flow button").nth(2).click()
    page.wait_for_function(
        "document.querySelector('[data-show=layers]').getBoundingClientRect().top < innerHeight / 2"
    )


@pytest.mark.parametrize("width", [390, 1440])
def test_tokens_stay_in_view_beside_the_layers(width, live):
    page = live(width=width, model="gpt2", prompt=PROMPT)
    page.evaluate("document.querySelectorAll('.layer')[2].scrollIntoView({ behavior: 'instant' })")
    boxes = "['.live > .tokens', '.mobile-header'].map((name) => document.querySelector(name).getBoundingClientRect())"
    page.wait_for_function(
        f"(([tokens, header]) => Math.abs(tokens.top - Math.max(header.bottom, 0)) <= 1)({boxes})"
    )


def test_sliders_draw_the_next_token_again(live):
    page = live(model="llama", prompt="One of the countries of")
    first = page.inner_text(".flow button >> nth=-1")
    page.locator("input[name=temperature]").fill("1")
    assert "temperature=1" in page.url
    page.locator("input[name=top_k]").fill("1")
    assert page.inner_text(".flow button >> nth=-1") == first == "next ␣Africa"
    assert "top_k=1" in page.url


def test_typing_runs_again_from_the_beginning(live):
    page = live(model="llama", prompt=PROMPT, steps=2)
    page.fill("textarea", "The capital city of Japan is")
    page.wait_for_function(
        "[...document.querySelectorAll('.chip')].some((chip) => chip.textContent.includes('Japan'))"
    )
    assert page.locator(".chip.generated:not(.later)").count() == 0
    assert shown(page, "llama") == likeliest("llama", "The capital city of Japan is")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "The prompt is empty"), ("   ", "The prompt is empty"), ("one " * 200, "reads at most 128")],
)
def test_a_text_that_cannot_be_read_is_one_line(text, said, live):
    page = live(model="llama", prompt=PROMPT)
    page.fill("textarea", text)
    page.wait_for_selector(".error:not([hidden])")
    assert said in page.inner_text(".error") and "\n" not in page.inner_text(".error")
    page.locator(".examples button").first.click()
    ran(page)
    assert page.locator(".error").is_hidden()


def test_markup_in_a_prompt_is_text(live):
    hostile = "<img src=x onerror=alert(1)><b>&amp;</b>"
    page = live(model="llama", prompt=hostile)
    assert "".join(
        page.locator(".chip.prompt").evaluate_all("chips => chips.map((chip) => chip.firstChild.data)")
    ) == visible(hostile)
    assert page.locator(".zoo-live img, .zoo-live .chip b").count() == 0
    hostile_task = address("", task="<img>", off="<img>", variant="<img>", model="llama", prompt="a")
    page.evaluate("hash => { location.hash = hash }", hostile_task.partition("#")[2])
    page.wait_for_function("document.querySelectorAll('.chip.prompt').length === 1")
    assert page.locator(".zoo-live img").count() == 0


def test_a_model_that_cannot_be_loaded_is_one_line_and_is_tried_again(visit, served):
    page = visit(address(served), expected=("Failed to load resource",))
    page.route("**/models/qwen3/*", lambda route: route.abort())
    page.wait_for_selector(
        ".zoo-live form:not([hidden])"
    )  # what is forced does not wait: its input lies under its label
    page.locator("input[value=qwen3]").check(force=True)
    page.wait_for_selector(".error:not([hidden])")
    assert page.inner_text(".error").strip()
    page.unroute("**/models/qwen3/*")
    page.click("button.run")
    ran(page)
    assert page.locator(".error").is_hidden()


def test_everything_works_by_keyboard(visit, served):
    page = visit(address(served))
    page.wait_for_selector(".zoo-live form:not([hidden])")

    def tab_to(selector):
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    tab_to("input[name=model]")
    page.keyboard.press("ArrowRight")
    ran(page)
    assert "model=gpt2" in page.url
    tab_to("textarea")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("The capital city of Japan is")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "[...document.querySelectorAll('.chip')].some((chip) => chip.textContent.includes('Japan'))"
    )
    tab_to("[data-do=step]")
    page.keyboard.press("Enter")
    assert page.locator(".chip.generated:not(.later)").count() == 1
    assert page.evaluate("document.activeElement.dataset.do") == "step"
    tab_to(".switches input")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('.told').textContent.includes('layer 1, head 1')")
    assert page.evaluate("document.activeElement.dataset.address") == "layers.1.mixer.head.1"


def test_without_scripts_the_page_says_so_and_leads_to_recorded_traces(browser, served):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address(served, "zh"))
    assert page.locator("noscript a").get_attribute("href") == "../tour/index.html"
    assert page.locator("form.ask").is_hidden()
    context.close()


def test_a_recorded_trace_leads_to_the_live_page_with_its_prompt(visit, served):
    page = visit(f"{served}/tour/logits.html")
    link = page.locator("a[href*='live/index.html#']").first
    assert f"prompt={quote(PROMPT)}" in link.get_attribute("href")
    link.click()
    ran(page)
    assert page.input_value("textarea") == PROMPT
    assert re.search(r"LLaMA read \d+ tokens", page.inner_text(".status"))
