"""Prompts made ready: their ids, limits and constraints, and which of them share the passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.loop.prompt import encode_prompt, end_ids, first_token, start_token
from zoo.generation.sampling.constraints import Constraints, constraints_of
from zoo.generation.settings.generation_config import generation_config_of, token_limit
from zoo.generation.settings.settings import Settings, check_policy
from zoo.loading import Loaded

Made = TypeVar("Made")
BATCH = 16  # prompts that share the passes, unless a number is asked for


@frozen()
class Prepared(Frozen):
    """A prompt's ids, the most new tokens after it, and what is forbidden or forced of them."""

    ids: tuple[int, ...]
    limit: int
    constraints: Constraints


def prepared(loaded: Loaded, prompt: str | Sequence[int], settings: Settings) -> Prepared:
    """The prompt, text or token ids, with its limit and constraints; PromptError for one that cannot be."""
    check_policy(loaded.model, settings.policy())
    languages = (settings.source_language, settings.target_language)
    ids = encode_prompt(loaded, prompt, settings.special_tokens, *languages)
    limit = token_limit(loaded, len(ids), settings.max_tokens, settings.min_tokens)
    named = settings.target_language is not None or isinstance(prompt, str)
    constraints = constraints_of(
        generation_config_of(loaded),
        loaded.recipe.head.vocab or loaded.recipe.embedding.vocab,
        ends=end_ids(loaded) | set(settings.stop_tokens),
        given=(start_token(loaded),) if loaded.model.translates else ids,
        last=limit,
        first_token=first_token(loaded, settings.target_language) if named else None,
        least=settings.min_tokens or None,
        repetition=settings.repetition_penalty,
        no_repeat=settings.no_repeat_ngram_size,
    )
    return Prepared(tuple(ids), limit, constraints)


def each_prompt(prompts: Any, several: bool, make: Callable[[Any], Made]) -> list[Made]:
    """What `make` gives for each prompt; where they may be `several`, its PromptError says which cannot be."""
    if several and (isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable)):
        raise PromptError(f"`prompts` must be a list of prompts, got {prompts!r:.60}")
    made = []
    for index, prompt in enumerate(prompts):
        try:
            made.append(make(prompt))
        except PromptError as error:
            raise type(error)(f"prompts[{index}]: {error}" if several else str(error)) from error
    return made


def in_batches(loaded: Loaded, lengths: Sequence[int], size: int = BATCH) -> list[list[int]]:
    """The indices of prompts of these lengths in batches of at most `size`, those of like length together.

    The longest come first, so that what does not fit in memory is known at once. A model that takes no padding on the
    side where its prompts have it reads one at a time.
    """
    side = "right" if loaded.model.encodes else "left"
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    if side in loaded.model.padding:
        return [order[start : start + size] for start in range(0, len(order), size)]
    return [[index] for index in order]
