"""The tokenizer of a GGUF file: a byte-level one with merges, sentencepiece's with scores, or BERT's.

Its vocabulary is in the file's metadata, whose values are checked; sentencepiece's is made a model of that library.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenizers import AddedToken as LibraryToken
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models, normalizers

from zoo.checkpoint.gguf.header import Header, shown
from zoo.errors import TokenizerError
from zoo.files.writing import write_json
from zoo.tokenizer import Tokenizer
from zoo.tokenizer.classes import part_of
from zoo.tokenizer.detokenizer import SPACE
from zoo.tokenizer.huggingface import Backend, TokenizersBackend, bert, library_errors, put_around
from zoo.tokenizer.pretokenizers import PRE_TOKENIZERS, UNNAMED
from zoo.tokenizer.sentencepiece import SentencePieceBackend
from zoo.tokenizer.settings import AddedToken, TokenizerSettings
from zoo.tokenizer.turn_ends import TURN_ENDS, end_ids

KEY = "tokenizer.ggml."
# Bytes with merges; sentencepiece's byte pairs and its Unigram; BERT's WordPiece.
MODELS = ("gpt2", "llama", "t5", "bert")
# The kinds of tokens, which are sentencepiece's.
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
ENDS = ("eot_token_id", "eom_token_id")  # of a turn, a message
# Where special tokens take the white space after them, which files do not say: by architecture and algorithm, those that do not.
STRIPPING = {("phi3", "llama"): ("<unk>", "<s>", "<|endoftext|>")}
TYPES = {str: "text", int: "an integer", float: "a float", bool: "true or false", tuple: "a list"}


class GGUFVocabulary:
    """The text of each token and its kind, in the order of their ids; `special` tokens by name.

    `model` is the tokenizer's algorithm, one of `MODELS`. TokenizerError names the key whose value cannot be followed.
    """

    def __init__(self, header: Header) -> None:
        self.path = header.path
        self.architecture = header.metadata.get("general.architecture")
        self._metadata = header.metadata
        # A token without text has the name that llama.cpp gives it.
        texts = self.array("tokens", str, None)
        self.tokens = [text or f"[EMPTY_{id}]" for id, text in enumerate(texts)]
        if len(set(self.tokens)) < len(self.tokens):
            raise self.error("tokens", "has a token twice")
        self.kinds: Sequence[int] = self.array("token_type", int, [NORMAL] * len(self.tokens))
        if (strange := next((kind for kind in self.kinds if not 0 <= kind <= BYTE), None)) is not None:
            raise self.error("token_type", f"holds {strange}, which is none of the kinds 1 to {BYTE}")
        # Some writers call these normal; llama.cpp corrects the same.
        pairs = zip(self.tokens, self.kinds, strict=True)
        self.kinds = [CONTROL if text in TURN_ENDS and kind == NORMAL else kind for text, kind in pairs]
        if header.metadata.get(KEY + "model") == "bert":
            self.tokens = [_word_piece(*pair) for pair in zip(self.tokens, self.kinds, strict=True)]
        ids = {name: self.id(key) for name, key in SPECIAL.items()}
        self.special = {name: self.tokens[id] for name, id in ids.items() if id is not None}
        self.model: str = self.value("model", str, None)
        if self.model not in MODELS:
            raise self.error("model", f"{shown(self.model)} is not implemented; known: {', '.join(MODELS)}")

    def error(self, key: str, why: str) -> TokenizerError:
        """The error for an invalid value of a key, to be raised."""
        return TokenizerError(f"{self.path}: {KEY}{key} {why}")

    def value(self, key: str, kind: type, default: object) -> Any:
        """A value of the right type; TokenizerError for another."""
        value = self._metadata.get(KEY + key, default)
        if value is not default and type(value) is not kind:
            raise self.error(key, f"must be {TYPES[kind]}, got {type(value).__name__}")
        return value

    def array(self, key: str, kind: type, default: Sequence[Any] | None) -> Sequence[Any]:
        """Values of one type, as many as `default` has; required without one."""
        values = self.value(key, tuple, default)
        if values is None:
            raise self.error(key, "is missing")
        if values and type(values[0]) is not kind:
            raise self.error(key, f"must be a list, each {TYPES[kind]}")
        if default is not None and len(values) != len(default):
            raise self.error(key, f"has {len(values)} values for {len(default)} tokens")
        return values

    def id(self, key: str) -> int | None:
        """The id of a special token; None without one, and for one beyond the vocabulary, as many files name."""
        id = self.value(key, int, None)
        return id if id is not None and 0 <= id < len(self.tokens) else None

    @property
    def ends(self) -> list[int]:
        """The ids of the tokens that end a text or a turn."""
        special = {text: id for id, text in {**self.of(USER), **self.of(CONTROL)}.items()}
        return end_ids(special, self.id("eos_token_id"), map(self.id, ENDS))

    @property
    def chat_templates(self) -> dict[str, str]:
        """The Jinja sources that lay out a conversation, by name; the one without a name is "default"."""
        key = "tokenizer.chat_template"
        texts = {name: text for name, text in self._metadata.items() if isinstance(text, str)}
        named = {name[len(key) + 1 :]: text for name, text in texts.items() if name.startswith(key + ".")}
        return named | ({"default": texts[key]} if key in texts else {})

    def of(self, kind: int) -> dict[int, str]:
        """The tokens of a kind by id."""
        return {id: self.tokens[id] for id, other in enumerate(self.kinds) if other == kind}

    def settings(self, values: Mapping[str, Any]) -> TokenizerSettings:
        """The same as a folder's settings. Control tokens are matched whole, and left out of a decoded text."""
        plain = STRIPPING.get((str(self.architecture), self.model))
        added = [
            AddedToken(text, id, normalized=False, rstrip=plain is not None and text not in plain)
            for id, text in self.of(CONTROL).items()
        ]
        return TokenizerSettings(self.path, values, self.special, (), tuple(added))


def _word_piece(text: str, kind: int) -> str:
    """A token of BERT's as its own vocabulary has it.

    There, what goes on with a word begins with ##; in a GGUF file, what begins one has a visible space.
    """
    if kind == CONTROL or (text.startswith("[") and text.endswith("]") and len(text) > 2):
        return text
    return text[1:] if text.startswith(SPACE) and text != SPACE else "##" + text


UNIGRAM, BPE = 1, 2  # of the kinds of models


def model_proto(vocabulary: GGUFVocabulary) -> bytes:
    """The vocabulary as the protocol buffer that sentencepiece reads, laid out by its sentencepiece_model.proto.

    TokenizerError names the key of an invalid value.
    """
    unknown, body = _unknown(vocabulary), []
    rows = zip(vocabulary.tokens, _scores(vocabulary), vocabulary.kinds, strict=True)
    for id, (text, score, kind) in enumerate(rows):
        # A token that a user defined is kept as it stands in a text; sentencepiece marks spaces.
        piece = text.replace(" ", SPACE) if kind == USER else text
        # One piece stands for what is unknown; padding that is called so too is never used in a text.
        role = UNKNOWN if id == unknown else UNUSED if kind == UNKNOWN else kind
        row = _text(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, role)
        body.append(_text(1, row))
    kind = UNIGRAM if vocabulary.model == "t5" else BPE
    trainer = _number(3, kind) + _number(35, BYTE in vocabulary.kinds)
    if unknown is not None:
        trainer += _text(45, vocabulary.tokens[unknown].encode())
    prefix = vocabulary.value("add_space_prefix", bool, True)
    squeeze = vocabulary.value("remove_extra_whitespaces", bool, False)
    normalizer = _text(1, b"identity") + _charsmap(vocabulary) + _number(3, prefix) + _number(4, squeeze)
    return b"".join([*body, _text(2, trainer), _text(3, normalizer)])


def _scores(vocabulary: GGUFVocabulary) -> Sequence[float]:
    """The score of each piece; without scores, pieces are in the order in which they were learned.

    A converter that finds no scores writes one and the same for all.
    """
    scores = vocabulary.array("scores", float, [0.0] * len(vocabulary.tokens))
    if any(math.isnan(score) for score in scores):
        raise vocabulary.error("scores", "holds what is not a number")
    if vocabulary.model == "llama" and len(set(scores)) == 1:
        return [-float(id) for id in range(len(scores))]
    return scores


def _unknown(vocabulary: GGUFVocabulary) -> int | None:
    """The id of the piece for what is unknown: the one named, the first of that kind, or the one so spelled."""
    kinds, named = vocabulary.of(UNKNOWN), vocabulary.id("unknown_token_id")
    if named is None or (kinds and named not in kinds):
        named = next(iter(kinds), None)
    if named is None and "<unk>" in vocabulary.tokens:
        return vocabulary.tokens.index("<unk>")
    return named


def _charsmap(vocabulary: GGUFVocabulary) -> bytes:
    """The field of the table by which characters are replaced, if there is one."""
    values = vocabulary.value("precompiled_charsmap", tuple, ())
    if any(type(value) is not int or not -128 <= value < 256 for value in values):
        raise vocabulary.error("precompiled_charsmap", "must be a list of bytes")
    return _text(2, bytes(value & 255 for value in values)) if values else b""


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def load_gguf_tokenizer(header: Header, rows: int) -> Tokenizer | None:
    """The tokenizer of a file whose model has `rows` tokens, None where it has no vocabulary.

    TokenizerError names the key whose value cannot be followed.
    """
    vocabulary = vocabulary_of(header)
    if vocabulary is None:
        return None
    if len(vocabulary.tokens) > rows:
        raise vocabulary.error("tokens", f"has {len(vocabulary.tokens)} tokens, the model {rows}")
    return Tokenizer(
        backend_of(vocabulary),
        bos_id=vocabulary.id("bos_token_id"),
        eos_ids=vocabulary.ends,
        chat_templates=vocabulary.chat_templates,
    )


def save_gguf_tokenizer(header: Header, folder: Path, generation: Mapping[str, Any]) -> None:
    """Write the same tokenizer as the files of a model folder, `generation` and all ids that end a text among them."""
    vocabulary = vocabulary_of(header)
    if vocabulary is None:
        return
    values: dict[str, Any] = {**vocabulary.special, "clean_up_tokenization_spaces": False}
    if templates := vocabulary.chat_templates:
        named = [{"name": name, "template": text} for name, text in templates.items()]
        values["chat_template"] = templates["default"] if templates.keys() == {"default"} else named
    if vocabulary.model not in FILES:
        backend: Any = backend_of(vocabulary)
        backend.tokenizer.save(str(folder / "tokenizer.json"))
        values["tokenizer_class"] = "PreTrainedTokenizerFast"
    else:
        name, kind = FILES[vocabulary.model]
        (folder / name).write_bytes(model_proto(vocabulary))
        values |= {"tokenizer_class": kind, **around(vocabulary)}
        # Other programs do not ask the model's own file whether a space stands before a text.
        values["add_prefix_space"] = vocabulary.value("add_space_prefix", bool, True)
        tokens = [asdict(token) for token in vocabulary.settings({}).added_tokens]
        values["added_tokens_decoder"] = {str(token.pop("id")): token for token in tokens}
    write_json(folder / "tokenizer_config.json", values)
    if generation or len(vocabulary.ends) > 1:
        write_json(folder / "generation_config.json", {**generation, "eos_token_id": vocabulary.ends})


def vocabulary_of(header: Header) -> GGUFVocabulary | None:
    """The file's vocabulary, None where there is none; TokenizerError for a tokenizer that is not implemented."""
    if header.metadata.get(KEY + "model") in (None, "none", "no_vocab"):
        return None
    return GGUFVocabulary(header)


def backend_of(vocabulary: GGUFVocabulary) -> Backend:
    """What encodes and decodes with this vocabulary; the pieces of a sentencepiece model are run by that library."""
    if vocabulary.model == "gpt2":
        return byte_level(vocabulary)
    if vocabulary.model == "bert":
        return word_pieces(vocabulary)
    settings = vocabulary.settings(around(vocabulary))
    return SentencePieceBackend(vocabulary.path, settings, model_proto(vocabulary))


def byte_level(vocabulary: GGUFVocabulary) -> TokenizersBackend:
    """A tokenizer whose tokens are bytes, put together by the merges."""
    name = vocabulary.value("pre", str, "default")
    if name == "default":
        name = UNNAMED.get(str(vocabulary.architecture))
        if name is None:
            why = "does not say how text is cut into words; newer converters write it"
            raise vocabulary.error("pre", why)
    if name not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        raise vocabulary.error("pre", f"{shown(name)} is not implemented; known: {known}")
    rule = PRE_TOKENIZERS[name]
    merges = [tuple(merge.split(" ")) for merge in vocabulary.array("merges", str, None)]
    if any(len(pair) != 2 for pair in merges):
        raise vocabulary.error("merges", "must each be two tokens with a space between")
    ids = {text: id for id, text in enumerate(vocabulary.tokens)}
    with library_errors(vocabulary.path, "holds no tokenizer"):
        tokenizer = LibraryTokenizer(models.BPE(ids, merges, ignore_merges=rule.whole))
        if rule.composed:
            tokenizer.normalizer = normalizers.NFC()
        steps = {"type": "Sequence", "pretokenizers": list(rule.steps)}
        tokenizer.pre_tokenizer = part_of("pre_tokenizer", steps)
        tokenizer.decoder = decoders.ByteLevel()
        for kind, add in ((CONTROL, tokenizer.add_special_tokens), (USER, tokenizer.add_tokens)):
            add([LibraryToken(text, normalized=False) for text in vocabulary.of(kind).values()])
        backend = TokenizersBackend(tokenizer, vocabulary.settings({}), vocabulary.special)
        starts = vocabulary.value("add_bos_token", bool, rule.start)
        ends = vocabulary.value("add_eos_token", bool, False)
        special = vocabulary.special.get
        put_around(backend, special("bos_token") if starts else None, special("eos_token") if ends else None)
    return backend


def word_pieces(vocabulary: GGUFVocabulary) -> TokenizersBackend:
    """BERT's tokenizer. Where a file says nothing of capitals, a vocabulary that has some keeps them."""
    normal = [text for text, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True) if kind != CONTROL]
    cased = any(text != text.lower() for text in normal if not text.startswith("["))
    with library_errors(vocabulary.path, "holds no tokenizer"):
        settings = {
            "do_lower_case": vocabulary.value("normalizer.lowercase", bool, not cased),
            "strip_accents": vocabulary.value("normalizer.strip_accents", bool, None),
        }
        return bert(vocabulary.path, vocabulary.tokens, vocabulary.settings(settings))


def around(vocabulary: GGUFVocabulary) -> dict[str, bool]:
    """The special tokens around a text; "legacy" puts a space after each special token, as llama.cpp does."""
    pairs = vocabulary.model == "llama"
    start = vocabulary.value("add_bos_token", bool, pairs)
    end = vocabulary.value("add_eos_token", bool, not pairs)
    return {"add_bos_token": start, "add_eos_token": end, "legacy": True}


FILES = {"llama": ("tokenizer.model", "LlamaTokenizer"), "t5": ("spiece.model", "T5Tokenizer")}
