"""The probe of the indexer. Axes: B batch, T new tokens, S cached and new, J heads and I width of a head of the indexer."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value


class IndexerProbe(Probe):
    """The indexer: how well each key suits each token."""

    traces = Traces(
        values={"scores": Value("B T S", "how well each token suits to be attended to, before the mask")},
        parts={
            "query": Value("B T J·I", "the queries of all heads of the indexer side by side"),
            "key": Value("B T I", "the indexer's keys, before their norm"),
            "weights": Value("B T J", "the weight of each head's products", item_axis="J"),
        },
    )

    def sees_all(self, keys: int) -> bool:
        """Scores are computed where all tokens are chosen, too."""
        return False

    def score(self, *inputs: Any) -> mx.array:
        """Note the scores."""
        return self.note("scores", super().score(*inputs))  # type: ignore[misc]
