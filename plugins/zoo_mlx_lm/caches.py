"""mlx-lm's caches, going back as the zoo's do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import CacheList, ConcatenateKVCache, KVCache, QuantizedKVCache

from zoo.cache import Cache

# Those that can always be trimmed; a rotating one only until it is full.
TRIMMED = (KVCache, QuantizedKVCache, ConcatenateKVCache)


class Rewound(Cache):
    """One of mlx-lm's caches: it is trimmed, or put back by its `state`, all that mlx-lm saves of it."""

    restores = True  # type: ignore[assignment]

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.trims = type(cache) in TRIMMED

    def trim(self, count: int) -> None:
        """Forget the last `count` tokens."""
        self.cache.trim(count)

    def snapshot(self, row: int = 0) -> Any:
        """Its state, which nothing changes that the cache does later."""
        return _apart(self.cache.state)

    def restore(self, snapshot: Any) -> None:
        """Become what the snapshot was taken of, which stays as it is."""
        self.cache.state = _apart(snapshot)


def _apart(state: Any) -> Any:
    """The same arrays as objects of their own: an assignment to a part of one does not reach the other."""
    return tree_map(lambda leaf: mx.array(leaf) if isinstance(leaf, mx.array) else leaf, state)


def rewound(caches: Iterable[Any]) -> Iterator[Rewound]:
    """The plain caches of a list, those of a `CacheList` in its place."""
    for cache in caches:
        if isinstance(cache, CacheList):
            yield from rewound(cache.caches)
        else:
            yield Rewound(cache)
