"""A text cut into the pieces of a tokenizer, each with its id, its bytes and its place in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.checkpoint.source import find
from zoo.errors import TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry, default_registry
from zoo.tokenizer import Tokenizer


@frozen()
class Piece(Frozen):
    """One token of a text.

    `token` is its name in the vocabulary ("Ġcapital", "##ing"), `text` what it stands for (" capital", "ing"), with
    U+FFFD for incomplete characters. `bytes` are those of the text: of the name for a special token, none for an unknown
    one. It covers the characters from `start` up to `end` of the text, incomplete ones included; both are None if the
    tokenizer does not know them. A `special` token controls the model, like the start of a text. An `added` one is put
    around the text by the tokenizer. An `unknown` one stands for text that the vocabulary lacks.

    >>> from zoo.inspect.tokenization import tokenize_pieces, tokenizer_of
    >>> piece = tokenize_pieces(tokenizer_of("llama"), "naïve")[1]
    >>> piece.bytes, piece.partial, (piece.start, piece.end)
    (b'\\xc3', True, (2, 3))
    """

    id: int
    token: str
    text: str
    bytes: bytes
    start: int | None = None
    end: int | None = None
    special: bool = False
    added: bool = False
    unknown: bool = False

    @property
    def partial(self) -> bool:
        """Whether it begins or ends within a character."""
        try:
            self.bytes.decode("utf-8")
        except UnicodeDecodeError:
            return True
        return False

    def as_json(self) -> dict[str, Any]:
        """The fields, the bytes in hexadecimal digits."""
        return vars(self) | {"bytes": self.bytes.hex()}


@frozen()
class Tokenization(Frozen):
    """A text's pieces by the tokenizer of one source, those around the text included, and its vocabulary's size."""

    source: str
    text: str
    pieces: tuple[Piece, ...]
    vocabulary: int

    @property
    def own(self) -> int:
        """How many pieces are of the text itself, without those that the tokenizer adds around it."""
        return len(self.pieces) - sum(piece.added for piece in self.pieces)

    @property
    def bytes_per_token(self) -> float | None:
        """UTF-8 bytes of the text for each of its own tokens; None where it has none."""
        return len(self.text.encode("utf-8")) / self.own if self.own else None

    @property
    def characters_per_token(self) -> float | None:
        """Unicode characters (code points) of the text for each of its own tokens; None where it has none."""
        return len(self.text) / self.own if self.own else None

    @property
    def unknown(self) -> int:
        """How many pieces stand for text that the vocabulary lacks."""
        return sum(piece.unknown for piece in self.pieces)

    def as_json(self) -> dict[str, Any]:
        """Counts, ratios and pieces."""
        return {
            "source": self.source,
            "vocabulary_tokens": self.vocabulary,
            "tokens": len(self.pieces),
            "text_tokens": self.own,
            "bytes_per_token": self.bytes_per_token,
            "characters_per_token": self.characters_per_token,
            "unknown_tokens": self.unknown,
            "pieces": [piece.as_json() for piece in self.pieces],
        }


def tokenization(source: str, tokenizer: Tokenizer, text: str, special_tokens: bool = True) -> Tokenization:
    """The pieces of a text by the tokenizer of `source`, with what is counted of them."""
    pieces = tokenize_pieces(tokenizer, text, special_tokens)
    return Tokenization(source, text, tuple(pieces), tokenizer.vocab_size)


def tokenize_pieces(tokenizer: Tokenizer, text: str, special_tokens: bool = True) -> list[Piece]:
    """The pieces of a text in order; `special_tokens` adds those that the tokenizer puts around it.

    The ids are those of `tokenizer.encode(text, special_tokens)`. TokenizerError for text that no UTF-8 file could hold.

    >>> from zoo.inspect.tokenization import tokenize_pieces, tokenizer_of
    >>> for piece in tokenize_pieces(tokenizer_of("bert"), "Beijing!"):
    ...     print(piece.id, piece.token, piece.start, piece.end, piece.added)
    1010 Beijing 0 7 False
    5 ! 7 8 False
    """
    own = tokenizer.encode(text, special_tokens=False)
    ids = tokenizer.encode(text) if special_tokens else own
    around = len(ids) - len(own)
    start = next((index for index in range(around + 1) if ids[index : index + len(own)] == own), None)
    if start is None:  # with special tokens the text itself is cut in another way
        return pieces_of(tokenizer, ids)
    before, after = (
        [replace(piece, special=True, added=True, unknown=False) for piece in pieces_of(tokenizer, part)]
        for part in (ids[:start], ids[start + len(own) :])
    )
    return [*before, *_placed(tokenizer, text, pieces_of(tokenizer, own)), *after]


def byte_counts(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[int] | None:
    """How many bytes of the text each of its ids stands for; None where their bytes are not those of the text.

    `ids` are of the text without special tokens. A space that the tokenizer puts before a text is not counted.
    """
    known = {id: tokenizer.token_bytes(id) for id in set(ids)}
    return _lengths([known[id] or b"" for id in ids], text)


def _lengths(parts: Sequence[bytes], text: str) -> list[int] | None:
    """The number of the text's bytes in each part; None where the parts are not those of the text."""
    whole, data = b"".join(parts), text.encode("utf-8")
    if whole not in (data, b" " + data):
        return None
    counts = [len(part) for part in parts]
    if whole != data:  # sentencepiece puts a space before a text
        counts[next(index for index, count in enumerate(counts) if count)] -= 1
    return counts


def tokenizer_of(
    source: str | Path, revision: str | None = None, registry: Registry | None = None
) -> Tokenizer:
    """The tokenizer of an architecture's checkpoint, a folder, a file or a hub id, whose weights are not read.

    Of a hub id the weights are not fetched. SourceError where there is no such source, TokenizerError where it has none.

    >>> from zoo.inspect.tokenization import tokenizer_of
    >>> tokenizer_of("llama").encode("中国")
    [868, 289]
    """
    registry = registry or default_registry()
    place = find(source, registry, revision, weights=False, tokenizer=True)
    tokenizer = open_checkpoint(place.path, registry, place.architecture).tokenizer()
    if tokenizer is None:
        raise TokenizerError(f"{source}: has no tokenizer")
    return tokenizer


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Piece]:
    """The pieces that ids stand for, without their places in a text."""
    unknown = tokenizer.special_tokens.get("unk_token")
    unknown_id = tokenizer.id(unknown) if unknown is not None else None
    known = {id: _piece(tokenizer, id, id == unknown_id) for id in set(ids)}
    pieces = [piece for id in ids if (piece := known[id]) is not None]
    return pieces if len(pieces) == len(ids) else _by_decoding(tokenizer, ids, unknown_id)


def _piece(tokenizer: Tokenizer, id: int, unknown: bool) -> Piece | None:
    """One token by itself; None if the tokenizer does not know its bytes."""
    data = tokenizer.token_bytes(id)
    if data is None and not unknown:
        return None
    token = tokenizer.token(id)
    special = _is_special(tokenizer, id)
    text = token if special or unknown or data is None else data.decode("utf-8", "replace")
    return Piece(id, token, text, data or b"", special=special, unknown=unknown)


def _is_special(tokenizer: Tokenizer, id: int) -> bool:
    return not tokenizer.decode([id]) and bool(tokenizer.decode([id], skip_special_tokens=False))


def _by_decoding(tokenizer: Tokenizer, ids: Sequence[int], unknown: int | None) -> list[Piece]:
    """The pieces of a tokenizer that does not know their bytes: each has the text that its decoding adds."""
    detokenizer = tokenizer.detokenizer(skip_special_tokens=False)
    texts = [detokenizer.add(id) for id in ids]
    if texts:
        texts[-1] += detokenizer.finish()
    special = {id: _is_special(tokenizer, id) for id in set(ids)}
    return [
        Piece(id, _name(tokenizer, id), text, text.encode(), special=special[id], unknown=id == unknown)
        for id, text in zip(ids, texts, strict=True)
    ]


def _name(tokenizer: Tokenizer, id: int) -> str:
    try:
        return tokenizer.token(id)
    except TokenizerError:  # a plugin's may have no names for its tokens
        return ""


def _placed(tokenizer: Tokenizer, text: str, pieces: list[Piece]) -> list[Piece]:
    """The pieces of a text with the characters that each covers, as far as they can be told.

    Where the bytes of all pieces are those of the text, counting them is exact. Otherwise the text was changed before
    it was cut, and the tokenizer itself may know.
    """
    places = _counted(text, pieces) or tokenizer.offsets(text)
    if places is None or len(places) != len(pieces):
        return [_known(piece, text) for piece in pieces]
    # The library may place a piece that came of no character behind the text.
    inside = [(min(start, len(text)), min(max(start, end), len(text))) for start, end in places]
    return [
        replace(_known(piece, text[start:end]), start=start, end=end)
        for piece, (start, end) in zip(pieces, inside, strict=True)
    ]


def _known(piece: Piece, covered: str) -> Piece:
    """The piece, which is not unknown where the text spells its name: GPT-2's end token is its unknown one, too."""
    if not piece.unknown:
        return piece
    unknown = piece.token not in covered
    return replace(piece, unknown=unknown, special=not unknown, bytes=b"" if unknown else piece.bytes)


def _counted(text: str, pieces: Sequence[Piece]) -> list[tuple[int, int]] | None:
    """The characters that each piece covers, counted by bytes; None if the bytes are not the text's."""
    counts = _lengths([piece.bytes for piece in pieces], text)
    if counts is None:
        return None
    # The character that each byte belongs to; the end of the text comes last.
    first = [index for index, character in enumerate(text) for _ in character.encode("utf-8")]
    first.append(len(text))
    ends = list(accumulate(counts))
    starts = [0, *ends][:-1]
    return [
        (first[start], first[end - 1] + 1 if end > start else first[start])
        for start, end in zip(starts, ends, strict=True)
    ]
