"""The languages of a translation model's tokenizer, and the tokens that mark them. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from zoo.errors import PromptError, did_you_mean
from zoo.frozen import Frozen, frozen


class Languages(Protocol):
    """The languages of a tokenizer."""

    @property
    def codes(self) -> Mapping[str, int]:
        """The languages by their codes, each with the id of its token."""
        ...

    def encode(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        """The ids of a source text, with the tokens that mark its language; PromptError for an unknown code."""
        ...

    def first(self, target: str | None = None) -> int | None:
        """The id of the token that the target must begin with, or None; PromptError for an unknown code."""
        ...


@frozen()
class LanguageTokens(Frozen):
    """Languages whose token marks the source text and begins the target (M2M-100, NLLB).

    `plain` encodes a text without marks; `end` is the end token. In the `legacy` layout of NLLB the mark comes last.
    """

    codes: Mapping[str, int]
    plain: Callable[[str], list[int]]
    end: int
    source: str
    target: str | None = None
    legacy: bool = False

    def encode(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        mark = language_id(self.codes, source or self.source, "source")
        ids = self.plain(text)
        return [*ids, self.end, mark] if self.legacy else [mark, *ids, self.end]

    def first(self, target: str | None = None) -> int | None:
        if target is None and self.target is None:
            raise PromptError(
                f"`target_language`: say which of {len(self.codes)}, such as {self._example()}, to translate into"
            )
        return language_id(self.codes, target or self.target or "", "target")

    def _example(self) -> str:
        known = [code for code in ("fra_Latn", "fr") if code in self.codes]
        return known[0] if known else next(iter(self.codes))


@frozen()
class TargetLanguagePrefix(Frozen):
    """Languages marked before the source text by the one to translate into, ">>fra<<" (multilingual Marian)."""

    codes: Mapping[str, int]
    plain: Callable[[str], list[int]]

    def encode(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        if source is not None:
            raise PromptError("`source_language`: this model recognises the source's language by itself")
        return (
            self.plain(text)
            if target is None
            else [language_id(self.codes, target, "target"), *self.plain(text)]
        )

    def first(self, target: str | None = None) -> int | None:
        return None


def language_id(codes: Mapping[str, int], code: str, which: str) -> int:
    """The id of a language's token; PromptError, with the nearest codes, for one that the model lacks."""
    if code in codes:
        return codes[code]
    hint = did_you_mean(code, codes, f"; it has {', '.join(list(codes)[:8])} …", most=3, alike=0.4)
    raise PromptError(f"`{which}_language`: the model has no language {code!r}{hint}")
