"""A layer: a mixer between tokens and a feed-forward for each token, both with a residual connection.

Axes: B batch, T length, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.caching import CachedLayer


class Layer(CachedLayer):
    """Two residual sums with a norm before or after each (Xiong et al., 2020, figure 1), or one sum of parallel parts.

    pre                          post                         parallel
    x ─┬─ norm ─ mixer ─ + ─     x ─┬─ mixer ─ + ─ norm ─     x ─┬─ norm ─ mixer ─────── + ─
       └──────────────── ┘          └───────── ┘                 ├─ norm ─ feedforward ─ ┤
                                                                 └────────────────────── ┘

    A parallel layer without a norm for the feed-forward gives it what the mixer's norm gives.

    Where the feed-forward is recurrent too, `mask` and `cache` hold those of both parts, by name. `passed` is given to
    the parts whose specs have `gives` or `takes`.
    """

    def __init__(
        self,
        spec: recipe.Layer,
        *,
        dim: int,
        index: int = 0,
        mixer: nn.Module,
        feedforward: nn.Module,
        mixer_norm: nn.Module | None = None,
        feedforward_norm: nn.Module | None = None,
    ) -> None:
        super().__init__(spec, index)
        self.mixer, self.feedforward = mixer, feedforward
        if mixer_norm is not None:
            self.mixer_norm = mixer_norm
        if feedforward_norm is not None:
            self.feedforward_norm = feedforward_norm
        self.placement, self.parallel = spec.placement, spec.parallel
        self.residual_scale = spec.residual_scale
        self.by_part = spec.by_part
        parts = {"mixer": spec.mixer, "feedforward": spec.feedforward}
        self.remembering = frozenset(
            name for name, part in parts.items() if name == "mixer" or part.remembers
        )
        self.passing = frozenset(name for name, part in parts.items() if part.gives or part.takes)

    def __call__(
        self, x: mx.array, mask: Any = None, cache: Any = None, passed: dict[str, Any] | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        if self.parallel:
            return self.add_both(x, mask, cache, passed)
        x = self.add("mixer", x, mask, cache, passed)
        return self.add("feedforward", x, mask, cache, passed)

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """One residual sum: x and what the part of that name makes of it, called with `inputs`."""
        if self.placement == "pre":
            return x + self.scaled(self.run(name, self.normed(name, x), *inputs))
        return self.normed(name, x + self.scaled(self.run(name, x, *inputs)))

    def add_both(self, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The residual sum of a parallel layer: x, the mixer and the feed-forward, both called with `inputs`."""
        h = self.normed("mixer", x)
        mixed = self.run("mixer", h, *inputs)
        own = self.normed("feedforward", x) if "feedforward_norm" in self else h
        return x + self.scaled(mixed + self.run("feedforward", own, *inputs))

    def normed(self, name: str, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The norm of the part of that name; x itself where there is none."""
        return self[f"{name}_norm"](x) if f"{name}_norm" in self else x

    def scaled(self, y: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The output of a part times the residual scale."""
        return y if self.residual_scale == 1.0 else y * self.residual_scale

    def run(
        self, name: str, x: mx.array, mask: Any, cache: Any, passed: Mapping[str, Any] | None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The part of that name, called with what its spec asks for."""
        part = self[name]
        more = {"passed": passed} if name in self.passing else {}
        if name not in self.remembering:
            return part(x, **more)
        if self.by_part:
            mask, cache = mask and mask[name], cache and cache[name]
        return part(x, mask, cache, **more)
