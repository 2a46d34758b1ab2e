"""Tokenizers of translation models: Marian's and M2M-100's, with the pieces of a sentencepiece model and the ids of a
`vocab.json`, NLLB's, a `tokenizer.json` with language tokens, and ByT5's, whose tokens are bytes. Imports no mlx.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.errors import PromptError, TokenizerError, did_you_mean
from zoo.files.reading import file_in_folder
from zoo.frozen import frozen
from zoo.tokenizer.backend import Backend, Languages
from zoo.tokenizer.detokenizer import Detokenizer, PieceDetokenizer
from zoo.tokenizer.huggingface import TokenizersBackend, from_json
from zoo.tokenizer.sentencepiece import added_token_pattern, load_sentencepiece, piece_bytes
from zoo.tokenizer.settings import AddedToken, TokenizerSettings, read_bytes, read_vocabulary

# The languages of M2M-100 and of Facebook's WMT21 models, in the order of their tokens' ids.
FAIRSEQ_LANGUAGES = {
    "m2m100": """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi
        hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa
        pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu""",
    "wmt21": "en ha is ja cs ru zh de",
}

SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


@frozen()
class LanguageTokens(Languages):
    """Languages whose token marks the source text and begins the target (M2M-100, NLLB).

    `end` is the end token. In the `legacy` layout of NLLB the language token comes last.
    """

    end: int
    source: str
    target: str | None = None
    legacy: bool = False

    def encode(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        language = language_id(self.codes, source or self.source, "source")
        ids = self.encode_text(text)
        return [*ids, self.end, language] if self.legacy else [language, *ids, self.end]

    def first(self, target: str | None = None) -> int | None:
        target = target or self.target
        if target is None:
            example = next(
                (code for code in ("fra_Latn", "fr", "fr_XX") if code in self.codes), next(iter(self.codes))
            )
            raise PromptError(
                f"`target_language`: say which of {len(self.codes)}, such as {example}, to translate into"
            )
        return language_id(self.codes, target, "target")


@frozen()
class TargetLanguagePrefix(Languages):
    """Languages of multilingual Marian: the source text begins with the target language, ">>fra<<"."""

    def encode(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        if source is not None:
            raise PromptError("`source_language`: this model recognises the source's language by itself")
        ids = self.encode_text(text)
        return ids if target is None else [language_id(self.codes, target, "target"), *ids]


def language_id(codes: Mapping[str, int], code: str, which: str) -> int:
    """The id of a language's token; PromptError, with the nearest codes, for one that the model lacks."""
    if code in codes:
        return codes[code]
    hint = did_you_mean(code, codes, f"; it has {', '.join(list(codes)[:8])} …", most=3, alike=0.4)
    raise PromptError(f"`{which}_language`: the model has no language {code!r}{hint}")


class VocabularyBackend(Backend):
    """A tokenizer with the pieces of a sentencepiece model and the ids of a table; a piece that it lacks is unknown.

    `target` is the table for decoding, where it is another.
    """

    kind = "sentencepiece"

    def __init__(
        self,
        model: Path,
        vocab: Mapping[str, int],
        special_tokens: Mapping[str, str],
        target: Mapping[str, int] | None = None,
    ) -> None:
        self._model = load_sentencepiece(model, read_bytes(model))
        self._ids = dict(vocab)
        self._pieces = {id: piece for piece, id in (target or vocab).items()}
        self.special_tokens = dict(special_tokens)
        for name in ("eos_token", "unk_token"):
            if self.special_tokens[name] not in self._ids:
                raise TokenizerError(
                    f"{model.parent}: vocab.json lacks the {name} {self.special_tokens[name]!r}"
                )
        self._unknown = self._ids[self.special_tokens["unk_token"]]
        self._end = self._ids[self.special_tokens["eos_token"]]
        self.special = {token for token in self.special_tokens.values() if token in self._ids}
        self.vocab_size = max([*self._ids.values(), *self._pieces]) + 1

    def _check_settings(self, settings: TokenizerSettings) -> None:
        """TokenizerError for settings that this tokenizer does not follow: added tokens, and flags of its own ones."""
        if settings.flag("split_special_tokens", False):
            raise TokenizerError(
                f"{settings.path}: split_special_tokens is not implemented for this tokenizer"
            )
        for token in settings.added_tokens:
            flags = token.lstrip or token.rstrip or token.single_word or not token.special
            if self.id(token.content) != token.id or flags:
                raise TokenizerError(
                    f"{settings.path}: added_tokens_decoder[{token.id}] {token.content!r} must be a special token of the "
                    f"vocabulary without lstrip, rstrip and single_word: this tokenizer has no others"
                )
            self.special.add(token.content)

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        if special_tokens and self.languages is not None:
            return self.languages.encode(text)
        return [*self.encode_text(text), *([self._end] if special_tokens else [])]

    def encode_text(self, text: str) -> list[int]:
        """The ids of a text alone; a special token spelled in it is that token."""
        ids = []
        written = "|".join(map(re.escape, sorted(self.special, key=len, reverse=True)))
        for index, part in enumerate(re.split(f"({written})", text)):
            if index % 2:
                ids.append(self._ids[part])
            else:
                ids += self._pieces_of(part, self._model, self._ids)
        return ids

    def _pieces_of(self, text: str, model: Any, ids: Mapping[str, int]) -> list[int]:
        """The ids of the pieces that a sentencepiece model cuts a text into."""
        return [ids.get(piece, self._unknown) for piece in model.encode(text, out_type=str)]

    def id(self, token: str) -> int | None:
        return self._ids.get(token)

    def token(self, id: int) -> str | None:
        return self._pieces.get(id)

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        def piece(id: int) -> str | int | None:
            text = self._pieces.get(id)
            if text is None or (text in self.special and skip_special_tokens):
                return None
            byte = self._model.is_byte(self._model.piece_to_id(text))
            return int(text[3:5], 16) if byte else text

        return RightStrippedDetokenizer(PieceDetokenizer(piece, "all"))

    def token_bytes(self, id: int) -> bytes | None:
        text = self._pieces.get(id)
        if text is None or id == self._unknown:
            return None
        known = self._model.piece_to_id(text)
        # A special token may be no piece of the model, which then answers "unknown".
        return text.encode("utf-8") if self._model.is_unknown(known) else piece_bytes(self._model, known)


class RightStrippedDetokenizer:
    """A Detokenizer that removes the white space at the end of a text."""

    def __init__(self, inner: Detokenizer) -> None:
        self.inner = inner
        self._pending = ""

    def add(self, id: int) -> str:
        return self._settled(self._pending + self.inner.add(id))

    def finish(self) -> str:
        return self._settled(self._pending + self.inner.finish())

    def _settled(self, text: str) -> str:
        settled = text.rstrip()
        self._pending = text[len(settled) :]
        return settled


class MarianBackend(VocabularyBackend):
    """Marian's tokenizer: a text may begin with the mark of a language, ">>fra<<", a token of the vocabulary."""

    def __init__(self, folder: Path, settings: TokenizerSettings) -> None:
        separate = settings.flag("separate_vocabs", False)
        target = read_vocabulary(folder / "target_vocab.json") if separate else None
        vocab = read_vocabulary(folder / "vocab.json")
        super().__init__(folder / "source.spm", vocab, SPECIAL | settings.special_tokens, target)
        self._check_settings(settings)
        self._folder, self._target_ids = folder, target or vocab
        codes = {token[2:-2]: id for token, id in vocab.items() if re.fullmatch(r">>.+<<", token)}
        if codes:
            self.languages = TargetLanguagePrefix(codes, lambda text: [*self.encode_text(text), self._end])

    def encode_target(self, text: str) -> list[int]:
        return self._pieces_of(text, self._target_model, self._target_ids)

    @cached_property
    def _target_model(self) -> Any:
        """The sentencepiece model that encodes targets: target.spm, else the one of the sources."""
        path = file_in_folder(self._folder, "target.spm")
        return self._model if path is None else load_sentencepiece(path, read_bytes(path))

    def encode_text(self, text: str) -> list[int]:
        mark = re.match(r">>.*?<<", text, re.DOTALL)
        if mark is None:
            return super().encode_text(text)
        return [self._ids.get(mark[0], self._unknown), *super().encode_text(text[mark.end() :])]


class M2MBackend(VocabularyBackend):
    """M2M-100's tokenizer, whose language tokens ("__fr__") come after the vocabulary."""

    def __init__(self, folder: Path, settings: TokenizerSettings) -> None:
        vocab = read_vocabulary(folder / "vocab.json")
        name = settings.values.get("language_codes") or "m2m100"
        if name not in FAIRSEQ_LANGUAGES:
            known = ", ".join(FAIRSEQ_LANGUAGES)
            raise TokenizerError(f"{settings.path}: language_codes must be one of {known}, got {name!r}")
        codes = {code: len(vocab) + index for index, code in enumerate(FAIRSEQ_LANGUAGES[name].split())}
        marks = {f"__{code}__": id for code, id in codes.items()}
        names = {"bos_token": "<s>", "sep_token": "</s>", **SPECIAL}
        model = folder / "sentencepiece.bpe.model"
        super().__init__(model, {**vocab, **marks}, names | settings.special_tokens)
        self.special |= marks.keys()
        self._check_settings(settings)
        self.languages = language_tokens(codes, self, settings, default="en")


def read_m2m(folder: Path, settings: TokenizerSettings) -> Backend:
    """M2M-100's tokenizer of a folder, or the one in its `tokenizer.json`."""
    if file_in_folder(folder, "tokenizer.json") is not None:
        return from_json(folder / "tokenizer.json", settings)
    return M2MBackend(folder, settings)


def read_nllb(folder: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """The tokenizer of an NLLB or mBART-50 folder. Its tokenizer.json has one token for each language ("fra_Latn", "fr_XX")."""
    backend = from_json(folder / "tokenizer.json", settings)
    added = backend.tokenizer.get_added_tokens_decoder().items()
    codes = {
        token.content: id
        for id, token in sorted(added)
        if re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}", token.content)
    }
    if codes:
        default = next((code for code in ("eng_Latn", "en_XX") if code in codes), next(iter(codes)))
        backend.languages = language_tokens(codes, backend, settings, default)
    return backend


def language_tokens(
    codes: Mapping[str, int],
    backend: Backend,
    settings: TokenizerSettings,
    default: str,
) -> LanguageTokens:
    """The languages of M2M-100 and NLLB, with the settings' own source and target when they name them."""
    end = backend.id(backend.special_tokens.get("eos_token", "</s>"))
    if end is None:
        raise TokenizerError(f"{settings.path}: the tokenizer has no end token")
    return LanguageTokens(
        codes=codes,
        encode_text=lambda text: backend.encode(text, special_tokens=False),
        end=end,
        source=settings.values.get("src_lang") or default,
        target=settings.values.get("tgt_lang"),
        legacy=bool(settings.flag("legacy_behaviour", False)),
    )


BYTES = range(len(SPECIAL), len(SPECIAL) + 256)  # after ids 0, 1 and 2


class ByteTokenizer(Backend):
    """ByT5's tokenizer, which has no vocabulary: a token is a UTF-8 byte (Xue et al., 2022, arXiv:2105.13626).

    The first ids are padding, end and unknown; byte b has id b + 3; added tokens come after the bytes.
    """

    kind = "bytes"

    def __init__(self, special_tokens, added=(), split_special=False):
        self.special_tokens = {**SPECIAL, **special_tokens}
        # These three tokens strip the spaces around them unless the settings set other flags, as in transformers.
        named = (
            AddedToken(self.special_tokens[name], id, lstrip=True, rstrip=True)
            for id, name in enumerate(SPECIAL)
        )
        tokens = {token.id: token for token in (*named, *added) if token.id not in BYTES}
        self.tokens = {id: token.content for id, token in tokens.items()}
        self.ids = {text: id for id, text in self.tokens.items()}
        self.vocab_size = max(BYTES.stop, *(id + 1 for id in self.tokens))
        self.pattern = added_token_pattern(() if split_special else tokens.values())

    def encode(self, text, special_tokens):
        ids, end = [], 0
        for found in self.pattern.finditer(text):
            ids += self._bytes(text[end : found.start()])
            ids.append(self.ids[found[0] if found[0] in self.ids else found[0].strip()])
            end = found.end()
        ids += self._bytes(text[end:])
        return [*ids, self.ids[self.special_tokens["eos_token"]]] if special_tokens else ids

    def _bytes(self, text):
        return [byte + BYTES.start for byte in text.encode("utf-8")]

    def id(self, token):
        if token in self.ids:
            return self.ids[token]
        return ord(token) + BYTES.start if len(token) == 1 and ord(token) < 256 else None

    def token(self, id):
        return self.tokens.get(id, chr(id - BYTES.start) if id in BYTES else None)

    def token_bytes(self, id):
        return bytes([id - BYTES.start]) if id in BYTES else self.tokens.get(id, "").encode("utf-8")

    def detokenizer(self, skip_special_tokens):
        return ByteDetokenizer(self.tokens, skip_special_tokens)


class ByteDetokenizer:
    """Ids to text one by one: the bytes of an unfinished character wait for the rest, what is no character is left out."""

    def __init__(self, tokens, skip_special_tokens):
        self.tokens = {} if skip_special_tokens else tokens
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def add(self, id):
        data = bytes([id - BYTES.start]) if id in BYTES else self.tokens.get(id, "").encode("utf-8")
        return self.decoder.decode(data)

    def finish(self):
        return self.decoder.decode(b"", final=True)


def read_byt5(folder, settings):
    """The tokenizer of a folder whose tokenizer_config.json names ByT5Tokenizer."""
    split_special = settings.flag("split_special_tokens", False)
    return ByteTokenizer(settings.special_tokens, settings.added_tokens, split_special)
