"""Qwen3-Next: the delta rule against its recurrence, gates, norms in MLX's layout, and what its config.json may say."""

import mlx.core as mx
import pytest

from zoo.config import Config
from zoo.recipe import MoE
from zoo.testing import same, subject
from zoo.weights import apply, invert
from zoo_gemma import OffsetRMSNorm
from zoo_qwen3_next import MLX_NORMS, TINY, GatedAttention, GatedDeltaNet, qwen3_next
from zoo_qwen3_next.block import delta_rule, inverse, unit


@pytest.fixture(scope="module")
def made():
    return subject("qwen3-next")


def recipe(**changes):
    return qwen3_next(Config(TINY | changes))


def inputs(length, fades, seed=0):
    """q, k (2, 3, T, 5) of length one, v (2, 3, T, 4), log α and β (2, 3, T), and a state (2, 3, 5, 4)."""
    shapes = ((length, 5), (length, 5), (length, 4), (5, 4))
    q, k, v, state = (
        mx.random.normal((2, 3, *shape), key=mx.random.key(seed + i)) for i, shape in enumerate(shapes)
    )
    rate, beta = (mx.random.uniform(shape=(2, 3, length), key=mx.random.key(seed + i)) for i in (8, 9))
    return unit(q), unit(k), v, -fades * rate, beta, state


def recurrence(q, k, v, rate, beta, state):
    """The rule as the paper writes it, one token after the other."""
    read = []
    for t in range(q.shape[2]):
        state = mx.exp(rate[:, :, t])[..., None, None] * state
        known = (state * k[:, :, t, :, None]).sum(axis=2)
        state = state + (beta[:, :, t, None] * k[:, :, t])[..., None] * (v[:, :, t] - known)[:, :, None]
        read.append((state * q[:, :, t, :, None]).sum(axis=2))
    return mx.stack(read, axis=2), state


@pytest.mark.parametrize("fades", [0.0, 0.1, 30.0])
@pytest.mark.parametrize("chunk", [1, 5, 16, 64])
def test_chunks_of_any_size_give_the_recurrence(chunk, fades):
    given = inputs(37, fades)
    for found, expected, what in zip(
        delta_rule(*given, chunk), recurrence(*given), ("what is read", "state"), strict=True
    ):
        same(found, expected, what)


def test_the_same_key_over_and_over_is_overwritten_without_a_loss_of_digits():
    q, k, v, rate, _, state = inputs(64, 0.0)
    q, k = (mx.broadcast_to(x[:, :, :1], x.shape) for x in (k, k))
    y, last = delta_rule(q, k, v, rate, mx.ones((2, 3, 64)), state, 64)
    same(y, v, "what is read is the value just written", 1e-4)
    same((last * k[:, :, -1, :, None]).sum(axis=2), v[:, :, -1], "the state knows the last value", 1e-4)


@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_the_inverse_of_a_triangle(length):
    below = mx.tril(mx.random.normal((2, length, length), key=mx.random.key(length)) / 4, k=-1)
    found = inverse(below + 5 * mx.triu(mx.ones((length, length))))  # what is not below counts for nothing
    same((mx.eye(length) + below) @ found, mx.broadcast_to(mx.eye(length), below.shape), "identity", 1e-4)


def test_a_gate_closes_each_head_by_itself(made):
    mixer, x = made.model.layers[1].mixer, mx.random.normal((1, 6, 64), key=mx.random.key(3))
    weight, heads = mixer.gate.weight, mixer.attend(x, "causal", None)
    same(mixer(x, "causal"), (heads * mx.sigmoid(x @ weight.T)) @ mixer.output.weight.T, "output")


def test_one_layer_in_two_of_the_small_model_attends_and_norms_are_offsets():
    layers = recipe().layers
    assert [type(layer.mixer) for layer in layers] == [GatedDeltaNet, GatedAttention] * 2
    assert all(isinstance(layer.mixer_norm, OffsetRMSNorm) for layer in layers)
    assert layers[1].mixer.query_norm == layers[1].mixer.key_norm == layers[0].mixer_norm
    assert layers[1].mixer.rope.dims == 8
    assert all(isinstance(layer.feedforward, MoE) and layer.feedforward.shared_gate for layer in layers)


def test_a_layer_has_a_state_or_keys(made):
    cache = made.model.make_cache()
    made.model(made.tokens, cache)
    batch = made.tokens.shape[0]
    size = sum(array.size for array in cache[0].state)
    assert size == batch * made.model.spec.layers[0].mixer.state_size(64) and cache[0].constant
    assert cache[1].length == made.tokens.shape[1] and not cache[1].constant


def test_norms_are_one_more_in_the_layout_of_mlx_conversions(made):
    stored = {
        "model.norm.weight": mx.full((4,), 1.25),
        "model.layers.1.self_attn.q_norm.weight": mx.ones((4,)),
    }
    found, left = apply(MLX_NORMS, stored, made.recipe, mx.concatenate)
    assert not left and mx.array_equal(found["norm.weight"], mx.full((4,), 0.25))
    assert mx.array_equal(found["layers.1.mixer.query_norm.weight"], mx.zeros((4,)))
    back, left = invert(MLX_NORMS, found, made.recipe, mx.concatenate)
    assert not left and {name: array.tolist() for name, array in back.items()} == {
        name: array.tolist() for name, array in stored.items()
    }
