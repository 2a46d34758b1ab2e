"""A layer: a mixer between tokens, then a feed-forward for each token, both with a residual connection.

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
    """Two residual sums, their norms before or after (Xiong et al., 2020, figure 1).

    pre                          post
    x ─┬─ norm ─ mixer ─ + ─     x ─┬─ mixer ─ + ─ norm ─
       └──────────────── ┘          └───────── ┘

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
        mixer_norm: nn.Module,
        feedforward_norm: nn.Module,
    ) -> None:
        super().__init__(spec, index)
        self.mixer, self.feedforward = mixer, feedforward
        self.mixer_norm, self.feedforward_norm = mixer_norm, feedforward_norm
        self.placement = spec.placement
        self.by_part = spec.by_part
        parts = {"mixer": spec.mixer, "feedforward": spec.feedforward}
        self.remembering = frozenset(
            name for name, part in parts.items() if name == "mixer" or part.remembers
        )
        self.passing = frozenset(name for name, part in parts.items() if part.gives or part.takes)

    def __call__(
        self, x: mx.array, mask: Any = None, cache: Any = None, passed: dict[str, Any] | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        x = self.add("mixer", x, mask, cache, passed)
        return self.add("feedforward", x, mask, cache, passed)

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """One residual sum: x and what the part of that name makes of it, called with `inputs`."""
        norm = self[f"{name}_norm"]
        if self.placement == "pre":
            return x + self.run(name, norm(x), *inputs)
        return norm(x + self.run(name, x, *inputs))

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
