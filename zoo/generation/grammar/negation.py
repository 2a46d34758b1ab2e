"""The negation of a schema, for `not`, `if` and `oneOf`, which llguidance lacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.errors import PromptError
from zoo.generation.grammar.patterns import pattern_of_others

ANNOTATIONS = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
    )
)
TYPES = ("null", "boolean", "number", "string", "array", "object")


def negated(schema: Any) -> Any:
    """A schema that no document of `schema` fits; PromptError for a keyword that cannot be negated.

    Every document fits one of the two, with these exceptions, which fit neither: fractions, arrays and objects where the
    schema names types, or values, of their kind.

    >>> negated({"required": ["a"]})
    {'anyOf': [{'type': 'object', 'properties': {'a': False}}]}
    """
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, Mapping):
        raise PromptError(f"`json_schema`: {schema!r:.60} is not a schema")
    found = []
    for keyword, value in schema.items():
        if keyword in _NEGATIONS:
            found += _NEGATIONS[keyword](value)
        elif keyword not in ANNOTATIONS:
            raise PromptError(
                f"`json_schema`: {keyword} cannot be negated, which `not`, `if` and `oneOf` ask for"
            )
    return {"anyOf": found} if found else False


def _other_types(named: str | Sequence[str]) -> list[Any]:
    names = {
        "number" if name == "integer" else name for name in ([named] if isinstance(named, str) else named)
    }
    rest = [name for name in TYPES if name not in names]
    return [{"type": rest}] if rest else []


def _other_values(values: Iterable[Any]) -> list[Any]:
    """Schemas of values that are none of these."""
    values = list(values)
    numbers = sorted(
        {value for value in values if isinstance(value, int | float) and not isinstance(value, bool)}
    )
    texts = [value for value in values if isinstance(value, str)]
    flags = [flag for flag in (True, False) if not any(value is flag for value in values)]
    found: list[Any] = [{"enum": flags}] if flags else []
    found += [] if None in values else [{"type": "null"}]
    found.append({"type": "string", **({"pattern": pattern_of_others(texts)} if texts else {})})
    if not numbers:
        found.append({"type": "number"})
    else:
        found += [{"type": "number", "exclusiveMaximum": numbers[0]}]
        found += [
            {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}
            for low, high in itertools.pairwise(numbers)
        ]
        found += [{"type": "number", "exclusiveMinimum": numbers[-1]}]
    found += [] if any(isinstance(value, list) for value in values) else [{"type": "array"}]
    found += [] if any(isinstance(value, Mapping) for value in values) else [{"type": "object"}]
    return found


def _bound(type: str, opposite: str, step: int = 0) -> Any:
    """The negation of a bound: the opposite one, which is `step` further; none where that is below zero items."""
    return lambda value: [{"type": type, opposite: value + step}] if not step or value + step >= 0 else []


_NEGATIONS: dict[str, Any] = {
    "type": _other_types,
    "const": lambda value: _other_values([value]),
    "enum": _other_values,
    "required": lambda names: [{"type": "object", "properties": {name: False}} for name in names],
    "properties": lambda named: [
        {"type": "object", "required": [name], "properties": {name: negated(schema)}}
        for name, schema in named.items()
    ],
    "not": lambda schema: [schema],
    "allOf": lambda schemas: [negated(schema) for schema in schemas],
    "anyOf": lambda schemas: [{"allOf": [negated(schema) for schema in schemas]}],
    "minimum": _bound("number", "exclusiveMaximum"),
    "maximum": _bound("number", "exclusiveMinimum"),
    "exclusiveMinimum": _bound("number", "maximum"),
    "exclusiveMaximum": _bound("number", "minimum"),
    "minLength": _bound("string", "maxLength", -1),
    "maxLength": _bound("string", "minLength", 1),
    "minItems": _bound("array", "maxItems", -1),
    "maxItems": _bound("array", "minItems", 1),
    "minProperties": _bound("object", "maxProperties", -1),
    "maxProperties": _bound("object", "minProperties", 1),
}
