"""Tools of a chat: declared to the template, and called through tokens that other answers do not show."""

import json
from copy import copy
from dataclasses import replace
from typing import Any, Literal

import pytest

import zoo
from tests.helpers import chat_templates
from zoo.errors import PromptError, TokenizerError
from zoo.generation.chat.chat_prompt import chat_prompt
from zoo.generation.chat.tools import declaration, declarations
from zoo.generation.loop.step import ToolCall
from zoo.generation.loop.text_stream import TextStream

USER = {"role": "user", "content": "What will the weather be?"}
SPECIAL = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>", "[TOOL_CALLS]")
LAID_OUT = (
    "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}{{ '\\n' }}{% endfor %}"
)
HARMONY = LAID_OUT + "{# <|channel|> <|message|> #}<|start|>assistant"
MISTRAL = LAID_OUT + "{# [TOOL_CALLS] #}"


def weather(city: str, days: int = 1, scale: Literal["C", "F"] = "C"):
    """What the weather will be,
    as far as one knows.

    Args:
        city: The city's name,
            in English.
        days (int): How many days ahead.

    Returns:
        a text: in words
    """


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The embedded LLaMA with the special tokens of other models, whose ids lie in its vocabulary."""
    source = zoo.load("llama")
    path = tmp_path_factory.mktemp("model")
    for file in source.folder.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    made = json.loads((path / "tokenizer.json").read_text())
    last = max(made["model"]["vocab"].values())
    unused = {id: token for token, id in made["model"]["vocab"].items() if id > last - len(SPECIAL)}
    made["model"]["merges"] = [m for m in made["model"]["merges"] if "".join(m) not in unused.values()]
    for id, token in zip(sorted(unused), SPECIAL, strict=True):
        del made["model"]["vocab"][unused[id]]
        made["model"]["vocab"][token] = id
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        made["added_tokens"].append({"id": id, "content": token, "special": True, **flags})
    (path / "tokenizer.json").write_text(json.dumps(made))
    return path


@pytest.fixture(scope="module")
def loaded(folder):
    return zoo.load(folder)


def answered(loaded, template, text, tools=(weather,)):
    """The steps of an answer whose tokens are those of `text`."""
    loaded.tokenizer.chat_template = template
    question = chat_prompt(loaded, [USER], tools=tools)
    ids = loaded.tokenizer.encode(text, special_tokens=False)
    return list(question.parsed(TextStream(question.loaded, limit=len(ids)).steps(ids)))


def test_a_template_for_tools_is_taken_by_its_name(loaded):
    """Both the prompt and the format of calls are those of the template named tool_use."""
    tokenizer = copy(loaded.tokenizer)
    tokenizer.chat_template = "{{ messages[0].content }}"
    tokenizer.chat_templates = {"default": tokenizer.chat_template, "tool_use": HARMONY}
    named = replace(loaded, tokenizer=tokenizer)
    plain, asked = chat_prompt(named, [USER]), chat_prompt(named, [USER], tools=[weather])
    assert tokenizer.decode(plain.ids) == USER["content"]
    assert tokenizer.decode(asked.ids).startswith("weather user: What")
    call = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Bern"}<|call|>'
    ids = tokenizer.encode(call, special_tokens=False)
    *_, last = asked.parsed(TextStream(asked.loaded, limit=len(ids)).steps(ids))
    assert [call.name for call in last.tool_calls] == ["weather"]


def test_templates_without_a_default_are_listed(loaded):
    tokenizer = copy(loaded.tokenizer)
    tokenizer.chat_template, tokenizer.chat_templates = None, {"tool_use": HARMONY, "rag": LAID_OUT}
    named = replace(loaded, tokenizer=tokenizer)
    assert chat_prompt(named, [USER], tools=[weather]).ids
    with pytest.raises(
        PromptError, match=r"no default chat template, but rag, tool_use: set `tokenizer\.chat_template`"
    ):
        chat_prompt(named, [USER])


def test_the_template_gets_the_tools(loaded):
    loaded.tokenizer.chat_template = LAID_OUT
    with pytest.warns(UserWarning, match="how it writes calls of tools is not known, so they come as text"):
        steps = zoo.chat(loaded, [USER], tools=[weather], max_tokens=1)
    assert len(list(steps)) == 1
    with pytest.warns(UserWarning):
        ids = chat_prompt(loaded, [USER], tools=[weather]).ids
    assert loaded.tokenizer.decode(ids) == f"weather user: {USER['content']}\n"


def test_special_tokens_mark_the_parts_of_an_answer(loaded):
    text = (
        "<|channel|>analysis<|message|>It is asked for Paris.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
    )
    steps = answered(loaded, HARMONY, text)
    assert "".join(step.text for step in steps) == ""
    assert "".join(step.thinking for step in steps) == "It is asked for Paris."
    (call,) = steps[-1].tool_calls
    assert (call.name, call.arguments) == ("weather", {"city": "Paris"})
    assert [step.token for step in steps] == loaded.tokenizer.encode(text, special_tokens=False)
    plain = TextStream(loaded, limit=10**6).steps(loaded.tokenizer.encode(text, special_tokens=False))
    assert "<|" not in "".join(step.text for step in plain), "without a parser they are skipped"


def test_a_call_comes_back_as_a_message(loaded):
    (call,) = answered(loaded, MISTRAL, '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}]')[
        -1
    ].tool_calls
    assert len(call.id) == 9 and call.id.isalnum()
    asks = {"role": "assistant", "tool_calls": [call.to_json()]}
    tells = {"role": "tool", "tool_call_id": call.id, "content": "It rains."}
    shown = loaded.tokenizer.decode(chat_prompt(loaded, [USER, asks, tells]).ids)
    assert 'assistant: {"city": "Rome"}\ntool: It rains.\n' in shown
    written = call.to_json()
    written["function"]["arguments"] = json.dumps(call.arguments)  # as OpenAI's interface has it
    asks = asks | {"tool_calls": [written]}
    assert loaded.tokenizer.decode(chat_prompt(loaded, [USER, asks, tells]).ids) == shown


def test_a_template_that_writes_calls_beside_null_alone_gets_null(loaded):
    loaded.tokenizer.chat_template = chat_templates.NULL
    shown = loaded.tokenizer.decode(chat_prompt(loaded, chat_templates.CONVERSATIONS["null"]).ids, False)
    assert '<call>weather {"city": "Rome", "days": 2}</call>' in shown
    loaded.tokenizer.chat_template = chat_templates.PLAIN
    with pytest.raises(TokenizerError, match="message 2: the template writes no tool calls"):
        zoo.chat(loaded, chat_templates.CONVERSATIONS["null"])


def test_tools_that_a_template_does_not_take_are_refused(loaded):
    loaded.tokenizer.chat_template = "{{ messages[0].content }}"
    with pytest.raises(PromptError, match=r"`tools`: the chat template of .* takes none"):
        zoo.chat(loaded, [USER], tools=[weather])


def test_a_template_that_writes_calls_and_lists_no_tools_is_told(loaded):
    template = LAID_OUT.replace("tools", "others") + "{# <｜tool▁call▁begin｜> #}"
    text = '<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome"}<｜tool▁call▁end｜>'
    with pytest.warns(
        UserWarning, match="its chat template does not list tools, so a message has to describe"
    ):
        steps = answered(loaded, template, text)
    assert [call.arguments for step in steps for call in step.tool_calls] == [{"city": "Rome"}]


def test_a_malformed_call_is_text_and_the_end_of_the_answer_says_so(loaded):
    with pytest.warns(UserWarning, match="a call of tools in the answer cannot be read, and came as text"):
        steps = answered(loaded, MISTRAL, '[TOOL_CALLS] [{"name": "weather", "argum')
    assert "".join(step.text for step in steps).startswith("[TOOL_CALLS]")


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ("now", "each of tool_calls must be an object with a function"),
        ([{"function": {"name": "f", "arguments": "{"}}], "message 1: the arguments of f are not JSON"),
        ([{"function": {"name": "f", "arguments": "[]"}}], "the arguments of f must be an object"),
    ],
)
def test_calls_that_are_none_are_refused(loaded, calls, words):
    loaded.tokenizer.chat_template = LAID_OUT
    with pytest.raises(TokenizerError, match=words):
        zoo.chat(loaded, [{"role": "assistant", "tool_calls": calls}])


def test_a_function_declares_itself():
    assert declaration(weather) == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What the weather will be, as far as one knows.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city's name, in English."},
                    "days": {"type": "integer", "description": "How many days ahead."},
                    "scale": {"type": "string", "enum": ["C", "F"]},
                },
                "required": ["city"],
            },
        },
    }

    def several(a: list[float], b: dict[str, int], c: str | None, d: Any, e: bool = True):
        pass

    assert declaration(several)["function"]["parameters"]["properties"] == {
        "a": {"type": "array", "items": {"type": "number"}},
        "b": {"type": "object", "additionalProperties": {"type": "integer"}},
        "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "d": {},
        "e": {"type": "boolean"},
    }


def untyped(x):
    pass


def strange(x: complex):
    pass


def open_ended(*names: str):
    pass


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("weather", "`tools` must be a list"),
        ([{"name": "f"}], "tool 1 must be a function or"),
        ([weather, 3], "tool 2 must be a function or"),
        (
            [{"type": "function", "function": {"name": "f", "parameters": 3}}],
            "f: parameters must be a JSON schema",
        ),
        ([weather, weather], "two tools are called weather"),
        ([untyped], "untyped: its parameter x needs a type hint"),
        ([strange], "strange: x: complex has no JSON schema"),
        ([open_ended], "open_ended: .* is no parameter that can be given by name"),
    ],
)
def test_what_is_no_tool_is_refused(tools, words):
    with pytest.raises(PromptError, match=words):
        declarations(tools)


def test_a_call_is_an_entry_of_a_message():
    call = ToolCall("a", "add", {"x": 1})
    function = {"name": "add", "arguments": {"x": 1}}
    assert call.to_json() == {"id": "a", "type": "function", "function": function}
