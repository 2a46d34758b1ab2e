"""`Backend` and `Languages`: the base classes of kinds of tokenizers, and of the languages that one may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from zoo.errors import TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer.detokenizer import Detokenizer


@frozen()
class TextBytes(Frozen):
    """The bytes that each id adds to a text, where decoding joins these bytes.

    `tokens` has an entry for each id, None for one that adds nothing (a special token) or not always the same.
    `altered_first` are the ids that add fewer bytes at the start of a text: a sentencepiece decoder removes the space that
    encoding added there.
    """

    tokens: tuple[bytes | None, ...]
    altered_first: frozenset[int] = frozenset()


@frozen()
class TypedIds(Frozen):
    """The ids of a text or of a pair of texts, special tokens included.

    `types` tell the second text, 1, from the first, 0, where the tokenizer does. `offsets` are the range of characters of
    each id in its text; None for a token that the tokenizer adds, and where it is unknown. `cut`: tokens were left out.
    """

    ids: tuple[int, ...]
    types: tuple[int, ...]
    offsets: tuple[tuple[int, int] | None, ...]
    cut: bool = False


@frozen()
class Languages(Frozen):
    """The languages of a tokenizer: `codes` with the ids of their tokens; `encode_text` encodes a text without these."""

    codes: Mapping[str, int]
    encode_text: Callable[[str], list[int]]

    def encode(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        """The ids of a source text with the tokens of its language; PromptError for an unknown code."""
        raise NotImplementedError

    def first(self, target: str | None = None) -> int | None:
        """The id of the token that the target must begin with, or None; PromptError for an unknown code."""
        return None


class Backend(ABC):
    """What a `Tokenizer` is made with: a plugin's tokenizer is a subclass of this.

    `vocab_size` is one more than the largest id, `special_tokens` the text of each named special token ("bos_token"),
    `languages` those that the tokenizer can translate between, or None; `kind` how it finds its tokens ("BPE").
    `cuts_left`: texts that are too long lose their beginning, not their end.
    """

    vocab_size: int
    special_tokens: dict[str, str]
    languages: Languages | None = None
    kind: str = ""
    cuts_left: bool = False

    @abstractmethod
    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """The ids of a text; `special_tokens` adds those that belong around it."""

    def encode_target(self, text: str) -> list[int]:
        """The ids of a translation, without special tokens; a model may have other tokens for these."""
        return self.encode(text, special_tokens=False)

    def encode_pair(self, first: str, second: str | None, most: int | None) -> TypedIds:
        """The ids of a text, or of two texts as one sequence, cut to `most`.

        TokenizerError for two texts, and for one with more tokens, where a kind of tokenizer cannot lay these out.
        """
        if second is not None:
            raise TokenizerError("this kind of tokenizer cannot encode a pair of texts; tokenizer.json can")
        ids = tuple(self.encode(first, special_tokens=True))
        if most is not None and len(ids) > most:
            raise TokenizerError(f"a text has {len(ids)} tokens, more than the {most} that it may have")
        return TypedIds(ids, (0,) * len(ids), (None,) * len(ids))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of ids; an id that no token has adds nothing."""
        detokenizer = self.detokenizer(skip_special_tokens)
        return "".join([*map(detokenizer.add, ids), detokenizer.finish()])

    @abstractmethod
    def id(self, token: str) -> int | None:
        """The id of a token written as in the vocabulary, None where there is none."""

    @abstractmethod
    def token(self, id: int) -> str | None:
        """The token of an id as the vocabulary writes it, None where there is none."""

    @abstractmethod
    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        """A new Detokenizer. Its pieces joined are what `decode` returns for all the ids."""

    def token_bytes(self, id: int) -> bytes | None:
        """The bytes of a token within a text, None where they depend on more than the token."""
        return None

    def text_bytes(self) -> TextBytes | None:
        """The bytes that each id adds to a text; None where decoding does more than join the bytes of tokens."""
        return None

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """The range of characters of each id that `encode` returns without special tokens; None where it is unknown."""
        return None
