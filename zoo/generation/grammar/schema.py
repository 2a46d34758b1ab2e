"""Writes a JSON Schema as llguidance takes it: what it reads differently is rewritten, and what it ignores is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from zoo.errors import PromptError
from zoo.generation.grammar.bounds import DIGITS, check_count, check_number, check_size, parts
from zoo.generation.grammar.formats import BASE64, keywords_of
from zoo.generation.grammar.patterns import pattern_keywords, rust_pattern

# No white space between the parts of a document, which a model could otherwise repeat without end.
COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
ESCAPES = 'nrbtf\\"'  # the characters that may follow a backslash

# Keywords whose value is a schema or a list of schemas, and those whose value has schemas by name.
SCHEMAS = frozenset(
    ("allOf", "anyOf", "oneOf", "items", "prefixItems", "additionalItems", "additionalProperties")
)
NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions"))
NAMING = frozenset(("properties", "patternProperties", "required"))
# Of the names in propertyNames, which are all strings.
ANNOTATIONS = frozenset(("type", "title", "description"))


def prepare_schema(schema: Mapping[str, Any] | str | bool) -> str:
    """The text that llguidance is given for a schema; PromptError for one that is malformed, too large or unsupported."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise PromptError(f"`json_schema`: not JSON: {error}") from None
    if schema is False:
        raise PromptError("`json_schema`: no document fits it")
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise PromptError(f"`json_schema` must be a JSON object, true or false, got {schema!r:.60}")
    if "x-guidance" in schema:
        raise PromptError("`json_schema`: x-guidance is no keyword of JSON Schema")
    check_size("json_schema", schema)
    rewritten = _Rewriting(schema).of(schema)
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


def _has_open_names(schema: object) -> bool:
    """Whether some object may have names that the schema does not list.

    llguidance would let a given name come again among these, in the spelling \\u0061, and escape its own schema.
    """
    return any(
        not NAMING.isdisjoint(part) and part.get("additionalProperties") is not False
        for part in parts(schema)
        if isinstance(part, Mapping)
    )


def _strict_bound(keyword: str, value: Any, schema: Mapping[str, Any], sign: int) -> dict[str, Any]:
    """An exclusive bound as an inclusive one, the next number of `DIGITS` digits.

    It works around a fault of llguidance: where the exclusive bound nearer to zero is a whole number, it allows that number.
    In draft 4 the value is a flag that makes the bound of `keyword` exclusive.
    """
    if isinstance(value, bool):
        value = schema[keyword] if value else None
    if value is None:
        return {}
    if schema.get("type") == "integer" or value % 1 or value * sign < 0 or abs(value) >= 10**DIGITS:
        return {f"exclusive{keyword.capitalize()}": value}
    exact = Decimal(value)
    return {keyword: float(exact + sign * Decimal(1).scaleb(exact.adjusted() + 1 - DIGITS))}


class _Rewriting:
    """The rewriting of one schema, with what depends on the whole of it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        """PromptError for draft 3 and those before it, which differ too much."""
        if re.search(r"draft-0[0-3]", str(root.get("$schema"))):
            raise PromptError("`json_schema`: drafts before 4 are not supported")
        self.root = root
        # A schema may stand below a keyword of no meaning, such as components/schemas, for a $ref to find it.
        references = (str(part.get("$ref")) for part in parts(root) if isinstance(part, Mapping))
        self.referenced = {reference.split("/")[1] for reference in references if reference.startswith("#/")}

    def of(self, schema: object) -> Any:
        """The rewritten schema. Other values stay unchanged: llguidance reports what is wrong with them."""
        if not isinstance(schema, Mapping):
            return schema
        kept: dict[str, Any] = {}
        added: list[dict[str, Any]] = []
        for keyword, value in schema.items():
            try:
                rewritten = self._rewrite(keyword, value, schema)
            except (AttributeError, KeyError, TypeError):
                raise PromptError(f"`json_schema`: {keyword} is malformed") from None
            if rewritten is not None:
                added.append(rewritten)
            elif keyword in NAMED and isinstance(value, Mapping):
                regex = rust_pattern if keyword == "patternProperties" else str
                kept[keyword] = {regex(name): self.of(inner) for name, inner in value.items()}
            elif keyword in SCHEMAS or (keyword in self.referenced and keyword not in NAMED):
                is_list = isinstance(value, list | tuple)
                kept[keyword] = [self.of(inner) for inner in value] if is_list else self.of(value)
            else:
                kept[keyword] = value
        for keywords in added:
            if kept.keys().isdisjoint(keywords):
                kept.update(keywords)
            elif isinstance(others := kept.get("allOf", []), list):  # llguidance reports another value
                kept["allOf"] = [*others, keywords]
        return kept

    def _rewrite(self, keyword: str, value: Any, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The keywords that stand for one which llguidance lacks or reads differently; None for another keyword."""
        match keyword:
            case "exclusiveMinimum":
                return _strict_bound("minimum", value, schema, 1)
            case "exclusiveMaximum":
                return _strict_bound("maximum", value, schema, -1)
            case "pattern":
                return pattern_keywords(value)
            case "format":
                return keywords_of(value)
            case "contentEncoding" if value == "base64":
                return BASE64
            case "contentMediaType" if value != "application/json":  # JSON within a text could be checked
                return {}
            case "contentEncoding" | "contentMediaType":
                raise PromptError(f"`json_schema`: {keyword} {value!r:.60} cannot be enforced")
            case "propertyNames":
                return self._names(value)
            case "discriminator" if (
                "oneOf" in schema and isinstance(value, Mapping) and "propertyName" in value
            ):
                # OpenAPI's: a document is read by this property, so that it fits no other schema of the `oneOf`.
                return {"required": [value["propertyName"]]}
            case (
                "discriminator" | "uniqueItems"
            ):  # a grammar cannot compare items; pydantic's `set` joins equal ones
                return {}
        return None

    def _names(self, value: Any) -> dict[str, Any]:
        """What stands for `propertyNames`: properties, or one pattern; PromptError for other forms."""
        if (reference := re.fullmatch(r"#/(\$defs|definitions)/([^/]+)", value.get("$ref", ""))) is not None:
            value = self.root[reference[1]][reference[2]]
        rules = {keyword: rule for keyword, rule in self.of(value).items() if keyword not in ANNOTATIONS}
        if set(rules) in ({"enum"}, {"const"}):
            names = [name for name in rules.get("enum", [rules.get("const")]) if isinstance(name, str)]
            return {"allOf": [{"properties": dict.fromkeys(names, True), "additionalProperties": False}]}
        if set(rules) <= {"minLength", "maxLength"}:
            least, most = rules.get("minLength", 0), rules.get("maxLength", "")
            rules = {"pattern": f"^(?s:.{{{least},{most}}})$"}
        if set(rules) != {"pattern"}:
            raise PromptError(
                "`json_schema`: propertyNames is supported with enum, with pattern, or with lengths alone"
            )
        return {"allOf": [{"patternProperties": {rules["pattern"]: True}, "additionalProperties": False}]}
