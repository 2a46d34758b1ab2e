"""JSON schemas like those of JSON-Schema-Test-Suite, and whether a text is a document of one."""

import datetime
import ipaddress
import json
import random
import re
import urllib.parse
import uuid
from decimal import Decimal, InvalidOperation

import jsonschema

WORD = {"type": "string", "maxLength": 5}
FLAG = {"type": "boolean"}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def closed(required=None, **properties):
    """An object of these properties and no others, all of them required unless said otherwise."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


TYPES = [{"type": name} for name in ("null", "boolean", "integer", "number", "string", "array", "object")]
TYPES += [
    {"type": ["null", "boolean"]},
    {"type": ["integer", "string"], "maxLength": 3},
    {"type": ["array", "null"], "items": FLAG, "maxItems": 2},
    {"type": ["object", "number"], "additionalProperties": FLAG, "maxProperties": 1},
    {},
    {"title": "anything", "description": "no limits", "default": 3, "examples": [1]},
]

CONSTANTS = (None, True, False, 0, -3, 2.5, "", "a", 'say "hi"', "back\\slash", "line\nbreak", "\u0001", [])
VALUES = [{"const": value} for value in CONSTANTS]
VALUES += [
    {"const": {}},
    {"const": [1, [2, {"a": None}]]},
    {"const": {"a": {"b": [True, "é"]}, "c": 1}},
    {"const": "héllo 你好 😀 \u2028"},
    {"enum": ["red", "green", "blue"]},
    {"enum": [1, "1", None, True, [1], {"a": 1}]},
    {"enum": ["a", "ab", "abc", ""]},
    {"enum": ["\\", '"', "/", "\b\f\t\r"]},
    {"enum": [0.5, -0.25, 1e3, 9007199254740991]},
    {"type": "string", "enum": ["x", 1, None]},
    {"type": "integer", "enum": [1, 2, "three"]},
    {"enum": ["你", "好", "é", "e\u0301", "👩‍👩‍👧"]},
]

STRINGS = [
    {"type": "string", "maxLength": 0},
    {"type": "string", "minLength": 3, "maxLength": 3},
    {"type": "string", "minLength": 2, "maxLength": 9},
    {"type": "string", "minLength": 30, "maxLength": 40},
    {"type": "string", "pattern": "^[a-z]{2,5}$"},
    {"type": "string", "pattern": "^a+b?$", "maxLength": 12},
    {"type": "string", "pattern": "^(foo|bar)(-[0-9]+)?$", "maxLength": 10},
    {"type": "string", "pattern": "[0-9]", "maxLength": 6},
    {"type": "string", "pattern": "^\\d{3}-\\w{2}$"},
    {"type": "string", "pattern": "^[^\\s]{1,4}$"},
    {"type": "string", "pattern": '^["\\\\/]{1,3}$'},
    {"type": "string", "pattern": "^[é你😀]{1,4}$"},
    {"type": "string", "pattern": "^\\S+@\\S+$", "maxLength": 15},
    {"type": "string", "pattern": "^.$"},
    {"type": "string", "pattern": "^\\n?x$"},
    {"type": "string", "pattern": "^(?:a|b)*c$", "minLength": 2, "maxLength": 6},
    *(
        {"type": "string", "format": name, "maxLength": 60}
        for name in ("date", "time", "date-time", "uuid", "ipv4")
    ),
    *({"type": "string", "format": name, "maxLength": 60} for name in ("ipv6", "hostname", "uri")),
    *(
        {"type": "string", "format": name}
        for name in ("date", "time", "date-time", "uuid", "ipv4", "hostname")
    ),
    {"type": "string", "format": "uri", "minLength": 1, "maxLength": 20},
    {"type": "string", "format": "base64", "maxLength": 16},
    {"type": "string", "contentEncoding": "base64", "maxLength": 16},
    {"type": "string", "pattern": "^\\S.\\s$"},
    {"type": "string", "pattern": "^[[\\]&&~]{2}$"},
]

NUMBERS = [
    {"type": "integer", "minimum": 0, "maximum": 9},
    {"type": "integer", "minimum": -5, "maximum": 5},
    {"type": "integer", "minimum": 1, "maximum": 1},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2},
    {"type": "integer", "minimum": 95, "maximum": 1005},
    {"type": "integer", "minimum": -1234, "maximum": -99},
    {"type": "integer", "minimum": 10**12, "maximum": 10**12 + 500},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1000},
    {"type": "integer", "multipleOf": 5, "minimum": -100, "maximum": 100},
    {"type": "integer", "minimum": 1.5, "maximum": 3.5},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "minimum": -1.5, "maximum": 2.25},
    {"type": "number", "minimum": 99.9, "maximum": 100.1},
    {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 20},
    {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 2},
    {"type": "number", "maximum": -3},
    {"type": "number", "minimum": 1000},
    {"type": "integer", "maximum": 20},
    {"type": "integer", "exclusiveMinimum": -4},
    {"minimum": 3, "type": ["integer", "null"], "maximum": 4},
    {"type": "integer", "format": "int32"},
]

ARRAYS = [
    {"type": "array", "items": FLAG},
    {"type": "array", "items": DIGIT, "maxItems": 0},
    {"type": "array", "items": DIGIT, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": WORD, "minItems": 1, "maxItems": 3},
    {"type": "array", "items": {"type": "array", "items": FLAG, "maxItems": 2}, "maxItems": 3},
    {"type": "array", "prefixItems": [DIGIT, WORD, FLAG], "items": False},
    {"type": "array", "prefixItems": [DIGIT, WORD], "items": False, "minItems": 2},
    {"type": "array", "prefixItems": [DIGIT], "items": FLAG, "maxItems": 4},
    {"type": "array", "prefixItems": [FLAG, FLAG], "minItems": 1, "maxItems": 2},
    {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 5, "maxItems": 5},
    {"type": "array", "items": {"type": ["null", "boolean"]}, "maxItems": 6},
    {"type": "array", "items": closed(a=DIGIT), "maxItems": 2},
    {"items": FLAG, "type": "array", "minItems": 1, "maxItems": 1},
    {"type": "array", "items": {"const": "é"}, "maxItems": 3},
    {"type": "array", "maxItems": 1, "items": {}},
]

OBJECTS = [
    closed(),
    closed(a=DIGIT),
    closed(a=DIGIT, b=WORD, c=FLAG),
    closed([], a=DIGIT, b=WORD, c=FLAG),
    closed(["c"], a=DIGIT, b=WORD, c=FLAG),
    closed(["b"], a=closed(x=DIGIT), b=closed([], y=FLAG, z=WORD)),
    closed(**{"": DIGIT, " ": FLAG, "a b": WORD}),
    closed(**{'qu"ote': DIGIT, "back\\slash": FLAG, "sl/ash": FLAG, "new\nline": WORD}),
    closed(**{"é": DIGIT, "你好": FLAG, "😀": WORD}),
    closed(deep=closed(deeper=closed(deepest=closed(end={"const": "here"})))),
    {"type": "object", "additionalProperties": DIGIT, "maxProperties": 1},
    {"type": "object", "additionalProperties": FLAG, "minProperties": 1, "maxProperties": 3},
    {"type": "object", "properties": {"a": DIGIT}, "required": ["a"], "additionalProperties": FLAG},
    {"type": "object", "properties": {"a": DIGIT}, "required": ["a", "b"], "additionalProperties": WORD},
    {"type": "object", "required": ["only"], "additionalProperties": DIGIT},
    {"type": "object", "patternProperties": {"^x_": DIGIT}, "additionalProperties": False},
    {
        "type": "object",
        "patternProperties": {"^[a-z]$": DIGIT, "^[A-Z]$": FLAG},
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": FLAG},
        "patternProperties": {"^b": WORD},
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"a": False, "b": DIGIT}, "additionalProperties": False},
    {"type": "object", "properties": {"a": True}, "required": ["a"], "additionalProperties": False},
    {
        "type": "object",
        "properties": {"a": DIGIT, "b": DIGIT},
        "minProperties": 1,
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": DIGIT, "b": DIGIT},
        "maxProperties": 1,
        "additionalProperties": False,
    },
    {"properties": {"a": DIGIT}, "additionalProperties": False, "type": ["object", "null"]},
]

COMBINED = [
    {"anyOf": [{"const": 1}, {"const": "one"}]},
    {"anyOf": [DIGIT, WORD, FLAG, {"type": "null"}]},
    {"anyOf": [closed(kind={"const": "a"}, x=DIGIT), closed(kind={"const": "b"}, y=WORD)]},
    {"anyOf": [{"type": "array", "items": FLAG, "maxItems": 2}, closed(a=FLAG)]},
    {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "pattern": "^z+$", "maxLength": 4}]},
    {"oneOf": [{"type": "null"}, DIGIT]},
    {"oneOf": [closed(kind={"const": "a"}, x=DIGIT), closed(kind={"const": "b"}, y=WORD)]},
    {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "array", "items": DIGIT, "maxItems": 2}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}]},
    {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 4}]},
    {
        "allOf": [
            {"properties": {"a": DIGIT}, "required": ["a"]},
            {"properties": {"b": FLAG}, "required": ["b"]},
        ],
        "type": "object",
        "maxProperties": 2,
    },
    {"type": "integer", "anyOf": [{"maximum": 3, "minimum": 0}, {"minimum": 90, "maximum": 99}]},
    {
        "type": "object",
        "properties": {"a": {"anyOf": [DIGIT, {"type": "null"}]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {"allOf": [{"anyOf": [DIGIT, FLAG]}, {"anyOf": [{"type": "boolean"}, {"type": "string"}]}]},
    {"enum": [1, 2, 3, "a", None], "anyOf": [{"type": "integer", "minimum": 2}, {"type": "null"}]},
]

TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": closed(["value"], value=DIGIT, left={"$ref": "#/$defs/tree"}, right={"$ref": "#/$defs/tree"})
    },
}
REFERENCES = [
    TREE,
    {"$ref": "#/$defs/word", "$defs": {"word": WORD}},
    {"$ref": "#/definitions/word", "definitions": {"word": WORD}},
    closed(["value"], value=DIGIT, next={"anyOf": [{"type": "null"}, {"$ref": "#"}]}),
    {"$defs": {"p": closed(x=DIGIT, y=DIGIT)}, **closed(a={"$ref": "#/$defs/p"}, b={"$ref": "#/$defs/p"})},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": DIGIT}, "$ref": "#/$defs/a"},
    {
        "$defs": {"list": {"anyOf": [{"type": "null"}, closed(head=DIGIT, tail={"$ref": "#/$defs/list"})]}},
        "$ref": "#/$defs/list",
    },
    {
        "$defs": {
            "even": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/odd"}},
            "odd": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"$ref": "#/$defs/even"}},
        },
        "$ref": "#/$defs/even",
    },
    {"$defs": {"a/b~c": WORD}, "$ref": "#/$defs/a~1b~0c"},
    {"$defs": {"é": DIGIT}, **closed(x={"$ref": "#/$defs/%C3%A9"})},
    {
        "properties": {"a": DIGIT, "b": {"$ref": "#/properties/a"}},
        "type": "object",
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    {"$defs": {"short": {"maxLength": 3}}, "type": "string", "$ref": "#/$defs/short"},
]

REFERENCES += [
    {
        "$id": "https://example.com/a",
        "$ref": "b",
        "$defs": {"b": {"$id": "/b", "$ref": "#/$defs/c", "$defs": {"c": FLAG}}},
    },
    {"$id": "https://example.com/a/", "$ref": "#word", "$defs": {"word": {"$anchor": "word", **WORD}}},
    {
        "$ref": "#/components/schemas/Word",
        "components": {"schemas": {"Word": {"type": "string", "format": "date"}}},
    },
]

# Keywords that llguidance lacks.
REWRITTEN = [
    True,
    {
        "type": "object",
        "additionalProperties": FLAG,
        "maxProperties": 2,
        "propertyNames": {"pattern": "^[a-c]$"},
    },
    {
        "type": "object",
        "additionalProperties": FLAG,
        "maxProperties": 2,
        "propertyNames": {"minLength": 2, "maxLength": 3},
    },
    {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": DIGIT},
    {"type": "array", "items": DIGIT, "maxItems": 2, "uniqueItems": False},
    {"type": "array", "items": DIGIT, "maxItems": 1, "uniqueItems": True},
]

WRITTEN = [*TYPES, *VALUES, *STRINGS, *NUMBERS, *ARRAYS, *OBJECTS, *COMBINED, *REFERENCES, *REWRITTEN]

# What a grammar cannot promise: each must be refused.
REFUSED = [
    False,
    {"not": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"maxLength": 3}, "else": {"minimum": 5}},
    {"$schema": "http://json-schema.org/draft-03/schema#", "divisibleBy": 2},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"dependencies": {"a": ["b"]}},
    {"type": "array", "contains": {"const": 1}},
    {"type": "object", "propertyNames": {"pattern": "a", "maxLength": 3}},
    {"type": "object", "propertyNames": {"$ref": "#/$defs/missing"}},
    {"properties": {"a": {}}, "unevaluatedProperties": False},
    {"prefixItems": [{}], "unevaluatedItems": False},
    {"oneOf": [{"minimum": 3}, {"maximum": 6}]},
    {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}}},
    {"allOf": 3, "format": "date", "pattern": "a"},
    {"type": "string", "contentEncoding": "quoted-printable"},
    {"type": "string", "contentMediaType": "application/json"},
    *({"format": name} for name in ("unknown", "regex", "iri", "json-pointer", "uuid4", 3)),
    {"type": "string", "pattern": "\\Aa"},
    {"type": "string", "pattern": 3},
    {"type": "string", "pattern": "(?=a)b"},
    {"type": "string", "pattern": "(a)\\1"},
    {"type": "string", "format": "a-format-of-nobody"},
    {"type": "string", "minLength": 4, "maxLength": 3},
    {"type": "integer", "minimum": 4, "maximum": 3},
    {"$ref": "#/$defs/missing"},
    {"$ref": "https://example.com/schema.json"},
    {"type": "real"},
    {"type": "object", "additionalProperties": FLAG, "minProperties": 2},
    {"enum": []},
    {"const": 1, "type": "string"},
    {"properties": []},
    {"x-guidance": {"lenient": True}},
    {"const": 12345678901234567890},
    {"enum": [[{"a": 123456789.123456789}]]},
    {"type": "integer", "maximum": 2**53 + 1},
]


class Draw(random.Random):
    """Random schemas whose documents are short."""

    def schema(self, depth=2):
        """A schema with at most `depth` more levels below it."""
        inner = [self.array, self.object, self.either, self.object] if depth else []
        return self.choice([self.string, self.number, self.value, *inner, *inner])(depth - 1)

    def string(self, _depth):
        least = self.randrange(4)
        made = {"type": "string", "minLength": least, "maxLength": least + self.randrange(5)}
        if self.random() < 0.3:
            size = self.randrange(1, 4)
            made["pattern"] = (
                f"^{self.choice(['[a-z]', '[0-9]', '(ab|c)', '[^x]', '.'])}{{{size},{size + 4}}}$"
            )
            made |= {"minLength": 0, "maxLength": 12}
        return made

    def number(self, _depth):
        low = self.randrange(-300, 300)
        high = low + self.randrange(1, 400)
        made = {"type": self.choice(["integer", "integer", "number"])}
        made[self.choice(["minimum", "exclusiveMinimum"])] = low - 1
        made[self.choice(["maximum", "exclusiveMaximum"])] = high + 1
        if made["type"] == "integer" and self.random() < 0.2:
            made["multipleOf"] = self.randrange(1, 4)
        return made

    def value(self, _depth):
        words = ["", "a", "ab", "é", "你好", "x y", 'q"', "\\", "\n", "😀"]
        values = [None, True, False, 0, -7, 3.25, [], {}, [1, "a"], {"k": None}, *words]
        return (
            {"enum": self.sample(values, self.randrange(1, 6))}
            if self.random() < 0.8
            else {"type": "boolean"}
        )

    def array(self, depth):
        least = self.randrange(3)
        made = {"type": "array", "items": self.schema(depth), "minItems": least}
        made["maxItems"] = least + self.randrange(3)
        if self.random() < 0.3:
            made["prefixItems"] = [self.schema(depth) for _ in range(self.randrange(1, 3))]
        return made

    def object(self, depth):
        names = self.sample(["a", "b", "name", "é", "a b", 'q"', "x/y", "sehr_lang_" * 3], self.randrange(5))
        made = closed(
            [name for name in names if self.random() < 0.6], **{n: self.schema(depth) for n in names}
        )
        if self.random() < 0.2:
            made["additionalProperties"] = self.schema(0)
            made["maxProperties"] = len(names) + 1
            made["required"] = names  # a bound on the properties needs the named ones to be certain
        return made

    def either(self, depth):
        return {"anyOf": [self.schema(depth) for _ in range(self.randrange(1, 4))]}


def schemas(count):
    """So many schemas: the written ones, then drawn ones."""
    return [*WRITTEN, *(Draw(seed).schema() for seed in range(count - len(WRITTEN)))][:count]


def check(text, schema):
    """AssertionError unless the text is one document, without needless white space, that the schema allows."""
    document = json.loads(text, parse_float=_number)
    exact = json.loads(json.dumps(schema), parse_float=Decimal, object_hook=_with_python_pattern)
    faults = list(jsonschema.Draft202012Validator(exact, format_checker=FORMATS).iter_errors(document))
    assert not faults, (text, schema, faults[0].message)
    text.encode("utf-8")
    assert compact(text) == text, text


SPACES = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"  # ECMAScript's


def _with_python_pattern(part):
    """A part of a schema with ECMAScript's white space in its pattern, in place of Python's, which has other characters."""
    if isinstance(part.get("pattern"), str):
        pattern = part["pattern"].replace(r"[^\s]", r"\S")
        part["pattern"] = pattern.replace(r"\S", f"[^{SPACES}]").replace(r"\s", f"[{SPACES}]")
    return part


def _number(text):
    """The number exactly, but for one beyond all that `Decimal` holds."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


def compact(text):
    """The text without white space outside its strings."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    return "".join(part if index % 2 else re.sub(r"\s", "", part) for index, part in enumerate(parts))


FORMATS = jsonschema.FormatChecker(formats=())


def _format(name, parse):
    """Let `FORMATS` know a format by the function that raises ValueError for what has it not."""

    def has(value):
        if isinstance(value, str):
            parse(value)
        return True

    FORMATS.checkers[name] = (has, ValueError)


def _time(text):
    seconds = re.sub(r"^(\d\d:\d\d):60", r"\1:59", text)  # a leap second
    datetime.time.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", seconds.upper()))


def _date(text):
    datetime.date.fromisoformat(text)


def _moment(text):
    _date(text[:10])
    _time(text[11:])


_format("date", _date)
_format("time", _time)
_format("date-time", _moment)
_format("uuid", uuid.UUID)
_format("ipv4", ipaddress.IPv4Address)
_format("ipv6", ipaddress.IPv6Address)


def _need(holds):
    if not holds:
        raise ValueError


def _uri(text):
    parts = urllib.parse.urlsplit(text)
    _need(parts.scheme and text.isascii() and not re.search(r'[\s<>"{}|\\^`]|%(?![0-9A-Fa-f]{2})', text))


def _hostname(text):
    labels = text.split(".")
    _need(all(re.fullmatch(r"[A-Za-z0-9-]{1,63}", label) for label in labels))
    _need(not any(label[0] == "-" or label[-1] == "-" for label in labels))


_format("hostname", _hostname)
_format("uri", _uri)
FORMATS.checkers["int32"] = (
    lambda value: not isinstance(value, Decimal | int) or -(2**31) <= value < 2**31,
    (),
)


class WildDraw(random.Random):
    """Random schemas of any keywords, which may contradict each other, and random documents."""

    def document(self, depth=2):
        choices = [None, True, False, 0, 1, 2, -1, 0.5, 1.5, "", "a", "b", "ab"]
        if depth and self.random() < 0.5:
            if self.random() < 0.4:
                return [self.document(depth - 1) for _ in range(self.randrange(4))]
            return {name: self.document(depth - 1) for name in self.sample("abc", self.randrange(4))}
        return self.choice(choices)

    def schema(self, depth=2):
        if self.random() < 0.1:
            return self.random() < 0.7
        made = {}
        for _ in range(self.randrange(1, 4)):
            made |= self.choice([self.leaf, self.leaf, self.node] if depth else [self.leaf])(depth - 1)
        return made

    def leaf(self, _depth):
        names = self.sample("abc", self.randrange(1, 3))
        kind = ["null", "boolean", "number", "string", "array", "object", ["object", "array"]]
        return self.choice(
            [
                {"type": self.choice(kind)},
                {"enum": [self.document(1) for _ in range(self.randrange(1, 4))]},
                {"const": self.document(1)},
                {
                    self.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]): self.choice(
                        [0, 0.5, 1]
                    )
                },
                {self.choice(["minLength", "maxLength", "minItems", "maxItems"]): self.randrange(1, 3)},
                {self.choice(["minProperties", "maxProperties"]): self.randrange(2)},
                {"pattern": self.choice(["a", "^a", "b$", "."])},
                {"required": names},
                {
                    "propertyNames": self.choice(
                        [{"pattern": "^[ab]$"}, {"enum": ["a", "b"]}, {"minLength": 2}]
                    )
                },
            ]
        )

    def node(self, depth):
        one = self.choice(["items", "additionalProperties"])
        several = self.choice(["anyOf", "allOf", "oneOf", "prefixItems"])
        named = self.choice(["properties", "patternProperties"])
        return self.choice(
            [
                {one: self.schema(depth)},
                {several: [self.schema(depth) for _ in range(self.randrange(1, 3))]},
                {named: {name: self.schema(depth) for name in self.sample("abc", self.randrange(1, 3))}},
            ]
        )
