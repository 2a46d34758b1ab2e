"""The likeliest tokens in the place of each mask. Axes: B texts, S length, M masks, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.errors import NothingToPredict, PromptError
from zoo.generation.loop.prompt import BATCH, each_prompt, encode_prompt, in_batches, mask_id, padded
from zoo.generation.loop.step import Step
from zoo.generation.sampling.logits import check_numbers
from zoo.loading import Loaded


def stream(loaded: Loaded, prompt: str | Sequence[int], **settings: Any) -> Iterator[Step]:
    """The `top_k` likeliest tokens for each mask of `prompt`, best first, a `Step` each.

    Each mask is predicted by itself, with the others still masked. A step's text is a line, "0.9312  Paris", after
    the mask's number when there are several; its `candidate` has `mask`, `token`, `text` and `probability`.
    NothingToPredict, a PromptError, before anything runs, when there is no mask, or no head to fill it.
    """
    return (step for _, step in batch(loaded, [prompt], **settings))


def batch(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    *,
    top_k: int,
    batch_size: int = BATCH,
    special_tokens: bool = True,
) -> Iterator[tuple[int, Step]]:
    """What `stream` gives for each of the prompts, `batch_size` of them in one pass: its index and a step.

    PromptError, before anything runs, for a setting or a prompt that cannot be, with the prompt's index.
    """
    if loaded.recipe.head is None:
        raise NothingToPredict(
            f"{loaded.folder}: has no head to fill a mask with; zoo.embed (`zoo embed`) gives its vectors"
        )
    if not 1 <= top_k <= loaded.recipe.head.vocab:
        raise PromptError(f"`top_k` must be from 1 to {loaded.recipe.head.vocab}, got {top_k}")
    texts = each_prompt(prompts, lambda prompt: _masked(loaded, prompt, special_tokens))

    def run() -> Iterator[tuple[int, Step]]:
        for indices in in_batches(loaded, [len(ids) for ids, _ in texts], batch_size):
            tokens, mask = padded([texts[index][0] for index in indices])  # (B, S)
            with runtime.eager():
                logits = loaded.model(tokens, mask=mask)  # (B, S, V)
            for row, index in enumerate(indices):
                at_masks = logits[row, mx.array(texts[index][1])]  # (M, V)
                yield from ((index, step) for step in _candidates(loaded, at_masks, top_k))

    return run()


def _masked(loaded: Loaded, prompt: str | Sequence[int], special_tokens: bool) -> tuple[list[int], list[int]]:
    """The ids of a prompt and the positions of its masks; NothingToPredict when it has none."""
    ids, mask = encode_prompt(loaded, prompt, special_tokens), mask_id(loaded)
    positions = [position for position, id in enumerate(ids) if id == mask]
    if not positions:
        name = loaded.tokenizer.token(mask) if loaded.tokenizer else f"token {mask}"
        raise NothingToPredict(f"the prompt has no {name} to fill")
    return ids, positions


def fill(loaded: Loaded, ids: Sequence[int]) -> list[int]:
    """The ids with every mask filled, one a pass: the mask whose prediction has the highest probability comes first."""
    mask, filled = mask_id(loaded), list(ids)
    while mask in filled:
        logits = loaded.model(mx.array([filled]))[0].astype(mx.float32)
        check_numbers(logits.max().item(), "the masks")
        probabilities = mx.softmax(logits, axis=-1)  # (S, V)
        probabilities[:, mask] = 0  # a mask is no answer
        highest = mx.where(mx.array(filled) == mask, probabilities.max(axis=-1), -1)  # (S,)
        position = int(mx.argmax(highest).item())
        filled[position] = int(mx.argmax(probabilities[position]).item())
    return filled


def _candidates(loaded: Loaded, logits: mx.array, top_k: int) -> Iterator[Step]:
    """The steps of one text, whose masks have these logits (M, V)."""
    logits = logits.astype(mx.float32)
    check_numbers(logits.max().item(), "the masks")
    probabilities = mx.softmax(logits, axis=-1)
    best = mx.argsort(-probabilities, axis=-1)[:, :top_k]  # (M, top_k)
    chosen = mx.take_along_axis(probabilities, best, axis=-1)
    count = logits.shape[0] * top_k
    rows = zip(best.tolist(), chosen.tolist(), mx.log(chosen).tolist(), strict=True)
    for number, row in enumerate(rows, 1):
        for token, probability, logprob in zip(*row, strict=True):
            count -= 1
            text = loaded.tokenizer.decode([token], False) if loaded.tokenizer else str(token)
            mark = f"{number}  " if logits.shape[0] > 1 else ""
            yield Step(
                token,
                f"{mark}{probability:.4f}  {text.strip()}\n",
                logprob=logprob,
                finish_reason=None if count else "stop",
                candidate={"mask": number, "token": token, "text": text, "probability": probability},
            )
