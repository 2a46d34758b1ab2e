"""KV caches: what they give back, and that growing and sliding lose nothing."""

import mlx.core as mx
import pytest

from zoo.blocks.mask import attention_mask
from zoo.cache import CachePolicy, KVCache, LayerCache, WindowCache, can_merge


def column(start, count):
    """Keys whose values are their positions, (1, 1, T, 2)."""
    return mx.broadcast_to(mx.arange(start, start + count)[None, None, :, None], (1, 1, count, 2)).astype(
        mx.float32
    )


def positions(keys):
    return keys[0, 0, :, 0].tolist()


@pytest.mark.parametrize("policy", [None, CachePolicy(reserve=1000)])
def test_all_keys_are_kept_over_many_growths(policy):
    cache = KVCache(policy)
    seen = 0
    for count in (3, 1, 600, 1, 255, 256, 1):
        keys, values = cache.update_and_fetch(column(seen, count), -column(seen, count))
        seen += count
        assert positions(keys) == list(range(seen))
        assert positions(values) == [-position for position in range(seen)]
        assert cache.length == cache.offset == seen


def test_reserved_room_is_made_once():
    cache = KVCache(CachePolicy(reserve=700))
    cache.update_and_fetch(column(0, 3), column(0, 3))
    assert cache.keys.buffer.shape[2] == 768


@pytest.mark.parametrize("window", [1, 4, 300])
def test_a_window_gives_what_it_reaches_and_no_more(window):
    cache = WindowCache(window)
    seen = 0
    for count in (2, 1, 1, 9, 1, 700, 1, 1, 30):
        start = cache.start(count)
        keys, _ = cache.update_and_fetch(column(seen, count), column(seen, count))
        seen += count
        assert positions(keys) == list(range(start, seen))
        assert start == max(0, seen - count - (window - 1))
    for _ in range(3 * window):
        keys, _ = cache.update_and_fetch(column(seen, 1), column(seen, 1))
        seen += 1
        assert positions(keys) == list(range(seen - min(window, seen), seen))
    assert cache.keys.buffer.shape[2] < 1000  # it does not hold the whole text


def shown(mask):
    return ["".join("x" if seen else "." for seen in row) for row in mask.tolist()]


def test_masks_say_who_sees_whom():
    assert attention_mask(5) == "causal"
    assert attention_mask(1, length=9) is None
    assert attention_mask(1, length=9, causality="full") is None
    assert shown(attention_mask(4, window=2)) == ["x...", "xx..", ".xx.", "..xx"]
    assert shown(attention_mask(2, length=3, start=1, window=3)) == ["xxx.", ".xxx"]
    assert shown(attention_mask(4, causality="prefix", prefix=2)) == ["xx..", "xx..", "xxx.", "xxxx"]
    padded = attention_mask(3, padding=mx.array([0, 2]))
    assert padded.shape == (2, 1, 3, 3)
    assert shown(padded[0, 0]) == ["x..", "xx.", "xxx"]
    assert shown(padded[1, 0]) == ["x..", ".x.", "..x"]
    step = attention_mask(1, length=3, padding=mx.array([0, 2]))
    assert [shown(row[0]) for row in step] == [["xxxx"], ["..xx"]]


class Counting(KVCache):
    """Keys, values, and how often each row was chosen."""

    def __init__(self, policy=None):
        super().__init__(policy)
        self.chosen = mx.zeros((2, 1))


def test_a_subclass_that_keeps_more_is_not_taken_for_its_base():
    cache, plain = Counting(), KVCache()
    for one in (cache, plain):
        one.update_and_fetch(*mx.zeros((2, 2, 1, 3, 8)))
    assert plain.restores and plain.mergeable and can_merge([plain])
    assert not cache.restores and not cache.mergeable and not can_merge([cache, plain])
    assert not LayerCache({"mixer": cache}).restores and not can_merge([LayerCache({"mixer": cache})])
    cache.select(mx.array([1, 0, 1]))
    assert cache.chosen.shape == (3, 1) and cache.rows == 3
    assert not can_merge([object()]) and not can_merge([KVCache()])  # another library's, and an empty one
