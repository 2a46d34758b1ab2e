"""The two libraries that turn text into ids: `tokenizers` for most folders, `sentencepiece` for its own models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from zoo.detokenizer import Detokenizer, PieceDetokenizer, token_detokenizer
from zoo.errors import TokenizerError
from zoo.tokenizer_files import AddedToken, TokenizerSettings, read_json, read_text

if TYPE_CHECKING:
    import tokenizers

# A folder without tokenizer.json says nothing of its pre-tokenization and its special tokens but the name of a
# class. These follow the rules built below; any other would be tokenized wrongly without a sign of it.
_CLASSES = {
    "merges.txt": ("GPT2Tokenizer", "CodeGenTokenizer", "OpenAIGPTTokenizer"),
    "vocab.txt": ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"),
    "spiece.model": ("T5Tokenizer", "MT5Tokenizer", "UMT5Tokenizer", "LlamaTokenizer"),
}
_GENERIC_CLASSES = (None, "PreTrainedTokenizer", "TokenizersBackend")


class Backend(Protocol):
    """What a library is asked for; ids that stand for no token decode to nothing."""

    vocab_size: int
    special_tokens: dict[str, str]

    def encode(self, text: str, special_tokens: bool) -> list[int]: ...
    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str: ...
    def id(self, token: str) -> int | None: ...
    def token(self, id: int) -> str | None: ...
    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer: ...


def open_backend(folder: Path, settings: TokenizerSettings) -> Backend | None:
    """The backend of the first kind of tokenizer file the folder holds, None where it holds none."""
    if (folder / "tokenizer.json").is_file():
        return TokenizersBackend(_from_json(folder / "tokenizer.json"), settings, settings.special_tokens)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _byte_pair(folder, settings)
    if (folder / "vocab.txt").is_file():
        return _word_piece(folder / "vocab.txt", settings)
    for name in ("tokenizer.model", "spiece.model"):
        if (folder / name).is_file():
            return SentencePieceBackend(folder / name, settings)
    return None


class TokenizersBackend:
    """A `tokenizers.Tokenizer`, with the special and added tokens that the settings name."""

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, settings: TokenizerSettings, special_tokens: dict[str, str]
    ) -> None:
        self.tokenizer = tokenizer
        self.special_tokens = special_tokens
        # Many published files carry the limits of their training set; a prompt must never be cut or filled up.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._add_tokens(settings)
        self._mark_special({*special_tokens.values(), *settings.extra_special_tokens})
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(id for id, token in added.items() if token.special)
        self.vocab_size = max([tokenizer.get_vocab_size(with_added_tokens=True), *(id + 1 for id in added)])
        # The reference cleans up no byte-pair text: there it would take away spaces that were written.
        byte_pair = type(tokenizer.model).__name__ == "BPE"
        self.clean_up = bool(settings.flag("clean_up_tokenization_spaces", False)) and not byte_pair

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=special_tokens).ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        text = self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return clean_up(text) if self.clean_up else text

    def id(self, token: str) -> int | None:
        return self.tokenizer.token_to_id(token)

    def token(self, id: int) -> str | None:
        return self.tokenizer.id_to_token(id)

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        skipped = self.special_ids if skip_special_tokens else frozenset()
        return token_detokenizer(
            self.tokenizer.decoder,
            lambda id: None if id in skipped else self.tokenizer.id_to_token(id),
            lambda ids: self.decode(ids, skip_special_tokens),
            self.clean_up,
        )

    def _add_tokens(self, settings: TokenizerSettings) -> None:
        """Append the added tokens that the vocabulary does not have; their ids must come out as promised."""
        for token in settings.added_tokens:
            if self.tokenizer.token_to_id(token.content) is None:
                self.tokenizer.add_tokens([_library_token(token)])
                id = self.tokenizer.token_to_id(token.content)
                if id != token.id:
                    raise TokenizerError(
                        f"{settings.path}: added token {token.content!r} has id {token.id}, "
                        f"but the vocabulary goes on at {id}"
                    )

    def _mark_special(self, texts: set[str]) -> None:
        """Make tokens special that the settings call so; one that the vocabulary lacks is left out."""
        from tokenizers import AddedToken as LibraryToken

        added = self.tokenizer.get_added_tokens_decoder()
        for text in sorted(texts):
            id = self.tokenizer.token_to_id(text)
            known = added.get(id) if id is not None else None
            if id is None or not text or (known is not None and known.special):
                continue
            flags = ("lstrip", "rstrip", "single_word", "normalized")
            kept = {flag: getattr(known, flag) for flag in flags} if known else {"normalized": False}
            self.tokenizer.add_special_tokens([LibraryToken(text, special=True, **kept)])


class SentencePieceBackend:
    """A sentencepiece model, with added tokens split out of the text before it sees them."""

    def __init__(self, path: Path, settings: TokenizerSettings) -> None:
        _check_class(path.name, settings)
        try:
            import sentencepiece
        except ImportError:
            raise TokenizerError(f"{path}: needs the sentencepiece package (pip install sentencepiece)") from None
        proto = path.read_bytes()
        with _naming(path, "not a sentencepiece model"):
            if not proto:
                raise ValueError("it is empty")
            self.model = sentencepiece.SentencePieceProcessor(model_proto=proto)
            # Protocol buffers merge a repeated message: this sets `normalizer_spec.add_dummy_prefix` to false.
            self.inner = sentencepiece.SentencePieceProcessor(model_proto=proto + b"\x1a\x02\x18\x00")
        self.size: int = self.model.get_piece_size()
        ends = {"bos_token": self.model.bos_id(), "eos_token": self.model.eos_id(), "unk_token": self.model.unk_id()}
        pieces = {name: self.model.id_to_piece(id) for name, id in ends.items() if id >= 0}
        self.special_tokens = pieces | settings.special_tokens
        self._collect_tokens(settings)
        self.vocab_size = max([self.size, *(id + 1 for id in self.added)])
        # LLaMA's defaults; a model without a start piece (T5) marks the end of its texts instead.
        has_start = ends["bos_token"] >= 0
        self.prefix = self._edge("bos_token", settings.flag("add_bos_token", has_start))
        self.suffix = self._edge("eos_token", settings.flag("add_eos_token", not has_start))
        # The "legacy" behaviour puts a space before the text after every special token, not at the start alone.
        self.legacy = bool(settings.flag("legacy", not has_start))
        self._probe_leading_space()

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        ids: list[int] = []
        place = 0
        for match in self.split.finditer(text):
            ids += self._encode_plain(text[place : match.start()], place)
            ids.append(self.token_ids[match["token"]])
            place = match.end()
        ids += self._encode_plain(text[place:], place)
        return [*self.prefix, *ids, *self.suffix] if special_tokens else ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        stream = self.detokenizer(skip_special_tokens)
        return "".join([*map(stream.add, ids), stream.finish()])

    def id(self, token: str) -> int | None:
        if token in self.token_ids:
            return self.token_ids[token]
        id = self.model.piece_to_id(token)
        return id if self.model.id_to_piece(id) == token else None

    def token(self, id: int) -> str | None:
        if id in self.added:
            return self.added[id].content
        return self.model.id_to_piece(id) if 0 <= id < self.size else None

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        def piece(id: int) -> str | int | None:
            """A byte's value, a piece's text, or None for what leaves no trace in the text."""
            added = self.added.get(id)
            if added is not None:
                return None if added.special and skip_special_tokens else added.content
            if not 0 <= id < self.size or (self.model.is_control(id) and skip_special_tokens):
                return None
            text = self.model.id_to_piece(id)
            return int(text[3:5], 16) if self.model.is_byte(id) else text

        return PieceDetokenizer(piece, self.strips)

    def _encode_plain(self, text: str, place: int) -> list[int]:
        """The ids of text without added tokens that starts at character `place` of the whole."""
        if not text:
            return []
        return (self.model if self.legacy or place == 0 else self.inner).encode(text)

    def _collect_tokens(self, settings: TokenizerSettings) -> None:
        """Gather the tokens that are matched as whole words: added ones, and the special ones of the model."""
        self.added: dict[int, AddedToken] = {token.id: token for token in settings.added_tokens}
        self.token_ids = {token.content: token.id for token in settings.added_tokens}
        for text in (*self.special_tokens.values(), *settings.extra_special_tokens):
            id = self.id(text) if text else None
            if id is not None and id not in self.added:
                self.added[id] = AddedToken(text, id)
                self.token_ids[text] = id
        # A regular expression takes the first alternative that fits, so the longest token must come first.
        longest = sorted(filter(lambda token: token.content, self.added.values()), key=lambda token: -len(token.content))
        forms: dict[tuple[bool, bool], list[str]] = {}
        for token in longest:
            forms.setdefault((token.lstrip, token.rstrip), []).append(re.escape(token.content))
        raise NotImplementedError

    def _edge(self, name: str, wanted: bool | None) -> list[int]:
        """The ids put at one end of every text."""
        id = self.id(self.special_tokens[name]) if wanted and name in self.special_tokens else None
        return [] if id is None else [id]
