"""The languages of a translation model's tokenizer, and their tokens. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zoo.errors import PromptError, did_you_mean
from zoo.frozen import Frozen, frozen


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
                (code for code in ("fra_Latn", "fr") if code in self.codes), next(iter(self.codes))
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
