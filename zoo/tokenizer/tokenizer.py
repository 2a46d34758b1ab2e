"""`Tokenizer` and `load_tokenizer`: text to ids and back, for every kind of tokenizer that a model folder may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from zoo.architecture import TokenizerFormat
from zoo.errors import PluginError, TokenizerError, warn
from zoo.files.reading import file_in_folder, read_object_at
from zoo.tokenizer.backend import Backend, Languages, TextBytes, TypedIds
from zoo.tokenizer.detokenizer import Detokenizer, VisibleTokenDetokenizer
from zoo.tokenizer.huggingface import from_json, from_word_pieces
from zoo.tokenizer.settings import (
    TokenizerSettings,
    read_chat_templates,
    read_settings,
    token_ids,
    vocabulary_files,
)
from zoo.tokenizer.turn_ends import TURN_ENDS, end_ids

MOST_CHARACTERS = 16  # of a token, on average over a text that may be encoded as a whole
PIECE = 2**15  # characters that are encoded at once to count the tokens of a long text
CUT_TOKENS = 128  # of a piece, which the words that were cut at its ends may have added


class Tokenizer:
    """Turns text into token ids and ids into text.

    `vocab_size` is one more than the largest id; `bos_id` the start token's id, None where there is none;
    `eos_ids` the ids that end a text or a turn, each by itself; `special_tokens` the text of each named special token
    ("bos_token", "eos_token", ...); `chat_template` the Jinja source that lays out a conversation, or None;
    `chat_templates` all that the checkpoint has, by name: `chat_template` is the one named "default";
    `languages` those that it can translate between, or None; `kind` how it finds its tokens: "BPE", "Unigram",
    "WordPiece", "sentencepiece", "" where its backend does not say.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        self._backend = backend
        self.vocab_size = backend.vocab_size
        self.special_tokens = dict(backend.special_tokens)
        self.bos_id = bos_id
        self.eos_ids = frozenset(eos_ids)
        self.chat_templates = dict(chat_templates or {})
        self.chat_template = self.chat_templates.get("default")
        if self.chat_templates and self.chat_template is None:
            warn(f"no chat template is named default, only {', '.join(sorted(self.chat_templates))}")
        self.languages: Languages | None = backend.languages
        self.kind = backend.kind
        self._visible: dict[int, str] = {}

    def __repr__(self) -> str:
        template = ", with a chat template" if self.chat_template else ""
        return f"<Tokenizer{f' ({self.kind})' if self.kind else ''}, {self.vocab_size:,} tokens{template}>"

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:
        """The ids of a text; TokenizerError for text that no UTF-8 file could hold.

        `special_tokens` adds what the tokenizer puts around a text, such as a start token; a rendered chat
        template carries that already. Text that spells a special token becomes that token.
        """
        return self._backend.encode(_encodable(text), special_tokens)

    def encode_pair(self, first: str, second: str | None = None, most: int | None = None) -> TypedIds:
        """The ids of a text, or of two as one sequence, with what the tokenizer puts around and between them.

        Of more than `most` ids, tokens of the longer text are left out first, on the side that `truncation_side` in
        tokenizer_config.json says. TokenizerError as for `encode`, and for a pair that the tokenizer cannot encode.
        """
        texts = [None if text is None else _encodable(text) for text in (first, second)]
        if most is not None and not self._backend.cuts_left:
            texts = [None if text is None else self.beginning(text, most) for text in texts]
        return self._backend.encode_pair(texts[0] or "", texts[1], most)

    def beginning(self, text: str, most: int) -> str:
        """The text, or a beginning of it that surely has more than `most` tokens. The cost depends on `most`, not on the text.

        A text of at most `MOST_CHARACTERS` for each token is returned as it is. A longer one is encoded in pieces until these
        have over twice as many tokens. The whole has fewer only by what the cuts changed: normalizers that shorten a text, and
        unknown words of any length, shorten its pieces, too. TokenizerError as for `encode`.
        """
        if len(text) <= max(MOST_CHARACTERS * most, PIECE):
            return text
        text, count = _encodable(text), 0
        for end in range(PIECE, len(text), PIECE):
            ids = self._backend.encode(text[end - PIECE : end], special_tokens=False)
            count += max(len(ids) - CUT_TOKENS, 0)
            if count > 2 * most:
                return text[:end]
        return text

    def encode_target(self, text: str) -> list[int]:
        """The ids of a translation, without special tokens; Marian's models have other tokens for these. Errors as `encode`."""
        return self._backend.encode_target(_encodable(text))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ids; an id that no token has, as a padded vocabulary can give, adds nothing."""
        return self._backend.decode(ids, skip_special_tokens)

    def detokenizer(self, skip_special_tokens: bool = True) -> Detokenizer:
        """A new Detokenizer. Its pieces joined are what `decode` returns for all the ids."""
        if skip_special_tokens and self._visible:
            return VisibleTokenDetokenizer(lambda: self._backend.detokenizer(True), self._visible)
        return self._backend.detokenizer(skip_special_tokens)

    def with_visible_tokens(self, tokens: Iterable[str]) -> Tokenizer:
        """This tokenizer with detokenizers that write the special `tokens` instead of skipping them."""
        tokenizer = copy(self)
        tokenizer._visible = {id: token for token, id in special_ids(self._backend, tokens).items()}
        return tokenizer

    def for_tools(self, tools: object = True) -> Tokenizer:
        """This tokenizer; where there are `tools`, and a chat template named "tool_use", with that one as `chat_template`."""
        template = self.chat_templates.get("tool_use") if tools else None
        if template is None:
            return self
        tokenizer = copy(self)
        tokenizer.chat_template = template
        return tokenizer

    def id(self, token: str) -> int | None:
        """The id of a token written as in the vocabulary, None where there is none."""
        return self._backend.id(token)

    def token(self, id: int) -> str:
        """The token of an id as the vocabulary writes it; TokenizerError where there is none."""
        token = self._backend.token(id) if id >= 0 else None
        if token is None:
            raise TokenizerError(f"no token has the id {id}")
        return token

    def token_bytes(self, id: int) -> bytes | None:
        """The bytes that a token stands for within a text, None where the tokenizer cannot tell.

        Those of a byte-level tokenizer, one after the other, are the bytes of the encoded text.
        """
        return self._backend.token_bytes(id)

    def text_bytes(self) -> TextBytes | None:
        """The bytes that each id adds to a text; None where decoding does more than join the bytes of tokens.

        WordPiece's decoder, for example, puts spaces between words.
        """
        return self._backend.text_bytes()

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """The range of characters of each id of `encode(text, special_tokens=False)`; None where it is unknown."""
        return self._backend.offsets(text)


def _encodable(text: str) -> str:
    """The text; TokenizerError for one that no UTF-8 file could hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(f"the text holds half a character (a lone surrogate) at {error.start}") from None
    return text


def load_tokenizer(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    formats: Mapping[str, TokenizerFormat] | None = None,
) -> Tokenizer | None:
    """The tokenizer of a model folder, None where the folder holds none.

    The `formats` of plugins, by name, come first. Else it is read from `tokenizer.json`; else `vocab.json` and `merges.txt`;
    else `vocab.txt`; else `tekken.json`, `qwen.tiktoken` or `tiktoken.model`; else `tokenizer.model` or `spiece.model`. `config` is the parsed `config.json`. TokenizerError names the file (and key) that is damaged
    or cannot be followed; PluginError the formats that both serve this folder.
    """
    folder = Path(folder)
    settings = read_settings(folder, config)
    backend = _backend_of_plugin(folder, settings, formats or {}) or _backend_of_files(folder, settings)
    if backend is None:
        return None
    config = config or {}
    ids = {name: backend.id(text) for name, text in backend.special_tokens.items()}
    bos_id = ids.get("bos_token")
    if bos_id is None:
        bos_id = next(iter(token_ids(config.get("bos_token_id"), "config.json: bos_token_id")), None)
    path = folder / "generation_config.json"
    named = eos_ids_of(config, read_object_at(path, TokenizerError), ids.get("eos_token"), path)
    return Tokenizer(
        backend,
        bos_id=bos_id,
        eos_ids=named.union(end_ids(special_ids(backend, TURN_ENDS), None)),
        chat_templates=read_chat_templates(folder, settings),
    )


def special_ids(backend: Backend, tokens: Iterable[str]) -> dict[str, int]:
    """The ids of those of the tokens that the vocabulary has and decoding leaves out."""
    ids = {token: id for token in tokens if (id := backend.id(token)) is not None}
    return {token: id for token, id in ids.items() if not backend.decode([id], True)}


def eos_ids_of(
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    eos_id: int | None = None,
    generation_path: Path | str = "generation_config.json",
) -> frozenset[int]:
    """Every id that files say ends a text: the tokenizer's own, and those that either config names.

    Chat models end a turn with another token than the one that ended their training texts, and folders name it in
    different files. TokenizerError for an `eos_token_id` that is not one or several integers.
    """
    named = token_ids(config.get("eos_token_id"), "config.json: eos_token_id")
    generated = token_ids(generation_config.get("eos_token_id"), f"{generation_path}: eos_token_id")
    return frozenset([*named, *generated, *([] if eos_id is None else [eos_id])])


def _backend_of_plugin(
    folder: Path, settings: TokenizerSettings, formats: Mapping[str, TokenizerFormat]
) -> Backend | None:
    """The backend that a plugin's format makes of the folder, None where none serves it."""
    serving = [
        name
        for name, format in formats.items()
        if all(file_in_folder(folder, file) is not None for file in format.files)
        and (not format.classes or settings.tokenizer_class in format.classes)
    ]
    if not serving:
        return None
    if len(serving) > 1:
        names = " and ".join(serving)
        raise PluginError(f"{folder}: the tokenizers {names} both serve it: leave one out with ZOO_BLOCK")
    format = formats[serving[0]]
    backend = format.load()(folder, settings)
    if not isinstance(backend, Backend):
        raise PluginError(f"{format.target} gave {type(backend).__name__}, not a zoo.tokenizer.Backend")
    return backend


def _backend_of_files(folder: Path, settings: TokenizerSettings) -> Backend | None:
    """The backend of the first kind of tokenizer file that the folder holds."""
    match vocabulary_files(lambda name: file_in_folder(folder, name) is not None):
        case ("tokenizer.json",):
            return from_json(folder / "tokenizer.json", settings)
        case (_, "merges.txt"):
            from zoo.tokenizer.byte_pairs import from_merges

            return from_merges(folder, settings)
        case ("vocab.txt",):
            return from_word_pieces(folder / "vocab.txt", settings)
        case ("tekken.json",):
            from zoo.tokenizer.byte_pairs import from_tekken

            return from_tekken(folder / "tekken.json", settings)
        case ("qwen.tiktoken" | "tiktoken.model" as name,):
            from zoo.tokenizer.byte_pairs import from_ranks

            return from_ranks(folder / name, settings)
        case (name,):
            from zoo.tokenizer.sentencepiece import SentencePieceBackend

            return SentencePieceBackend(folder / name, settings)
    return None
