"""The values that a model writes: JSON, Python literals, and text that a JSON schema gives a type."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 2**20  # characters of a Python literal: its syntax tree takes about a hundred times their memory
DEEPEST = 16  # references that a schema's type may be behind
BOOLEANS = {"true": True, "false": False}
NULLS = ("null", "none")
KINDS = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", list: "array", dict: "object",
}  # fmt: skip
_NAMES = {**BOOLEANS, "null": None}  # JSON's constants, which some templates write within Python's lists

_MALFORMED = object()


def _finite(number: Any) -> float:
    """A number from its text; ValueError for NaN and infinity, which are not JSON."""
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is not JSON")
    return value


JSON = json.JSONDecoder(
    strict=False, parse_constant=_finite, parse_float=_finite
)  # line breaks within strings, too


def read_json(text: str) -> Any:
    """The value of JSON; ValueError where it is malformed."""
    try:
        return JSON.decode(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error


def read_literal(text: str) -> Any:
    """The value of a Python literal that JSON can hold, tuples as lists; ValueError for anything else."""
    return literal_of(parsed_python(text, "eval").body)


def read_value(text: str) -> Any:
    """The value of JSON or else of a Python literal; ValueError where it is neither."""
    try:
        return read_json(text)
    except ValueError:
        return read_literal(text)


def parsed_python(text: str, mode: str) -> Any:
    """The syntax tree of Python code, of which nothing is run; ValueError where it is malformed or too large."""
    if len(text) > LONGEST:
        raise ValueError("Python code that is too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            return ast.parse(text.strip(), mode=mode)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("malformed Python") from error


def literal_of(node: ast.AST) -> Any:
    """The value of a node of a syntax tree; ValueError for one that is no literal or that JSON cannot hold."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return _finite(value) if isinstance(value, float) else value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [literal_of(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            names = [literal_of(key) if key is not None else None for key in keys]
            if all(isinstance(name, str) for name in names):
                return dict(zip(names, map(literal_of, values), strict=True))
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
    raise ValueError("no literal that JSON can hold")


def typed_value(text: str, schema: object, root: object = None) -> Any:
    """The value of a parameter that a model wrote as text, by its JSON schema, a part of the schema `root`.

    A string stays text. Booleans and null may have any case; objects and arrays are JSON or Python literals. Of several
    types, such as "string" and "integer", the text is a string where it is none of the others. A value of a type that is not
    declared is JSON where it can be read as such, else text.

    >>> from zoo.generation.chat.values import typed_value
    >>> optional = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    >>> typed_value("3.10", optional), typed_value("True", {"type": "boolean"}), typed_value("3.10", {})
    ('3.10', True, 3.1)
    """
    kinds, plain = kinds_of(schema, root), text.strip()
    if kinds == {"string"}:
        return text
    if "null" in kinds and plain.lower() in NULLS:
        return None
    if "boolean" in kinds and plain.lower() in BOOLEANS:
        return BOOLEANS[plain.lower()]
    written = [_attempt(read_json, plain), _attempt(read_literal, plain) if kinds else _MALFORMED]
    for value in written:
        if value is not _MALFORMED and (not kinds or _fits(value, kinds)):
            return int(value) if isinstance(value, float) and "number" not in kinds and kinds else value
    if not kinds or "string" in kinds:
        return text
    numbers = [_attempt(read, plain) for read in (int, _finite) if kinds & {"integer", "number"}]
    return next((value for value in (*written, *numbers) if value is not _MALFORMED), text)


def ends_in_string(text: str, quotes: str) -> bool:
    """Whether JSON or Python code ends within a string, which one of `quotes` begins and ends."""
    within = ""  # the quote that ends the string under way
    for found in re.finditer(rf"\\.|[{quotes}]", text, re.DOTALL):
        if found[0] == within:
            within = ""
        elif not within and found[0] in quotes:
            within = found[0]
    return bool(within)


def _attempt(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        return _MALFORMED


def _fits(value: Any, kinds: frozenset[str]) -> bool:
    """Whether a value that is no string has one of these types. A whole number is an integer, however it is written."""
    kind = KINDS[type(value)]
    if kind in ("integer", "number"):
        return "number" in kinds or ("integer" in kinds and value == int(value))
    return kind != "string" and kind in kinds


def kinds_of(schema: object, root: object = None, depth: int = 0) -> frozenset[str]:
    """The types that a JSON schema allows, by their names; empty where it declares none. `$ref` is looked up in `root`."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return frozenset()
    if isinstance(reference := schema.get("$ref"), str):
        return kinds_of(_referred(reference, root), root, depth + 1)
    declared = schema.get("type")
    if isinstance(declared, str | list):
        found = frozenset(
            [declared] if isinstance(declared, str) else filter(lambda k: isinstance(k, str), declared)
        )
    elif values := [schema["const"]] if "const" in schema else _listed(schema, "enum"):
        found = frozenset(KINDS.get(type(value), "string") for value in values)
    else:
        options = _listed(schema, "anyOf") or _listed(schema, "oneOf") or _listed(schema, "allOf")
        parts = [kinds_of(option, root, depth + 1) for option in options]
        if "allOf" in schema:
            parts = [part for part in parts if part]
            found = frozenset.intersection(*parts) if parts else frozenset()
        else:
            found = frozenset().union(*parts) if all(parts) else frozenset()
    return found | {"null"} if found and schema.get("nullable") is True else found


def _listed(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _referred(reference: str, root: object) -> Any:
    """What a reference "#/…" stands for in a schema; None where there is no such part."""
    for step in reference.removeprefix("#").split("/")[1:]:
        root = root.get(step) if isinstance(root, Mapping) else None
    return root
