"""The KL divergence between the predictions of two checkpoints. Axes: T tokens, V vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.cache import evaluate_caches
from zoo.checkpoint.open import Report
from zoo.generation.sampling.logits import logprobs
from zoo.host.registry import Registry
from zoo.loading import load


@dataclass(frozen=True)
class Divergence:
    """KL(source ‖ converted) of the next token's distribution, in nats: mean and largest over `tokens` positions."""

    mean: float
    worst: float
    tokens: int


SAMPLE = (
    "A library is a room in which the dead go on talking. The price of bread rose by 12 percent in 1847, and nobody "
    "in the town spoke of anything else.\n\ndef area(radius):\n    return 3.14159 * radius**2\n\n"
    "春天来了，河边的树都绿了。孩子们放学以后在那里放风筝。"
)


def divergence(
    source: str | Path,
    other: str | Path,
    *,
    architecture: str | None = None,
    revision: str | None = None,
    report: Report | None = None,
    registry: Registry | None = None,
) -> Divergence:
    """The divergence of `other`'s predictions from `source`'s on sample text, both in float32.

    Each is loaded by itself. Without a tokenizer the text is a row of ids. `report` is called as by `zoo.load`.
    """
    how: dict[str, Any] = dict(architecture=architecture, report=report, registry=registry)
    wanted = _log_probabilities(source, revision=revision, **how)
    found = _log_probabilities(other, **how)
    each = kl_divergence(wanted, found)  # (T,)
    return Divergence(each.mean().item(), each.max().item(), each.size)


def kl_divergence(wanted: mx.array, found: mx.array) -> mx.array:  # (…, V), (…, V) -> (…)
    """KL(wanted ‖ found) of log-probabilities, in nats."""
    return (mx.exp(wanted) * (wanted - found)).sum(axis=-1)


def _log_probabilities(source: str | Path, report: Report | None = None, **how: Any) -> mx.array:  # (T, V)
    loaded = load(source, dtype="float32", report=report, **how)
    if loaded.tokenizer is None:
        ids = [7 * index % loaded.recipe.embedding.vocab for index in range(64)]
    else:
        ids = loaded.tokenizer.encode(SAMPLE)
    tokens = mx.array([ids[: loaded.recipe.context or len(ids)]])
    inputs = (tokens, tokens) if loaded.architecture.task == "translate" else (tokens,)
    if loaded.architecture.task == "generate" and loaded.architecture.causality == "causal":
        cache = loaded.model.make_cache()
        found = logprobs(loaded.model(tokens, cache)[0])
        evaluate_caches(cache, tokens.size, report and (lambda done: report(done, tokens.size)))
    else:
        found = logprobs(loaded.model(*inputs)[0])
    mx.eval(found)
    return found
