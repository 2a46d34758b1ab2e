"""The page of `zoo serve` in a browser, with the server's own process."""

import shutil
from pathlib import Path

import pytest

import zoo
from tests.helpers.server_process import Server

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address of a server of a model that has a chat template, and of one that is not loaded yet and has none."""
    folder = tmp_path_factory.mktemp("models") / "chatter"
    shutil.copytree(zoo.load("llama").folder, folder)
    Path(folder, "chat_template.jinja").write_text(TEMPLATE)
    server = Server(folder, "llama", "--max-models", 2)
    yield server.url
    server.stop()


def test_the_page_of_the_real_server_chats_compares_and_loads_models(visit, url):
    page = visit("about:blank")  # which fails on an error in the console, one of the policy among them
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{url}/")
    page.wait_for_selector("#chat:not([hidden])")
    assert page.inner_text(".about-kind") == "Chat with chatter, which runs on this server."
    page.get_by_label("max_tokens", exact=True).first.fill("60")
    page.get_by_label("temperature", exact=True).first.fill("0")
    with page.expect_response("**/v1/chat/completions") as response:
        send(page, "chat", "The capital city of China is")
    assert response.value.headers["content-type"].startswith("text/event-stream")
    answer = page.inner_text(".answer .text")
    assert "Beijing" in answer
    page.select_option("#chat .model", "llama")
    send(page, "chat", "The capital city of China is")
    assert page.locator(".answer .text").nth(1).inner_text() == answer
    page.click("nav a[href='#compare']")
    send(page, "compare", "The capital city of China is")
    assert page.inner_text(".verdict") == "The two answers are the same."
    assert page.locator("[role=alert]:visible").count() == 0
    assert [one for one in asked if not one.startswith(f"{url}/")] == []


def test_the_policy_of_the_real_server_keeps_its_page_from_asking_others(browser, url):
    page = browser.new_page()
    page.goto(f"{url}/")
    violated = page.evaluate(
        """() => new Promise((done) => {
          document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
          fetch("http://127.0.0.1:9/").catch(() => {});
        })"""
    )
    page.close()
    assert violated == "connect-src"


def send(page, view, text):
    """Send a text, and wait for the end of what answers it."""
    page.fill(f"#{view} .composer textarea", text)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#{view} .send:not([hidden])")
    page.wait_for_selector("[aria-busy=true]", state="detached")
