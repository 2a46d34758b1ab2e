"""Text by unmasking: begin with masks alone, uncover a few a pass, the most probable first (Nie et al., 2025, section 2.4).

Axes: B texts, T prompt and answer, L tokens of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.errors import PromptError
from zoo.generation import Step
from zoo.generation.loop.prompt import BATCH, each_prompt, encode_prompt, in_batches, mask_id, padded
from zoo.generation.loop.text_stream import TextStream
from zoo.generation.sampling.draw import sampler
from zoo.generation.sampling.logits import check_numbers
from zoo.generation.settings import settings_for
from zoo.loading import Loaded


def stream(loaded: Loaded, prompt: str | Sequence[int], **settings: Any) -> Iterator[Step]:
    """Answer `prompt` with at most `max_tokens` tokens, uncovered in `steps` passes over the whole text.

    The answer is made in blocks of at most `block_length` from left to right, each in its share of the steps (by
    default one a token). A step without a token carries a draft of the block under way; once that is whole, each of its
    tokens is a step. Ends after an end token. PromptError, before anything runs, for an impossible setting.
    """
    return (step for _, step in batch(loaded, [prompt], **settings))


def batch(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    *,
    max_tokens: int,
    block_length: int,
    steps: int | None = None,
    batch_size: int = BATCH,
    special_tokens: bool = True,
    **given: Any,
) -> Iterator[tuple[int, Step]]:
    """The steps of `stream` for each prompt, with its index; `batch_size` prompts run in the same passes.

    PromptError, before anything runs, for an impossible setting or prompt, with the prompt's index.
    """
    # Masks are filled by draws alone: the penalties of a generation_config.json have no part in them.
    settings = settings_for(loaded, {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, **given})
    mask = mask_id(loaded)
    texts = each_prompt(prompts, lambda prompt: encode_prompt(loaded, prompt, special_tokens))
    check_room(loaded.recipe.vocab, max(map(len, texts), default=0) + max_tokens)
    blocks = split_evenly(max_tokens, -(-max_tokens // block_length))
    if steps is not None and steps < len(blocks):
        raise PromptError(f"`steps` must be at least {len(blocks)}, one for each block, got {steps}")
    passes = split_evenly(steps or max_tokens, len(blocks))
    plan = [(size, min(count, size)) for size, count in zip(blocks, passes, strict=True)]

    def run() -> Iterator[tuple[int, Step]]:
        for indices in in_batches(loaded, [len(ids) for ids in texts], batch_size):
            group = [texts[index] for index in indices]
            # With draws each text has its own, as if it were alone.
            chooses = [sampler(settings) for _ in (group[:1] if settings.greedy else group)]
            for place, step in _answer(loaded, group, mask, plan, chooses):
                yield indices[place], step

    return run()


def check_room(vocab: int, tokens: int) -> None:
    """PromptError where one pass over a text of so many tokens would not fit in memory, for its logits alone."""
    need, room = 4 * vocab * tokens, runtime.usable_memory()
    if room is not None and need > room:
        raise PromptError(
            f"`max_tokens`: the logits of {tokens:,} tokens are {need / 1e9:.1f} GB, "
            f"this machine has {room / 1e9:.1f} GB"
        )


def _answer(
    loaded: Loaded,
    prompts: list[list[int]],
    mask: int,
    plan: list[tuple[int, int]],
    chooses: list[Choose],
) -> Iterator[tuple[int, Step]]:
    """Blocks of all texts in the same passes; one that has ended takes no part in the next block."""
    length = sum(size for size, _ in plan)
    texts = [TextStream(loaded, length) for _ in prompts]
    going = list(range(len(prompts)))
    tokens, real = padded(prompts, left=True)  # (B, T)
    start = tokens.shape[1]
    if real is not None:
        real = mx.concatenate([real, mx.ones((len(texts), length))], axis=1)
    tokens = mx.concatenate([tokens, mx.full((len(texts), length), mask)], axis=1)
    for size, passes in plan:
        new: list[list[int]] = []
        choose = sample_each(chooses)
        for tokens in unmask_passes(loaded.model, tokens, start, size, passes, mask, choose, real):  # noqa: B020
            new = tokens[:, start : start + size].tolist()
            for place, index in enumerate(going if loaded.tokenizer is not None else ()):
                yield (
                    index,
                    Step(None, "", draft=draft_text(loaded.tokenizer, new[place], mask, texts[0].eos_ids)),
                )
        ids = []
        for place, index in enumerate(going):
            steps = list(texts[index].steps(new[place]))
            yield from ((index, step) for step in steps)
            if steps[-1].finish_reason is None:
                ids.append(place)
        if not ids:
            return
        if len(ids) < len(going):
            rows = mx.array(ids)
            tokens, real = tokens[rows], None if real is None else real[rows]
            chooses = [chooses[place] for place in ids] if len(chooses) > 1 else chooses
            going = [going[place] for place in ids]
        start += size


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
