"""`tool_choice`: which tools an answer may or has to call, and the grammar of these calls.

Arguments that stand as JSON are held to the schema of the tool's parameters; of those that are written one by one, each
is held to its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import PromptError, TokenizerError
from zoo.generation.chat.answer_grammar import ANY, KEY, LEAD, AnswerSyntax, nested
from zoo.generation.chat.call_syntax import ID_PATTERNS, NEXT_KEY, Around, CallSyntax
from zoo.generation.chat.tools import properties_of
from zoo.generation.chat.values import kinds_of
from zoo.generation.grammar.bounds import check_size
from zoo.generation.grammar.compile import compile_grammar

ToolChoice = str | Mapping[str, Any]
Declared = Sequence[Mapping[str, Any]]
Schema = Mapping[str, Any]

FORM = '"auto", "none", "required", a name, or {"type": "function", "function": {"name": …}}'
DEFINITIONS = ("$defs", "definitions")
OBJECT_KEYS = {"type", "properties", "required", "title", "description", "$schema", *DEFINITIONS}
"""The keywords of an object beside which the names that it does not list can be excluded."""
TEXT_KEYS = {"type", "title", "description", "default", "examples", "minLength", "maxLength", *DEFINITIONS}
"""The keywords that are kept to in a string without quotes, beside `enum` and `const`."""


def chosen_tools(choice: ToolChoice | None, declared: Declared) -> tuple[Declared, Declared]:
    """The tools that the template is shown, and those of which the answer has to call one; PromptError for no choice."""
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else choice
    if name is None or name == "auto":
        return declared, ()
    if name == "none":
        return (), ()
    if not isinstance(name, str):
        raise PromptError(f"`tool_choice` must be {FORM}, got {choice!r:.60}")
    called = [tool for tool in declared if name in ("required", tool["function"]["name"])]
    if not called:
        why = f"no tool is called {name!r:.60}" if declared else "there are no `tools`"
        raise PromptError(f"`tool_choice`: {why}")
    functions = [tool["function"] for tool in called]
    check_size("tools", [[function["name"], function.get("parameters")] for function in functions])
    return declared, called


def call_grammar(answer: AnswerSyntax, called: Declared, several: bool) -> str:
    """The grammar of an answer that is a call of one of these tools, or `several` calls.

    PromptError where the template does not write calls or the parser does not read them, and for a schema that the
    grammar cannot hold to.
    """
    try:
        grammar = _CallGrammar(CallSyntax(answer), several)
    except (TokenizerError, ValueError) as error:
        name = answer.loaded.folder.name or answer.loaded.architecture.name
        raise PromptError(f"`tool_choice`: how {name} writes calls of tools is not known: {error}") from None
    rules = []
    for number, tool in enumerate(called):
        function = tool["function"]
        schema = {"type": "object", "properties": {}, **function.get("parameters", {})}
        if schema.keys() <= OBJECT_KEYS:
            schema["additionalProperties"] = False
        try:
            rules += grammar.rules(f"tool{number}", function["name"], schema)
        except PromptError as error:
            raise PromptError(str(error).replace("`json_schema`", f"`tools`: {function['name']}")) from None
    rules.append(f"call: {' | '.join(f'tool{number}' for number in range(len(called)))}")
    before = grammar.syntax.before
    lead = "" if before[:1].isspace() else LEAD
    return answer.grammar(f"{grammar.text(before)} call", "\n".join(rules), lead)


class _CallGrammar:
    """Writes the rules of calls."""

    def __init__(self, syntax: CallSyntax, several: bool) -> None:
        self.syntax, self.several = syntax, several

    def rules(self, rule: str, name: str, schema: Schema) -> list[str]:
        """The rules of a call from its name on, `rule` first."""
        if (around := self.syntax.whole) is not None:
            opening, end = self.text(around.opening), self._end(around)
            return [f"{rule}: {self.text(name)} {opening} {_json(schema)} {end}"]
        if strange := sorted(schema.keys() - OBJECT_KEYS - {"additionalProperties"}):
            raise PromptError(f"`json_schema`: {strange[0]} is supported only where arguments are JSON")
        properties = properties_of(schema)
        required = list(schema.get("required", ()))
        parameters = [*properties, *(name for name in required if name not in properties)]
        arounds: list[tuple[Around, str]] = []
        found: list[str] = []
        for place, parameter in enumerate(parameters):
            own = {key: schema[key] for key in DEFINITIONS if key in schema} | {
                **properties.get(parameter, {})
            }
            arounds.append((self._around(own, parameter), f"{rule}_{place}_value"))
            found += self._value(*arounds[-1], own)
        for place in range(-1, len(parameters)):
            around, value = arounds[place] if place >= 0 else (self.syntax.empty, "")
            key = parameters[place] if place >= 0 else ""
            between = around.separator[len(around.close) :] if place >= 0 else self.syntax.string.opening
            options = []
            for later in range(place + 1, len(parameters)):
                options.append(f"{self.text(between, key, parameters[later])} {rule}_{later}")
                if parameters[later] in required:
                    break
            else:
                options.append(self._end(around, key))
            begins = (
                f"{self.text(key)} {self.text(around.middle, key)} {value}" if place >= 0 else self.text(name)
            )
            found.insert(0, f"{rule}{f'_{place}' if place >= 0 else ''}: {begins} ({' | '.join(options)})")
        return found

    def text(self, text: str, key: str = "", next_key: str = "") -> str:
        """A text of the samples as an expression, with these keys, and any id."""
        text = text.replace(KEY, key).replace(NEXT_KEY, next_key)
        id = next((id for id in ID_PATTERNS if id in text and self.syntax.id.endswith(id)), None)
        parts = [text] if id is None else text.split(id)
        written = [self.syntax.answer.literal(part) if part or id is None else "" for part in parts]
        return f" {ID_PATTERNS[id] if id else ''} ".join(written)

    def _end(self, around: Around, key: str = "") -> str:
        """What follows the arguments: the end of the answer, or another call."""
        ending = self.text(around.ending[len(around.close) :], key)
        if not self.several or around.following is None:
            return ending
        return f"({ending} | {self.text(around.following[len(around.close) :], key)} call)"

    def _around(self, schema: Schema, name: str) -> Around:
        """What is around the value of a parameter; PromptError for a list or an object that is not written as JSON."""
        kinds = kinds_of(schema, schema)
        if not kinds or "string" in kinds:
            return self.syntax.string
        samples = {"array": ["a"], "object": {"a": ["b"]}}
        if not all(self.syntax.reads_json(samples[kind]) for kind in kinds & samples.keys()):
            raise PromptError(
                f"`json_schema`: {name}: lists and objects are not written as JSON in these calls"
            )
        return self.syntax.other

    def _value(self, around: Around, rule: str, schema: Schema) -> list[str]:
        """The rules of a value and what closes it."""
        if around.is_json:
            return [f"{rule}: {_json(schema)}"]
        close = around.close.lstrip()
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list):
            texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
            return [f"{rule}: ({' | '.join(map(self.text, texts))}) {self.text(around.close)}"]
        options = schema.get("anyOf") or [schema]
        strings = [option for option in options if kinds_of(option, schema) <= {"string"}]
        if strange := sorted({key for option in strings for key in option} - TEXT_KEYS):
            raise PromptError(f"`json_schema`: {strange[0]} is not supported of a string without quotes")
        bounds = [(option.get("minLength", 0), option.get("maxLength", "")) for option in strings]
        least, most = bounds[0] if len(options) == 1 else (0, "")
        pattern = f"/(?s:.{{{least},{most}}})/" if least or most != "" else ANY
        return [self.syntax.answer.until(rule, close, pattern)]


def _json(schema: Schema) -> str:
    """A document of a schema as an expression."""
    compiled = compile_grammar(json_schema=schema)
    assert compiled is not None
    return nested(compiled.lark)
