"""The part of the live page in which a model speaks: a file, a conversation, its settings, what an answer was made of."""

import re
import shutil
import time

import pytest
from building import live_page

import zoo
from tests.helpers.accessibility import violations
from tests.helpers.site_of_docs import SITE
from tests.helpers.talking import small_file, smollm2_file

VIEWS = [("en", 1280, "light"), ("zh", 390, "dark"), ("en", 390, "light"), ("zh", 1280, "dark")]
WORDS = live_page.words("en", "talk")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return small_file(tmp_path_factory.mktemp("talk"))


@pytest.fixture
def talk(visit, served):
    """Open the live page, and its part in which a model speaks."""

    def go(language="en", width=1280, scheme="light", **more):
        page = visit(
            f"{served}/{'zh/' if language == 'zh' else ''}live/index.html", width=width, scheme=scheme, **more
        )
        page.click(".speaks a")
        page.wait_for_selector("link[href$='talk.css']", state="attached")
        return page

    return go


def load(page, path):
    page.set_input_files("#talk-file", path)
    page.wait_for_selector(".conversation:not([hidden])")


def ask(page, text, most=6):
    page.fill(".talk [name=most]", str(most))
    page.fill("#talk-message", text)
    page.click(".talk button.run")
    page.wait_for_selector("[data-act=cancel]:disabled")


def answers(page):
    return page.locator(".turn-of.assistant > span").all_text_contents()


def fault(page):
    page.wait_for_selector(".fault:not([hidden])")
    return page.inner_text(".fault")


def wanted(path, text, most=6):
    """The zoo's greedy answer."""
    steps = zoo.chat(zoo.load(path), [{"role": "user", "content": text}], max_tokens=most)
    return "".join(step.text for step in steps).rstrip("\ufffd")


def test_nothing_of_it_is_fetched_before_it_is_opened(visit, served):
    page, fetched = visit("about:blank"), []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(f"{served}/live/index.html")
    page.wait_for_selector(".live:not([hidden])")
    own = ("talk_page", "talk_worker", "talk.", "gguf", "packed")
    assert [url for url in fetched if url.rpartition("/")[2].startswith(own)] == []
    page.click(".talk > summary")
    page.wait_for_selector("link[href$='talk.css']", state="attached")
    assert any(url.endswith("talk_page.js") for url in fetched)


def test_it_works_where_a_reader_opens_it_before_the_page_is_whole(visit, served):
    page = visit("about:blank")
    page.add_init_script("""
        new MutationObserver((_, observer) => {
          const place = document.getElementById("talk");
          if (place) observer.disconnect(), (place.open = true);
        }).observe(document, { childList: true, subtree: true });
    """)
    page.goto(f"{served}/live/index.html")
    page.wait_for_selector("#talk-file", state="attached")


@pytest.mark.parametrize(("language", "width", "theme"), VIEWS)
def test_a_file_answers_as_in_the_zoo(talk, file, language, width, theme):
    page = talk(language, width, theme)
    load(page, file)
    ask(page, "Hello")
    assert answers(page) == [wanted(file, "Hello")]
    page.click("[data-act=look]")
    page.wait_for_selector(".talk .lens tbody tr")
    assert page.locator(".talk .lens tbody tr").count() == 3
    assert page.locator(".talk .layer").count() == 2 and page.locator(".talk .map").count() == 8
    assert violations(page) == []


def test_the_lens_follows_the_token_that_is_chosen(talk, file):
    page = talk()
    load(page, file)
    ask(page, "Hello")
    page.click("[data-act=look]")
    page.wait_for_selector(".talk .lens tbody tr")
    before = page.inner_text(".talk .lens")
    page.locator(".talk .chip").first.focus()
    page.wait_for_function("before => document.querySelector('.talk .lens').innerText !== before", arg=before)


def test_a_part_is_switched_off_and_named(talk, file):
    page = talk()
    load(page, file)
    ask(page, "Hello")
    page.click(".parts > summary")
    page.get_by_label("layer 0, whole layer").uncheck()
    page.click("[data-act=again]")
    page.wait_for_selector("[data-act=cancel]:disabled")
    assert page.locator(".turn-of b").all_inner_texts() == [
        "You",
        "SmolLM2",
        "SmolLM2 (without: layer 0, whole layer)",
    ]
    assert answers(page)[0] != answers(page)[1]
    page.click("[data-act=look]")
    page.wait_for_selector(".talk .lens tbody tr")
    assert page.locator(".talk .map").count() == 4  # of the other layer
    page.click("[data-act=on]")
    page.click("[data-act=new]")
    ask(page, "Hello")
    assert answers(page) == [wanted(file, "Hello")]


def test_sampling_depends_on_the_seed(talk, file):
    page = talk()
    load(page, file)
    page.fill(".talk [name=temperature]", "1.5")
    found = []
    for seed in ("1", "2", "1"):
        page.fill(".talk [name=seed]", seed)
        ask(page, "Hello", 12)
        found += answers(page)
        page.click("[data-act=new]")
    assert found[0] == found[2] != found[1]


def test_everything_works_by_keyboard(visit, served, file):
    page = visit(f"{served}/live/index.html")
    page.wait_for_selector(".live:not([hidden])")
    page.locator(".speaks a").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("link[href$='talk.css']", state="attached")
    load(page, file)
    assert page.evaluate("document.activeElement.id") == "talk-message"
    page.fill(".talk [name=most]", "300")
    page.focus("#talk-message")
    page.keyboard.type("Hello")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelectorAll('.turn-of')[1]?.lastChild.textContent")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.act") == "cancel"
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.said').textContent.startsWith('Cancelled after')")
    assert page.locator("[data-act=cancel]").is_disabled()


def test_the_page_answers_while_the_model_computes(talk, file):
    page = talk()
    load(page, file)
    page.evaluate(
        "() => { let last = performance.now(); window.gap = 0; setInterval(() => { const now = performance.now(); gap = Math.max(gap, now - last); last = now; }, 10); }"
    )
    page.fill(".talk [name=most]", "40")
    page.fill("#talk-message", "Hello")
    page.click(".talk button.run")
    page.wait_for_selector("[data-act=cancel]:not(:disabled)")
    page.click(".parts > summary")
    assert page.locator(".parts .switches").is_visible()
    page.wait_for_selector("[data-act=cancel]:disabled")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(name="qwen3"), "The file's architecture is qwen3; the page runs llama only."),
        (dict(kind="Q5_0"), "is of type Q5_0; the page reads F32, F16, Q4_0, Q4_1, Q8_0, Q6_K."),
        (dict(template="{{ messages }}"), "chat template is not SmolLM2's"),
    ],
    ids=("architecture", "type", "template"),
)
def test_a_file_that_cannot_be_followed_is_one_line(talk, file, tmp_path, changes, said):
    page = talk()
    page.set_input_files("#talk-file", small_file(tmp_path, **changes))
    told = fault(page)
    assert said in told and "\n" not in told
    assert page.locator(".conversation").is_hidden()
    load(page, file)
    assert page.locator(".fault").is_hidden()


def test_a_damaged_file_is_one_line(talk, file, tmp_path):
    page = talk("zh", 390)
    whole = file.read_bytes()
    for text, bytes in (
        ("truncated", whole[: len(whole) // 2]),
        ("not_gguf", b"no model"),
        ("not_gguf", b""),
    ):
        path = tmp_path / f"{len(bytes)}.gguf"
        path.write_bytes(bytes)
        page.set_input_files("#talk-file", path)
        page.wait_for_function(
            "said => document.querySelector('.fault').textContent === said",
            arg=live_page.words("zh", "talk")[text],
        )


def test_the_address_names_a_file_beside_the_site(visit, served, file):
    place = SITE / "live" / "small.gguf"
    shutil.copy(file, place)
    try:
        page = visit(f"{served}/live/index.html?model=small.gguf")
        page.wait_for_selector(".conversation:not([hidden])")
        ask(page, "Hello")
        assert answers(page) == [wanted(file, "Hello")]
    finally:
        place.unlink()
    page = visit(f"{served}/live/index.html?model=https://example.org/x.gguf")
    assert (
        fault(page)
        == "https://example.org/x.gguf is on another site: the page loads files from its own only."
    )
    page = visit(f"{served}/live/index.html?model=none.gguf", expected=("Failed to load resource",))
    assert fault(page) == "none.gguf cannot be read: 404 File not found"


def test_markup_in_a_message_is_text(talk, file):
    page = talk()
    load(page, file)
    ask(page, "<img src=x onerror=alert(1)>")
    assert page.locator(".turn-of.user > span").text_content() == "<img src=x onerror=alert(1)>"
    assert page.locator(".talk img").count() == 0


def test_both_languages_have_the_same_texts_and_all_are_used():
    chinese = live_page.words("zh", "talk")
    assert list(WORDS) == list(chinese)
    places = [set(re.findall(r"\{(\w+)\}", text)) for text in WORDS.values()]
    assert places == [set(re.findall(r"\{(\w+)\}", text)) for text in chinese.values()]
    scripts = (live_page.ASSETS.parents[1] / "_static" / "live").glob("*.js")
    files = (
        *scripts,
        live_page.ASSETS / "talk_body.html",
        live_page.ASSETS / "talk.html",
        live_page.ASSETS / "live.html",
    )
    used = "".join(path.read_text(encoding="utf-8") for path in files)
    settings = [name for name, *_ in live_page.SETTINGS]
    rest = [name for name in WORDS if not re.search(rf'["`.]{name}\b', used) and name not in settings]
    assert [name for name in rest if not name.startswith(("end_", "column_"))] == []


def test_smollm2_speaks_in_the_page(talk):
    path = smollm2_file()
    page = talk()
    load(page, path)
    began = time.perf_counter()
    ask(page, "What is the capital of France?", 32)
    print(f"{time.perf_counter() - began:.1f} s;", page.inner_text(".said"))
    assert answers(page) == ["The capital of France is Paris."]
    page.click("[data-act=look]")
    page.wait_for_selector(".talk .lens tbody tr")
    assert page.locator(".talk .lens tbody tr").count() == 31 and page.locator(".talk .map").count() == 270


def test_a_message_that_is_too_long_goes_back_to_where_it_was_typed(talk, file):
    page = talk()
    load(page, file)
    text = ("1 2 " * 900).strip()
    ask(page, text)
    assert "no room for more than 1024 tokens" in page.inner_text(".talk .said")
    assert page.input_value("#talk-message") == text
    assert page.locator(".turn-of").count() == 0
    assert page.locator("[data-act=again]").is_disabled()
