"""What a grammar allows is what the schema allows, judged by jsonschema or by the document that the test names."""

import json

import jsonschema
import pytest

from tests.helpers import json_schemas
from tests.helpers.schema_language import allows
from zoo.errors import PromptError
from zoo.generation.grammar.compile import compile_grammar


def test_true_allows_any_document_and_false_is_refused():
    for schema in (True, "true", {}):
        assert allows(schema, "1", '{"a":[null]}', '"x"') == [True] * 3
    for schema in (False, "false"):
        with pytest.raises(PromptError, match=r"^`json_schema`: no document fits it$"):
            compile_grammar(json_schema=schema)


@pytest.mark.parametrize(
    ("schema", "fitting", "others"),
    [
        ({"propertyNames": {"enum": ["a"]}}, ['{"a":1}', "{}"], ['{"b":1}']),
        ({"propertyNames": {"const": "a"}, "allOf": [{"type": "object"}]}, ['{"a":1}'], ['{"b":1}', "1"]),
        ({"propertyNames": {"format": "date"}}, ['{"2024-02-29":1}'], ['{"2023-02-29":1}']),
        ({"uniqueItems": True, "maxItems": 2}, ["[1]", "[1,1]"], ["[1,1,1]"]),
        ({"contentEncoding": "base64"}, ['"YWI="', "1"], ['"YWI"']),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 1}]}, ["[1,2]"], ["[2]"]),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_keyword_that_llguidance_lacks_holds(schema, fitting, others):
    assert allows(schema, *fitting) == [True] * len(fitting)
    assert allows(schema, *others) == [False] * len(others)


NESTED = {
    "$id": "https://example.com/root.json",
    "$ref": "other.json",
    "$defs": {
        "word": {"type": "string"},
        "other": {"$id": "other.json", "$ref": "#/$defs/word", "$defs": {"word": {"type": "integer"}}},
    },
}


@pytest.mark.parametrize(
    "schema",
    [
        NESTED,
        {"$ref": "#word", "$defs": {"a": {"$anchor": "word", "type": "integer"}}},
        {"$ref": "#/components/a~1b", "components": {"a/b": {"type": "integer", "format": "int32"}}},
    ],
)
def test_a_reference_is_resolved_against_the_id_that_it_stands_below(schema):
    assert allows(schema, "1", '"a"') == [True, False]


DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
COLOURS = {"Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"}}
KINDS = {
    name: {
        "properties": {"kind": {"const": name, "default": name, "title": "Kind", "type": "string"}},
        "title": name,
        "type": "object",
    }
    for name in ("cat", "dog")
}


@pytest.mark.parametrize(
    ("schema", "fitting", "others"),
    [
        ({"items": {"type": "integer"}, "type": "array", "uniqueItems": True}, "[1,2,1]", '["a"]'),
        ({"format": "binary", "type": "string"}, '"any text"', "1"),
        ({"format": "base64", "type": "string"}, '"YWI="', '"a"'),
        ({"format": "password", "type": "string", "writeOnly": True}, '"any text"', "1"),
        ({"format": "path", "type": "string"}, '"a/b"', "1"),
        ({"anyOf": [{"type": "number"}, {"pattern": DECIMAL, "type": "string"}]}, '"-1.50"', '"+."'),
        ({"exclusiveMaximum": 1.0, "exclusiveMinimum": 0.0, "type": "number"}, "0.5", "1"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", '"a"'),
        ({"maxItems": 2, "minItems": 2, "prefixItems": [{}, {}], "type": "array"}, "[1,2]", "[1]"),
        (
            {
                "$defs": COLOURS,
                "additionalProperties": {"type": "integer"},
                "propertyNames": {"$ref": "#/$defs/Colour"},
                "type": "object",
            },
            '{"red":1}',
            '{"green":1}',
        ),
        (
            {
                "$defs": KINDS,
                "discriminator": {"mapping": {"cat": "#/$defs/cat"}, "propertyName": "kind"},
                "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
            },
            '{"kind":"dog"}',
            "{}",
        ),
    ],
    ids=str,
)
def test_what_pydantic_writes_for_its_types_holds(schema, fitting, others):
    assert allows(schema, fitting, others) == [True, False]


def test_a_name_cannot_come_in_another_spelling_to_escape_its_schema():
    integer = {"type": "integer"}
    assert allows({"properties": {"a": integer}}, '{"a":1}', '{"\\u0061":"x"}') == [True, False]
    assert allows({"patternProperties": {"^a": False}}, '{"b":1}', '{"\\u0061":1}') == [True, False]
    # Elsewhere control characters can be written.
    assert allows({"const": "\u0001"}, '"\\u0001"') == [True]


def test_an_exclusive_bound_is_not_a_number_that_is_allowed():
    for one in (1, 1.0):
        between = {"exclusiveMinimum": one, "maximum": 1.5}
        assert allows(between, "1", "1.0", "1.2", "1.5") == [False, False, True, True]
    below = {"minimum": -0.5, "exclusiveMaximum": 0}
    assert allows(below, "-0", "0", "-0.1") == [False, False, True]
    fourth = {"minimum": 2, "exclusiveMinimum": True, "maximum": 2.5}
    assert allows(fourth, "2", "2.1") == [False, True]


def test_an_integer_has_no_fraction_and_properties_keep_their_order():
    assert allows({"type": "integer"}, "1", "1.0") == [True, False]
    both = json_schemas.closed(a=json_schemas.DIGIT, b=json_schemas.DIGIT)
    assert allows(both, '{"a":1,"b":2}', '{"b":2,"a":1}') == [True, False]


@pytest.mark.slow
def test_no_document_is_allowed_that_jsonschema_refuses():
    compiled = fitting = allowed = 0
    for seed in range(300):
        draw = json_schemas.WildDraw(seed)
        schema = draw.schema()
        try:
            compile_grammar(json_schema=schema)
        except PromptError as error:
            assert "\n" not in str(error)
            continue
        compiled += 1
        documents = [draw.document() for _ in range(20)]
        judge = jsonschema.Draft202012Validator(schema)
        texts = [json.dumps(document, separators=(",", ":")) for document in documents]
        for document, allows_it in zip(documents, allows(schema, *texts), strict=True):
            fits = judge.is_valid(document)
            assert fits or not allows_it, (schema, document)
            fitting += fits
            allowed += allows_it
    assert compiled > 120
    assert allowed > 0.9 * fitting  # others have their properties in another order
