"""The attention of one token to packed keys and values: that to the dequantized ones, without dequantizing any."""

import io

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import pytest

from zoo import runtime
from zoo.blocks.mask import attention_mask
from zoo.cache import CachePolicy, KVCache, WindowCache
from zoo.compiled_step import compiled_step
from zoo.testing import same

HEADS, GROUPS, WIDTH, SCALE = 6, 2, 64, 0.2
POLICIES = {
    "8 and 4 bits": CachePolicy(key_bits=8, value_bits=4),
    "keys": CachePolicy(key_bits=4, group_size=32),
    "values": CachePolicy(value_bits=8),
    "bounded": CachePolicy(max_size=12, keep=3, key_bits=8, value_bits=8),
}


def normal(*shape, seed, dtype=mx.float32):
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)


def last_token(cache, dtype, padding=None):
    """What is given to the cache after 40 tokens: queries, keys, values, and the mask of one token."""
    columns = normal(2, 2, GROUPS, 40, WIDTH, seed=1, dtype=dtype)
    cache.padding = padding
    cache.update_and_fetch(columns[0], columns[1])
    mask = attention_mask(
        1,
        length=cache.length,
        start=cache.start(1),
        window=cache.window,
        padding=padding,
        bound=cache.bound,
    )
    new = (normal(2, heads, 1, WIDTH, seed=heads, dtype=dtype) for heads in (HEADS, GROUPS, GROUPS))
    return *new, mask


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(mx.float32, 1e-5), (mx.float16, 2e-3), (mx.bfloat16, 2e-2)], ids=str
)
@pytest.mark.parametrize("padding", [None, [0, 9]], ids=["", "padded"])
@pytest.mark.parametrize("window", [None, 16])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_token_attends_to_packed_columns_as_to_dequantized_ones(policy, window, padding, dtype, tolerance):
    def cache():
        return KVCache(POLICIES[policy]) if window is None else WindowCache(window, POLICIES[policy])

    padding = None if padding is None else mx.array(padding)
    packed, dequantized = cache(), cache()
    queries, keys, values, mask = last_token(packed, dtype, padding)
    last_token(dequantized, dtype, padding)
    assert packed.attends_packed
    mixed = packed.attend(queries, keys, values, SCALE, mask)
    whole = dequantized.update_and_fetch(keys, values)
    expected = runtime.attention(queries, *whole, SCALE, mask)
    assert mixed.dtype == dtype and packed.length == dequantized.length == 41
    same(mixed.astype(mx.float32), expected.astype(mx.float32), policy, tolerance)


@pytest.mark.parametrize("dtype", [mx.bool_, mx.float32], ids=str)
def test_a_mask_may_differ_from_head_to_head(dtype):
    packed, dequantized = (KVCache(POLICIES["8 and 4 bits"]) for _ in range(2))
    queries, keys, values, _ = last_token(packed, mx.float32)
    last_token(dequantized, mx.float32)
    mask = normal(1, HEADS, 1, 41, seed=7)
    mask = mask > 0 if dtype == mx.bool_ else mask
    mixed = packed.attend(queries, keys, values, SCALE, mask)
    whole = dequantized.update_and_fetch(keys, values)
    same(mixed, runtime.attention(queries, *whole, SCALE, mask), "heads", 1e-5)


def test_a_cache_that_keeps_first_tokens_unpacked_or_its_own_columns_is_dequantized():
    own = type("Own", (KVCache,), {"update_and_fetch": lambda self, keys, values: (keys, values)})
    bits = dict(key_bits=8, value_bits=8)
    assert not KVCache(CachePolicy(**bits, start=2)).attends_packed
    assert not own(CachePolicy(**bits)).attends_packed
    assert not KVCache(CachePolicy(max_size=8)).attends_packed


@pytest.mark.parametrize("compiled", [False, True], ids=["model", "step"])
def test_a_decode_step_reads_packed_columns_and_dequantizes_none(monkeypatch, compiled):
    model = zoo.load("llama").model
    cache = model.make_cache(CachePolicy(key_bits=8, value_bits=8))
    mx.eval(model(mx.array([[1, 2, 3, 4]]), cache))
    monkeypatch.setattr(mx, "dequantize", lambda *given, **how: pytest.fail("dequantized"))
    run = compiled_step(model) if compiled else model
    drawn = io.StringIO()
    mx.export_to_dot(drawn, run(mx.array([[5]]), cache))
    assert drawn.getvalue().count("QuantizedMatmul") == 2 * len(cache)
