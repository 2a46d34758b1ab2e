"""The decoding loop: one token a step, by greedy choice or a draw.

Axes: T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from zoo.generation.choosing.forced import Constraints
from zoo.generation.choosing.logits import check_numbers
from zoo.generation.choosing.logits import logprobs as log_probabilities
from zoo.generation.reader import Reader


def decode(
    reader: Reader,
    limit: int,
    choose: Callable[[mx.array], mx.array],
    *,
    constraints: Constraints | None = None,
    logprobs: bool | int = False,
) -> Iterator[tuple[int, float | None, dict[int, float] | None]]:
    """Yield (id, log-probability or None, alternatives or None), at most `limit` times.

    `choose` maps logits (1, V) to an id (1,). The caller stops at an end token. ZooError when the model's logits are
    no numbers. n tokens cost n forward passes, the prompt's included. The pass for the next token is dispatched before
    the last one is read, so that the device never waits for Python; stopping early wastes that one pass. Only
    `constraints` that depend on which tokens came before have each read first.
    """
    wanted = 0 if isinstance(logprobs, bool) else logprobs
    if constraints is not None and not constraints.active:
        constraints = None  # so that no step asks it
    waits = constraints is not None and constraints.look_back
    tokens: list[int] = []  # those that the constraints look back on

    def step(logits: mx.array, new: Sequence[int]) -> list[mx.array]:  # (1, V) -> (1,), (1,), (1,), (1, V) …
        token = choose(logits if constraints is None else constraints(logits, [new]))
        found = [token, logits.max(axis=-1)]
        if logprobs:
            each = log_probabilities(logits)
            found.append(mx.take_along_axis(each, token[:, None], axis=-1)[:, 0])
            if wanted:
                best = mx.argsort(-each, axis=-1)[:, :wanted]
                found += [best, mx.take_along_axis(each, best, axis=-1)]
        mx.async_eval(*found)
        return found

    upcoming = step(reader.first(), tokens)
    for count in range(1, limit + 1):
        token, highest, *more = upcoming
        if count < limit and not waits:
            upcoming = step(reader.next(token[:, None]), range(count))  # only their number matters
        check_numbers(highest.item(), f"token {count}")
        alternatives = dict(zip(*(array[0].tolist() for array in more[1:]), strict=True)) if wanted else None
        chosen = int(token.item())
        yield chosen, float(more[0].item()) if more else None, alternatives
        if count < limit and waits:
            tokens.append(chosen)
            upcoming = step(reader.next(token[:, None]), tokens)
