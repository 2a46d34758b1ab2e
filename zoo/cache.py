"""KV caches: what a layer remembers of the tokens before, so that each new one costs one step.

A cache owns the position: `length` columns are cached, and `offset` is the position of the next token, a
number or, when rows are padded on the left, (B,). Axes: B batch, G key/value heads, T new, S cached, K head.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class CachePolicy:
    """How caches are made. `reserve`: tokens to make room for at once, when the end is known."""

    reserve: int = 0


class Cache:
    """What every cache knows: how much it holds, and each row's left padding (B,), set by the model."""

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


class KVCache(Cache):
    """Every key and value, in buffers that grow by steps."""

    step = 256

    def __init__(self, policy: CachePolicy | None = None) -> None:
        super().__init__(policy)
        self.keys: mx.array | None = None
        self.values: mx.array | None = None

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [] if self.keys is None else [self.keys, self.values]

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
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.used = 0  # columns of the buffers that are filled

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [] if self.keys is None else [self.keys, self.values]

    def start(self, queries: int) -> int:
        """The column of the oldest key that `queries` new tokens will be given."""
        return max(0, self.length - (self.window - 1))

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append (B, G, T, K) and give the keys and values that the window still reaches, (B, G, S, K)."""
        new = keys.shape[2]
        held = min(self.length, self.window - 1)
        if self.keys is None or self.used + new > self.keys.shape[2]:
            room = new + min(self.window, KVCache.step)
            self.keys = _grown(_last(self.keys, self.used, held), keys, held, room)
            self.values = _grown(_last(self.values, self.used, held), values, held, room)
            self.used = held
        end = self.used + new
        self.keys[..., self.used : end, :] = keys
        self.values[..., self.used : end, :] = values
        self.used, self.length = end, self.length + new
        return self.keys[..., end - new - held : end, :], self.values[..., end - new - held : end, :]


def _last(buffer: mx.array | None, used: int, count: int) -> mx.array | None:
    return None if buffer is None else buffer[..., used - count : used, :]


def _grown(buffer: mx.array | None, like: mx.array, used: int, room: int) -> mx.array:
    """The first `used` columns of `buffer` and `room` empty ones."""
    batch, heads, _, width = like.shape
    empty = mx.zeros((batch, heads, room, width), dtype=like.dtype)
    return empty if buffer is None else mx.concatenate([buffer[..., :used, :], empty], axis=2)
