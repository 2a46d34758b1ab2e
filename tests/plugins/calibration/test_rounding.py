"""One matrix: the grids, the packing, and what error correction and clipping save."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.checkpoint.quantized_matrix import QuantizationSpec, quantize_matrix
from zoo_calibration.awq import clip_matrix
from zoo_calibration.gptq import factor, round_matrix
from zoo_calibration.grids import ends, packed, places

OUTPUTS, INPUTS, ROWS = 48, 128, 400
DRAW = np.random.default_rng(0)
WEIGHTS = DRAW.normal(size=(OUTPUTS, INPUTS)).astype(np.float32)
# Few directions and a little noise, so that one input's error can be made up for by others.
X = (
    DRAW.normal(size=(ROWS, 24)) @ DRAW.normal(size=(24, INPUTS)) + 0.3 * DRAW.normal(size=(ROWS, INPUTS))
).astype(np.float32)
GRAM = X.T @ X


def output_error(matrix, weights=WEIGHTS):
    return float(((X @ (np.array(matrix.numbers(mx.float32)) - weights).T) ** 2).sum())


def rounded(rounds, spec, weights=WEIGHTS, gram=GRAM):
    return packed("m", *rounds(weights, gram, spec, mx.float32), spec, mx.float32)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_places_are_packed_as_mlx_unpacks_them(bits):
    spec = QuantizationSpec(bits, 32)
    found = DRAW.integers(0, 2**bits, (OUTPUTS, INPUTS))
    scales, biases = DRAW.normal(size=(2, OUTPUTS, INPUTS // 32)).astype(np.float32)
    numbers = found * np.repeat(scales, 32, -1) + np.repeat(biases, 32, -1)
    matrix = packed("m", found, scales, biases, spec, mx.float32)
    assert matrix.shape == (OUTPUTS, INPUTS)
    np.testing.assert_allclose(np.array(matrix.numbers()), numbers, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_an_unshrunken_grid_is_the_one_that_mlx_chooses(bits):
    spec = QuantizationSpec(bits, 64)
    plain = quantize_matrix("m", mx.array(WEIGHTS), spec)
    scale, bias = ends(WEIGHTS.reshape(OUTPUTS, -1, 64), bits, mx.float32)
    np.testing.assert_allclose(scale, np.array(plain.scales), rtol=1e-5)
    np.testing.assert_allclose(bias, np.array(plain.biases), rtol=1e-5)
    found = places(WEIGHTS.reshape(OUTPUTS, -1, 64), scale[..., None], bias[..., None], bits)
    numbers = (found * scale[..., None] + bias[..., None]).reshape(OUTPUTS, INPUTS)
    np.testing.assert_allclose(numbers, np.array(plain.numbers()), atol=1e-5)


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_error_correction_more_than_halves_the_error_of_correlated_outputs(bits):
    spec = QuantizationSpec(bits, 64)
    plain = quantize_matrix("m", mx.array(WEIGHTS), spec)
    found = rounded(round_matrix, spec)
    assert found.nbytes == plain.nbytes
    assert output_error(found) < output_error(plain) / 2


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_clipping_lowers_the_error(bits):
    spec = QuantizationSpec(bits, 64)
    assert output_error(rounded(clip_matrix, spec)) < output_error(
        quantize_matrix("m", mx.array(WEIGHTS), spec)
    )


def test_scales_are_rounded_to_their_dtype_before_the_weights_are():
    spec = QuantizationSpec(4, 64)
    matrix = packed("m", *round_matrix(WEIGHTS, GRAM, spec, mx.bfloat16), spec, mx.bfloat16)
    assert matrix.scales.dtype == mx.bfloat16
    late = rounded(round_matrix, spec).astype(mx.bfloat16)
    assert output_error(matrix) < output_error(late)


@pytest.mark.parametrize("rounds", [round_matrix, clip_matrix])
def test_a_matrix_whose_inputs_are_all_zero_is_rounded_as_well_as_without_a_text(rounds):
    spec = QuantizationSpec(4, 64)
    found = rounded(rounds, spec, gram=np.zeros_like(GRAM))
    lost, plain = (
        ((np.array(matrix.numbers()) - WEIGHTS) ** 2).sum()
        for matrix in (found, quantize_matrix("m", mx.array(WEIGHTS), spec))
    )
    assert lost <= plain * 1.001


@pytest.mark.parametrize("rounds", [round_matrix, clip_matrix])
def test_a_group_of_equal_weights_keeps_them(rounds):
    weights = np.full_like(WEIGHTS, 0.25)
    weights[:, 64:] = 0
    found = rounded(rounds, QuantizationSpec(4, 64), weights)
    np.testing.assert_allclose(np.array(found.numbers()), weights, atol=1e-4)


def test_the_factor_is_that_of_the_inverse_of_the_damped_gram_matrix():
    upper = factor(GRAM).astype(np.float64)
    assert np.array_equal(upper, np.triu(upper))
    damped = GRAM + 0.01 * np.diagonal(GRAM).mean() * np.eye(INPUTS)
    np.testing.assert_allclose(upper.T @ upper @ damped, np.eye(INPUTS), atol=1e-3)
