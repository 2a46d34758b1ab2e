"""A chat model's answer taken apart: text, thinking and calls, however the stream is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.architecture import CallFormat
from zoo.generation.chat.parsing import THINK, AnswerFormat
from zoo.generation.chat.tools import declarations
from zoo.host.registry import default_registry


def weather(city: str, days: int = 1):
    """What the weather will be."""


def add(x: int, y: int):
    """Add two numbers."""


TOOLS = declarations([weather, add])
BY_NAME = {
    name: default_registry().table(CallFormat).require(name).load()
    for name in ("harmony", "hermes", "llama", "mistral")
}
PARIS = ("weather", {"city": "Paris"})
SUM = ("add", {"x": 1, "y": 2})
PARIS_JSON = '{"name": "weather", "arguments": {"city": "Paris"}}'
SUM_JSON = '{"name": "add", "arguments": {"x": 1, "y": 2}}'


def read(format, pieces, tools=TOOLS, prompt="", thinking=THINK):
    """The text, the thinking and the calls of an answer that comes in pieces."""
    parser = AnswerFormat(thinking if format != "harmony" else None, BY_NAME.get(format)).parser(
        prompt, tools
    )
    found = [*map(parser.add, pieces), parser.finish()]
    calls = [(call.name, call.arguments) for part in found for call in part.calls]
    return "".join(part.text for part in found), "".join(part.thinking for part in found), calls


HARMONY_CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}'


PLAIN = st.text('ab <>[]{}|\n"', max_size=6)


@pytest.mark.filterwarnings("ignore:a call of tools")
@given(PLAIN, PLAIN)
def test_text_without_a_whole_call_is_given_as_it_is(before, after):
    answer = f"x{before}<tool_call>{after}y"
    if "</tool_call>" not in after:
        assert read("hermes", answer) == (answer, "", [])


def test_half_a_call_is_never_text_while_it_may_become_one():
    parser = AnswerFormat(None, BY_NAME["hermes"]).parser("", TOOLS)
    told = [parser.add(character).text for character in f"Hi.\n<tool_call>{PARIS_JSON}</tool_call>"]
    assert "".join(told) == "Hi."
    bare = AnswerFormat(None, BY_NAME["llama"]).parser("", TOOLS)
    assert [bare.add(piece).text for piece in ('{"', "na", 'me": ')] == ["", "", ""]
    assert bare.add("1, ").text == ""
    other = AnswerFormat(None, BY_NAME["llama"]).parser("", TOOLS)
    assert [other.add(piece).text for piece in ('{"', "answer", '": 1}')] == ["", '{"answer', '": 1}']


def test_a_prompt_may_have_opened_the_thinking():
    assert read("hermes", ["Hm.\n</think>\n\nYes"], prompt="…assistant\n<think>\n") == ("Yes", "Hm.", [])
    assert read("hermes", ["Hm."], prompt="<think>\n\n</think>\n\n") == ("Hm.", "", [])


def test_without_tools_nothing_is_a_call():
    answer = f"<tool_call>{SUM_JSON}</tool_call>"
    assert read("hermes", [answer], tools=()) == (answer, "", [])
    assert AnswerFormat(None, BY_NAME["hermes"]).parser("", ()) is None
    told, _, calls = read("harmony", [f"{HARMONY_CALL}<|call|>"], tools=())
    assert json.loads(told) == {"city": "Paris"} and calls == []
