"""The page of `zoo serve` in a browser, with a server of fixed answers."""

import json
import re

import pytest

from tests.helpers.accessibility import violations
from tests.helpers.fake_server import ANSWERS, KEY, MODELS, PAGE, running
from tests.helpers.waiting import PATIENCE
from zoo.architecture.settings import GROUPS

REFUSED = "Failed to load resource: the server responded with a status of"
PLAIN = {"model": "small", "stream": True, "stream_options": {"include_usage": True}}
CODE = "1. Count **one** by one.\n2. Add `n`.\n\n```python\nx = 1 < 2\n```\nIt is <img src=x onerror=alert(1)> 45."


@pytest.fixture
def server():
    with running() as found:
        yield found


@pytest.fixture
def opened(visit, server):
    """The page, once the models are there; a test fails when a request went to another host."""
    asked = []

    def go(view="chat", **more):
        page = visit("about:blank", **more)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{server.address}/#{view}")
        page.wait_for_selector("#key:not([hidden])" if server.locked else f"#{view}:not([hidden])")
        return page

    yield go
    assert [url for url in asked if not url.startswith(f"{server.address}/")] == []


def send(page, text, view="chat"):
    """Send a text by the keyboard."""
    page.fill(f"#{view} .composer textarea", text)
    page.keyboard.press("Enter")


def ask(page, text, view="chat"):
    """Send a text, and wait for the end of its answer."""
    send(page, text, view)
    ended(page, view)


def ended(page, view="chat"):
    page.wait_for_selector(f"#{view} .send:not([hidden])")
    page.wait_for_selector("[aria-busy=true]", state="detached")


def last(page, part):
    return page.locator(f".answer {part}").last.inner_text()


def test_an_answer_is_shown_with_its_cost_and_the_next_question_goes_on(opened, server):
    page = opened()
    ask(page, "Which capital?")
    answer = "".join(ANSWERS["small"])
    assert last(page, ".text") == answer
    assert re.fullmatch(
        r"11 tokens · [\d,.]+ tokens/s · first token after [\d.]+ s · 24 prompt tokens, 16 cached",
        last(page, ".facts"),
    )
    assert page.locator("#spoken p").all_inner_texts() == [answer]
    ask(page, "And then?")
    question, then = ({"role": "user", "content": text} for text in ("Which capital?", "And then?"))
    said = {"role": "assistant", "content": answer}
    assert server.bodies == [{**PLAIN, "messages": [question]}, {**PLAIN, "messages": [question, said, then]}]


def test_thinking_is_shown_apart(opened):
    page = opened()
    ask(page, "think")
    assert last(page, ".text") == "".join(ANSWERS["small"])
    assert not page.is_visible(".thought")
    page.click(".thinking summary")
    assert last(page, ".thought") == "Hm, France."


def test_markdown_is_drawn_and_markup_is_text(opened):
    page = opened()
    page.fill("#chat .composer textarea", f"say {CODE}")
    page.click("#chat .send")
    ended(page)
    text = page.locator(".answer .text")
    assert text.locator("li").all_inner_texts() == ["Count one by one.", "Add n."]
    assert text.locator("strong").inner_text() == "one" and text.locator("li code").inner_text() == "n"
    assert text.locator("pre").inner_text() == "x = 1 < 2" and text.locator("img").count() == 0
    assert text.locator("p").last.inner_text() == "It is <img src=x onerror=alert(1)> 45."


def test_escape_stops_an_answer_here_and_at_the_server(opened, server):
    page = opened()
    send(page, "slow")
    page.locator(".answer .text", has_text="again again").wait_for()
    page.keyboard.press("Escape")
    ended(page)
    assert "stopped" in last(page, ".facts") and server.cancelled.wait(PATIENCE)


def test_an_answer_is_generated_again_and_a_question_is_edited(opened, server):
    page = opened()
    ask(page, "one")
    ask(page, "two")
    page.click(".regenerate")
    ended(page)
    assert server.bodies[2] == server.bodies[1] and page.locator(".answer").count() == 2
    page.click(".edit")
    assert page.input_value("#chat .composer textarea") == "two" and page.locator(".answer").count() == 1
    page.click("#chat .new_chat")
    assert page.locator(".answer").count() == 0 and page.is_visible(".welcome")


def test_settings_are_those_of_the_schema_and_are_sent_with_their_types(opened, server):
    page = opened()
    names = page.locator("#chat .field code").all_text_contents()
    assert names == [
        *("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "stop"),
        *("repetition_penalty", "early_stopping", "logit_bias", "reasoning_effort", "ignore_eos"),
    ]
    page.click("#chat .settings summary")
    groups = page.locator("#chat .group summary")
    assert groups.all_inner_texts() == ["Penalties and bans", "Strategy beam", "Request", "Length and stops"]
    for group in groups.all():
        group.click()
    field = {name: page.get_by_label(name, exact=True).first for name in names}
    for name, text in (("temperature", "0"), ("top_k", "40"), ("stop", 'END\n"\\n"'), ("logit_bias", "{")):
        field[name].fill(text)
    field["ignore_eos"].select_option("false")
    assert field["early_stopping"].locator("option").all_text_contents() == [
        "not set",
        "true",
        "false",
        "never",
    ]
    field["reasoning_effort"].select_option("high")
    page.get_by_label("System message").first.fill("Be short.")
    send(page, "one")
    assert field["logit_bias"].evaluate("e => e === document.activeElement && !e.validity.valid")
    assert server.bodies == []
    field["logit_bias"].fill('{"464": -5}')
    ask(page, "one")
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "one"}]
    wanted = {"temperature": 0, "top_k": 40, "stop": ["END", "\n"], "logit_bias": {"464": -5}}
    assert server.bodies == [
        {**PLAIN, "messages": messages, **wanted, "ignore_eos": False, "reasoning_effort": "high"}
    ]


def test_a_call_is_shown_and_the_next_text_is_its_result(opened, server):
    page = opened()
    ask(page, "tool")
    assert last(page, ".call p") == "Calls a tool weather" and last(page, ".call pre") == '{"city": "Paris"}'
    assert page.get_attribute("#chat .composer textarea", "placeholder") == "Result of weather"
    ask(page, "Sunny.")
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
    }
    assert server.bodies[1]["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."},
    ]


def test_an_error_is_the_line_of_the_server_and_its_question_is_not_sent_again(opened, server):
    page = opened(expected=f"{REFUSED} 400")
    for asked, line, text in (
        ("wrong", "`top_p` must be a number of more than 0", ""),
        ("break", "the model ran out of memory", "The capital of"),
        ("cut", "The stream ended before the answer was complete.", "The capital of"),
    ):
        ask(page, asked)
        assert last(page, "[role=alert] span") == line and last(page, ".text") == text
        assert server.bodies[-1]["messages"] == [{"role": "user", "content": asked}]


def test_a_full_server_is_asked_again_on_request(opened, server):
    page = opened(expected=f"{REFUSED} 503")
    ask(page, "busy")
    assert last(page, "[role=alert] span") == "the queue is full Try again in 7 s."
    page.click(".retry")
    ended(page)
    assert last(page, ".text") == "".join(ANSWERS["small"]) and server.bodies[0] == server.bodies[1]


def test_a_server_that_is_gone_is_told(opened, server):
    page = opened(expected="Failed to load resource: net::ERR_CONNECTION_REFUSED")
    server.shutdown()
    server.server_close()
    ask(page, "one")
    assert last(page, "[role=alert] span") == "The server does not answer."


def test_a_key_is_asked_for_and_kept_for_the_session(opened, server):
    server.locked = True
    page = opened(expected=f"{REFUSED} 401")
    assert page.inner_text("#fault") == "this server needs an API key"
    page.fill("#key input", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#chat:not([hidden])")
    assert page.is_hidden("#key") and page.is_hidden("#fault")
    page.reload()
    ask(page, "one")
    assert last(page, ".text") == "".join(ANSWERS["small"])


def test_a_model_that_does_not_chat_continues_each_text_alone(opened, server):
    page = opened()
    offered = page.locator("#chat .model option").all_inner_texts()
    assert offered == [model["id"] for model in MODELS if model["id"] != "vectors"]
    page.get_by_label("seed").first.fill("3")
    page.select_option("#chat .model", "story")
    assert page.get_by_label("System message").first.is_hidden()
    ask(page, "Once")
    ask(page, "Twice")
    assert last(page, ".text") == "".join(ANSWERS["story"])
    plain = {**PLAIN, "model": "story", "seed": 3}
    assert server.bodies == [{**plain, "prompt": "Once"}, {**plain, "prompt": "Twice"}]
    page.select_option("#chat .model", "french")
    assert page.get_attribute("#chat .composer textarea", "placeholder") == "Text to translate"


def test_a_model_that_is_found_not_to_chat_once_it_is_loaded_is_asked_to_continue(opened, server):
    page = opened(expected=f"{REFUSED} 400")
    page.select_option("#chat .model", "tale")
    send(page, "Once")
    page.locator(".answer .text", has_text=" upon a time").wait_for()
    assert server.bodies[-1]["prompt"] == "Once" and page.locator(".answer").count() == 1


def alternatives(page, column):
    rows = page.locator(f".column:nth-child({column}) .alternatives li").all()
    return [(row.locator("code").inner_text(), row.locator(".share").inner_text()) for row in rows]


def test_a_comparison_marks_the_first_difference_and_shows_alternatives_by_keyboard(opened, server):
    page = opened("compare")
    ask(page, "Which capital?", "compare")
    assert {(body["model"], body["logprobs"], body["top_logprobs"]) for body in server.bodies} == {
        ("small", True, 5),
        ("large", True, 5),
    }
    page.locator(".column:nth-child(2) summary").first.click()
    about = page.locator(".column:nth-child(2) .about")
    assert about.inner_text() == "llama, 135 M parameters, context of 8,192 tokens."  # it was loaded
    assert page.locator(".tokens .differs").all_inner_texts() == [" Paris", " called"]
    assert page.inner_text(".verdict") == "First difference: “␣Paris” and “␣called”."
    assert alternatives(page, 1)[:2] == [("␣Paris", "60%"), ("␣Lyon", "35%")]
    assert alternatives(page, 2)[:2] == [("␣Paris", "35%"), ("␣called", "30%")]
    page.locator(".tokens [tabindex='0']").first.focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(":focus").get_attribute("aria-label") == "␣is, 60%"
    titles = page.locator(".alternatives h4").all_inner_texts()
    assert titles == ["Alternatives to ␣is"] * 2  # the other answer has the same text until there
    page.keyboard.press("End")
    assert page.locator(".alternatives h4").all_inner_texts() == ["Alternatives to .", "Alternatives to ␣is"]
    page.locator(".column:nth-child(2) [role=option]").first.hover()
    assert page.locator(".alternatives h4").last.inner_text() == "Alternatives to The"


def test_two_texts_that_are_continued_alike_are_the_same(opened, server):
    page = opened("compare")
    for column in (1, 2):
        page.select_option(f".column:nth-child({column}) .model", "story")
    ask(page, "Once", "compare")
    assert page.inner_text(".verdict") == "The two answers are the same."
    assert [body["logprobs"] for body in server.bodies] == [5, 5]
    page.locator(".column:nth-child(1) [role=option]").nth(3).click()
    assert alternatives(page, 1)[0] == alternatives(page, 2)[0] == ("␣fox", "60%")


def test_both_languages_have_every_text_and_no_other():
    texts = json.loads((PAGE / "texts.json").read_text(encoding="utf-8"))
    assert set(texts) == {"en", "zh"}
    places = {
        language: {key: set(re.findall(r"\{(\w+)\}", text)) for key, text in table.items()}
        for language, table in texts.items()
    }
    assert places["en"] == places["zh"] and all(text for table in texts.values() for text in table.values())
    source = "".join(
        path.read_text(encoding="utf-8") for path in PAGE.glob("*") if path.suffix in (".html", ".js")
    )
    written = set(re.findall(r'data-(?:text|label|hint)="(\w+)"', source)) | set(
        re.findall(r'"(\w+)"', source)
    )
    made = {f"{kind}_kind" for kind in ("chat", "continuation", "translation")}
    made |= {re.sub(r"\W+", "_", f"{title.lower()} group") for title in ("request", *GROUPS)}
    assert made <= set(texts["en"]) <= written | made


def test_the_language_is_the_browsers_until_it_is_switched(opened):
    page = opened(locale="zh-CN")
    assert page.inner_text("#chat .send") == "发送" and page.get_attribute("html", "lang") == "zh-CN"
    ask(page, "one")
    assert last(page, ".actions") == "重新生成\n修改问题\n新对话"
    page.click("#language")
    assert last(page, ".facts").startswith("11 tokens") and page.get_attribute("html", "lang") == "en"
    page.reload()
    page.wait_for_selector("#chat:not([hidden])")
    assert page.inner_text("#chat .send") == "Send" and page.inner_text("#theme") == "Dark"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_both_views_are_accessible(opened, scheme, width):
    page = opened(width=width, scheme=scheme, expected=f"{REFUSED} 400", reduced_motion="reduce")
    for text in ("think", f"say {CODE.replace(chr(10), ' ')}", "tool", "result", "wrong"):
        ask(page, text)
    for summary in page.locator("#chat summary").all():
        if summary.is_visible() and not summary.evaluate("e => e.parentElement.open"):
            summary.click()
    accessible(page)
    page.click("nav a[href='#compare']")
    ask(page, "Which capital?", "compare")
    page.locator(".column summary").first.click()
    accessible(page)


def accessible(page):
    assert violations(page) == []
    wide, room = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= room
