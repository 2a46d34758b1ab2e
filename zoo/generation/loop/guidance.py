"""The branch of a sequence that reads the negative prompt, for guidance. Axes: V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from zoo.errors import PromptError
from zoo.generation.loop.prompt import MOST_RESERVED, Prefill, encode_prompt
from zoo.generation.sampling.guidance import Guidance
from zoo.generation.settings import Settings
from zoo.loading import Loaded
from zoo.recipe import learned_context


class NegativeBranch:
    """The logits of a negative prompt and the tokens of the text after it, by a KV cache of its own."""

    def __init__(self, prefill: Prefill, decode: Callable[[mx.array, list[Any]], mx.array]) -> None:
        self._prefill, self._decode = prefill, decode
        self._ids = list(prefill.ids)

    def __call__(self, token: mx.array | None) -> mx.array:
        """The logits (1, V) after one more token (1,) of the text; None: after the prompt alone."""
        if token is None:
            return self._prefill.finish()
        switches = self._prefill.model.angles.switches
        if len(self._ids) in switches:  # from now on every token before is rotated by other angles
            cache = self._prefill.model.make_cache(self._prefill.cache[0].policy)
            self._prefill = replace(self._prefill, ids=self._ids, cache=cache, read=0, following=1)
            self._prefill.finish()
        if switches:
            self._ids.append(int(token.item()))
        return self._decode(token[:, None], self._prefill.cache)


def guidance_of(
    loaded: Loaded, settings: Settings, ids: Sequence[int], limit: int, decode: Callable[[Any], Any]
) -> Guidance | None:
    """The guidance of a sequence with the prompt `ids` and at most `limit` new tokens; None where none is asked for.

    Without a negative prompt the branch begins with the last token of the prompt, as in transformers. `decode(model)` makes
    the pass of one token. PromptError for a negative prompt that cannot be, and for an encoder-decoder.
    """
    if settings.guidance_scale == 1:
        return None
    if loaded.model.translates:
        raise PromptError(
            f"`guidance_scale`: {loaded.architecture.name} translates: it has no text without its source"
        )
    if settings.negative_prompt is None:
        negative = [ids[-1]]
    else:
        try:
            negative = encode_prompt(loaded, settings.negative_prompt, settings.special_tokens)
        except PromptError as error:
            raise PromptError(f"`negative_prompt`: {error}") from error
    context = learned_context(loaded.recipe)
    if context is not None and len(negative) + limit - 1 > context:
        raise PromptError(
            f"`negative_prompt` has {len(negative)} tokens, which leaves {context + 1 - len(negative)} of the {context} "
            f"learned positions for new ones, fewer than the {limit} of `max_tokens`"
        )
    policy = settings.policy(len(negative) + min(limit, MOST_RESERVED))
    prefill = Prefill(
        loaded.model,
        negative,
        loaded.model.make_cache(policy),
        chunk=settings.prefill_chunk,
        prefix=loaded.architecture.causality == "prefix",
    )
    return Guidance(settings.guidance_scale, NegativeBranch(prefill, decode(loaded.model)))
