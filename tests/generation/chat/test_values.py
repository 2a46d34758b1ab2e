"""The values that a model writes as text, by the JSON schema of the parameter."""

import pytest

from zoo.generation.chat.values import LONGEST, ends_in_string, kinds_of, read_json, read_literal, typed_value

OPTIONAL_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}]}
ARRAY, OBJECT = {"type": "array"}, {"type": "object"}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("3.10", {"type": "string"}, "3.10"),
        ("null", {"type": "string"}, "null"),
        (" a ", {"type": "string"}, " a "),
        ("3.10", OPTIONAL_TEXT, "3.10"),
        ('"a"', OPTIONAL_TEXT, '"a"'),
        ("None", OPTIONAL_TEXT, None),
        ("null", {"type": "string", "nullable": True}, None),
        ("NULL", {"type": ["integer", "null"]}, None),
        ("TRUE", {"type": "boolean"}, True),
        (" false\n", {"type": "boolean"}, False),
        ("yes", {"type": "boolean"}, "yes"),
        ("007", {"type": "integer"}, 7),
        ("007", {"type": ["integer", "string"]}, "007"),
        ("7", {"type": ["integer", "string"]}, 7),
        ("3.0", {"type": "integer"}, 3),
        ("3.5", {"type": "integer"}, 3.5),
        (".5", {"type": "number"}, 0.5),
        ("1e999", {"type": "number"}, "1e999"),
        ("nan", {"type": "number"}, "nan"),
        ("three", {"type": "integer"}, "three"),
        ("null", {"type": "integer"}, None),
        ("['a', None]", ARRAY, ["a", None]),
        ("('a', -1)", ARRAY, ["a", -1]),
        ("{'k': True, 'n': null}", OBJECT, {"k": True, "n": None}),
        ('{"k": 1}', {"oneOf": [OBJECT, {"type": "string"}]}, {"k": 1}),
        ("{1: 2}", OBJECT, "{1: 2}"),
        ("a, b", ARRAY, "a, b"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"const": "2"}, "2"),
        ("3.10", {}, 3.1),
        ("True", {}, "True"),
        ("{'k': 1}", {}, "{'k': 1}"),
        ("5", {"$ref": "#/$defs/Name"}, "5"),
        ("5", {"$ref": "#/$defs/Lost"}, 5),
        ("5", {"allOf": [{"$ref": "#/$defs/Name"}, {"description": "…"}]}, "5"),
        ("5", {"anyOf": [{"type": "string"}, {}]}, 5),
    ],
)
def test_a_value_has_the_type_that_is_declared(text, schema, value):
    found = typed_value(text, schema, {"$defs": {"Name": {"type": "string"}}})
    assert found == value and type(found) is type(value)


def test_a_schema_that_refers_to_itself_declares_no_type():
    assert kinds_of({"$ref": "#"}, {"$ref": "#"}) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "open('f')", "a", "f'{a}'", "b'a'", "1 + 1", "{**a}", "1e999", "...", "1j", "[" * 10_000, "-" * 10_000 + "1",
        "'a' " * LONGEST, "'\0'", "",
    ],
)  # fmt: skip
def test_python_that_is_no_literal_is_refused(text):
    with pytest.raises(ValueError):
        read_literal(text)


def test_json_has_line_breaks_in_its_strings_and_no_infinity():
    assert read_json('"a\nb"') == "a\nb"
    for text in ("NaN", "-Infinity", "[" * 100_000):
        with pytest.raises(ValueError):
            read_json(text)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('{"a": "b"', False),
        ('{"a": "b', True),
        (r'{"a": "b\"', True),
        (r'{"a": "b\\"', False),
        ('{"a": "b\n', True),
        ('{"it\'s": 1', False),
        ("", False),
    ],
)
def test_it_is_known_whether_json_ends_within_a_string(text, inside):
    assert ends_in_string(text, '"') is inside


def test_in_python_either_quote_begins_a_string():
    assert ends_in_string("f(a='b\"", "\"'") and not ends_in_string("f(a='b\"', c=\"d'\"", "\"'")
