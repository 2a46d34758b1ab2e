"""Calls that an answer has to make, and constraints after thinking: random texts that fit their grammars are parsed."""

import json
import random
from dataclasses import replace
from functools import cache

import jsonschema
import numpy as np
import pytest
from tokenizers import Tokenizer

import zoo
from tests.helpers.call_templates import ENTRIES, NamedTemplate, answer_format, rendered
from zoo.errors import PromptError
from zoo.generation.chat import answer_grammar
from zoo.generation.chat.answer_grammar import AnswerSyntax
from zoo.generation.chat.chat_prompt import chat_prompt
from zoo.generation.chat.session import ChatSession
from zoo.generation.chat.tool_choice import call_grammar, chosen_tools
from zoo.generation.grammar.token_mask import token_mask
from zoo.generation.prompts_file import answer_prompts, read_prompts
from zoo.tokenizer import chat, load_tokenizer

TEXT, WHOLE = {"type": "string", "maxLength": 4}, {"type": "integer", "minimum": 0, "maximum": 99}
QUESTION = [{"role": "user", "content": "Q"}]
FLAG = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
FLAG["additionalProperties"] = False


def declared(name, required=(), **properties):
    """The declaration of a tool."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WEATHER = declared("weather", ["city"], city=TEXT, days=WHOLE)
KIND = {"type": "string", "enum": ["a", "b c"]}
DAYS = {"anyOf": [WHOLE, {"type": "null"}]}
NOTE = declared("note", ["urgent", "kind"], days=DAYS, kind=KIND, urgent={"type": "boolean"})
PING = {"type": "function", "function": {"name": "ping"}}
NESTED = declared("nested", ["data"], tags={"type": "array", "items": TEXT, "maxItems": 2}, data=FLAG)
TOOLS = [WEATHER, NOTE, PING]
LOOSE = {"function-gemma", "gemma-4"}  # they write lists and objects, but not as JSON


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


@pytest.fixture(scope="module")
def tokenizer_with(llama, tmp_path_factory):
    """The model's tokenizer with these as special tokens, each made once."""

    @cache
    def make(tags):
        folder = tmp_path_factory.mktemp("tokenizer")
        fast = Tokenizer.from_file(str(llama.folder / "tokenizer.json"))
        fast.add_special_tokens(list(tags))
        fast.save(str(folder / "tokenizer.json"))
        return load_tokenizer(folder, {})

    return make


def check(value, schema):
    """ValidationError unless a value fits a schema; `jsonschema.validate` would check the schema each time, too."""
    jsonschema.Draft202012Validator(schema).validate(value)


@pytest.fixture
def answer(llama, tokenizer_with, monkeypatch):
    """Makes the syntax of the answers by a template of ENTRIES, whose tags are texts, or special tokens."""

    def render(template, messages, variables, **more):
        prompt = variables["add_generation_prompt"]
        return rendered(current[0], messages, variables.get("tools"), prompt=prompt)

    current = [""]
    monkeypatch.setattr(chat, "render_chat", render)

    def make(name, special=False):
        current[0] = name
        format = answer_format(name)
        tags = [tag for tag in format.tokens if not any(letter in tag for letter in " \n:`[{=")]
        tokenizer = tokenizer_with(tuple(tags if special else ()))
        tokenizer.chat_template = NamedTemplate(name).chat_template
        tokenizer.eos_ids = llama.tokenizer.eos_ids
        prompt = rendered(name, QUESTION, TOOLS)
        tokenizer = tokenizer.with_visible_tokens(format.tokens)
        return AnswerSyntax(replace(llama, tokenizer=tokenizer), format, prompt, {"tools": TOOLS})

    answer_grammar._rendered.cache_clear()
    yield make
    answer_grammar._rendered.cache_clear()


def random_text(answer, grammar, seed, most=4000):
    """A random text of the grammar; the longer it gets, the sooner it ends."""
    tokenizer, drawn, text = answer.loaded.tokenizer, random.Random(seed), ""
    mask = token_mask(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids, grammar=grammar)
    written = tokenizer.detokenizer()
    opening, closing = answer.format.thinking or ("?", "?")
    end = tokenizer.encode(closing.strip(), special_tokens=False)
    thought, given = False, answer.prompt.rstrip().endswith(opening.strip())
    for count in range(most):
        bits = np.unpackbits(mask.allowed().view(np.uint8), bitorder="little").nonzero()[0].tolist()
        inner = [id for id in bits if id not in tokenizer.eos_ids]
        if len(inner) < len(bits) and (count > 60 or not inner or drawn.random() < 0.5):
            return text + written.finish()
        ids = [drawn.choice(inner)]
        thinks = (given or opening in text) and not thought and end[0] in bits  # not within a character
        if thinks and drawn.random() < 0.5:
            ids, thought = end, True  # else a thought would not end
        for id in ids:
            mask.update(id)
            text += written.add(id)
    raise AssertionError(f"no end: {text[:500]!r}")


def read(answer, text, tools):
    """The parts of an answer."""
    parser = answer.format.parser(answer.prompt, tools)
    return parser.add(text) + parser.finish()


@pytest.mark.slow
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", ENTRIES)
def test_an_answer_of_the_grammar_is_read_as_calls_that_fit_their_schemas(answer, name, special):
    syntax = answer(name, special)
    for choice in (TOOLS, [NOTE], *([] if name in LOOSE else [[NESTED]])):
        grammar = call_grammar(syntax, choice, several=len(choice) > 1)
        for seed in range(3):
            text = random_text(syntax, grammar, seed)
            part = read(syntax, text, choice)
            assert part.calls and not part.text.strip(), text
            assert len(part.calls) == 1 or len(choice) > 1
            for call in part.calls:
                (tool,) = (tool["function"] for tool in choice if tool["function"]["name"] == call.name)
                parameters = tool.get("parameters", {"properties": {}})
                check(call.arguments, parameters)
                assert call.arguments.keys() <= parameters["properties"].keys()


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", ENTRIES)
def test_a_schema_constrains_the_answer_after_the_thinking(answer, name, special):
    syntax = answer(name, special)
    settings = syntax.constrained({"json_schema": FLAG, "top_k": 5})
    if syntax.format.thinking is None:
        assert settings == {"json_schema": FLAG, "top_k": 5}
        return
    assert settings.keys() <= {"grammar", "json_schema", "top_k"}
    thoughts = set()
    for seed in range(8 if "grammar" in settings else 0):
        part = read(syntax, random_text(syntax, settings["grammar"], seed), ())
        check(json.loads(part.text), FLAG)
        thoughts.add(bool(part.thinking))
    closed = syntax.prompt.rstrip().endswith(syntax.format.thinking[1].strip())
    assert closed or True in thoughts


def test_a_regex_and_a_grammar_are_constrained_the_same(answer):
    syntax = answer("qwen-3-5")
    for settings in (
        {"regex": "a|b::=c"},
        {"grammar": 'start: "a" | T // }\nT: "b::=c"'},
        {"grammar": 'root ::= "a"'},
    ):
        part = read(syntax, random_text(syntax, syntax.constrained(settings)["grammar"], 1), ())
        assert part.text in ("a", "b::=c")


def test_a_constraint_that_cannot_be_is_named_as_it_was_given(answer):
    with pytest.raises(PromptError, match="`json_schema`: contains is not supported"):
        answer("qwen-3").constrained({"json_schema": {"type": "array", "contains": {}}})
    both = {"regex": "a", "json_schema": {}}
    assert answer("qwen-3").constrained(both) == both  # which the settings refuse


HERMES = NamedTemplate("qwen-2-5").chat_template
TOOLS_LAST = """\
{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|endoftext|>
{% endfor %}
{%- if tools %}<|tools|>{{ tools[0].function.name }}{% endif %}
{%- if add_generation_prompt %}<|assistant|>
{%- if enable_thinking is defined %}<think></think>{% endif %}{% endif %}"""


@pytest.fixture
def pocket(llama):
    tokenizer = llama.tokenizer
    tokenizer.chat_template = HERMES
    yield llama
    tokenizer.chat_template = None


@pytest.mark.parametrize(
    "choice", ["required", "weather", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_model_calls_the_tool_that_it_has_to_call(pocket, choice):
    tools = [WEATHER] if choice == "required" else TOOLS
    steps = list(zoo.chat(pocket, QUESTION, tools=tools, tool_choice=choice, max_tokens=200))
    calls = [call for step in steps for call in step.tool_calls]
    assert {call.name for call in calls} == {"weather"} and steps[-1].finish_reason == "stop"
    for call in calls:
        jsonschema.validate(call.arguments, WEATHER["function"]["parameters"])
    assert not "".join(step.text for step in steps).strip()


def test_a_call_follows_the_header_where_the_template_writes_tools_after_the_messages(pocket):
    pocket.tokenizer.chat_template = TOOLS_LAST
    how = {"tools": [WEATHER], "tool_choice": "weather"}
    assert "assistant" not in chat_prompt(pocket, QUESTION, **how).calls
    how["variables"] = {"enable_thinking": False}  # the pocket would think without an end
    steps = list(zoo.chat(pocket, QUESTION, **how, max_tokens=200))
    assert [call.name for step in steps for call in step.tool_calls] == ["weather"]
    assert not "".join(step.text for step in steps)


def test_a_call_that_is_cut_off_comes_as_text(pocket):
    with pytest.warns(UserWarning, match="a call of tools in the answer cannot be read"):
        steps = list(zoo.chat(pocket, QUESTION, tools=TOOLS, tool_choice="weather", max_tokens=30))
    assert not any(step.tool_calls for step in steps) and steps[-1].finish_reason == "length"
    assert "".join(step.text for step in steps)


def test_tools_that_may_not_be_called_are_not_shown(pocket):
    shown, hidden = (
        chat_prompt(pocket, QUESTION, tools=TOOLS, tool_choice=choice) for choice in ("auto", "none")
    )
    assert hidden.ids == chat_prompt(pocket, QUESTION).ids != shown.ids
    assert hidden.parser is None and shown.calls is None
    assert shown.ids == chat_prompt(pocket, QUESTION, tools=TOOLS).ids


@pytest.mark.parametrize(
    ("choice", "tools", "words"),
    [
        ("required", [], "`tool_choice`: there are no `tools`"),
        ("wether", TOOLS, "`tool_choice`: no tool is called 'wether'"),
        (3, TOOLS, '`tool_choice` must be "auto", "none", "required", a name'),
        ({"type": "function"}, TOOLS, "`tool_choice` must be"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(choice, tools, words):
    with pytest.raises(PromptError, match=words):
        chosen_tools(choice, tools)


def test_what_no_grammar_can_hold_to_is_refused_with_the_tool(answer):
    odd = declared("odd", items={"type": "array", "contains": {}})
    with pytest.raises(PromptError, match="`tools`: odd: contains is not supported"):
        call_grammar(answer("qwen-2-5"), [odd], several=False)
    with pytest.raises(PromptError, match="`tools`: nested: data: lists and objects are not written as JSON"):
        call_grammar(answer("gemma-4"), [NESTED], several=False)
    word = declared("word", text={"type": "string", "pattern": "^a"})
    with pytest.raises(
        PromptError, match="`tools`: word: pattern is not supported of a string without quotes"
    ):
        call_grammar(answer("qwen-3-coder"), [word], several=False)


def test_a_template_that_writes_no_calls_is_refused(pocket):
    pocket.tokenizer.chat_template = (
        '{{ tools }} <tool_call> "arguments {% for m in messages %}{{ m.content }}{% endfor %}'
    )
    with pytest.raises(
        PromptError, match=r"`tool_choice`: how .* writes calls of tools is not known: .* no tool calls"
    ):
        zoo.chat(pocket, QUESTION, tools=TOOLS, tool_choice="required")


def test_a_schema_and_a_call_cannot_both_be_the_answer(pocket):
    with pytest.raises(PromptError, match="`tool_choice` and `regex` cannot be given together"):
        zoo.chat(pocket, QUESTION, tools=TOOLS, tool_choice="required", regex="a")


THINKING = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>{% endif %}{# </think> #}"


def test_a_session_and_a_file_of_prompts_let_the_model_think_first(pocket, tmp_path):
    pocket.tokenizer.chat_template = THINKING
    settings = {"regex": "yes|no", "max_tokens": 5}  # the pocket does not know the tag that ends its thinking
    steps = list(ChatSession(pocket, settings=settings).answer("Q"))
    assert steps[-1].finish_reason == "length" and not "".join(step.text for step in steps)
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"messages": QUESTION}))
    lines = read_prompts(pocket, tmp_path / "prompts.jsonl", {})
    (answered,) = answer_prompts(pocket, lines, tmp_path / "answers.jsonl", **settings)
    assert answered["finish_reason"] == "length" and answered["text"] == ""
    assert answered["thinking"] == "".join(step.thinking for step in steps)
