"""Rewrites a JSON Schema for llguidance: keywords that it lacks or reads differently are expressed by those that it has."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from zoo.errors import PromptError
from zoo.generation.grammar.bounds import DIGITS, check_count, check_number, check_size, parts
from zoo.generation.grammar.formats import BASE64, keywords_of
from zoo.generation.grammar.negation import negated
from zoo.generation.grammar.patterns import rust_pattern

# No white space between the parts of a document, which a model could otherwise repeat without end.
COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
ESCAPES = 'nrbtf\\"'  # the characters that may follow a backslash

ONE = frozenset(("items", "additionalItems", "additionalProperties"))
SEVERAL = frozenset(("allOf", "anyOf", "oneOf", "items", "prefixItems"))
NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions"))
COUNTS = frozenset(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"))
NAMING = frozenset(("properties", "patternProperties", "required"))
# Keywords that a schema may have beside any others.
INDEPENDENT = frozenset(
    (
        "$anchor",
        "$ref",
        "anyOf",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maximum",
        "maxLength",
        "minimum",
        "pattern",
    )
)


def prepare_schema(schema: Mapping[str, Any] | str | bool, *, exclusive: bool = False) -> str:
    """The text that llguidance is given for a schema; PromptError for one that is malformed, too large or unsupported.

    With `exclusive`, `oneOf` is written with negations, which can be many; llguidance itself takes it only where it sees
    that no document fits two of the schemas.
    """
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise PromptError(f"`json_schema`: not JSON: {error}") from None
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    if not isinstance(schema, Mapping):
        raise PromptError(f"`json_schema` must be a JSON object, true or false, got {schema!r:.60}")
    if "x-guidance" in schema:
        raise PromptError("`json_schema`: x-guidance is no keyword of JSON Schema")
    check_size("json_schema", schema)
    rewritten = _Rewriting(schema, exclusive).of(schema)
    if rewritten is False:
        raise PromptError("`json_schema`: no document fits it")
    check_size("json_schema", rewritten)
    for part in parts(rewritten):
        if isinstance(part, Mapping):
            check_count(part)
        elif isinstance(part, int | float):
            check_number(part)
    try:
        options = {**COMPACT, "json_allowed_escapes": ESCAPES + "u" * (not _has_open_names(rewritten))}
        return json.dumps({**rewritten, "x-guidance": options}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PromptError(f"`json_schema`: not JSON: {error}") from None


def _steps(pointer: str) -> list[str]:
    """The names of a JSON pointer that stands in a reference."""
    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]


def _has_open_names(schema: Any) -> bool:
    """Whether some object may have names that the schema does not list.

    llguidance would let a given name come again among these, in the spelling \\u0061, and escape its own schema.
    """
    return any(
        not NAMING.isdisjoint(part) and part.get("additionalProperties") is not False
        for part in parts(schema)
        if isinstance(part, Mapping)
    )


def _strict_bound(keyword: str, value: Any, schema: Mapping[str, Any], sign: int) -> list[Any]:
    """An exclusive bound as an inclusive one, the next number of `DIGITS` digits.

    Between 1, exclusive, and 1.5 llguidance allows 1: a whole number that is the bound nearer to zero. In draft 4 the
    value is a flag that makes the other keyword exclusive.
    """
    if isinstance(value, bool):
        value = schema[keyword] if value else None
    if value is None:
        return []
    if schema.get("type") == "integer" or value % 1 or value * sign < 0 or abs(value) >= 10**DIGITS:
        return [{f"exclusive{keyword.capitalize()}": value}]
    exact = Decimal(value)
    return [{keyword: float(exact + sign * Decimal(1).scaleb(exact.adjusted() + 1 - DIGITS))}]


class _Rewriting:
    """The rewriting of one schema, with what depends on the whole of it."""

    def __init__(self, root: Mapping[str, Any], exclusive: bool) -> None:
        """PromptError for draft 3 and those before it, which differ too much."""
        if re.search(r"draft-0[0-3]", str(root.get("$schema"))):
            raise PromptError("`json_schema`: drafts before 4 are not supported")
        whole = [part for part in parts(root) if isinstance(part, Mapping)]
        # A negation may leave out documents. llguidance could then take the schemas of a `oneOf` for disjoint.
        self.exclusive = exclusive or any("not" in part or "if" in part for part in whole)
        # In a schema of one resource, a dynamic anchor that stands once is an anchor like any other.
        self.one_resource = not any("$id" in part for part in whole if part is not root)
        self.dynamic = Counter(str(part.get("$dynamicAnchor")) for part in whole)
        references = [part["$ref"] for part in whole if isinstance(part.get("$ref"), str)]
        self.places = [_steps(reference[2:]) for reference in references if reference.startswith("#/")]

    def of(self, schema: Any) -> Any:
        """The rewritten schema. Other values stay unchanged: llguidance reports what is wrong with them."""
        if not isinstance(schema, Mapping):
            return schema
        found: dict[str, Any] = {}
        others: list[Any] = []
        for keyword, value in schema.items():
            rewrite = _REWRITTEN.get(keyword)
            if rewrite is not None:
                try:
                    others += rewrite(self, value, schema)
                except (AttributeError, KeyError, TypeError):
                    raise PromptError(f"`json_schema`: {keyword} is malformed") from None
            elif keyword == "oneOf" and self.exclusive and isinstance(value, list | tuple):
                others.append({"anyOf": [self._alone(index, value) for index in range(len(value))]})
            else:
                found[keyword] = self._value(keyword, value)
        for other in others:
            if other is False:
                return False
            if isinstance(other, Mapping) and other.keys() <= INDEPENDENT and found.keys().isdisjoint(other):
                found.update(other)
            elif other is not True:
                found["allOf"] = [*found.get("allOf", []), other]
        return found

    def _value(self, keyword: str, value: Any) -> Any:
        """Rewrites the value of a keyword that llguidance supports."""
        if keyword in SEVERAL and isinstance(value, list | tuple):
            return [self.of(schema) for schema in value]
        if keyword in ONE:
            return self.of(value)
        if keyword in NAMED and isinstance(value, Mapping):
            regex = rust_pattern if keyword == "patternProperties" else str
            return {regex(name): self.of(schema) for name, schema in value.items()}
        if keyword in COUNTS and isinstance(value, float) and value.is_integer():
            return int(value)
        return self._within(value, [rest for first, *rest in self.places if first == keyword])

    def _within(self, value: Any, places: list[list[str]]) -> Any:
        """Rewrites the schemas that `$ref` finds below a keyword of no meaning, such as components/schemas."""
        if [] in places:
            return self.of(value)
        if not places or not isinstance(value, Mapping):
            return value
        return {
            name: self._within(inner, [rest for first, *rest in places if first == name])
            for name, inner in value.items()
        }

    def _not(self, schema: Any) -> Any:
        return self.of(negated(schema))

    def _alone(self, index: int, schemas: Sequence[Any]) -> Any:
        """The schema at `index`, without the documents that fit any of the others."""
        others = [schema for place, schema in enumerate(schemas) if place != index]
        return {"allOf": [self.of(schemas[index]), *map(self._not, others)]}

    def _above(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        return _strict_bound("minimum", value, schema, 1)

    def _below(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        return _strict_bound("maximum", value, schema, -1)

    def _pattern(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        return [{"pattern": rust_pattern(value)}]

    def _format(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        return [keywords_of(value)]

    def _encoding(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        if value != "base64":
            raise PromptError(f"`json_schema`: contentEncoding {value!r:.60} cannot be held to")
        return [{"pattern": f"^{BASE64}$"}]

    def _media_type(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        """For JSON within a text. Other types say nothing that could be checked."""
        if value == "application/json":
            raise PromptError(f"`json_schema`: contentMediaType {value!r} cannot be held to")
        return []

    def _dependencies(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        """For each name: either it is absent, or the schema or names that depend on it hold."""
        return [
            {
                "anyOf": [
                    {"properties": {name: False}},
                    {"required": list(needed)} if isinstance(needed, list | tuple) else self.of(needed),
                ]
            }
            for name, needed in value.items()
        ]

    def _negation(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        return [self._not(value)]

    def _condition(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        then, otherwise = (self.of(schema.get(keyword, True)) for keyword in ("then", "else"))
        if then is True and otherwise is True:
            return []
        return [{"anyOf": [{"allOf": [self.of(value), then]}, {"allOf": [self._not(value), otherwise]}]}]

    def _names(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        """Rewrites `propertyNames` as properties or as one pattern; PromptError for other forms."""
        if isinstance(value, bool):
            return [] if value else [{"maxProperties": 0}]
        rules = {keyword: rule for keyword, rule in self.of(value).items() if keyword != "type"}
        if value.get("type", "string") == "string" and set(rules) == {"enum"}:
            return [{"properties": dict.fromkeys(rules["enum"], True), "additionalProperties": False}]
        if value.get("type", "string") == "string" and set(rules) == {"const"}:
            return [{"properties": {rules["const"]: True}, "additionalProperties": False}]
        if set(rules) <= {"minLength", "maxLength"}:
            least, most = rules.get("minLength", 0), rules.get("maxLength", "")
            rules = {"pattern": f"^(?s:.{{{least},{most}}})$"}
        if set(rules) != {"pattern"}:
            raise PromptError(
                "`json_schema`: propertyNames is supported with enum, with pattern, or with lengths alone"
            )
        return [{"patternProperties": {rules["pattern"]: True}, "additionalProperties": False}]

    def _contains(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        if schema.get("minContains", 1) == 0 and "maxContains" not in schema:
            return []
        raise PromptError("`json_schema`: contains is not supported")

    def _unique(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        if value is False or schema.get("maxItems", 2) < 2:
            return []
        raise PromptError("`json_schema`: uniqueItems is not supported")

    def _nothing(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        """Nothing: another keyword's rewriting reads this one."""
        return []

    def _dynamic_anchor(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        return [{"$anchor": value}]

    def _dynamic_reference(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        if self.one_resource and self.dynamic[value.removeprefix("#")] <= 1:
            return [{"$ref": value}]
        raise PromptError("`json_schema`: $dynamicRef is supported only within one resource")

    def _recursive_reference(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        if self.one_resource:
            return [{"$ref": value}]
        raise PromptError("`json_schema`: $recursiveRef is supported only within one resource")

    def _unevaluated_properties(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        named: dict[str, Any] = {}
        matching: dict[str, Any] = {}
        for part in self._evaluating(schema, "unevaluatedProperties"):
            if "additionalProperties" in part or (part is not schema and "unevaluatedProperties" in part):
                return []
            named |= dict.fromkeys(part.get("properties", ()), True)
            matching |= {rust_pattern(name): True for name in part.get("patternProperties", ())}
        also = {"patternProperties": matching} if matching else {}
        return [{"properties": named, **also, "additionalProperties": self.of(value)}]

    def _unevaluated_items(self, value: Any, schema: Mapping[str, Any]) -> list[Any]:
        first = 0
        for part in self._evaluating(schema, "unevaluatedItems"):
            items = part.get("items")
            if isinstance(items, Mapping | bool) or (isinstance(items, list) and "additionalItems" in part):
                return []
            if part is not schema and "unevaluatedItems" in part:
                return []
            first = max(first, len(part.get("prefixItems", ())), len(items or ()))
        return [{"items": [True] * first, "additionalItems": self.of(value)}]

    def _evaluating(self, schema: Mapping[str, Any], keyword: str) -> list[Mapping[str, Any]]:
        """The schema and those of its allOf; PromptError where others decide by the document what `keyword` sees."""
        found = [schema]
        for part in found:
            asked = sorted(_DECIDING.intersection(part))
            if asked:
                raise PromptError(f"`json_schema`: {keyword} is not supported beside {asked[0]}")
            found += [inner for inner in part.get("allOf", ()) if isinstance(inner, Mapping)]
        return found


_DECIDING = frozenset(
    ("anyOf", "oneOf", "if", "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas", "contains")
)
_REWRITTEN: dict[str, Callable[[_Rewriting, Any, Mapping[str, Any]], list[Any]]] = {
    "exclusiveMinimum": _Rewriting._above,
    "exclusiveMaximum": _Rewriting._below,
    "pattern": _Rewriting._pattern,
    "format": _Rewriting._format,
    "contentEncoding": _Rewriting._encoding,
    "contentMediaType": _Rewriting._media_type,
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), _Rewriting._dependencies),
    "not": _Rewriting._negation,
    "if": _Rewriting._condition,
    "propertyNames": _Rewriting._names,
    "contains": _Rewriting._contains,
    "uniqueItems": _Rewriting._unique,
    **dict.fromkeys(("then", "else", "minContains", "maxContains", "$recursiveAnchor"), _Rewriting._nothing),
    "$dynamicAnchor": _Rewriting._dynamic_anchor,
    "$dynamicRef": _Rewriting._dynamic_reference,
    "$recursiveRef": _Rewriting._recursive_reference,
    "unevaluatedProperties": _Rewriting._unevaluated_properties,
    "unevaluatedItems": _Rewriting._unevaluated_items,
}
