"""The vocabulary of a GGUF file as a sentencepiece model, in the protocol buffer that its library reads.

The layout is that library's sentencepiece_model.proto.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from zoo.checkpoint.gguf.vocabulary import BYTE, UNKNOWN, UNUSED, USER, GGUFVocabulary
from zoo.tokenizer.detokenizer import SPACE

UNIGRAM, BPE = 1, 2  # of the kinds of models


def model_proto(vocabulary: GGUFVocabulary) -> bytes:
    """The model. TokenizerError names the key of a value that cannot be."""
    unknown, body = _unknown(vocabulary), []
    for id, (text, score, kind) in enumerate(
        zip(vocabulary.tokens, _scores(vocabulary), vocabulary.kinds, strict=True)
    ):
        # A token that a user defined is kept as it stands in a text; sentencepiece marks spaces.
        piece = text.replace(" ", SPACE) if kind == USER else text
        # One piece stands for what is unknown; padding that is called so too is never used in a text.
        role = UNKNOWN if id == unknown else UNUSED if kind == UNKNOWN else kind
        body.append(
            _text(1, _text(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, role))
        )
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
    return (
        named
        if named is not None
        else next((i for i, t in enumerate(vocabulary.tokens) if t == "<unk>"), None)
    )


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
