"""The public formats of tool calls: which template has which, and answers in each, however the stream is cut."""

import re
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.call_answers import ANSWERS, HERMES_CALL, MALFORMED, PARIS
from tests.helpers.call_templates import ENTRIES, NamedTemplate, answer_format, rendered
from zoo.architecture import CallFormat, hookimpl
from zoo.errors import PluginError
from zoo.generation.chat.parsing import TaggedCalls, call_format
from zoo.generation.chat.parsing import answer_format as format_of
from zoo.host.registry import default_registry, isolated

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def declared(name, **properties):
    """The declaration of a tool."""
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
    }


TOOLS = [
    declared("weather", city=TEXT, days=WHOLE),
    declared("add", x=WHOLE, y=WHOLE),
    declared("ping"),
    declared("run", code=TEXT),
    declared("python", code=TEXT),
    declared(
        "note",
        msg={"anyOf": [TEXT, {"type": "null"}]},
        urgent={"type": "boolean"},
        tags={"type": "array", "items": TEXT},
        data={"type": "object"},
    ),
]
FORMATS = list(default_registry().table(CallFormat).listed().values())
CASES = [(name, *case) for name, cases in ANSWERS.items() for case in cases]


def read(name, pieces, prompt=None):
    """The text, the thinking and the calls of an answer that comes in pieces."""
    prompt = rendered(name, [{"role": "user", "content": "Q"}], TOOLS) if prompt is None else prompt
    parser = answer_format(name).parser(prompt, TOOLS)
    parts = [*map(parser.add, pieces), parser.finish()]
    calls = [(call.name, call.arguments) for part in parts for call in part.calls]
    return "".join(part.text for part in parts), "".join(part.thinking for part in parts), calls


def test_there_are_answers_for_every_template_and_templates_for_every_format():
    assert len(ENTRIES) >= 39 and len(CASES) >= 95
    assert set(ANSWERS) == set(ENTRIES)
    assert {entry["format"] for entry in ENTRIES.values()} == {format.name for format in FORMATS}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_template_has_the_markers_of_its_own_format(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            call_format(NamedTemplate(name).chat_template, default_registry()).name == ENTRIES[name]["format"]
        )


@pytest.mark.parametrize(("name", "answer", "text", "thinking", "calls"), CASES)
def test_an_answer_is_read_whole_and_by_characters(name, answer, text, thinking, calls):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(name, [answer]) == (text, thinking, calls)
        assert read(name, answer) == (text, thinking, calls)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "answer", "text", "thinking", "calls"), CASES)
def test_an_answer_cut_in_two_is_the_same(name, answer, text, thinking, calls):
    prompt = rendered(name, [{"role": "user", "content": "Q"}], TOOLS)
    for place in range(len(answer)):
        assert read(name, [answer[:place], answer[place:]], prompt) == (text, thinking, calls), place


@st.composite
def cut_answers(draw):
    """A template, an answer of parts of its answers and other text, and the same in pieces."""
    name = draw(st.sampled_from(sorted(ENTRIES)))
    tokens = "|".join(map(re.escape, answer_format(name).tokens))
    parts = [part for case in ANSWERS[name] for part in re.split(f"({tokens})", case[0]) if part]
    text = st.text('ab <>[]{}|\n"', max_size=6)
    answer = "".join(draw(st.lists(st.sampled_from(parts) | text, max_size=10)))
    cuts = sorted(draw(st.lists(st.integers(0, len(answer)), max_size=8)))
    return name, answer, [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* of tools in the answer")
@settings(max_examples=500, deadline=None)
@given(cut_answers())
@example(("qwen-3", "a <think>b", ["a ", "<think>b"]))
@example(("gpt-oss", "a<|channel|>final<|message|>b", ["a", "<|channel|>final<|message|>b"]))
def test_however_a_stream_is_cut_the_text_and_the_calls_are_the_same(drawn):
    name, answer, pieces = drawn
    assert read(name, pieces) == read(name, [answer])


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_no_tag_is_within_another_so_that_a_stream_may_be_cut_anywhere(format):
    syntax = format.load()
    if isinstance(syntax, TaggedCalls):
        tags = {*dict(syntax.tags), *syntax.layout_tags, *syntax.stray_tags}
        assert not [(a, b) for a in tags for b in tags if a != b and a in b and not b.endswith(a)]


@pytest.mark.parametrize(
    ("name", "answer"), [(name, answer) for name, all in MALFORMED.items() for answer in all]
)
def test_a_malformed_call_is_text_and_a_warning_says_so(name, answer):
    for pieces in ([answer], answer):
        with pytest.warns(
            UserWarning, match=r"a call of tools in the answer cannot be read, and came as text: '.+"
        ):
            text, _, calls = read(name, pieces)
        assert text == answer.removeprefix("</think>") and calls == []


VALUES = [("weather", {"city": "São Paulo", "days": 3}), ("note", {"msg": "3.10", "tags": ["a", "b c"]})]


@pytest.mark.parametrize("name", ENTRIES)
def test_calls_that_a_template_writes_are_read_again(name):
    question = {"role": "user", "content": "Q"}
    calls = [
        {
            "id": f"functions.{tool}:{n}",
            "type": "function",
            "function": {"name": tool, "arguments": arguments},
        }
        for n, (tool, arguments) in enumerate(VALUES)
    ]
    empty = {"role": "assistant", "content": ""}
    prompt = rendered(name, [question], TOOLS)
    start = len(prompt) - len(ENTRIES[name].get("prompt", ""))
    written, end = (
        rendered(name, [question, {**empty, **more}], TOOLS, prompt=False)[start:]
        for more in ({"tool_calls": calls}, {})
    )
    assert read(name, [written.removesuffix(end)], prompt)[2] == VALUES


def with_template(text):
    """A tokenizer with this chat template."""
    tokenizer = NamedTemplate("qwen-3")
    tokenizer.chat_template = text
    return tokenizer


def plugin_with(target, markers, **more):
    """A registry with a plugin that has one format."""
    record = CallFormat("own", target, markers, **more)
    return isolated(type("own", (), {"zoo_call_formats": staticmethod(hookimpl(lambda: [record]))})())


def test_a_plugins_format_comes_before_the_zoos_own():
    found = plugin_with("zoo.generation.chat.formats.gemma:GEMMA_4", (("<arg_key>",),))
    template = NamedTemplate("glm-4-5").chat_template
    with pytest.warns(UserWarning, match="is served by the plugin"):
        assert call_format(template, found).name == "own"
    assert call_format(NamedTemplate("qwen-3").chat_template, found).name == "hermes"


@pytest.mark.parametrize(
    "template",
    ["", "[TOOL_CALLS] <TOOLCALL>", "{{ tools }} <tool_call> name: {{ name }} </tool_call>", "<call>"],
)
def test_a_template_of_another_format_or_of_two_has_none(template):
    assert call_format(template, default_registry()) is None


def test_a_target_that_is_no_format_is_named():
    with pytest.raises(PluginError, match=r"call format own: json:loads is no TaggedCalls"):
        format_of(with_template("<own>"), plugin_with("json:loads", (("<own>",),)))


@pytest.mark.parametrize("markers", [(), ((),), ("<a>",), ((1,),), (("",),)])
def test_a_format_without_markers_is_refused(markers):
    with pytest.raises(PluginError, match="call format own: markers"):
        CallFormat("own", "json:loads", markers)


def test_a_parser_sees_the_tokens_that_tags_are_made_of():
    tokens = answer_format("gemma-4").tokens
    assert {"<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", '<|"|>'} <= set(tokens)
    assert {"<|open|>", "<|sep|>", "<|close|>"} <= set(answer_format("kimi-k3").tokens)


def test_a_call_in_thinking_that_never_ends_is_said():
    with pytest.warns(UserWarning, match="a call of tools"):
        assert read("qwen-3", [f"<think>Hm. {HERMES_CALL}"]) == ("", f"Hm. {HERMES_CALL}", [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read("qwen-3", ["<think>I use <tool_call>."])[2] == []


def test_a_malformed_call_does_not_take_the_next_with_it():
    broken = '<tool_call>{"name": "add, "arguments": {"x": 1}}</tool_call>'
    for pieces in ([broken + HERMES_CALL], broken + HERMES_CALL):
        with pytest.warns(UserWarning, match="a call of tools"):
            assert read("qwen-2-5", pieces) == (broken, "", [PARIS])


def test_text_is_not_held_back_for_longer_than_it_may_be_a_call():
    def told(name, pieces):
        parser = answer_format(name).parser("", TOOLS)
        return [parser.add(piece).text for piece in pieces]

    assert told("qwen-3-coder", ["a <", "b> <tool", "s>"]) == ["a", " <b>", " <tools>"]
    assert told("llama-3-1", ["[", "1, 2]"]) == ["", "[1, 2]"]
    assert told("llama-3-1", ['{"', "answer", '": 1}']) == ["", '{"answer', '": 1}']
    assert told("functionary-3-2", ["al", "l\nHi", ">>", " x"]) == ["", "Hi", "", ">> x"]
