"""Messages in the form of OpenAI's interface are checked before a template sees them."""

import pytest

from tests.helpers.chat_templates import part
from zoo.errors import PromptError, TokenizerError
from zoo.tokenizer.chat_messages import checked_message, text_of, with_thinking


def refusal(message):
    with pytest.raises(TokenizerError) as caught:
        checked_message(message, "message 2")
    return str(caught.value)


def user(content):
    return {"role": "user", "content": content}


def calling(function):
    return {"role": "assistant", "tool_calls": [{"function": function}]}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("hi", " must be an object with a role and a content"),
        ({"content": "x"}, ": role must be a string, it is missing"),
        ({"role": 1, "content": "x"}, ": role must be a string, it is of type int"),
        (user(None), ": content must be a string or a list of text parts, it is missing"),
        (user(3), ": content must be a string or a list of text parts, it is of type int"),
        (
            user([part("x"), {"type": "image_url", "image_url": {"url": "data:"}}]),
            ": part 2 of its content is of type image_url, and the model takes text",
        ),
        (user([{"type": "text"}]), ': part 1 of its content must be {"type": "text", "text": …}'),
        (user(["x"]), ': part 1 of its content must be {"type": "text", "text": …}'),
        (calling("f"), ": each of tool_calls must be an object with a function"),
        (calling({"arguments": {}}), ": each of tool_calls must be an object with a function"),
        (calling({"name": "f", "arguments": "{"}), ": the arguments of f are not JSON (Expecting"),
        (calling({"name": "f", "arguments": "[]"}), ": the arguments of f must be an object"),
    ],
)
def test_a_malformed_message_is_named(message, reason):
    assert refusal(message).startswith(f"message 2{reason}")


def test_the_error_is_of_the_kind_that_is_asked_for():
    with pytest.raises(PromptError, match="prompt 1: role"):
        checked_message({"content": "x"}, "prompt 1", PromptError)


def test_only_an_assistant_may_say_nothing():
    assert checked_message({"role": "assistant", "content": None}, "")["content"] == ""
    assert "content" not in checked_message(calling({"name": "f", "arguments": "{}"}), "")
    assert "content" in refusal({"role": "tool", "tool_call_id": "a"})


def test_null_and_no_calls_are_left_out_and_other_keys_stay():
    given = {"role": "user", "content": "x", "name": None, "tool_calls": [], "weight": 0}
    assert checked_message(given, "") == {"role": "user", "content": "x", "weight": 0}


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_thinking_gets_the_names_that_templates_read(key):
    message = with_thinking({"role": "assistant", "content": "x", key: "Hm."})
    assert message["thinking"] == message["reasoning_content"] == "Hm."
    assert with_thinking({"role": "user", "content": "x"}) == {"role": "user", "content": "x"}


def test_the_text_of_parts_is_one():
    assert text_of(user([part("a"), part("b")])) == "a\nb"
    assert text_of(user("a")) == "a" and text_of({"role": "assistant", "content": None}) == ""
