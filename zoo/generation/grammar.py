"""Constrained decoding by JSON Schema, regular expression or grammar (`llguidance`).

`compile_grammar` makes a grammar of `llguidance`; an error is one line. `TokenMask` has the tokens that a grammar allows
next, of a vocabulary as `llguidance` reads it: the bytes that each id adds to a text. Axes: V vocabulary.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mlx.core as mx
import numpy as np

from zoo.errors import PromptError, TokenizerError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# With this option the grammar allows all tokens that fit, and never asks how the tokenizer would encode a text that is
# certain: many tokenizers cannot encode the middle of a text.
NO_FORCING = '%llguidance {"no_forcing": true}'
# No white space between the parts of a document, which a model could otherwise repeat without end.
COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
DOCUMENTS = ("const", "enum")  # keywords whose values are documents, not schemas
IGNORED = ("default", "examples")  # keywords that constrain nothing
DIGITS = 15

# Beyond these, llguidance takes many seconds, or more stack than a thread has, which ends the process.
MOST_CHARACTERS = 2**18  # of a regular expression or grammar
MOST_RULES = 1000  # of a grammar, its terminals included
MOST_VALUES = 10_000  # texts, numbers and flags in a JSON Schema
MOST_REFERENCES = 500  # different $ref in it
MOST_PATTERNS = 100  # names in its patternProperties
RULE = re.compile(r"^[ \t]*[?!]?[\w.-]+[ \t]*(?:::=|:)", re.MULTILINE)

NO_TOKEN = "no token of the vocabulary goes on with a text that fits"
# Plain words for messages of llguidance, by their beginnings.
PLAIN_MESSAGES = {
    "NoExtension": NO_TOKEN,
    "oneOf constraints": "oneOf is supported only where it is certain that no document fits two of its schemas",
}
PLACE = re.compile(r"^line \d+, column \d+: ")

SCHEMA = re.compile(r"%json\s*")


@frozen()
class Grammar(Frozen):
    """What a constraint allows. `name` is the setting that gave it, `lark` the grammar in llguidance's Lark."""

    name: str
    lark: str


def compile_grammar(
    *,
    json_schema: Mapping[str, Any] | str | None = None,
    regex: str | None = None,
    grammar: str | None = None,
) -> Grammar | None:
    """The grammar of one of the settings, None where none of them is given; PromptError for an unsupported one.

    `json_schema` is a JSON Schema or its text ({} allows any document), `regex` an expression that matches the text as a
    whole, `grammar` one of Lark, or of GBNF, which is known by its "::=".

    >>> compile_grammar(regex="[0-9]{4}").name
    'regex'
    >>> compile_grammar(regex="[0-9")
    Traceback (most recent call last):
    zoo.errors.PromptError: `regex`: unclosed character class
    >>> compile_grammar(json_schema={"type": "array", "uniqueItems": True})
    Traceback (most recent call last):
    zoo.errors.PromptError: `json_schema`: Unimplemented keys: ["uniqueItems"]
    """
    if json_schema is not None:
        try:
            return _of_schema(json_schema)
        except RecursionError:
            raise PromptError("`json_schema`: nested too deeply") from None
    if regex is not None:
        from llguidance import LLMatcher

        _check_text("regex", regex)
        plain = LLMatcher.grammar_from_regex(regex)
        return _checked("regex", f"{NO_FORCING}\n{json.loads(plain)['grammars'][0]['lark_grammar']}", plain)
    if grammar is None:
        return None
    _check_text("grammar", grammar)
    if next(itertools.islice(RULE.finditer(grammar), MOST_RULES, None), None):
        raise PromptError(f"`grammar` has more than {MOST_RULES} rules")
    for place in SCHEMA.finditer(grammar):
        with suppress(ValueError, RecursionError):  # llguidance says what is wrong with it
            _check_size("grammar", json.JSONDecoder().raw_decode(grammar, place.end())[0])
    if "::=" in grammar:
        from llguidance.gbnf_to_lark import any_to_lark

        try:
            grammar = any_to_lark(grammar)
        except Exception as error:
            raise PromptError(f"`grammar`: GBNF: {error}") from None
    # The option stands at the end, so that a message tells the line as the file has it.
    return _checked("grammar", f"{grammar}\n{NO_FORCING}\n")


def _checked(name: str, grammar: str, plain: str | None = None) -> Grammar:
    """A grammar that llguidance accepts; PromptError, naming the setting, for another.

    `plain` is the grammar without the options around it. It is checked first: its messages name lines of the input.
    """
    from llguidance import LLMatcher

    for text in filter(None, (plain, grammar)):
        wrong, messages = LLMatcher.validate_grammar_with_warnings(text)
        if wrong:
            told = error_line(messages[0])
            raise PromptError(f"`{name}`: {PLACE.sub('', told) if text is plain else told}")
    return Grammar(name, grammar)


def error_line(message: str) -> str:
    """The error of a grammar in one line, from a message of several."""
    lines = message.strip().splitlines() or ["it cannot be followed"]
    for start, told in PLAIN_MESSAGES.items():
        if lines[0].startswith(start):
            return told
    first = re.sub(r"^(?:at )?(\d+)\((\d+)\): ", r"line \1, column \2: ", lines[0])
    wrong = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), None)
    place = PLACE.match(first)
    return first if wrong is None else f"{place[0] if place else ''}{wrong}"


def _of_schema(schema: Mapping[str, Any] | str) -> Grammar:
    from llguidance import LLMatcher

    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise PromptError(f"`json_schema`: not JSON: {error}") from None
    if not isinstance(schema, Mapping):
        raise PromptError(f"`json_schema` must be a JSON object, got {schema!r:.60}")
    if "x-guidance" in schema:
        raise PromptError("`json_schema`: x-guidance is no keyword of JSON Schema")
    _check_size("json_schema", schema)
    for part in _parts(schema):
        if isinstance(part, Mapping):
            _check_count(part)
        elif isinstance(part, int | float):
            _check_number(part)
    try:
        text = json.dumps({**schema, "x-guidance": COMPACT}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PromptError(f"`json_schema`: not JSON: {error}") from None
    plain = LLMatcher.grammar_from_json_schema(text)
    return _checked("json_schema", f"{NO_FORCING}\nstart: %json {text}", plain)


def _parts(value: Any, *, schema: bool = True) -> Iterator[Any]:
    """Yields a schema and what it contains, for counting; of keywords that hold documents (`const`, `enum`) only the values."""
    if isinstance(value, Mapping):
        if schema:
            yield value
        for key, inner in value.items():
            if not schema or key not in IGNORED:
                yield from _parts(inner, schema=schema and key not in DOCUMENTS)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _parts(inner, schema=schema)
    else:
        yield value


def _check_size(name: str, schema: Mapping[str, Any]) -> None:
    """PromptError that names the setting for a schema with more of something than llguidance is given."""
    values = patterns = 0
    references = set()
    for part in _parts(schema):
        if isinstance(part, Mapping):
            references.add(str(part.get("$ref")))
            if isinstance(names := part.get("patternProperties"), Mapping):
                patterns += len(names)
        else:
            values += 1
        for what, number, most in (
            ("values", values, MOST_VALUES),
            ("names in patternProperties", patterns, MOST_PATTERNS),
            ("different $ref", len(references), MOST_REFERENCES),
        ):
            if number > most:
                raise PromptError(f"`{name}` has more than {most} {what}")


def _check_number(value: float) -> None:
    """PromptError for a number of more digits than llguidance keeps, which is double precision."""
    exact = isinstance(value, int) and abs(value) <= 2**53
    if not exact and len(Decimal(str(value)).normalize().as_tuple().digits) > DIGITS:
        raise PromptError(f"`json_schema`: {value} has more than the {DIGITS} digits that can be kept")


def _check_count(schema: Mapping[str, Any]) -> None:
    """PromptError where a document could have too few properties because a name comes twice.

    A grammar has no memory of the names that came before, but for those it requires, in their order.
    """
    least, required = schema.get("minProperties"), schema.get("required")
    if not isinstance(least, int | float) or (
        schema.get("additionalProperties") is False and not schema.get("patternProperties")
    ):
        return
    certain = len(set(required)) if isinstance(required, list | tuple) else 0
    if least > certain + 1:
        raise PromptError(
            f"`json_schema`: minProperties {least:g} cannot be kept: of the names, only {certain} are required, "
            "and the others could come twice"
        )


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise PromptError(f"`{name}` must be text, got {text!r:.60}")
    if len(text) > MOST_CHARACTERS:
        raise PromptError(f"`{name}` has {len(text)} characters, more than {MOST_CHARACTERS}")


BITS = 32  # ids in a word of a mask


@frozen()
class Vocabulary(Frozen):
    """The V ids of a model, some of them special or padding, as a grammar sees them.

    `library` is llguidance's form, with one more id, `end` = V, for the end of a text, because texts may have different
    end tokens. `all` and `at_first` are masks, uint32 (ceil(V/32),), of all ids and of those that may begin a text;
    `silent` are the ids without text.
    """

    library: LLTokenizer
    end: int
    all: np.ndarray
    at_first: np.ndarray
    silent: frozenset[int]


class _TokenizerWrapper:
    """The interface that llguidance needs of a tokenizer. It never encodes, because the grammars force no tokens."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: list[int], end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, end

    def __call__(self, text: bytes | str) -> list[int]:
        return []


_VOCABULARIES: WeakKeyDictionary[Tokenizer, dict[int, Vocabulary]] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer, size: int) -> Vocabulary | None:
    """The vocabulary of a model with `size` ids, built once for each tokenizer.

    None where decoding does more than join the bytes of tokens.
    """
    from llguidance import LLTokenizer

    built = _VOCABULARIES.setdefault(tokenizer, {})
    if size in built or (text := tokenizer.text_bytes()) is None:
        return built.get(size)
    known = text.tokens[:size]
    silent = [id for id, token in enumerate(known) if token is None]
    # A grammar can name a special token as it is written; an id without a token is never allowed.
    tokens = [_written(tokenizer, id) if token is None else token for id, token in enumerate(known)]
    tokens += [b""] * (size - len(tokens)) + [b"<end of text>"]
    library = LLTokenizer(_TokenizerWrapper(tokens, [*(id for id in silent if tokens[id]), size], size))  # type: ignore[arg-type]
    everything = bits_of(range(size), size)
    at_first = everything & ~bits_of((id for id in text.altered_first if id < size), size)
    built[size] = Vocabulary(library, size, everything, at_first, frozenset(silent))
    return built[size]


def bits_of(ids: Iterable[int], size: int) -> np.ndarray:
    """The mask of these of `size` ids."""
    chosen = np.zeros(-(-size // BITS) * BITS, np.uint8)
    chosen[list(ids)] = 1
    return np.packbits(chosen, bitorder="little").view(np.uint32)


def _written(tokenizer: Tokenizer, id: int) -> bytes:
    """A special token as the vocabulary writes it; nothing for an id without a token."""
    try:
        return tokenizer.token(id).encode("utf-8")
    except TokenizerError:
        return b""


def token_mask(
    tokenizer: Tokenizer | None, vocab: int, eos_ids: Iterable[int], **form: Any
) -> TokenMask | None:
    """The mask of a new text by one of the settings that `compile_grammar` takes, None where none of them is given.

    `vocab` is the number of the model's logits. The `eos_ids`, which end a text, are allowed where it is complete, and
    only there. PromptError, naming the setting, for a grammar that llguidance or the tokenizer does not support.

    >>> loaded = zoo.load("llama")
    >>> mask = token_mask(loaded.tokenizer, 2048, loaded.tokenizer.eos_ids, regex="(yes|no)")
    >>> for token in loaded.tokenizer.encode("no", special_tokens=False):
    ...     mask.update(token)
    >>> mask.done
    True
    """
    compiled = compile_grammar(**form)
    if compiled is None:
        return None
    if tokenizer is None:
        raise PromptError(
            f"`{compiled.name}`: the model has no tokenizer, so there is no text whose form could be kept"
        )
    vocabulary = vocabulary_of(tokenizer, vocab)
    if vocabulary is None:
        kind = f" ({tokenizer.kind})" if tokenizer.kind else ""
        raise PromptError(
            f"`{compiled.name}`: this tokenizer{kind} changes text between tokens, so that the form of a text "
            "cannot be kept"
        )
    return TokenMask(compiled, vocabulary, eos_ids)


class TokenMask:
    """The state of one text: `allowed` before each token, `update` after it.

    A text that is cut off before `complete` is true is only a beginning of what the grammar allows.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary, eos_ids: Iterable[int]) -> None:
        """PromptError for a grammar that no token can begin."""
        from llguidance import LLMatcher

        self.grammar, self.vocabulary = grammar, vocabulary
        self._ends = frozenset(end for end in eos_ids if 0 <= end < vocabulary.end)
        self._end_bits = bits_of(self._ends, vocabulary.end)
        # An end token never stands within a text, except a special token that the grammar names.
        self._inner = vocabulary.all & ~bits_of(self._ends - vocabulary.silent, vocabulary.end)
        self._begun = False  # whether a token with text came
        self._only_end = False  # nothing but the end can follow
        self._matcher = LLMatcher(vocabulary.library, grammar.lark, log_level=0)
        try:
            self.allowed()
        except ZooError as error:
            raise PromptError(str(error)) from None

    def allowed(self) -> np.ndarray:
        """The ids that may come next, as bits: uint32 (ceil(V/32),), the lowest id in the lowest bit.

        ZooError where there is none though the text is not `done`: the tokenizer lacks the token.
        """
        found = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        if self._matcher.is_error():
            raise ZooError(f"`{self.grammar.name}`: {error_line(self._matcher.get_error())}")
        end, bits = self.vocabulary.end, found[: len(self._inner)] & self._inner
        if not self._begun:
            bits &= self.vocabulary.at_first
        self._only_end = not bits.any()
        if found[end // BITS] >> (end % BITS) & 1:
            bits |= self._end_bits
        elif self._only_end:
            raise ZooError(f"`{self.grammar.name}`: {NO_TOKEN}")
        return bits

    def update(self, token: int) -> None:
        """Advance by this token; ZooError for one that was not allowed."""
        # A grammar may name an end token, which is then a token of its own.
        named = token not in self._ends or self._matcher.validate_tokens([token])
        if not self._matcher.consume_token(token if named else self.vocabulary.end):
            raise ZooError(f"`{self.grammar.name}`: token {token} does not fit; other settings left no other")
        self._begun = self._begun or token not in self.vocabulary.silent
        self._only_end = False

    @property
    def complete(self) -> bool:
        """Whether the grammar accepts the text so far."""
        return self._matcher.is_accepting()

    @property
    def done(self) -> bool:
        """Whether the text is complete, and nothing but an end token can follow."""
        return self.complete and (self._only_end or self._matcher.is_stopped())


def apply_mask(logits: mx.array, allowed: np.ndarray) -> mx.array:  # (B, V) -> (B, V)
    """The logits with those of ids that are not `allowed` (the bits of `TokenMask.allowed`) at minus infinity."""
    # Added, and looked up a byte at a time: choosing by a condition takes several times as long on the CPU.
    added = np.take(_added(), allowed.view(np.uint8), axis=0).reshape(-1)
    return logits + mx.array(added[: logits.shape[-1]])


@cache
def _added() -> np.ndarray:
    """What is added to the logits of eight ids, by the byte of their bits: float32 (256, 8)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.where(bits, 0, -np.inf).astype(np.float32)
