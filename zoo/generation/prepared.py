"""Prompts made ready: their ids, limits and constraints, and the reader of those that share the passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import mlx.core as mx

from zoo.blocks.model import protocol_of
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.checkpoint_settings import token_limit
from zoo.generation.constraints import Constraints, constraints_of
from zoo.generation.prompt import encode_prompt, end_ids, first_token, settings_of
from zoo.generation.reader import Report, TextReader, TextsReader, TranslationReader
from zoo.loading import Loaded

Made = TypeVar("Made")
BATCH = 16  # prompts that share the passes, unless a number is asked for


@frozen()
class Prepared(Frozen):
    """A prompt's ids, the most new tokens after it, and what the checkpoint forbids or forces of them."""

    ids: tuple[int, ...]
    limit: int
    constraints: Constraints


def prepared(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    special_tokens: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Prepared:
    """The prompt, text or token ids, with its limit and constraints; PromptError for one that cannot be."""
    ids = encode_prompt(loaded, prompt, special_tokens, source_language, target_language)
    limit = token_limit(loaded, len(ids), max_tokens, min_tokens)
    named = target_language is not None or isinstance(prompt, str)
    constraints = constraints_of(
        settings_of(loaded),
        loaded.recipe.head.vocab or loaded.recipe.embedding.vocab,
        ends=end_ids(loaded),
        given=(start_token(loaded),) if protocol_of(loaded.model).translates else ids,
        last=limit,
        first_token=first_token(loaded, target_language) if named else None,
        least=min_tokens,
    )
    return Prepared(tuple(ids), limit, constraints)


def reader_of(
    loaded: Loaded,
    prompts: Sequence[Prepared],
    *,
    chunk: int | None = None,
    report: Report | None = None,
    hidden: list[mx.array] | None = None,
) -> TextReader | TranslationReader:
    """What reads the prompts in one batch; `chunk`, `report` and `hidden` as for `TextReader`."""
    limit = max(prompt.limit for prompt in prompts)
    texts = [prompt.ids for prompt in prompts]
    if protocol_of(loaded.model).translates:
        return TranslationReader(loaded.model, texts, limit, start=start_token(loaded))
    prefix = loaded.architecture.causality == "prefix"
    if len(texts) > 1:
        return TextsReader(loaded.model, texts, limit, prefix=prefix, chunk=chunk, hidden=hidden)
    return TextReader(loaded.model, texts[0], limit, prefix=prefix, chunk=chunk, report=report, hidden=hidden)


def start_token(loaded: Loaded) -> int:
    """The token that every target of an encoder-decoder begins with."""
    start = settings_of(loaded).get("decoder_start_token_id")
    if not isinstance(start, int):
        return loaded.recipe.start
    if not 0 <= start < loaded.recipe.decoder.embedding.vocab:
        raise PromptError(
            f"generation_config.json: decoder_start_token_id {start} lies outside the vocabulary"
        )
    return start


def prepare_all(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    *,
    several: bool = False,
    prefill_chunk: int | None = None,
    **settings: Any,
) -> list[Prepared]:
    """Each prompt as `prepared` gives it; where they may be `several`, an error says which cannot be.

    PromptError, too, for `prefill_chunk` where it has no meaning.
    """
    if prefill_chunk is not None and protocol_of(loaded.model).translates:
        raise PromptError("`prefill_chunk`: an encoder-decoder reads its source in one piece")
    return each_prompt(prompts, several, partial(prepared, loaded, **settings))


def each_prompt(prompts: Any, several: bool, make: Callable[[Any], Made]) -> list[Made]:
    """What `make` gives for each prompt; where they may be `several`, its PromptError says which cannot be."""
    if several and (isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable)):
        raise PromptError(f"`prompts` must be a list of prompts, got {prompts!r:.60}")
    made = []
    for index, prompt in enumerate(prompts):
        try:
            made.append(make(prompt))
        except PromptError as error:
            raise PromptError(f"prompt {index}: {error}" if several else str(error)) from error
    return made


def in_batches(loaded: Loaded, lengths: Sequence[int], size: int = BATCH) -> list[list[int]]:
    """The indices of prompts of these lengths in batches of at most `size`, those of like length together.

    The longest come first, so that what does not fit in memory is known at once. A model that takes no padding on the
    side where its prompts have it reads one at a time.
    """
    protocol = protocol_of(loaded.model)
    side = "right" if protocol.encodes else "left"
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    if side in protocol.padding:
        return [order[start : start + size] for start in range(0, len(order), size)]
    return [[index] for index in order]
