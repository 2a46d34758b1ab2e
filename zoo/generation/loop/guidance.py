"""The guidance of a sequence by its negative prompt, which has a decoder of its own."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from zoo.errors import PromptError
from zoo.generation.loop.batch_decoder import BatchDecoder
from zoo.generation.loop.prompt import encode_prompt
from zoo.generation.sampling.guidance import Guidance
from zoo.generation.settings import Settings
from zoo.loading import Loaded
from zoo.recipe import learned_context


def guidance_of(loaded: Loaded, settings: Settings, ids: Sequence[int], limit: int) -> Guidance | None:
    """The guidance of a sequence with the prompt `ids` and at most `limit` new tokens; None where none is asked for.

    Without a negative prompt the branch begins with the last token of the prompt, as in transformers. PromptError for a
    negative prompt that cannot be, and for an encoder-decoder.
    """
    if settings.guidance_scale == 1:
        return None
    if loaded.model.translates:
        raise PromptError(
            f"`guidance_scale`: {loaded.architecture.name} translates, and guidance is for models that continue a text"
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
    decoder = BatchDecoder(loaded, [negative], limit, settings)

    def run(token: mx.array | None) -> mx.array:  # (1,) -> (1, V)
        return decoder.first() if token is None else decoder.next(token[:, None])

    return Guidance(settings.guidance_scale, run)
