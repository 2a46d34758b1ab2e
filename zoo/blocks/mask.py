"""Attention masks: which keys a query may see. Axes: B batch, T query length, S key length.

Positions count the columns of the batch, padding included: the queries are `length` … `length + T − 1`, the
keys `start` … `length + T − 1`.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import mlx.core as mx

Mask: TypeAlias = "mx.array | str | None"  # what a query may see: these keys, "causal", or all keys


def attention_mask(
    queries: int,
    *,
    length: int = 0,
    start: int = 0,
    causality: str = "causal",
    window: int | None = None,
    chunked: bool = False,
    padding: mx.array | None = None,
    prefix: int | mx.array | None = None,
    bound: tuple[int, int] | None = None,
) -> Mask:
    """None when everything is seen, "causal", or an array of booleans, (T, S) or (B, 1, T, S).

    `length` tokens are cached, `start` is the oldest that still is. A query sees itself and the `window` − 1
    keys before it. If `chunked`, each row is divided into chunks of `window` tokens, and a query sees the keys of its own chunk
    up to itself. Under "prefix" it also sees the first `prefix` of its row, an integer or (B,). `padding` (B,) counts the
    columns on the left of each row that are no tokens.

    `bound`, (keep, recent): of earlier keys a query sees the first `keep` of its row, and the newest `recent` with itself
    (Xiong et al., 2023, "attention sinks"). Those first keys stand before all others once `start` is not 0.
    """
    keep, recent = bound or (0, None)
    aside = keep if start else 0  # keys of first tokens before the others
    windowed = window is not None and length + queries - (0 if aside else start) > window
    windowed = windowed or (chunked and window is not None and length + queries > window)
    bounded = recent is not None and length + queries > recent and (queries > 1 or start < keep)
    if padding is None and not windowed and not bounded:
        if causality == "full" or queries == 1:
            return None
        if causality == "prefix" and isinstance(prefix, int) and prefix >= length + queries:
            return None
        if causality == "causal":
            return "causal"
    query = mx.arange(length, length + queries)[:, None]  # (T, 1)
    key = mx.arange(start, length + queries)[None]  # (1, S)
    first = None if padding is None else padding[:, None, None, None]  # (B, 1, 1, 1)
    if aside:
        column = mx.arange(keep)[None] + (0 if first is None else first)  # (1, keep) or (B, 1, 1, keep)
        key = mx.concatenate([column, mx.broadcast_to(key, (*column.shape[:-1], key.shape[1]))], axis=-1)
    if causality == "full":
        seen = mx.ones((queries, key.shape[-1]), dtype=mx.bool_)
    else:
        seen = key <= query  # (T, S), or (B, 1, T, S)
    if causality == "prefix" and prefix is not None:
        end = prefix if isinstance(prefix, int) else prefix[:, None, None, None]
        seen = seen | (key < (end if first is None else end + first))
    if window is not None and causality != "full":
        own = 0 if first is None else first
        near = (key - own) // window == (query - own) // window if chunked else key > query - window
        seen = seen & near
    if recent is not None:
        seen = seen & ((key > query - recent) | (key < (keep if first is None else keep + first)))
    if first is not None:
        # Padding sees itself, so that its softmax has something to sum; no real query sees it.
        seen = (seen & (key >= first)) | (key == query)  # (B, 1, T, S)
    if aside:  # one of the first that was not dropped yet is there a second time
        seen = seen & ((mx.arange(key.shape[-1]) >= keep) | (key < start))
    return seen


def bidirectional_mask(
    length: int, *, window: int | None = None, tokens: mx.array | None = None
) -> mx.array | None:
    """The mask of an encoder: None when each token sees all, else booleans (T, T), (B, 1, 1, T) or (B, 1, T, T).

    `tokens` (B, T) is true where a column holds a token. With a `window` a token sees half of it on each side and itself.
    """
    seen = None if tokens is None else tokens[:, None, None, :]  # (B, 1, 1, T)
    if window is None or length <= window // 2 + 1:
        return seen
    position = mx.arange(length)
    distance = mx.abs(position[:, None] - position)  # (T, T)
    near = distance <= window // 2
    # Padding sees itself, so that its softmax has something to sum; no token sees it.
    return near if seen is None else (near & seen) | (distance == 0)  # (B, 1, T, T)


def dense(mask: Mask, queries: int, keys: int) -> mx.array | None:
    """A mask for attention that is written out: "causal" as an array (T, S), others as they are.

    The queries are the last `queries` of the `keys`.
    """
    if not isinstance(mask, str):
        return mask
    return mx.arange(keys)[None] <= mx.arange(keys - queries, keys)[:, None]


def biased(mask: Mask, bias: mx.array) -> mx.array:
    """An additive mask: `bias` (1, H, T, S) where `mask`, of any kind, lets a query see, −∞ elsewhere."""
    if mask is None:
        return bias
    return mx.where(dense(mask, *bias.shape[-2:]), bias, -math.inf)
