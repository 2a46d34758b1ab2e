"""The interface of a tokenizer's backend: one kind of tokenizer files, or one library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from zoo.errors import PluginError
from zoo.tokenizer.detokenizer import Detokenizer
from zoo.tokenizer.token_bytes import TextBytes

if TYPE_CHECKING:
    from zoo.tokenizer.languages import Languages

# Without `languages`, `token_bytes`, `text_bytes` and `offsets`, which a plugin of contract version 1 need not have.
REQUIRED = ("vocab_size", "special_tokens", "encode", "decode", "id", "token", "detokenizer")


@runtime_checkable
class Backend(Protocol):
    """What a `Tokenizer` is made with: a subclass of this, or any object with these attributes and methods.

    `vocab_size` is one more than the largest id, `special_tokens` the text of each named special token ("bos_token"),
    `languages` those that the tokenizer can translate between, or None; `kind` how it finds its tokens ("BPE"). An object
    that is no subclass may lack `languages`, `kind`, `token_bytes`, `text_bytes` and `offsets`.
    """

    vocab_size: int
    special_tokens: dict[str, str]
    languages: Languages | None = None
    kind: str = ""

    @abstractmethod
    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """The ids of a text; `special_tokens` adds those that belong around it."""
        ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of ids; an id that no token has adds nothing."""
        detokenizer = self.detokenizer(skip_special_tokens)
        return "".join([*map(detokenizer.add, ids), detokenizer.finish()])

    @abstractmethod
    def id(self, token: str) -> int | None:
        """The id of a token written as in the vocabulary, None where there is none."""
        ...

    @abstractmethod
    def token(self, id: int) -> str | None:
        """The token of an id as the vocabulary writes it, None where there is none."""
        ...

    @abstractmethod
    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        """A new Detokenizer: its pieces joined are what `decode` gives for all the ids."""
        ...

    def token_bytes(self, id: int) -> bytes | None:
        """The bytes that a token stands for within a text, None where they cannot be told from the token alone."""
        return None

    def text_bytes(self) -> TextBytes | None:
        """What each id adds to a text, where decoding joins the bytes of tokens; None where it does more than that."""
        return None

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """The characters of the text, from and up to, of each id that `encode` gives without special tokens.

        None where the tokenizer does not know them.
        """
        return None


class WrappedBackend(Backend):
    """Another backend's behaviour, as a base for one that changes a part of it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.vocab_size = inner.vocab_size
        self.special_tokens = inner.special_tokens
        self.languages = getattr(inner, "languages", None)
        self.kind = getattr(inner, "kind", "")

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        return self.inner.encode(text, special_tokens)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return self.inner.decode(ids, skip_special_tokens)

    def id(self, token: str) -> int | None:
        return self.inner.id(token)

    def token(self, id: int) -> str | None:
        return self.inner.token(id)

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        return self.inner.detokenizer(skip_special_tokens)

    def token_bytes(self, id: int) -> bytes | None:
        own = getattr(self.inner, "token_bytes", None)
        return own(id) if own is not None else None

    def text_bytes(self) -> TextBytes | None:
        own = getattr(self.inner, "text_bytes", None)
        return own() if own is not None else None

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        own = getattr(self.inner, "offsets", None)
        return own(text) if own is not None else None


def checked_backend(backend: Any, origin: str) -> Backend:
    """The backend that `origin` gave, completed where it is one of contract version 1; PluginError for what is none."""
    if isinstance(backend, Backend):
        return backend
    missing = next((name for name in REQUIRED if not hasattr(backend, name)), None)
    if missing is not None:
        raise PluginError(f"{origin} gave {type(backend).__name__}, which has no {missing}")
    return WrappedBackend(backend)
