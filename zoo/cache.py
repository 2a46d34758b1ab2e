"""KV caches and recurrent states: what a layer keeps of the tokens before, so that each new one costs one step.

A cache owns the position: `length` columns are cached, and `offset` is the position of the next token, a
number or, when rows are padded on the left, (B,). Axes: B batch, G key/value heads, T new, S cached, K head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from zoo import runtime
from zoo.frozen import Frozen, frozen


@frozen()
class CachePolicy(Frozen):
    """How caches are made. `reserve`: tokens to make room for at once, when the end is known."""

    reserve: int = 0


class Cache:
    """The base of every cache: its length, and each row's left padding (B,), which the model sets."""

    def __init__(self, policy: CachePolicy | None = None) -> None:
        self.length = 0
        self.padding: mx.array | None = None
        self.policy = policy or CachePolicy()

    @property
    def offset(self) -> int | mx.array:
        """The position of the next token."""
        return self.length if self.padding is None else self.length - self.padding

    def start(self, queries: int) -> int:
        """The column of the oldest key that `queries` new tokens will be given."""
        return 0

    def counterpart(self) -> Any:
        """mlx-lm's cache, empty, that blocks can be given in the place of this one. Each class has to say its own."""
        raise NotImplementedError

    @property
    def held(self) -> int:
        """How many numbers it keeps of one row of the batch, without those of `spare`: what `Spec.cached` counts."""
        arrays = {name: value for name, value in vars(self).items() if name != "padding"}
        return _numbers(arrays) - self.spare

    @property
    def spare(self) -> int:
        """How many numbers of a row its arrays have in reserve, or keep though nothing reaches them any more."""
        return 0

    def select(self, rows: mx.array) -> None:
        """Keep these rows of the batch in this order, (B,), any of them repeated: the steps of a beam search.

        Every array that a cache holds has the batch first.
        """
        for name, value in vars(self).items():
            setattr(
                self, name, tree_map(lambda leaf: leaf[rows] if isinstance(leaf, mx.array) else leaf, value)
            )


class KVCache(Cache):
    """Every key and value, in buffers that grow by steps."""

    step = 256

    def __init__(self, policy: CachePolicy | None = None) -> None:
        super().__init__(policy)
        self.keys: Any = None
        self.values: Any = None

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [] if self.keys is None else [self.keys, self.values]

    @property
    def spare(self) -> int:
        """The columns that no token has filled yet."""
        return _unused([self.keys, self.values], self.length)

    def counterpart(self) -> Any:
        """mlx-lm's growing cache."""
        from mlx_lm.models import cache

        return cache.KVCache()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append (B, G, T, K) and give all, (B, G, S, K)."""
        before, self.length = self.length, self.length + keys.shape[2]
        if self.keys is None or self.length > self.keys.shape[2]:
            room = -(-max(self.length, self.policy.reserve) // self.step) * self.step - before
            self.keys = _grown(self.keys, keys, before, room)
            self.values = _grown(self.values, values, before, room)
        self.keys[..., before : self.length, :] = keys
        self.values[..., before : self.length, :] = values
        return self.keys[..., : self.length, :], self.values[..., : self.length, :]


class WindowCache(Cache):
    """The keys and values of a sliding window: the last `window` − 1, and those of the step under way.

    Buffers hold two windows and slide back when full, so that a step copies only its own token.
    """

    def __init__(self, window: int, policy: CachePolicy | None = None) -> None:
        super().__init__(policy)
        self.window = window
        self.keys: Any = None
        self.values: Any = None
        self.used = 0  # columns of the buffers that are filled

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [] if self.keys is None else [self.keys, self.values]

    @property
    def spare(self) -> int:
        """The columns beyond those of one window."""
        return _unused([self.keys, self.values], min(self.length, self.window))

    def start(self, queries: int) -> int:
        """The column of the oldest key that `queries` new tokens will be given."""
        return max(0, self.length - (self.window - 1))

    def counterpart(self) -> Any:
        """mlx-lm's cache of a window."""
        from mlx_lm.models import cache

        return cache.RotatingKVCache(max_size=self.window)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append (B, G, T, K) and give the keys and values that the window still reaches, (B, G, S, K)."""
        new = keys.shape[2]
        kept = min(self.length, self.window - 1)
        if self.keys is None or self.used + new > self.keys.shape[2]:
            room = new + min(self.window, KVCache.step)
            self.keys = _grown(_last(self.keys, self.used, kept), keys, kept, room)
            self.values = _grown(_last(self.values, self.used, kept), values, kept, room)
            self.used = kept
        end = self.used + new
        self.keys[..., self.used : end, :] = keys
        self.values[..., self.used : end, :] = values
        self.used, self.length = end, self.length + new
        return self.keys[..., end - new - kept : end, :], self.values[..., end - new - kept : end, :]


class PaddingCache(Cache):
    """The left padding of rows that are read once, without a cache: it keeps no keys and values."""

    state: tuple[mx.array, ...] = ()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Give the keys and values as they are."""
        return keys, values


class StateCache(Cache):
    """The state of a recurrent mixer: arrays that do not grow, whatever the length of the text.

    `cache[i]` is the array i, None before the first token. The mixer writes it and then calls `advance`.
    """

    def __init__(self, count: int, policy: CachePolicy | None = None) -> None:
        super().__init__(policy)
        self.arrays: list[mx.array | None] = [None] * count

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [array for array in self.arrays if array is not None]

    def counterpart(self) -> Any:
        """mlx-lm's cache of as many arrays."""
        from mlx_lm.models import cache

        return cache.ArraysCache(len(self.arrays))

    def __getitem__(self, index: int) -> mx.array | None:
        return self.arrays[index]

    def __setitem__(self, index: int, array: mx.array) -> None:
        self.arrays[index] = array

    def advance(self, tokens: int) -> None:
        """Count the columns that the arrays have taken in."""
        self.length += tokens


class LayerCache(Cache):
    """The caches of a layer's parts, by the names of the parts; they take in the same tokens and advance together."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = dict(parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts.values())

    def __getitem__(self, name: str) -> Any:
        return self.parts[name]

    @property
    def length(self) -> int:  # type: ignore[override]
        """How many columns are cached."""
        return next((part.length for part in self), 0)

    @property
    def offset(self) -> int | mx.array:
        """The position of the next token."""
        return next((part.offset for part in self), 0)

    @property
    def padding(self) -> mx.array | None:  # type: ignore[override]
        """Each row's left padding (B,)."""
        return next((part.padding for part in self), None)

    @padding.setter
    def padding(self, padding: mx.array | None) -> None:
        for part in self:
            part.padding = padding

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [array for part in self for array in part.state]

    def start(self, queries: int) -> int:
        """The column of the oldest key that any part will be given with `queries` new tokens."""
        return min((part.start(queries) for part in self), default=0)

    def select(self, rows: mx.array) -> None:
        """Keep these rows of the batch in this order (B,)."""
        for part in self:
            part.select(rows)


class CrossCache(LayerCache):
    """The cache of a layer with cross-attention: that of its mixer, and the source's keys and values.

    `keys` and `values` (B, G, S, K) are set once, by the cross-attention; with one row they serve every target.
    """

    def __init__(self, mixer: Any) -> None:
        super().__init__({"mixer": mixer})
        self.mixer = mixer
        self.keys: Any = None
        self.values: Any = None

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [*super().state, *([] if self.keys is None else [self.keys, self.values])]

    @property
    def held(self) -> int:
        """How many numbers of a row the target's cache keeps; the source's do not grow with it."""
        return self.mixer.held

    def select(self, rows: mx.array) -> None:
        """Keep these rows of the batch in this order (B,)."""
        super().select(rows)
        if self.keys is not None and self.keys.shape[0] > 1:
            self.keys, self.values = self.keys[rows], self.values[rows]


def _numbers(value: Any) -> int:
    """The numbers of one row in an array, a cache, or what holds several."""
    if isinstance(value, mx.array):
        return value.size // value.shape[0] if value.ndim and value.size else 0
    if isinstance(value, dict):
        return sum(map(_numbers, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_numbers, value))
    return value.held if isinstance(value, Cache) else 0


def _unused(buffers: list[mx.array | None], used: int) -> int:
    """The numbers of one row in the columns of `buffers` (B, G, S, K) past the first `used`."""
    sizes = (
        _numbers(buffer) // buffer.shape[2] * (buffer.shape[2] - used)
        for buffer in buffers
        if buffer is not None
    )
    return sum(sizes)


def settle(cache: Sequence[Any], tokens: int, report: Callable[[int], None] | None = None) -> None:
    """Evaluate what a pass over `tokens` left in the caches of a model: `runtime.by_layer`, or all at once.

    `report` is called after each evaluation with the tokens that its share of the pass comes to.
    """
    groups = [[layer] for layer in cache] if runtime.by_layer() else [list(cache)]
    for number, group in enumerate(groups, 1):
        mx.eval([layer.state for layer in group])
        if report is not None:
            report(tokens * number // len(groups))


def _last(buffer: mx.array | None, used: int, count: int) -> mx.array | None:
    return None if buffer is None else buffer[..., used - count : used, :]


def _grown(buffer: mx.array | None, like: mx.array, used: int, room: int) -> mx.array:
    """The first `used` columns of `buffer` and `room` empty ones."""
    batch, heads, _, width = like.shape
    empty = mx.zeros((batch, heads, room, width), dtype=like.dtype)
    return empty if buffer is None else mx.concatenate([buffer[..., :used, :], empty], axis=2)
