"""Masks to tokens, a few a pass, the most probable first (Nie et al., 2025, section 2.4).

Axes: B texts, T prompt and answer, L tokens of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import mlx.core as mx

from zoo.generation.sampling.logits import check_numbers

HIDDEN = "░"  # a token still masked, in a draft
Choose = Callable[[Any], Any]  # logits (…, L, V) to ids (…, L)


def split_evenly(total: int, parts: int) -> list[int]:
    """`total` as evenly as can be in `parts` whole numbers, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def unmask_passes(
    model: Any,
    tokens: Any,
    start: int,
    size: int,
    passes: int,
    mask: int,
    choose: Choose,
    real: mx.array | None = None,
) -> Iterator[mx.array]:
    """The texts (B, T) after each of `passes` over them, which uncover the `size` masks from `start` on.

    Every masked token is predicted again in each pass, of which those with the highest probability are kept: the
    others are masked again ("low-confidence remasking", algorithm 5). `choose` predicts: logits (B, L, V) to ids (B, L).
    `real` (B, T) is 0 where a prompt is padded.
    """
    padding = {} if real is None else {"mask": real}
    for count in split_evenly(size, passes):
        hidden = model.backbone(tokens, **padding)[:, start : start + size]  # (B, T, D) -> (B, L, D)
        logits = model.head(hidden).astype(mx.float32)  # (B, L, V)
        check_numbers(logits.max().item(), "the masks")
        # The mask itself is no prediction: chosen, it would stay for ever.
        logits = mx.where(mx.arange(logits.shape[-1]) == mask, -mx.inf, logits)
        chosen = choose(logits)  # (B, L)
        sure = mx.take_along_axis(mx.softmax(logits, axis=-1), chosen[..., None], axis=-1)[..., 0]  # (B, L)
        block = tokens[:, start : start + size]
        # Rank 0 is the most probable of those still masked.
        rank = mx.argsort(mx.argsort(mx.where(block == mask, -sure, 1), axis=-1), axis=-1)  # (B, L)
        block = mx.where(rank < count, chosen.astype(block.dtype), block)
        tokens = mx.concatenate([tokens[:, :start], block, tokens[:, start + size :]], axis=1)
        yield tokens


def sample_each(chooses: Sequence[Choose]) -> Choose:
    """One function that samples for all texts: one for all, or each text's own, as if it were alone."""
    if len(chooses) == 1:
        return chooses[0]
    return lambda logits: mx.stack([choose(row) for row, choose in zip(logits, chooses, strict=True)])


def draft_text(tokenizer: Any, ids: list[int], mask: int, ends: frozenset[int]) -> str:
    """The text of a block under way up to its first end token, a sign for each token that is still masked."""
    whole = ids[: next((index for index, id in enumerate(ids) if id in ends), len(ids))]
    runs = ((masked, list(run)) for masked, run in groupby(whole, lambda id: id == mask))
    return "".join(HIDDEN * len(run) if masked else tokenizer.decode(run) for masked, run in runs)
