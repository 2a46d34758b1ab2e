"""The tokenizer in a GGUF file's metadata: a byte-level one with merges, or sentencepiece's with scores."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.checkpoint.gguf_header import Header
from zoo.checkpoint.gguf_words import GPT2, WORDS, Words
from zoo.errors import TokenizerError
from zoo.tokenizer import Tokenizer
from zoo.tokenizer_backends import Backend, TokenizersBackend, naming, put_around
from zoo.tokenizer_files import AddedToken, TokenizerSettings

KEY = "tokenizer.ggml."
# The kinds of tokens, which are sentencepiece's.
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
NAMES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # of a text, a turn, a message


def load_gguf_tokenizer(header: Header, rows: int) -> Tokenizer | None:
    """The tokenizer of a file whose model has `rows` tokens, None where it has no vocabulary.

    TokenizerError names the key whose value cannot be followed.
    """
    if header.metadata.get(KEY + "model") in (None, "none", "no_vocab"):
        return None
    told = Vocabulary(header)
    model = told.value("model", str, None)
    makers = {"gpt2": byte_level, "llama": sentencepiece}
    if model not in makers:
        raise told.error("model", f"{model!r} is not implemented; known: {', '.join(makers)}")
    if len(told.tokens) > rows:
        raise told.error("tokens", f"has {len(told.tokens)} tokens, the model {rows}")
    backend = makers[model](told)
    template = header.metadata.get("tokenizer.chat_template")
    return Tokenizer(
        backend,
        bos_id=told.id("bos_token_id"),
        eos_ids=[id for id in map(told.id, ENDS) if id is not None],
        chat_template=template if isinstance(template, str) else None,
    )


class Vocabulary:
    """What the keys say: the text of each token and its kind, in the order of their ids."""

    def __init__(self, header: Header) -> None:
        self.path = header.path
        self._metadata = header.metadata
        # The same name for a token without text that llama.cpp gives it.
        tokens = self.array("tokens", str, None)
        self.tokens = [text or f"[EMPTY_{id}]" for id, text in enumerate(tokens)]
        self.kinds: Sequence[int] = self.array("token_type", int, [NORMAL] * len(self.tokens))
        self.special = {
            name: self.tokens[id] for name, key in NAMES.items() if (id := self.id(key)) is not None
        }

    def error(self, key: str, why: str) -> TokenizerError:
        """The error that a key's value deserves, to be raised."""
        return TokenizerError(f"{self.path}: {KEY}{key} {why}")

    def value(self, key: str, kind: type, default: Any) -> Any:
        """A value of the right type; TokenizerError for another."""
        value = self._metadata.get(KEY + key, default)
        if value is not default and type(value) is not kind:
            raise self.error(key, f"{value!r:.60} is no {kind.__name__}")
        return value

    def array(self, key: str, kind: type, default: Sequence[Any] | None) -> Sequence[Any]:
        """A list of values of one type, as long as the vocabulary if `default` is; required without one."""
        values = self.value(key, tuple, default)
        if values is None:
            raise self.error(key, "is missing")
        if values and type(values[0]) is not kind:
            raise self.error(key, f"holds no {kind.__name__}")
        if default and len(values) != len(default):
            raise self.error(key, f"has {len(values)} values for {len(default)} tokens")
        return values

    def id(self, key: str) -> int | None:
        """The id of a special token, None where there is none; many files name one that is beyond the vocabulary."""
        id = self.value(key, int, None)
        return id if id is not None and 0 <= id < len(self.tokens) else None

    def of(self, kind: int) -> list[str]:
        """The texts of the tokens of a kind."""
        return [text for text, other in zip(self.tokens, self.kinds, strict=True) if other == kind]

    def settings(self, values: Mapping[str, Any]) -> TokenizerSettings:
        """The same as a folder's settings. Control tokens are matched whole in a text and left out of a decoded one."""
        added = [
            AddedToken(text, id)
            for id, (text, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind == CONTROL
        ]
        return TokenizerSettings(self.path, values, self.special, (), tuple(added))


def byte_level(told: Vocabulary) -> Backend:
    """A tokenizer whose tokens are bytes, put together by the merges."""
    from tokenizers import AddedToken as LibraryToken
    from tokenizers import Tokenizer as LibraryTokenizer
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    words = words_of(told)
    ids = {text: id for id, text in enumerate(told.tokens)}
    if len(ids) < len(told.tokens):
        raise told.error("tokens", "has a token twice")
    pairs = [tuple(merge.split(" ")) for merge in told.array("merges", str, None)]
    if any(len(pair) != 2 for pair in pairs):
        raise told.error("merges", "must each be two tokens with a space between")
    with naming(told.path, "no tokenizer"):
        tokenizer = LibraryTokenizer(models.BPE(ids, pairs, ignore_merges=words.whole))
        tokenizer.normalizer = normalizers.NFC() if words.composed else None
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_cutters(words))
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([LibraryToken(text, normalized=False) for text in told.of(CONTROL)])
        tokenizer.add_tokens([LibraryToken(text, normalized=False) for text in told.of(USER)])
        backend = TokenizersBackend(tokenizer, told.settings({}), told.special)
        first = told.special.get("bos_token") if told.value("add_bos_token", bool, words.start) else None
        last = told.special.get("eos_token") if told.value("add_eos_token", bool, False) else None
        put_around(backend, first, last)
    return backend


def words_of(told: Vocabulary) -> Words:
    """How text is cut into words; TokenizerError for a way that is unknown."""
    name = told.value("pre", str, "default")
    if name == "default":
        warnings.warn(
            f"{told.path.name}: does not say how text is cut into words ({KEY}pre): as GPT-2 does",
            stacklevel=6,
        )
        return GPT2
    if name not in WORDS:
        raise told.error("pre", f"{name!r} is not implemented; known: {', '.join(WORDS)}")
    return WORDS[name]


def _cutters(words: Words) -> list[Any]:
    from tokenizers import Regex, pre_tokenizers

    cutters: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in words.patterns]
    if words.digits:
        cutters.append(pre_tokenizers.Digits(individual_digits=True))
    return [*cutters, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not words.patterns)]


def sentencepiece(told: Vocabulary) -> Backend:
    """A sentencepiece model of the same pieces, scores and kinds, which that library then runs."""
    from zoo.tokenizer_pieces import SentencePieceBackend

    scores = told.array("scores", float, [0.0] * len(told.tokens))
    pieces = [
        # A token that a user defined is kept as it stands in a text; sentencepiece's own spaces are marks.
        (text.replace(" ", "▁") if kind == USER else text, score, kind)
        for text, score, kind in zip(told.tokens, scores, told.kinds, strict=True)
    ]
    prefix = told.value("add_space_prefix", bool, True)
    squeeze = told.value("remove_extra_whitespaces", bool, False)
    settings = told.settings(
        {
            "add_bos_token": told.value("add_bos_token", bool, True),
            "add_eos_token": told.value("add_eos_token", bool, False),
            "legacy": True,  # a space after every special token, as llama.cpp puts one
        }
    )
    return SentencePieceBackend(told.path, settings, model_proto(pieces, prefix, squeeze))


def model_proto(pieces: Sequence[tuple[str, float, int]], prefix: bool, squeeze: bool) -> bytes:
    """A sentencepiece model of byte pairs, as the protocol buffer that the library reads (sentencepiece_model.proto)."""
    fallback = any(kind == BYTE for _, _, kind in pieces)
    unknown = next((text for text, _, kind in pieces if kind == UNKNOWN), "<unk>")
    trainer = _number(3, 2) + _number(35, fallback) + _text(45, unknown.encode())
    normalizer = _text(1, b"identity") + _number(3, prefix) + _number(4, squeeze)
    body = [
        _text(1, _text(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))
        for text, score, kind in pieces
    ]
    return b"".join([*body, _text(2, trainer), _text(3, normalizer)])


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
