"""How the next token is chosen from logits. The order, of which each step is left out where nothing asks for it:

1. `logit_bias` is added;
2. penalties: repetition, presence and frequency, DRY;
3. tokens are removed: `banned` texts, repeated n-grams, what a generation_config.json forbids;
4. end tokens are removed until `min_tokens`, or a forced token is left alone;
5. a grammar removes what it does not allow; greedy choice takes the largest logit of what is left;
6. the temperature divides;
7. filters: top-n-sigma, top-k, top-p, min-p, typical, XTC, plugins' samplers, Mirostat;
8. the draw, in proportion to the probabilities of what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from zoo.generation.sampling.constraints import Constraints
from zoo.generation.sampling.plugin_samplers import filters_of
from zoo.generation.sampling.token_sampler import Mask, TokenSampler
from zoo.generation.sampling.token_strings import Spelled, banned_runs, breaking_runs, line_tokens
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.settings import Settings

__all__ = ["Constraints", "Mask", "TokenSampler", "sampler_of"]


def sampler_of(
    loaded: Loaded,
    settings: Settings,
    *,
    given: Sequence[int],
    ends: Collection[int],
    limit: int,
    forced: Constraints | None = None,
    mask: Mask | None = None,
) -> TokenSampler:
    """The sampler of one text of a loaded model, after the tokens `given`, of at most `limit` tokens.

    PromptError for a text that the tokenizer cannot spell, or a plugin's sampler that does not take its settings.
    """
    tokenizer = loaded.tokenizer
    return TokenSampler(
        settings,
        vocab=loaded.recipe.head.vocab or loaded.recipe.embedding.vocab,
        given=given,
        ends=ends,
        limit=limit,
        forced=forced,
        mask=mask,
        filters=filters_of(loaded.registry, settings.samplers),
        spelled=Spelled(
            banned=banned_runs(tokenizer, settings.banned),
            breakers=breaking_runs(tokenizer, settings.dry_breakers) if settings.dry_multiplier else (),
            lines=line_tokens(tokenizer) if settings.xtc_probability else (),
        ),
    )
