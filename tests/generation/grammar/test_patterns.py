"""Regular expressions of ECMAScript in the syntax of Rust's."""

import pytest

from tests.helpers.schema_language import allows
from zoo.errors import PromptError
from zoo.generation.grammar.compile import compile_grammar


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        (r"^\s$", ["\ufeff", " ", "\u00a0"], ["a", "\u0085"]),
        (r"^[\s]\S$", ["\ufeffa"], ["a\ufeff"]),
        (r"^.$", ["a", "你"], ["\u2028", ""]),
        (r"^[[a]$", ["[", "a"], ["b"]),
        (r"^[a&&b]$", ["a", "&"], ["&&"]),
        (r"^[\]x]\/$", ["]/", "x/"], ["y/"]),
        (r"^\w\d$", ["a1"], ["é1", "a١"]),
        ("a|b", ["xa", "by"], ["c"]),
    ],
)
def test_a_pattern_means_what_it_means_in_ecmascript(pattern, fitting, others):
    schema = {"type": "string", "pattern": pattern}
    assert allows(schema, *(f'"{text}"' for text in fitting)) == [True] * len(fitting)
    assert allows(schema, *(f'"{text}"' for text in others)) == [False] * len(others)


def test_a_control_escape_is_its_character():
    assert allows({"type": "string", "pattern": r"^\cA$"}, '"\\u0001"') == [True]


@pytest.mark.parametrize("pattern", [r"\Aa", r"a\z", r"\Qa"])
def test_an_escape_that_ecmascript_lacks_is_refused(pattern):
    with pytest.raises(PromptError, match=r"^`json_schema`: \\[AzQ] in the pattern .* is not ECMAScript's"):
        compile_grammar(json_schema={"type": "string", "pattern": pattern})
