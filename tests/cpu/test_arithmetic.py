"""Inside `runtime.eager()`, a CPU's attention, activations and expert products are those of MLX."""

import math

import mlx.core as mx
import pytest

import zoo
from zoo import runtime
from zoo.blocks.activation import activation
from zoo.blocks.feedforward import StackedLinear
from zoo.cpu import arithmetic, floats, operations, tables
from zoo.generation.loop.prompt import Prefill

HEADS, WIDTH = 6, 16


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    if runtime.on_gpu():
        pytest.skip("a GPU has kernels of its own")
    mx.random.seed(3)
    monkeypatch.setattr(operations, "MANY_NUMBERS", 64)


def masks(queries, keys):
    own = mx.arange(keys)[None] == mx.arange(keys - queries, keys)[:, None]
    drawn = (mx.random.uniform(shape=(2, 1, queries, keys)) < 0.5) | own
    return {
        "none": None,
        "causal": "causal",
        "two axes": mx.arange(keys)[None] <= mx.arange(keys - queries, keys)[:, None],
        "rows": drawn,
        "nothing is seen": mx.zeros((queries, keys), dtype=mx.bool_),
        "one query's": mx.arange(keys)[None] > 2,
        "a bias a head": mx.random.normal((1, HEADS, queries, keys)),
        "a bias that hides": mx.where(drawn, 0.0, -math.inf),
    }


@pytest.mark.parametrize("kind", masks(1, 1))
@pytest.mark.parametrize(("queries", "keys", "groups"), [(40, 40, 6), (150, 200, 2), (64, 65, 1)])
def test_attention_is_that_of_mlx(kind, queries, keys, groups, monkeypatch):
    monkeypatch.setattr(arithmetic, "SCORES", 2 * HEADS * keys * 48)  # 48 queries at a time
    mask = masks(queries, keys)[kind]
    q = mx.random.normal((2, HEADS, queries, WIDTH)) * 3
    k, v = (mx.random.normal((2, groups, keys, WIDTH)) for _ in range(2))
    expected = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25, mask=mask)
    assert mx.array_equal(runtime.attention(q, k, v, 0.25, mask), expected)
    before = [mx.array(x) for x in (q, k, v)]
    with runtime.eager():
        found = runtime.attention(q, k, v, 0.25, mask)
    assert mx.allclose(found, expected, rtol=1e-5, atol=2e-6)
    assert all(mx.array_equal(x, same) for x, same in zip((q, k, v), before, strict=True))


@pytest.mark.parametrize("name", arithmetic.ACTIVATIONS)
def test_activations_are_those_of_mlx(name):
    x = mx.concatenate(
        [mx.linspace(-12, 12, 2 * arithmetic.PIECE), mx.array([-1e30, -200.0, -0.0, 200.0, 1e30])]
    )
    x = mx.stack([x, x[::-1]]).T  # no row of it is contiguous
    expected, kept = activation(name)(x), mx.array(x)
    with runtime.eager():
        found = activation(name)(x)
    assert mx.allclose(found[:-5], expected[:-5], rtol=1e-5, atol=1e-6)
    assert mx.allclose(found[-5:, 0], mx.array([0, 0, 0, 200, 1e30]), atol=1e-6)
    assert mx.array_equal(x, kept)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_experts_are_multiplied_by_group(dtype, packed):
    layer = StackedLinear(5, 64, 32, bias=True)
    layer.bias = mx.random.normal(layer.bias.shape)
    layer.set_dtype(dtype)
    layer = layer.to_quantized(32, 4) if packed else layer
    x = mx.random.normal((90, 1, 64)).astype(dtype)
    indices = mx.sort(mx.random.randint(0, 4, (90,)) + (mx.arange(90) > 50))
    weight = layer.floats() if packed else layer.weight.astype(mx.float32)
    expected = x.astype(mx.float32) @ weight[indices].swapaxes(-1, -2) + layer.bias[indices][:, None]
    with runtime.eager():
        found = layer(x, indices, in_order=True)
    assert found.dtype == dtype and found.shape == (90, 1, 32)
    tolerance = 1e-5 if dtype == mx.float32 else 1e-2
    assert mx.allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("shape", [(70, 192), (3, 50, 64)])
def test_packed_numbers_become_floats(bits, shape, monkeypatch):
    used = []
    monkeypatch.setattr(floats, "MANY_WORDS", 64)
    real = tables.dequantize_by_table
    monkeypatch.setattr(tables, "dequantize_by_table", lambda *given: used.append(bits) or real(*given))
    monkeypatch.setattr(tables, "DEQUANTIZED_PIECE", 7 * 64)  # the last piece is shorter
    packed = mx.quantize(mx.random.normal(shape), group_size=64, bits=bits)
    how = dict(group_size=64, bits=bits, mode="affine")
    expected = mx.dequantize(*packed, **how)
    with runtime.eager():
        found = runtime.dequantize(*packed, how)
        part = runtime.dequantize(*(array[1::2] for array in packed), how)
    assert mx.allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert mx.array_equal(part, found[1::2])
    assert bool(used) == (bits != 3)


def test_what_is_traced_inside_falls_back():
    q = mx.random.normal((2, 1, HEADS, 40, WIDTH))
    x, layer = mx.random.normal((2, 2**14)), StackedLinear(3, 8, 8)
    rows, indices = mx.random.normal((70, 1, 8)), mx.sort(mx.random.randint(0, 3, (70,)))
    with runtime.eager():
        traced = [
            mx.vmap(lambda q: runtime.attention(q, q, q, 0.25, "causal"))(q),
            mx.vmap(activation("silu"))(x),
            mx.compile(lambda rows, indices: layer(rows, indices, True))(rows, indices),
        ]
    expected = [
        mx.stack([mx.fast.scaled_dot_product_attention(q, q, q, scale=0.25, mask="causal") for q in q]),
        x * mx.sigmoid(x),
        layer(rows, indices, True),
    ]
    for found, wanted in zip(traced, expected, strict=True):
        assert mx.allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["llama", "mixtral", "gpt2"])
def test_a_prompt_is_read_so_and_a_gradient_is_not(name, monkeypatch):
    used = []
    for module, function in ((arithmetic, "attention"), (arithmetic, "in_pieces"), (arithmetic, "groups")):
        real = getattr(module, function)
        monkeypatch.setattr(
            module, function, lambda *args, real=real, name=function: used.append(name) or real(*args)
        )
    model = zoo.load(name).model
    ids = [3 + place % 50 for place in range(64)]
    expected = model(mx.array([ids]))[0, -1]
    mx.eval(mx.grad(lambda x: model(inputs_embeds=x).sum())(mx.zeros((1, 40, model.spec.dim))))
    assert not used
    found = Prefill(model, ids, model.make_cache()).finish()[0]
    assert set(used) >= (
        {"attention", "in_pieces", "groups"} if name == "mixtral" else {"attention", "in_pieces"}
    )
    assert mx.abs(found - expected).max() < 1e-5 * (expected.max() - expected.min())
