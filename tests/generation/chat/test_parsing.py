"""A chat model's answer taken apart: text, thinking and calls, however the stream is cut."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.generation.chat.parsing import FORMATS, THINKING, AnswerFormat
from zoo.generation.chat.tools import declarations


def weather(city: str, days: int = 1):
    """What the weather will be."""


def add(x: int, y: int):
    """Add two numbers."""


TOOLS = declarations([weather, add])
BY_NAME = {format.name: format for format in FORMATS}
PARIS = ("weather", {"city": "Paris"})
SUM = ("add", {"x": 1, "y": 2})
PARIS_JSON = '{"name": "weather", "arguments": {"city": "Paris"}}'
SUM_JSON = '{"name": "add", "arguments": {"x": 1, "y": 2}}'


def read(format, pieces, tools=TOOLS, prompt="", thinking=THINKING[0]):
    """The text, the thinking and the calls of an answer that comes in pieces."""
    parser = AnswerFormat(thinking if format != "harmony" else None, BY_NAME.get(format)).parser(
        prompt, tools
    )
    found = [*map(parser.add, pieces), parser.finish()]
    calls = [(call.name, call.arguments) for part in found for call in part.calls]
    return "".join(part.text for part in found), "".join(part.thinking for part in found), calls


HARMONY_CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}'
CASES = [
    # Hermes and Qwen
    ("hermes", "Hello <b>there</b>.\n", ("Hello <b>there</b>.\n", "", [])),
    ("hermes", f"<tool_call>\n{PARIS_JSON}\n</tool_call>", ("", "", [PARIS])),
    (
        "hermes",
        f"I look.\n\n<tool_call>{PARIS_JSON}</tool_call>\n<tool_call>\n{SUM_JSON}\n</tool_call>\n",
        ("I look.", "", [PARIS, SUM]),
    ),
    (
        "hermes",
        "<think>\nHm, <tool_call>.\n</think>\n\nYes <think> no",
        ("Yes <think> no", "Hm, <tool_call>.", []),
    ),
    ("hermes", f"<think>a</think><tool_call>{SUM_JSON}</tool_call>", ("", "a", [SUM])),
    ("hermes", f"<tool_call>{SUM_JSON}", ("", "", [SUM])),
    (
        "hermes",
        'x <tool_call>{"name": "add"</tool_call> y',
        ('x <tool_call>{"name": "add"</tool_call> y', "", []),
    ),
    ("hermes", 'so: <tool_call>{"na', ('so: <tool_call>{"na', "", [])),
    (
        "hermes",
        "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        ("", "", [("weather", {"city": "12", "days": 3})]),
    ),
    # LLaMA 3
    ("llama3", '{"name": "weather", "parameters": {"city": "Paris"}}', ("", "", [PARIS])),
    ("llama3", '<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}', ("", "", [PARIS])),
    (
        "llama3",
        '\n{"name": "weather", "parameters": {"city": "Paris"}}; {"name": "add", "parameters": {"x": 1, "y": 2}}',
        ("", "", [PARIS, SUM]),
    ),
    ("llama3", '{"name": "Bob", "parameters": {}}', ('{"name": "Bob", "parameters": {}}', "", [])),
    ("llama3", '{"a": 1}\n', ('{"a": 1}\n', "", [])),
    ("llama3", '{"name": "weather", "parame', ('{"name": "weather", "parame', "", [])),
    ("llama3", "Use {} there.", ("Use {} there.", "", [])),
    ("llama3", "<|python_tag|>print(1)", ("<|python_tag|>print(1)", "", [])),
    # Mistral
    ("mistral", f"[TOOL_CALLS] [{PARIS_JSON}, {SUM_JSON}]", ("", "", [PARIS, SUM])),
    ("mistral", 'Well. [TOOL_CALLS]weather[ARGS]{"city": "Paris"}', ("Well.", "", [PARIS])),
    (
        "mistral",
        '[TOOL_CALLS]weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Paris"}[TOOL_CALLS]add[ARGS]{"x": 1, "y": 2}',
        ("", "", [PARIS, SUM]),
    ),
    ("mistral", "[TOOL_CALLS]weather[ARGS]{", ("[TOOL_CALLS]weather[ARGS]{", "", [])),
    ("mistral", "a [list] of [TOOL", ("a [list] of [TOOL", "", [])),
    # harmony
    (
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.\n<|return|>",
        ("Hello.\n", "Hm.", []),
    ),
    (
        "harmony",
        f"<|channel|>analysis<|message|>I look.<|end|><|start|>assistant{HARMONY_CALL}<|call|>",
        ("", "I look.", [PARIS]),
    ),
    ("harmony", HARMONY_CALL, ("", "", [PARIS])),
    (
        "harmony",
        ' to=functions.add<|channel|>commentary json<|message|>{"x": 1, "y": 2}<|call|>',
        ("", "", [SUM]),
    ),
    ("harmony", "<|channel|>commentary<|message|>First.<|end|>", ("First.", "", [])),
    ("harmony", "Plain < text", ("Plain < text", "", [])),
    ("harmony", HARMONY_CALL[:-3], (HARMONY_CALL[:-3], "", [])),
]


@pytest.mark.parametrize(("format", "answer", "expected"), CASES)
def test_an_answer_is_taken_apart_whole_and_by_characters(format, answer, expected):
    assert read(format, [answer]) == expected
    assert read(format, answer) == expected


MARKS = {
    "hermes": (
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        PARIS_JSON,
        "<function=f>",
        "</function>",
    ),
    "llama3": ("<think>", "</think>", "<|python_tag|>", PARIS_JSON, ";", "{", "<|"),
    "mistral": ("[THINK]", "[TOOL_CALLS]", "[ARGS]", "weather", '{"x": 1}', f"[{SUM_JSON}]", "["),
    "harmony": (
        *("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "assistant", "analysis", "final"),
        *("commentary", " to=functions.add", '{"x": 1, "y": 2}', "<|"),
    ),
}
PLAIN = st.text('ab <>[]{}|\n"', max_size=6)


@st.composite
def cut_answers(draw):
    """A format, an answer of its marks and other text, and the same in pieces."""
    format = draw(st.sampled_from(sorted(MARKS)))
    answer = "".join(draw(st.lists(st.sampled_from(MARKS[format]) | PLAIN, max_size=10)))
    cuts = sorted(draw(st.lists(st.integers(0, len(answer)), max_size=8)))
    return format, answer, [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]


@pytest.mark.slow
@settings(max_examples=400)
@given(cut_answers())
@example(("hermes", "a <think>b", ["a ", "<think>b"]))
@example(("harmony", "a<|channel|>final<|message|>b", ["a", "<|channel|>final<|message|>b"]))
def test_however_a_stream_is_cut_the_text_and_the_calls_are_the_same(drawn):
    format, answer, pieces = drawn
    assert read(format, pieces) == read(format, [answer])


@given(PLAIN, PLAIN)
def test_text_without_a_whole_call_is_given_as_it_is(before, after):
    answer = f"x{before}<tool_call>{after}y"
    if "</tool_call>" not in after:
        assert read("hermes", answer) == (answer, "", [])


def test_half_a_call_is_never_text_while_it_may_become_one():
    parser = AnswerFormat(None, BY_NAME["hermes"]).parser("", TOOLS)
    told = [parser.add(character).text for character in f"Hi.\n<tool_call>{PARIS_JSON}</tool_call>"]
    assert "".join(told) == "Hi."
    bare = AnswerFormat(None, BY_NAME["llama3"]).parser("", TOOLS)
    assert [bare.add(piece).text for piece in ('{"', "na", 'me": ')] == ["", "", ""]
    assert bare.add("1, ").text == ""
    other = AnswerFormat(None, BY_NAME["llama3"]).parser("", TOOLS)
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
