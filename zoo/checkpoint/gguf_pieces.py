"""The vocabulary of a GGUF file as a sentencepiece model, in the protocol buffer that its library reads.

The layout is that library's sentencepiece_model.proto.
"""

from __future__ import annotations

import struct

from zoo.checkpoint.gguf_vocabulary import BYTE, UNKNOWN, USER, Vocabulary
from zoo.detokenizer import SPACE

BPE = 2  # of the kinds of models


def model_proto(told: Vocabulary) -> bytes:
    """The model. TokenizerError names the key of a value that cannot be."""
    scores = told.array("scores", float, [0.0] * len(told.tokens))
    body = []
    for text, score, kind in zip(told.tokens, scores, told.kinds, strict=True):
        # A token that a user defined is kept as it stands in a text; sentencepiece marks spaces.
        piece = text.replace(" ", SPACE) if kind == USER else text
        body.append(
            _text(1, _text(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))
        )
    unknown = next(iter(told.of(UNKNOWN).values()), "<unk>")
    trainer = _number(3, BPE) + _number(35, BYTE in told.kinds) + _text(45, unknown.encode())
    prefix = told.value("add_space_prefix", bool, True)
    squeeze = told.value("remove_extra_whitespaces", bool, False)
    normalizer = _text(1, b"identity") + _number(3, prefix) + _number(4, squeeze)
    return b"".join([*body, _text(2, trainer), _text(3, normalizer)])


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
