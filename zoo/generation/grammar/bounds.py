"""Bounds on schemas and grammars.

Beyond the numbers here llguidance takes many seconds, or more stack than a thread has, which ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from zoo.errors import PromptError

MOST_CHARACTERS = 2**18  # of a regular expression, a grammar, or the texts and names of a JSON Schema
MOST_RULES = 1000  # of a grammar, its terminals included
MOST_VALUES = 10_000  # texts, numbers and flags in a JSON Schema
MOST_REFERENCES = 500  # different $ref in it
MOST_PATTERNS = 100  # names in its patternProperties
DIGITS = 15

DOCUMENTS = ("const", "enum")  # keywords whose values are documents, not schemas
IGNORED = ("default", "examples")  # keywords that constrain nothing


def parts(value: object, *, schema: bool = True) -> Iterator[Any]:
    """Yields a schema and what it contains, for counting; of keywords that hold documents (`const`, `enum`) only the values."""
    if isinstance(value, Mapping):
        if schema:
            yield value
        for key, inner in value.items():
            if not schema or key not in IGNORED:
                yield from parts(inner, schema=schema and key not in DOCUMENTS)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from parts(inner, schema=schema)
    else:
        yield value


def check_size(name: str, schema: object) -> None:
    """PromptError that names the setting for a schema with more of something than llguidance is given."""
    values = patterns = characters = 0
    references = set()
    for part in parts(schema):
        if isinstance(part, Mapping):
            characters += sum(map(len, part))
            references.add(str(part.get("$ref")))
            if isinstance(names := part.get("patternProperties"), Mapping):
                patterns += len(names)
        else:
            values += 1
            characters += len(part) if isinstance(part, str) else 0
        for what, number, most in (
            ("values", values, MOST_VALUES),
            ("names in patternProperties", patterns, MOST_PATTERNS),
            ("characters", characters, MOST_CHARACTERS),
            ("different $ref", len(references), MOST_REFERENCES),
        ):
            if number > most:
                raise PromptError(f"`{name}` has more than {most} {what}")


def check_number(value: float) -> None:
    """PromptError for a number of more digits than llguidance keeps, which is double precision."""
    exact = isinstance(value, int) and abs(value) <= 2**53
    if not exact and len(Decimal(str(value)).normalize().as_tuple().digits) > DIGITS:
        raise PromptError(f"`json_schema`: {value} has more than the {DIGITS} digits that can be kept")


def check_count(schema: Mapping[str, Any]) -> None:
    """PromptError where a document could have too few properties because a name comes twice.

    A grammar has no memory of the names that came before, but for those it requires, in their order.
    """
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
