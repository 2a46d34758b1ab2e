"""A grammar of `llguidance` from a setting: `json_schema`, `regex` or `grammar`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.grammar.bounds import MOST_CHARACTERS, MOST_RULES, check_size
from zoo.generation.grammar.schema import prepare_schema

# With this option the grammar allows all tokens that fit, and never asks how the tokenizer would encode a text that is
# certain: many tokenizers cannot encode the middle of a text.
NO_FORCING = '%llguidance {"no_forcing": true}'
RULE = re.compile(r"^[ \t]*[?!]?[\w.-]+[ \t]*(?:::=|:)", re.MULTILINE)
SCHEMA = re.compile(r"%json\s*")

NO_TOKEN = "no token of the vocabulary goes on with a text that fits"
ONE_OF = "oneOf is supported only where it is certain that no document fits two of its schemas"
# Plainer wording of llguidance's messages, by how these begin.
PLAIN_MESSAGES = {"NoExtension": NO_TOKEN, "oneOf constraints": ONE_OF}
UNSUPPORTED = re.compile(r"Unimplemented keys: (\[.*\])$")
PLACE = re.compile(r"^line \d+, column \d+: ")


@frozen()
class Grammar(Frozen):
    """What a constraint allows. `name` is the setting that gave it, `lark` the grammar in llguidance's Lark."""

    name: str
    lark: str


def compile_grammar(
    *,
    json_schema: Mapping[str, Any] | str | bool | None = None,
    regex: str | None = None,
    grammar: str | None = None,
) -> Grammar | None:
    """The grammar of one of the settings, None where none of them is given; PromptError for an unsupported one.

    `json_schema` is a JSON Schema or its text ({} allows any document), `regex` an expression that matches the text as a
    whole, `grammar` one of Lark, or of GBNF, which is known by its "::=".

    >>> compile_grammar(regex="[0-9]{4}").name
    'regex'
    >>> compile_grammar(regex="[0-9")
    Traceback (most recent call last):
    zoo.errors.PromptError: `regex`: unclosed character class
    >>> compile_grammar(json_schema={"type": "array", "contains": {}})
    Traceback (most recent call last):
    zoo.errors.PromptError: `json_schema`: contains is not supported
    """
    if json_schema is not None:
        try:
            text = prepare_schema(json_schema)
        except RecursionError:
            raise PromptError("`json_schema`: nested too deeply") from None
        from llguidance import LLMatcher

        plain = LLMatcher.grammar_from_json_schema(text)
        return _checked("json_schema", f"{NO_FORCING}\nstart: %json {text}", plain)
    if regex is not None:
        from llguidance import LLMatcher

        _check_text("regex", regex)
        plain = LLMatcher.grammar_from_regex(regex)
        return _checked("regex", f"{NO_FORCING}\n{json.loads(plain)['grammars'][0]['lark_grammar']}", plain)
    if grammar is None:
        return None
    _check_text("grammar", grammar)
    if next(itertools.islice(RULE.finditer(grammar), MOST_RULES, None), None):
        raise PromptError(f"`grammar` has more than {MOST_RULES} rules")
    for place in SCHEMA.finditer(grammar):
        with suppress(ValueError, RecursionError):  # llguidance says what is wrong with it
            check_size("grammar", json.JSONDecoder().raw_decode(grammar, place.end())[0])
    if "::=" in grammar:
        from llguidance.gbnf_to_lark import any_to_lark

        try:
            grammar = any_to_lark(grammar)
        except Exception as error:
            raise PromptError(f"`grammar`: GBNF: {error}") from None
    # The option stands at the end, so that a message tells the line as the file has it.
    return _checked("grammar", f"{grammar}\n{NO_FORCING}\n")


@lru_cache(16)
def _checked(name: str, grammar: str, plain: str | None = None) -> Grammar:
    """A grammar that llguidance accepts; PromptError, naming the setting, for another.

    `plain` is the grammar without the options around it. It is checked first: its messages name lines of the input.
    """
    from llguidance import LLMatcher

    for text in filter(None, (plain, grammar)):
        wrong, messages = LLMatcher.validate_grammar_with_warnings(text)
        if wrong:
            told = error_line(messages[0])
            raise PromptError(f"`{name}`: {PLACE.sub('', told) if text is plain else told}")
    return Grammar(name, grammar)


def error_line(message: str) -> str:
    """The error of a grammar in one line, from a message of several."""
    lines = message.strip().splitlines() or ["it cannot be followed"]
    for start, told in PLAIN_MESSAGES.items():
        if lines[0].startswith(start):
            return told
    if (unsupported := UNSUPPORTED.match(lines[0])) is not None:
        keywords = json.loads(unsupported[1])
        return f"{', '.join(keywords)} {'is' if len(keywords) == 1 else 'are'} not supported"
    first = re.sub(r"^(?:at )?(\d+)\((\d+)\): ", r"line \1, column \2: ", lines[0])
    wrong = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), None)
    place = PLACE.match(first)
    return first if wrong is None else f"{place[0] if place else ''}{wrong}"


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise PromptError(f"`{name}` must be text, got {text!r:.60}")
    if len(text) > MOST_CHARACTERS:
        raise PromptError(f"`{name}` has {len(text)} characters, more than {MOST_CHARACTERS}")
