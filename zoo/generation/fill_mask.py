"""The likeliest tokens in the place of each mask. Axes: B batch (1), S length, M masks, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from zoo.errors import PromptError
from zoo.generation.choosing.logits import check_numbers
from zoo.generation.prompt import encode_prompt, mask_id
from zoo.generation.step import Step
from zoo.loading import Loaded


def stream(
    loaded: Loaded, prompt: str | Sequence[int], *, top_k: int, special_tokens: bool = True
) -> Iterator[Step]:
    """The `top_k` likeliest tokens for each mask of `prompt`, best first, a `Step` each.

    Each mask is judged by itself, with the others still masked. A step's text is a line, "0.9312  Paris", after
    the mask's number when there are several; its `candidate` has `mask`, `token`, `text` and `probability`.
    PromptError, before anything runs, when there is no mask, or no head to fill it.
    """
    if loaded.recipe.head is None:
        raise PromptError(
            f"{loaded.folder}: has no head to fill a mask with; zoo.embed (`zoo embed`) gives its vectors"
        )
    if not 1 <= top_k <= loaded.recipe.head.vocab:
        raise PromptError(f"`top_k` must lie in 1..{loaded.recipe.head.vocab}, got {top_k}")
    ids, mask = encode_prompt(loaded, prompt, special_tokens), mask_id(loaded)
    positions = [position for position, id in enumerate(ids) if id == mask]
    if not positions:
        name = loaded.tokenizer.token(mask) if loaded.tokenizer else f"token {mask}"
        raise PromptError(f"the prompt has no {name} to fill")
    return _candidates(loaded, ids, positions, top_k)


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


def _candidates(loaded: Loaded, ids: list[int], positions: list[int], top_k: int) -> Iterator[Step]:
    logits = loaded.model(mx.array([ids]))[0, mx.array(positions)].astype(mx.float32)  # (1, S, V) -> (M, V)
    check_numbers(logits.max().item(), "the masks")
    probabilities = mx.softmax(logits, axis=-1)
    best = mx.argsort(-probabilities, axis=-1)[:, :top_k]  # (M, top_k)
    chosen = mx.take_along_axis(probabilities, best, axis=-1)
    count = len(positions) * top_k
    rows = zip(best.tolist(), chosen.tolist(), mx.log(chosen).tolist(), strict=True)
    for number, row in enumerate(rows, 1):
        for token, probability, logprob in zip(*row, strict=True):
            count -= 1
            text = loaded.tokenizer.decode([token], False) if loaded.tokenizer else str(token)
            mark = f"{number}  " if len(positions) > 1 else ""
            yield Step(
                token,
                f"{mark}{probability:.4f}  {text.strip()}\n",
                logprob=logprob,
                finish_reason=None if count else "stop",
                candidate={"mask": number, "token": token, "text": text, "probability": probability},
            )
