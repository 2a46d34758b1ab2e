"""Text by unmasking: begin with masks alone, uncover a few a step, the most probable first (Nie et al., 2025, section 2.4).

Axes: B batch (1), T prompt and answer, L tokens of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import mlx.core as mx

from zoo.errors import PromptError
from zoo.generation import Step
from zoo.generation.choosing.logits import check_numbers
from zoo.generation.choosing.sampling import sampler
from zoo.generation.prompt import encode_prompt, mask_id, sampling_of
from zoo.generation.text import TextStream
from zoo.loading import Loaded

HIDDEN = "░"  # a token still masked, in a draft


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    max_tokens: int,
    steps: int | None = None,
    block_length: int,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    special_tokens: bool = True,
) -> Iterator[Step]:
    """Answer `prompt` with at most `max_tokens` tokens, uncovered in `steps` passes over the whole text.

    The answer is made in blocks of at most `block_length` from left to right, each in its share of the steps (by
    default one a token). A step without a token carries a draft of the block under way; once that is whole, each of its
    tokens is a step. Ends after an end token. PromptError, before anything runs, for a setting that cannot be.
    """
    sampling = sampling_of(loaded, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ids, mask = encode_prompt(loaded, prompt, special_tokens), mask_id(loaded)
    blocks = share(max_tokens, -(-max_tokens // block_length))
    if steps is not None and steps < len(blocks):
        raise PromptError(f"`steps` must be at least {len(blocks)}, one for each block, got {steps}")
    passes = share(steps or max_tokens, len(blocks))
    plan = [(size, min(count, size)) for size, count in zip(blocks, passes, strict=True)]
    return _answer(loaded, ids, mask, plan, sampler(sampling, seed))


def share(total: int, parts: int) -> list[int]:
    """`total` as evenly as can be in `parts` whole numbers, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def _answer(
    loaded: Loaded, ids: list[int], mask: int, plan: list[tuple[int, int]], choose: Callable[[Any], Any]
) -> Iterator[Step]:
    start, length = len(ids), sum(size for size, _ in plan)
    text = TextStream(loaded, length)
    tokens = mx.array([ids + [mask] * length])  # (1, T)
    for size, passes in plan:
        new: list[int] = []
        for tokens in uncover(loaded.model, tokens, start, size, passes, mask, choose):  # noqa: B020
            new = tokens[0, start : start + size].tolist()
            if loaded.tokenizer is not None:
                yield Step(None, "", draft=drafted(loaded.tokenizer, new, mask, text.ends))
        for step in text.steps(new):
            yield step
            if step.finish_reason is not None:
                return
        start += size


def uncover(
    model: Any, tokens: Any, start: int, size: int, passes: int, mask: int, choose: Callable[[Any], Any]
) -> Iterator[mx.array]:
    """The text (1, T) after each of `passes` over it, which uncover the `size` masks from `start` on.

    Every masked token is predicted again in each pass, of which those with the highest probability are kept: the
    others are masked again ("low-confidence remasking", algorithm 5). `choose` predicts: logits (L, V) to ids (L,).
    """
    for count in share(size, passes):
        hidden = model.backbone(tokens)[:, start : start + size]  # (1, T, D) -> (1, L, D)
        logits = model.head(hidden)[0].astype(mx.float32)  # (L, V)
        check_numbers(logits.max().item(), "the masks")
        # The mask itself is no prediction: chosen, it would stay for ever.
        logits = mx.where(mx.arange(logits.shape[-1]) == mask, -mx.inf, logits)
        chosen = choose(logits)  # (L,)
        sure = mx.take_along_axis(mx.softmax(logits, axis=-1), chosen[:, None], axis=-1)[:, 0]  # (L,)
        block = tokens[0, start : start + size]
        # Rank 0 is the most probable of those still masked.
        rank = mx.argsort(mx.argsort(mx.where(block == mask, -sure, 1)))  # (L,)
        block = mx.where(rank < count, chosen.astype(block.dtype), block)
        tokens = mx.concatenate([tokens[:, :start], block[None], tokens[:, start + size :]], axis=1)
        yield tokens


def drafted(tokenizer: Any, ids: list[int], mask: int, ends: frozenset[int]) -> str:
    """The text of a block under way up to its first end token, a sign for each token that is still masked."""
    whole = ids[: next((index for index, id in enumerate(ids) if id in ends), len(ids))]
    runs = ((masked, list(run)) for masked, run in groupby(whole, lambda id: id == mask))
    return "".join(HIDDEN * len(run) if masked else tokenizer.decode(run) for masked, run in runs)
