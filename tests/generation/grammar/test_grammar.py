"""Texts of a given form: documents of a JSON schema, matches of an expression, derivations of a grammar.

ZOO_SCHEMAS=300 draws documents of so many schemas with each kind of tokenizer.
"""

import gc
import json
import os
import random
import re
import subprocess
import sys
import weakref

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers import json_schemas
from tests.helpers.tokenizer_kinds import tokenizer_of
from tests.helpers.waiting import PATIENCE
from zoo.errors import PromptError, ZooError
from zoo.generation.grammar.compile import compile_grammar
from zoo.generation.grammar.token_mask import apply_mask, token_mask, vocabulary_of

COUNT = int(os.environ.get("ZOO_SCHEMAS", 40))
# A tokenizer of each kind whose texts can be held to a form and that has a token for every byte.
WITH_BYTES = [
    *("byte level", "merges", "byte fallback, stripped", "pieces", "pieces, no prefix", "pieces, squeezed"),
    *("GGUF, bytes", "GGUF, pieces"),
]
STUCK = r"^`regex`: no token of the vocabulary goes on with a text that fits"
END = 5  # an id that ends a text in the tests that need one


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


def ids_of(bits):
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()


def mask_of(tokenizer, padding=7, **form):
    """A mask for a model with some more ids than the tokenizer, and the ids that end a text."""
    silent = [id for id, token in enumerate(tokenizer.text_bytes().tokens) if token is None]
    ends = tokenizer.eos_ids or frozenset([*silent, tokenizer.vocab_size][:1])
    return token_mask(tokenizer, tokenizer.vocab_size + padding, ends, **form), ends


def drawn(mask, tokenizer, ends, seed, most=600):
    """A text of random allowed tokens, and whether it came to its end; the longer it is, the more it is drawn to it."""
    draw, ids = random.Random(seed), []
    closing = {id for id, token in enumerate(tokenizer.text_bytes().tokens) if token in (b'"', b"]", b"}")}
    while len(ids) < most:
        allowed = ids_of(mask.allowed())
        finishing = [id for id in allowed if id in ends]
        if finishing and draw.random() < 0.5:
            mask.update(finishing[0])
            return tokenizer.decode(ids), True
        near = [id for id in allowed if id in closing]
        chosen = draw.choice(near if near and draw.random() < len(ids) / 100 else allowed)
        mask.update(chosen)
        if chosen in ends:
            return tokenizer.decode(ids), True
        ids.append(chosen)
    return tokenizer.decode(ids), False


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [*WITH_BYTES[:2], *(pytest.param(kind, marks=pytest.mark.nightly) for kind in WITH_BYTES[2:])],
)
def test_every_text_drawn_is_a_document_of_its_schema(kind):
    tokenizer = tokenizer_of(kind)
    wanted = json_schemas.schemas(300)
    # Each kind has other schemas, so that all are drawn from.
    mine = wanted if COUNT >= 300 else wanted[WITH_BYTES.index(kind) :: 300 // COUNT]
    finished = 0
    for index, schema in enumerate(mine):
        for seed in range(2):
            mask, ends = mask_of(tokenizer, json_schema=schema)
            text, ended = drawn(mask, tokenizer, ends, 1000 * seed + index)
            if ended:
                json_schemas.check(text, schema)
            finished += ended
    assert finished > 1.9 * len(mine)


def test_the_check_of_documents_finds_faults():
    schema = json_schemas.closed(a=json_schemas.DIGIT)
    for text in ('{"a":10}', '{"a": 1}', '{"a":1,"b":2}', '{"a":1', "{}", '{"a":1}\n'):
        with pytest.raises((AssertionError, ValueError)):
            json_schemas.check(text, schema)
    json_schemas.check('{"a":1}', schema)
    for name, text in [("date", "2024-02-30"), ("ipv4", "1.2.3.256"), ("uuid", "x"), ("time", "25:00:00Z")]:
        with pytest.raises(AssertionError):
            json_schemas.check(json.dumps(text), {"type": "string", "format": name})
    with pytest.raises(AssertionError):
        json_schemas.check("0.3", {"type": "number", "multipleOf": 0.2})


@pytest.mark.parametrize("schema", json_schemas.REFUSED, ids=str)
def test_a_schema_that_no_grammar_can_keep_is_refused(schema):
    with pytest.raises(PromptError, match="`json_schema`: ") as caught:
        compile_grammar(json_schema=schema)
    assert "\n" not in str(caught.value)


EXPRESSIONS = [
    "(yes|no)",
    "[0-9]{4}-[0-9]{2}",
    "a*b+",
    "你好( 😀)?",
    "[^a-z]{3}",
    r"[a-z]{1,9}@[a-z]+\.(com|org)",
    "x/y\\\\z",
    "(?i)ab",
]


@pytest.mark.parametrize("kind", WITH_BYTES)
def test_a_text_matches_the_expression_as_a_whole(kind):
    tokenizer = tokenizer_of(kind)
    for seed, expression in enumerate(EXPRESSIONS):
        mask, ends = mask_of(tokenizer, regex=expression)
        text, ended = drawn(mask, tokenizer, ends, seed)
        assert not ended or re.fullmatch(expression, text), (expression, text)
        assert ended or "+" in expression


LARK = 'start: sum\nsum: NUMBER ("+" NUMBER)*\nNUMBER: /[0-9]{1,3}/'
NESTED = 'start: "a" | "(" start ")"'
GBNF = 'root ::= "<" word ("," word)* ">"\nword ::= [a-c]{1,2} # a comment\n'


@pytest.mark.parametrize("kind", ["byte level", "pieces"])
@pytest.mark.parametrize(
    ("grammar", "expression"),
    [(LARK, r"\d{1,3}(\+\d{1,3})*"), (NESTED, r"\(*a\)*"), (GBNF, "<[abc]{1,2}(,[abc]{1,2})*>")],
)
def test_a_text_is_derived_by_the_grammar(kind, grammar, expression):
    tokenizer = tokenizer_of(kind)
    for seed in range(5):
        mask, ends = mask_of(tokenizer, grammar=grammar)
        text, ended = drawn(mask, tokenizer, ends, seed)
        assert ended and re.fullmatch(expression, text) and text.count("(") == text.count(")")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (dict(regex="(a"), "`regex`: unclosed group"),
        (dict(regex="[b-a]"), "`regex`: invalid character class range"),
        (dict(regex="(?=a)b"), "`regex`: look-around"),
        (dict(regex=3), "`regex` must be text, got 3"),
        (dict(regex="[a&&b]"), STUCK),
        (dict(grammar="start: x"), '`grammar`: line 1, column 8: unknown name: "x"'),
        (dict(grammar='start: "a"\n%nonsense'), "`grammar`: line 2, column 2: "),
        (dict(grammar='a: "a"'), "`grammar`: no start rule found"),
        (dict(grammar='root ::= ("a"'), "`grammar`: GBNF: Expected '\\)'"),
        (dict(grammar="root ::= other"), "`grammar`: GBNF: Rule 'other' not found"),
        (dict(grammar="start: <|no_such_token|>"), "`grammar`: .*unknown special token"),
        (dict(grammar={}), "`grammar` must be text"),
        (dict(json_schema="{"), "`json_schema`: not JSON: "),
        (dict(json_schema="[]"), "`json_schema` must be a JSON object, true or false, got \\[\\]"),
        (dict(json_schema="[" * 100_000), "`json_schema`: nested too deeply"),
        (dict(json_schema={"const": {1, 2}}), "`json_schema`: not JSON: "),
        (dict(json_schema={"maximum": float("nan")}), "`json_schema`: not JSON: "),
        (dict(json_schema={"type": "string", "pattern": "(a"}), "`json_schema`: unclosed group"),
    ],
    ids=str,
)
def test_what_cannot_be_followed_is_named_in_one_line(form, words):
    with pytest.raises(PromptError, match=words) as caught:
        mask_of(tokenizer_of("byte level"), **form)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


CHAIN = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(3000)} | {"d3000": {}}


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (dict(json_schema={"enum": list(range(20_000))}), "`json_schema` has more than 10000 values"),
        (dict(json_schema={"required": ["a"] * 10_001}), "`json_schema` has more than 10000 values"),
        (dict(json_schema={"enum": ["a" * 2**19]}), "`json_schema` has more than 262144 characters"),
        (dict(json_schema={"$ref": "#/$defs/d0", "$defs": CHAIN}), "has more than 500 different \\$ref"),
        (dict(json_schema={"patternProperties": {f"^{i}": {} for i in range(300)}}), "more than 100 names"),
        (dict(grammar=f"start: %json {json.dumps({'$defs': CHAIN})}"), "`grammar` has more than 500"),
        (dict(grammar="start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(5000))), "than 1000 rules"),
        (dict(grammar="\n".join(f"r{i} ::= r{i + 1}" for i in range(5000))), "than 1000 rules"),
        (dict(grammar='start: "a"' * 100_000), "1000000 characters, more than 262144"),
        (dict(regex="a|" * 200_000), "400000 characters, more than 262144"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_too_large_is_refused_before_it_is_compiled(form, words, monkeypatch):
    monkeypatch.setattr("llguidance.LLMatcher.validate_grammar_with_warnings", None)
    with pytest.raises(PromptError, match=words):
        compile_grammar(**form)


def test_a_schema_may_be_a_text_and_empty():
    tokenizer = tokenizer_of("byte level")
    for schema in ({}, "{}", '{"type": "object"}'):
        mask, _ = mask_of(tokenizer, json_schema=schema)
        assert tokenizer.id("{") in ids_of(mask.allowed())
        assert tokenizer.id("Ġ") not in ids_of(mask.allowed())
    assert token_mask(tokenizer, 300, [END]) is None


@pytest.mark.parametrize(
    "kind", ["word pieces", "word ends", "files of BERT", "not to be streamed", "a plugin's"]
)
def test_a_tokenizer_that_changes_text_between_tokens_is_refused(kind):
    with pytest.raises(PromptError, match=r"^`regex`: this tokenizer.* changes text between tokens"):
        token_mask(tokenizer_of(kind), 300, [END], regex="a")


def test_a_model_without_a_tokenizer_is_refused():
    with pytest.raises(PromptError, match=r"^`json_schema`: the model has no tokenizer"):
        token_mask(None, 300, [END], json_schema={})


@pytest.mark.parametrize("kind", ["pieces", "metaspace", "byte fallback, stripped"])
def test_a_space_that_the_decoder_takes_from_the_first_token_is_not_counted_on(kind):
    tokenizer = tokenizer_of(kind)
    space, a = tokenizer.id("▁"), tokenizer.id("a")
    mask, _ = mask_of(tokenizer, regex="( a|a b?)+")
    assert space not in ids_of(mask.allowed()) and a in ids_of(mask.allowed())
    mask.update(a)
    assert space in ids_of(mask.allowed())


def test_an_end_is_allowed_where_the_text_is_whole_and_only_there():
    tokenizer = tokenizer_of("byte level")
    mask, ends = mask_of(tokenizer, regex="ab?")
    (end,) = ends
    a, b = tokenizer.id("a"), tokenizer.id("b")
    assert ids_of(mask.allowed()) == [a] and not mask.complete
    mask.update(a)
    assert ids_of(mask.allowed()) == sorted([b, end]) and mask.complete and not mask.done
    mask.update(b)
    assert ids_of(mask.allowed()) == [end] and mask.done
    mask.update(end)
    assert mask.done


def test_without_an_end_token_a_text_is_done_when_nothing_can_follow():
    tokenizer = tokenizer_of("byte level")
    mask = token_mask(tokenizer, tokenizer.vocab_size, [], regex="ab")
    mask.update(tokenizer.id("a"))
    mask.update(tokenizer.id("b"))
    assert mask.done and not ids_of(mask.allowed())
    assert token_mask(tokenizer, tokenizer.vocab_size, [], regex="").done


def test_several_tokens_may_end_a_text_and_one_of_them_may_have_text():
    tokenizer = tokenizer_of("byte level")
    ends = [tokenizer.id("<|end|>"), tokenizer.id("x")]
    mask = token_mask(tokenizer, tokenizer.vocab_size, ends, regex="a|x")
    assert ids_of(mask.allowed()) == [tokenizer.id("a")]
    mask.update(tokenizer.id("a"))
    assert ids_of(mask.allowed()) == sorted(ends)


def test_all_tokens_with_the_same_bytes_are_allowed_and_no_padding_is():
    tokenizer = tokenizer_of("byte fallback")
    mask, _ = mask_of(tokenizer, padding=40, regex="a")
    assert ids_of(mask.allowed()) == sorted([tokenizer.id("<0x61>"), tokenizer.id("a")])
    free, _ = mask_of(tokenizer, padding=40, regex="(?s:.)*")
    assert max(ids_of(free.allowed())) < tokenizer.vocab_size


def test_a_character_may_come_in_pieces():
    tokenizer = tokenizer_of("byte level")
    mask, _ = mask_of(tokenizer, regex="你")
    for token in ("ä½", "ł"):
        assert tokenizer.id(token) in ids_of(mask.allowed())
        mask.update(tokenizer.id(token))
    assert mask.done


def test_special_tokens_come_only_where_a_grammar_names_them():
    tokenizer = tokenizer_of("byte fallback")
    start = tokenizer.id("<s>")
    ends = [tokenizer.id("</s>")]
    assert start not in ids_of(token_mask(tokenizer, 300, ends, regex="(?s:.)*").allowed())
    mask = token_mask(tokenizer, 300, ends, grammar='start: <s> "a"')
    assert ids_of(mask.allowed()) == [start]


def test_a_grammar_may_name_an_end_token():
    tokenizer = tokenizer_of("byte fallback")
    end = tokenizer.id("</s>")
    mask = token_mask(tokenizer, 300, [end], grammar='start: "a" </s>')
    mask.update(tokenizer.id("a"))
    assert ids_of(mask.allowed()) == [end] and not mask.complete
    mask.update(end)
    assert mask.complete


def test_a_token_that_does_not_fit_is_an_error_and_so_is_a_dead_end():
    tokenizer = tokenizer_of("byte level")
    mask, _ = mask_of(tokenizer, regex="ab")
    with pytest.raises(ZooError, match=r"^`regex`: token \d+ breaks it"):
        mask.update(tokenizer.id("b"))
    pieces = tokenizer_of("files of T5")  # which has no bytes
    with pytest.raises(PromptError, match=STUCK):
        mask_of(pieces, regex="☃")
    mask, _ = mask_of(pieces, regex="t☃")
    mask.update(pieces.id("t"))
    with pytest.raises(ZooError, match=STUCK):
        mask.allowed()


def test_a_vocabulary_is_built_once_and_goes_with_its_tokenizer():
    made = zoo.load("llama").tokenizer
    vocabulary = vocabulary_of(made, 2048)
    assert vocabulary_of(made, 2048) is vocabulary
    assert vocabulary_of(made, 2050) is not vocabulary
    kept = weakref.ref(made)
    del made, vocabulary
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("size", [1, 31, 32, 33, 300])
def test_masked_logits_are_those_of_allowed_ids(size):
    allowed = np.random.default_rng(size).random(size) < 0.5
    allowed[0] = True
    bits = np.zeros(-(-size // 32) * 32, np.uint8)
    bits[:size] = allowed
    logits = mx.random.normal((2, size))
    found = apply_mask(logits, np.packbits(bits, bitorder="little").view(np.uint32))
    assert np.array_equal(np.isfinite(np.array(found)), np.stack([allowed, allowed]))
    assert np.array_equal(np.array(found)[:, allowed], np.array(logits)[:, allowed])


def test_llguidance_is_imported_only_when_a_form_is_asked_for():
    code = "import sys, zoo, zoo.generation.grammar.compile as g; g.compile_grammar(); print('llguidance' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == "False", done.stderr
