"""What weight rules do to a packed matrix is what they do to its numbers; what its shapes cannot be is refused."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, as_array, join, quantize_matrix
from zoo.errors import CheckpointError

QUANTIZATIONS = [
    QuantizationSpec(4, 32),
    QuantizationSpec(3, 64),
    QuantizationSpec(8, 128),
    QuantizationSpec(4, 32, "mxfp4"),
    QuantizationSpec(4, 16, "nvfp4"),
    QuantizationSpec(8, 32, "mxfp8"),
]
EXTRAS = ("none", "global scale", "scale an output", "permutation")


def made(shape, quantization, extra="none", seed=0, name="a.weight"):
    draw = np.random.default_rng(seed)
    matrix = quantize_matrix(name, mx.array(draw.normal(size=shape).astype(np.float32)), quantization)
    parts = {part: value for part, value in vars(matrix).items()}
    if extra == "global scale":
        parts["global_scale"] = mx.array(draw.uniform(0.5, 2, (*shape[:-2], 1)).astype(np.float32))
    elif extra == "scale an output":
        parts["global_scale"] = mx.array(draw.uniform(0.5, 2, shape[:-1]).astype(np.float32))
    elif extra == "permutation":
        parts["permutation"] = mx.array(draw.permutation(shape[-1]))
    return QuantizedMatrix(**parts)


def same(found, expected):
    if isinstance(found, QuantizedMatrix):
        assert found.shape == expected.shape and found.ndim == expected.ndim
        found = found.numbers(mx.float32)
    assert found.shape == expected.shape
    assert np.allclose(np.array(found), np.array(expected), rtol=1e-6, atol=1e-6)


def steps(ndim):
    """One of the things that weight rules do, as a name and a function of any array."""
    cut = st.slices(12)
    moves = [
        st.tuples(st.just("swapped"), st.just(lambda a: a.swapaxes(-1, -2))),
        st.tuples(st.just("cut"), cut.map(lambda s: lambda a: a[s])),
        st.tuples(st.just("cut last"), cut.map(lambda s: lambda a: a[..., s])),
        st.tuples(st.just("cut outputs"), cut.map(lambda s: lambda a: a[..., s, :])),
        st.tuples(st.just("stacked"), st.just(lambda a: a[None])),
        st.tuples(st.just("doubled"), st.just(lambda a: a[..., None])),
        st.tuples(st.just("first"), st.just(lambda a: a[0])),
        st.tuples(st.just("turned"), st.just(lambda a: a.T)),
        st.tuples(st.just("heads"), st.just(lambda a: a.reshape(2, -1, a.shape[-1]))),
        st.tuples(st.just("flat"), st.just(lambda a: a.reshape(-1, a.shape[-1]))),
        st.tuples(st.just("all flat"), st.just(lambda a: a.reshape(-1))),
        st.tuples(st.just("outer swapped"), st.just(lambda a: a.swapaxes(0, -1))),
    ]
    return st.lists(st.one_of(moves), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(
    quantization=st.sampled_from(QUANTIZATIONS),
    extra=st.sampled_from(EXTRAS),
    stacked=st.booleans(),
    moves=steps(3),
)
def test_any_row_of_moves_is_that_of_the_numbers(quantization, extra, stacked, moves):
    matrix = made((3, 12, 128) if stacked else (12, 128), quantization, extra)
    found, expected = matrix, matrix.numbers(mx.float32)
    for _, move in moves:
        try:
            after = move(expected)
        except (ValueError, IndexError):
            return  # no array can do it
        if 0 in after.shape or after.ndim < 1:
            return
        found, expected = move(found), after
    if isinstance(found, mx.array):  # unpacked along the way, to the dtype that it had
        assert np.allclose(np.array(found.astype(mx.float32)), np.array(expected), rtol=2e-2, atol=1e-2)
    else:
        same(found, expected)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    quantizations=st.lists(st.sampled_from(QUANTIZATIONS[:4]), min_size=2, max_size=3),
    alike=st.booleans(),
    extras=st.lists(st.sampled_from(EXTRAS), min_size=3, max_size=3),
    axis=st.sampled_from([0, 1, 2, -1, -2, -3]),
    swapped=st.booleans(),
    stacked=st.booleans(),
)
def test_joining_is_that_of_the_numbers(quantizations, alike, extras, axis, swapped, stacked):
    shape = (2, 8, 128) if stacked else (8, 128)
    if not -len(shape) <= axis < len(shape):
        return
    quantizations = [quantizations[0]] * len(quantizations) if alike else quantizations
    matrices = [
        made(shape, quantization, extra, seed)
        for seed, (quantization, extra) in enumerate(zip(quantizations, extras, strict=False))
    ]
    numbers = [matrix.numbers(mx.float32) for matrix in matrices]
    if swapped:
        matrices = [matrix.swapaxes(-1, -2) for matrix in matrices]
        numbers = [array.swapaxes(-1, -2) for array in numbers]
    found, expected = join(matrices, axis), mx.concatenate(numbers, axis)
    inputs = len(shape) - (2 if swapped else 1)
    if alike and "permutation" not in extras[: len(matrices)] and axis % len(shape) != inputs:
        assert isinstance(found, QuantizedMatrix)
    found = as_array(found) if isinstance(found, mx.array) else found.numbers(mx.float32)
    assert np.allclose(np.array(found.astype(mx.float32)), np.array(expected), rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize(
    "move",
    [
        lambda a: a[2:9],
        lambda a: a[::2],
        lambda a: a[None],
        lambda a: a[None][0],
        lambda a: a.T.swapaxes(0, 1),
        lambda a: a.T[:, 3:],
        lambda a: a[None].swapaxes(-1, -2)[..., 1::2],
    ],
)
def test_outputs_are_moved_without_unpacking(move, extra):
    matrix = made((12, 128), QUANTIZATIONS[0], extra)
    assert isinstance(move(matrix), QuantizedMatrix)
    same(move(matrix), move(matrix.numbers(mx.float32)))


def test_packed_and_plain_ones_are_joined_as_numbers_and_put_on_record():
    matrix = made((8, 128), QUANTIZATIONS[0], name="b.weight")
    found = join([matrix, mx.ones((2, 128))], 0)
    assert found.shape == (10, 128) and matrix.dequantized == {"b.weight"}


def test_what_is_unpacked_is_put_on_record_under_the_checkpoints_name():
    matrix = made((8, 128), QUANTIZATIONS[0], name="b.weight")
    matrix.swapaxes(-1, -2)[:64, :]  # inputs cut apart
    assert matrix.dequantized == {"b.weight"}
    other = made((8, 128), QUANTIZATIONS[0])
    assert isinstance(other[2:4], QuantizedMatrix) and not other.dequantized


# (quantization, inputs): words and scales of a row fit others as well.
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_the_models_width_settles_what_the_shapes_leave_open(quantization):
    matrix = made((4, 128), quantization)
    guessed = QuantizedMatrix(**{**vars(matrix), "quantization": QuantizationSpec(2, 128)})
    assert guessed.resolved(128).quantization == quantization


@pytest.mark.parametrize("inputs", [1, 96, 100, 127, 512, 4096])
def test_widths_that_no_packing_has_are_refused(inputs):
    with pytest.raises(CheckpointError, match=r"a\.weight: 16 words and 2 scales"):
        made((4, 128), QuantizationSpec(4, 64)).resolved(inputs)


def test_a_packing_that_is_certain_is_not_read_as_another():
    matrix = made((4, 128), QuantizationSpec(8, 64))
    assert matrix.resolved(256).quantization == QuantizationSpec(4, 128)  # what an MLX config may have meant
    with pytest.raises(CheckpointError, match="rows of 128 numbers, not 256"):
        QuantizedMatrix(**{**vars(matrix), "certain": True}).resolved(256)


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_casting_reaches_scales_and_numbers(quantization):
    matrix = made((4, 128), quantization, "global scale")
    for dtype in (mx.float16, mx.bfloat16, mx.float32):
        cast = matrix.astype(dtype)
        assert cast.dtype == cast.numbers().dtype == dtype
        assert cast.scales.dtype == (mx.uint8 if quantization.mode != "affine" else dtype)
        assert cast.global_scale.dtype == mx.float32


def test_scales_that_are_wider_than_the_numbers_stay_so():
    matrix = made((4, 128), QuantizationSpec(4, 32))
    wide = QuantizedMatrix(**{**vars(matrix), "floats": mx.float16}).astype(mx.bfloat16)
    assert wide.scales.dtype == wide.biases.dtype == mx.float32
    assert wide.numbers().dtype == mx.bfloat16
