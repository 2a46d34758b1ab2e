"""Each format allows its texts, and no other."""

import pytest

from tests.helpers.schema_language import allows
from zoo.errors import PromptError
from zoo.generation.grammar.compile import compile_grammar
from zoo.generation.grammar.formats import FORMATS

LABEL = "a" * 63
TEXTS = {
    "date": (["2024-02-29", "2000-02-29", "1999-12-31"], ["2023-02-29", "1900-02-29", "0000-01-01", "2024-04-31"]),
    "time": (["00:00:00Z", "12:30:00.5+02:00", "23:59:60Z"], ["24:00:00Z", "12:30:00", "22:59:60Z"]),
    "date-time": (["2024-02-29T10:00:00Z"], ["2023-02-29T10:00:00Z", "2024-02-29 10:00:00Z", "2024-02-29"]),
    "duration": (["P1Y2M3D", "PT1H", "P2W"], ["P", "1Y", "P1S"]),
    "email": (["a.b@example.com"], ["a@", "@b", "a b@c.d"]),
    "hostname": (["a", "a-b.example", LABEL], ["-a", "a-", "a..b", "a_b", "", LABEL + "a"]),
    "ipv4": (["127.0.0.1"], ["1.2.3", "1.2.3.256", "01.2.3.4"]),
    "ipv6": (["::", "::1", "1:2:3:4:5:6:7:8", "1::8"], ["1", ":::", "1:2", "1::2::3", "::1.2.3.256"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "g23e4567-e89b-12d3-a456-426614174000"]),
    "uri": (["https://a.b:80/c?d#e", "urn:a", "http://[::1]/"], ["/a", "a b:c", "http://[1]/", "http://a/%zz", "http://é"]),
    **dict.fromkeys(("byte", "base64"), (["", "YQ==", "YWI="], ["YQ=", "a", "YQ==YQ=="])),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_format_allows_its_texts_and_no_other(name):
    fitting, others = TEXTS[name]
    quoted = [f'"{text}"' if "\\" not in text else f'"\\{text}"' for text in (*fitting, *others)]
    assert allows({"format": name}, *quoted) == [True] * len(fitting) + [False] * len(others)
    assert allows({"format": name}, "12") == [True]


def test_formats_of_numbers_are_bounds():
    assert allows({"type": "integer", "format": "int32"}, "2147483647", "2147483648") == [True, False]
    assert allows({"type": "integer", "format": "int64"}, "999999999999999", "9" * 20) == [True, False]


def test_every_format_is_tested_and_an_unknown_one_is_refused():
    assert {name for name in FORMATS.keys() - TEXTS.keys() if FORMATS[name]} == {"int32", "int64"}
    with pytest.raises(PromptError, match=r"^`json_schema`: the format 'hostnam' cannot be enforced$"):
        compile_grammar(json_schema={"type": "string", "format": "hostnam"})


def test_a_format_holds_beside_a_pattern_and_a_length():
    schema = {"format": "hostname", "pattern": "^a", "maxLength": 3}
    assert allows(schema, '"a.b"', '"b.a"', '"a.bc"', '"a_"') == [True, False, False, False]
