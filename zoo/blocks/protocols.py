"""The methods that a module may have beside `__call__`: each a protocol, which a module declares by having the method."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import mlx.core as mx

from zoo.cache import CachePolicy


@runtime_checkable
class MakesCache(Protocol):
    """A mixer, a recurrent part, or a layer: it makes the cache that it is called with."""

    def make_cache(self, policy: CachePolicy | None = None) -> Any:
        """An empty cache."""


@runtime_checkable
class Initialises(Protocol):
    """A module whose parameters start training from values of their own."""

    def initialise(self, key: mx.array) -> None:
        """Set its own parameters, random ones by `key`."""


@runtime_checkable
class Quantizable(Protocol):
    """A layer with a quantized form, as `mlx.nn.quantize` asks for it."""

    weight: Any

    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine"
    ) -> Any:
        """The same layer with its weight packed."""
