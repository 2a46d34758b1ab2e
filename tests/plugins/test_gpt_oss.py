"""gpt-oss: its config, the clipped gate, the sinks, and MXFP4 unpacked by the format's own table."""

from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from zoo.assemble import build
from zoo.config import Config
from zoo.errors import CheckpointError
from zoo.host.registry import default_registry
from zoo.recipe import Head
from zoo.testing import randomise, same
from zoo.weights import apply, invert
from zoo_gpt_oss import HF_WEIGHTS, ClippedExperts, Gather, SinkAttention, gpt_oss

RELEASED = default_registry().architecture("gpt-oss").full_size.config
RECIPE = SimpleNamespace(head=Head())


def recipe(**changes):
    return gpt_oss(Config(RELEASED | changes))


def test_a_config_without_scaling_has_the_released_one_and_null_means_none():
    plain = {key: value for key, value in RELEASED.items() if key != "rope_scaling"}
    assert gpt_oss(Config(plain)).layers[0].mixer.rope == recipe().layers[0].mixer.rope
    assert recipe(rope_scaling=None).layers[0].mixer.rope.scaling is None


def test_gate_and_up_are_clipped():
    experts = build(ClippedExperts(2, hidden=4, limit=7.0), 3, registry=default_registry())
    gate, up = mx.array([-100.0, 9.0, 7.0, 1.0]), mx.array([-50.0, 50.0, 2.0, 0.0])
    at_limit = 7.0 / (1 + np.exp(-1.702 * 7.0))
    expected = [0.0, 8 * at_limit, 3 * at_limit, 1 / (1 + np.exp(-1.702))]
    assert np.allclose(np.array(experts.join(gate, up)), expected, rtol=1e-6)


@pytest.mark.parametrize("mask", ["causal", None])
def test_a_sink_takes_its_share_of_the_softmax(mask):
    mixer = build(SinkAttention(heads=4, kv_heads=2, head_dim=8), 16, registry=default_registry())
    randomise(mixer)
    queries = mx.random.normal((2, 4, 5, 8), key=mx.random.key(1))
    keys, values = mx.random.normal((2, 2, 2, 5, 8), key=mx.random.key(2))
    scores = queries @ mx.repeat(keys, 2, axis=1).swapaxes(-1, -2) * mixer.scale
    if mask:
        scores = mx.where(mx.arange(5)[None] <= mx.arange(5)[:, None], scores, -mx.inf)
    sinks = mx.broadcast_to(mixer.sinks[:, None, None], (2, 4, 5, 1))
    shares = mx.softmax(mx.concatenate([scores, sinks], axis=-1), axis=-1)[..., :-1]
    same(mixer.mix(queries, keys, values, mask), shares @ mx.repeat(values, 2, axis=1), "mixed", 1e-6)


# Section 5.3.3 of the Microscaling Formats specification: the sixteen values of a 4-bit float (E2M1).
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def test_mxfp4_is_read_by_the_formats_table():
    draw = np.random.default_rng(0)
    blocks = draw.integers(0, 256, (2, 6, 3, 16), dtype=np.uint8)
    scales = draw.integers(100, 150, (2, 6, 3), dtype=np.uint8)
    pairs = np.stack([FP4[blocks & 15], FP4[blocks >> 4]], axis=-1).reshape(2, 6, 3, 32)
    expected = (pairs * 2.0 ** (scales[..., None] - 127.0)).reshape(2, 6, 96).swapaxes(-1, -2)
    tensors = {"experts.up_blocks": mx.array(blocks), "experts.up_scales": mx.array(scales)}
    Gather("experts.{p}").forward(tensors, {}, RECIPE, mx.concatenate)
    assert list(tensors) == ["experts.up"]
    assert tensors["experts.up"].shape == (2, 96, 6)
    assert np.array_equal(np.array(tensors["experts.up"].numbers(mx.float32)), expected)


@pytest.mark.parametrize(
    ("blocks", "scales"), [((2, 6, 3, 8), (2, 6, 3)), ((2, 6, 3, 16), (2, 6, 4)), ((6, 16), (6,))]
)
def test_blocks_and_scales_that_do_not_belong_together_are_refused(blocks, scales):
    tensors = {"a_blocks": mx.zeros(blocks, mx.uint8), "a_scales": mx.zeros(scales, mx.uint8)}
    with pytest.raises(CheckpointError, match="a_blocks: no MXFP4 blocks and scales"):
        Gather("{p}").forward(tensors, {}, RECIPE, mx.concatenate)


def test_interleaved_experts_come_apart_and_together():
    made = recipe()
    experts, name = made.layers[0].feedforward.experts, "model.layers.0.mlp.experts.gate_up_proj"
    whole = np.arange(experts.count * 3 * 2 * experts.hidden).reshape(experts.count, 3, -1)
    tensors = {name: whole, f"{name}_bias": whole[:, 0]}
    found, left = apply(HF_WEIGHTS, tensors, made, np.concatenate)
    assert not left
    for first, part in enumerate(("gate", "up")):
        path = f"layers.0.feedforward.experts.{part}"
        assert (found[f"{path}.weight"] == whole[..., first::2].swapaxes(1, 2)).all()
        assert (found[f"{path}.bias"] == whole[:, 0, first::2]).all()
    back, left = invert(HF_WEIGHTS, found, made, np.concatenate)
    assert not left and all((back[name] == tensor).all() for name, tensor in tensors.items())


def test_the_rules_leave_blocks_without_scales_to_be_named():
    tensors = {"model.layers.0.mlp.experts.down_proj_blocks": mx.zeros((2, 4, 1, 16), mx.uint8)}
    found, left = apply(HF_WEIGHTS, tensors, RECIPE, mx.concatenate)
    assert not found and list(left) == list(tensors)
