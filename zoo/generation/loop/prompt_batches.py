"""Which prompts share a pass, and how they are padded. Axes: B rows, T length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import mlx.core as mx

from zoo.errors import PromptError
from zoo.loading import Loaded

Made = TypeVar("Made")
BATCH = 16  # prompts that share the passes, unless a number is asked for


def each_prompt(prompts: Iterable[Any], make: Callable[[Any], Made]) -> list[Made]:
    """What `make` gives for each prompt; of several prompts its PromptError names the one that cannot be."""
    made, prompts = [], list(prompts)
    for index, prompt in enumerate(prompts):
        try:
            made.append(make(prompt))
        except PromptError as error:
            name = f"prompts[{index}]: " if len(prompts) > 1 else ""
            raise type(error)(f"{name}{error}") from error
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


def padded(rows: Sequence[Sequence[int]], left: bool = False) -> tuple[mx.array, mx.array | None]:
    """Rows of ids (B, T), padded on the right, or on the left, and the mask (B, T), 1 for a token; None without padding."""
    longest = max(map(len, rows))
    tokens, mask = [], []
    for row in rows:
        padding, ones = [0] * (longest - len(row)), [1] * len(row)
        tokens.append([*padding, *row] if left else [*row, *padding])
        mask.append([*padding, *ones] if left else [*ones, *padding])
    return mx.array(tokens), None if min(map(len, rows)) == longest else mx.array(mask)
