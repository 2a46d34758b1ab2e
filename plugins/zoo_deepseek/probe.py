"""Probes of latent attention and the grouped router.

Axes: B batch, T new tokens, S cached and new, D width, H heads, R latent width, N and P the widths of a head's parts without
and with positions, V width of a head's values, Q width of the queries' latent, E experts.
"""

from __future__ import annotations

import mlx.core as mx

from zoo.inspect.tracing.block_probes import ADDED, CHOSEN, HEADS, PATTERN, ExpertChoiceProbe, PatternProbe
from zoo.inspect.tracing.probe import Traces, Value


class LatentAttentionProbe(PatternProbe):
    """Latent attention: the latents, the pattern of each head, and what each head gives, in either order of its products."""

    traces = Traces(
        Value("B T D", ADDED),
        {
            "queries": Value("B H T N", "the queries' part without positions", item_axis="H"),
            "latents": Value(
                "B 1 S R", "the latents that keys and values are made of, the cached ones included"
            ),
            "pattern": PATTERN,
            "heads": HEADS._replace(axes="B H T V"),
        },
        parts={
            "query": Value("B T H·(N+P)", "the queries of all heads side by side"),
            "query_down": Value("B T Q", "the queries' latents"),
            "query_norm": Value("B T Q", "the queries' latents, normalised"),
            "query_up": Value("B T H·(N+P)", "the queries of all heads side by side"),
            "kv_down": Value("B T R+P", "the latent of keys and values, and the key that all heads share"),
            "kv_norm": Value("B 1 T R", "the latents of keys and values, normalised"),
            # Their operands depend on the order.
            "key_up": None,
            "value_up": None,
            "output": None,
        },
    )

    def gathers(self, queries: int, keys: int) -> bool:
        """Nothing is taken out, so that patterns are over all tokens."""
        return False

    def mix(self, queries: mx.array, latents: mx.array, scores: mx.array) -> mx.array:
        """Note the operands and the result."""
        queries, latents = self.note("queries", queries), self.note("latents", latents)
        return self.note("heads", super().mix(queries, latents, scores))  # type: ignore[misc]

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, scores: mx.array) -> mx.array:
        """Note the pattern, which is the same for latents and for the values made of them."""
        own = super().attend  # type: ignore[misc]
        return self.apply_pattern(lambda given: own(queries, keys, given, scores), values)


class SigmoidRouterProbe(ExpertChoiceProbe):
    """A router over sigmoids: also the score of every expert."""

    traces = Traces(
        values={**CHOSEN, "scores": Value("B T E", "σ of each expert's logit", "probability", item_axis="E")}
    )

    def score(self, x: mx.array) -> mx.array:
        """Note the scores of all experts."""
        return self.note("scores", super().score(x))  # type: ignore[misc]
