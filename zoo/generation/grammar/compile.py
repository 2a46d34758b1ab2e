"""Compiles a JSON Schema, an expression or a grammar to a grammar of `llguidance`; an error is one line."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen

# With this option the grammar allows all tokens that fit, and never asks how the tokenizer would encode a text that is
# certain: many tokenizers cannot encode the middle of a text.
NO_FORCING = '%llguidance {"no_forcing": true}'
# No white space between the parts of a document, which a model could otherwise repeat without end.
COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
DOCUMENTS = ("const", "enum")  # keywords whose values are documents, not schemas
IGNORED = ("default", "examples")  # keywords that constrain nothing
DIGITS = 15

# Beyond these, llguidance takes many seconds, or more stack than a thread has, which ends the process.
MOST_CHARACTERS = 2**18  # of a regular expression or grammar
MOST_RULES = 1000  # of a grammar, its terminals included
MOST_VALUES = 10_000  # texts, numbers and flags in a JSON Schema
MOST_REFERENCES = 500  # different $ref in it
MOST_PATTERNS = 100  # names in its patternProperties
RULE = re.compile(r"^[ \t]*[?!]?[\w.-]+[ \t]*(?:::=|:)", re.MULTILINE)

NO_TOKEN = "no token of the vocabulary goes on with a text that fits"
# Plain words for messages of llguidance, by their beginnings.
PLAIN_MESSAGES = {
    "NoExtension": NO_TOKEN,
    "oneOf constraints": "oneOf is supported only where it is certain that no document fits two of its schemas",
}
PLACE = re.compile(r"^line \d+, column \d+: ")

SCHEMA = re.compile(r"%json\s*")


@frozen()
class Grammar(Frozen):
    """What a constraint allows. `name` is the setting that gave it, `lark` the grammar in llguidance's Lark."""

    name: str
    lark: str


def compile_grammar(
    *,
    json_schema: Mapping[str, Any] | str | None = None,
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
    >>> compile_grammar(json_schema={"type": "array", "uniqueItems": True})
    Traceback (most recent call last):
    zoo.errors.PromptError: `json_schema`: Unimplemented keys: ["uniqueItems"]
    """
    if json_schema is not None:
        try:
            return _of_schema(json_schema)
        except RecursionError:
            raise PromptError("`json_schema`: nested too deeply") from None
    if regex is not None:
        return _of_regex(regex)
    return None if grammar is None else _of_grammar(grammar)


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
    first = re.sub(r"^(?:at )?(\d+)\((\d+)\): ", r"line \1, column \2: ", lines[0])
    wrong = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), None)
    place = PLACE.match(first)
    return first if wrong is None else f"{place[0] if place else ''}{wrong}"


def _of_schema(schema: Mapping[str, Any] | str) -> Grammar:
    from llguidance import LLMatcher

    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise PromptError(f"`json_schema`: not JSON: {error}") from None
    if not isinstance(schema, Mapping):
        raise PromptError(f"`json_schema` must be a JSON object, got {schema!r:.60}")
    if "x-guidance" in schema:
        raise PromptError("`json_schema`: x-guidance is no keyword of JSON Schema")
    _check_size("json_schema", schema)
    for part in _parts(schema):
        _check_number(part)
        _check_count(part)
    try:
        text = json.dumps({**schema, "x-guidance": COMPACT}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PromptError(f"`json_schema`: not JSON: {error}") from None
    plain = LLMatcher.grammar_from_json_schema(text)
    return _checked("json_schema", f"{NO_FORCING}\nstart: %json {text}", plain)


def _parts(value: Any, *, schema: bool = True) -> Iterator[Any]:
    """Yields a schema and what it contains, for counting; of keywords that hold documents (`const`, `enum`) only the values."""
    if isinstance(value, Mapping):
        if schema:
            yield value
        for key, inner in value.items():
            if not schema or key not in IGNORED:
                yield from _parts(inner, schema=schema and key not in DOCUMENTS)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _parts(inner, schema=schema)
    else:
        yield value


def _check_size(name: str, schema: Mapping[str, Any]) -> None:
    """PromptError that names the setting for a schema with more of something than llguidance is given."""
    values = patterns = 0
    references = set()
    for part in _parts(schema):
        if isinstance(part, Mapping):
            references.add(str(part.get("$ref")))
            if isinstance(names := part.get("patternProperties"), Mapping):
                patterns += len(names)
        else:
            values += 1
        for what, number, most in (
            ("values", values, MOST_VALUES),
            ("names in patternProperties", patterns, MOST_PATTERNS),
            ("different $ref", len(references), MOST_REFERENCES),
        ):
            if number > most:
                raise PromptError(f"`{name}` has more than {most} {what}")


def _check_number(value: Any) -> None:
    """PromptError for a number of more digits than llguidance keeps, which is double precision."""
    if not isinstance(value, int | float) or (isinstance(value, int) and abs(value) <= 2**53):
        return
    if len(Decimal(str(value)).normalize().as_tuple().digits) > DIGITS:
        raise PromptError(f"`json_schema`: {value} has more than the {DIGITS} digits that can be kept")


def _check_count(schema: Any) -> None:
    """PromptError where a document could have too few properties because a name comes twice.

    A grammar has no memory of the names that came before, but for those it requires, in their order.
    """
    if not isinstance(schema, Mapping):
        return
    least, required = schema.get("minProperties"), schema.get("required")
    if not isinstance(least, int | float) or (
        schema.get("additionalProperties") is False and not schema.get("patternProperties")
    ):
        return
    certain = len(set(required)) if isinstance(required, list | tuple) else 0
    if least > certain + 1:
        raise PromptError(
            f"`json_schema`: minProperties {least:g} cannot be kept: of the names, only {certain} are required, "
            "and the others could come twice"
        )


def _of_regex(regex: str) -> Grammar:
    from llguidance import LLMatcher

    if not isinstance(regex, str):
        raise PromptError(f"`regex` must be text, got {regex!r:.60}")
    _check_length("regex", regex)
    plain = LLMatcher.grammar_from_regex(regex)
    return _checked("regex", f"{NO_FORCING}\n{json.loads(plain)['grammars'][0]['lark_grammar']}", plain)


def _check_length(name: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise PromptError(f"`{name}` has {len(text)} characters, more than {MOST_CHARACTERS}")


def _of_grammar(grammar: str) -> Grammar:
    if not isinstance(grammar, str):
        raise PromptError(f"`grammar` must be text, got {grammar!r:.60}")
    _check_length("grammar", grammar)
    if next(itertools.islice(RULE.finditer(grammar), MOST_RULES, None), None):
        raise PromptError(f"`grammar` has more than {MOST_RULES} rules")
    for place in SCHEMA.finditer(grammar):
        with suppress(ValueError, RecursionError):  # llguidance says what is wrong with it
            _check_size("grammar", json.JSONDecoder().raw_decode(grammar, place.end())[0])
    if "::=" in grammar:
        from llguidance.gbnf_to_lark import any_to_lark

        try:
            grammar = any_to_lark(grammar)
        except Exception as error:
            raise PromptError(f"`grammar`: GBNF: {error}") from None
    # The option stands at the end, so that a message tells the line as the file has it.
    return _checked("grammar", f"{grammar}\n{NO_FORCING}\n")
