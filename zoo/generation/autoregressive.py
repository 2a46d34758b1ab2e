"""The shared loop: prefill the prompt, then one token a step with the KV cache.

Axes: B batch (1), T length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from zoo.cache import CachePolicy
from zoo.sampling import Sampling, sampler
from zoo.sampling import logprobs as log_probabilities

PREFILL_CHUNK = 2048  # prompt tokens a pass: bounds the memory of scores, (chunk × cached) a head


def decode(
    model: Any,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    sampling: Sampling,
    seed: int | None = None,
    logprobs: bool = False,
    prefill_chunk: int = PREFILL_CHUNK,
) -> Iterator[tuple[int, float | None]]:
    """Yield (id, log-probability or None), at most `max_tokens` times; the caller stops at an end token.

    n tokens cost n forward passes, the prompt's included. The pass for the next token is dispatched before
    the last one is read, so that the device never waits for Python; stopping early wastes that one pass.
    """
    choose = sampler(sampling, seed)
    cache = model.make_cache(CachePolicy(reserve=len(prompt) + max_tokens))
    rest = mx.array([prompt])  # (1, T)
    while rest.shape[1] > prefill_chunk:
        model.backbone(rest[:, :prefill_chunk], cache)
        mx.eval([one.state for one in cache])
        rest = rest[:, prefill_chunk:]

    def step(tokens: mx.array) -> tuple[mx.array, mx.array | None]:  # (1, T) -> (1,), (1,)
        hidden = model.backbone(tokens, cache)[:, -1:]  # (1, 1, D): the head works on the last position only
        logits = model.head(hidden)[:, -1]  # (1, V)
        token = choose(logits)
        chosen = mx.take_along_axis(log_probabilities(logits), token[:, None], axis=-1)[:, 0] if logprobs else None
        mx.async_eval(token, *([chosen] if chosen is not None else []))
        return token, chosen

    upcoming = step(rest)
    for count in range(1, max_tokens + 1):
        token, chosen = upcoming
        if count < max_tokens:
            upcoming = step(token[:, None])
        yield int(token.item()), None if chosen is None else float(chosen.item())


