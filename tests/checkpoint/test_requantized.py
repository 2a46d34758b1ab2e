"""A source that is packed already, packed anew: in its own groups unless others are asked for, and the loss is said."""

import re

import numpy as np
import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from tests.helpers import gguf_files
from zoo.checkpoint.convert import convert
from zoo.checkpoint.parameters import parameters_of
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, quantize_matrix
from zoo.loading import load

from .packers import awq, gptq
from .test_awq import SETTINGS as AWQ
from .test_awq import matrix as awq_matrix
from .test_gptq import SETTINGS as GPTQ
from .test_gptq import in_turn, mixed
from .test_gptq import matrix as gptq_matrix

PATH = "layers.0.mixer.query.weight"


def packed(folder):
    found = parameters_of(load(folder).model)
    return {path: tensor for path, tensor in found.items() if isinstance(tensor, QuantizedMatrix)}


def said(recwarn):
    return [str(warning.message) for warning in recwarn.list]


def relative(numbers, others):
    return (mx.square(numbers - others).sum() / mx.square(numbers).sum()).sqrt().item()


@pytest.fixture(params=["MLX's own", "GGUF", "AWQ", "GPTQ", "scattered GPTQ"])
def source(request, pair, tmp_path):
    """A source whose projections have 4 bits in groups of 32."""
    if request.param == "MLX's own":
        return convert("llama", tmp_path / "source", quantize="4", group_size=32).folder
    if request.param == "GGUF":
        return gguf_files.write(
            tmp_path / "source.gguf", gguf_files.random_folder(tmp_path / "plain", "llama"), "Q4_1"
        )

    def make(name, shape):
        seed = sum(map(ord, name))
        if request.param == "AWQ":
            *parts, numbers = awq_matrix(shape, 32, seed=seed)
            return awq(*parts), numbers
        groups = (mixed if request.param == "scattered GPTQ" else in_turn)(shape[1], 32)
        *parts, numbers = gptq_matrix(shape, groups, seed=seed)
        return gptq(*parts, groups, 4), numbers

    settings = AWQ if request.param == "AWQ" else GPTQ | dict(desc_act=request.param == "scattered GPTQ")
    return pair(make, settings | dict(group_size=32), preset="pocket")[0]


def test_the_groups_of_a_packed_source_are_kept_and_its_numbers_with_them(source, tmp_path, recwarn):
    before = packed(source)[PATH]
    recwarn.clear()
    convert(source, tmp_path / "out", quantize="4")
    assert "packed matrices keep their groups of 32 weights; `group_size` asks for others" in said(recwarn)
    after = packed(tmp_path / "out")[PATH]
    assert after.quantization == QuantizationSpec(4, 32)
    error = relative(before.numbers(mx.float32), after.numbers(mx.float32))
    if before.permutation is None:
        assert error < 1e-3 and mx.array_equal(after.weight, before.weight)
    else:  # MLX's layout has no place for it
        assert 0.01 < error < 0.2 and "rounded a second time" in said(recwarn)[-1]


def test_other_groups_are_packed_as_asked_and_the_measured_loss_is_said(source, tmp_path, recwarn):
    before = packed(source)
    recwarn.clear()
    convert(source, tmp_path / "out", quantize="4", group_size=64)
    (line,) = said(recwarn)
    assert "affine 4 bits, groups of 32 to affine 4 bits, groups of 64" in line
    assert line.endswith("`group_size` 32 would keep the groups")
    after = packed(tmp_path / "out")
    errors = [
        relative(before[path].numbers(mx.float32), after[path].numbers(mx.float32))
        for path in before
        if path in after
    ]
    lost = float(re.search(r"relative error \(RMS\) ([\d.]+)", line)[1])
    assert lost == pytest.approx(np.mean(errors), rel=0.25) and lost > 0.02


def test_eight_bits_for_four_are_no_loss_worth_a_line(tmp_path, recwarn):
    convert("llama", tmp_path / "four", quantize="4", group_size=32)
    convert(tmp_path / "four", tmp_path / "eight", quantize="8")
    assert said(recwarn) == ["packed matrices keep their groups of 32 weights; `group_size` asks for others"]


def test_a_source_in_the_usual_groups_is_packed_again_without_a_word(tmp_path, recwarn):
    convert("llama", tmp_path / "four", quantize="4")
    convert(tmp_path / "four", tmp_path / "again", quantize="4")
    assert said(recwarn) == []
    assert mx.array_equal(packed(tmp_path / "again")[PATH].weight, packed(tmp_path / "four")[PATH].weight)


def test_a_mode_with_groups_of_its_own_says_what_it_loses(tmp_path, recwarn):
    convert("llama", tmp_path / "four", quantize="4")
    convert(tmp_path / "four", tmp_path / "fp4", quantize="mxfp4")
    (line,) = said(recwarn)
    assert "groups of 64 to mxfp4 4 bits, groups of 32; relative error (RMS) 0." in line
    assert "group_size" not in line


def test_floats_are_packed_without_a_word(tmp_path, recwarn):
    convert("llama", tmp_path / "four", quantize="4")
    assert said(recwarn) == []
    plain = parameters_of(load("llama").model)[PATH].astype(mx.float16)
    expected = quantize_matrix(PATH, plain, QuantizationSpec(4, 64))
    assert mx.array_equal(packed(tmp_path / "four")[PATH].weight, expected.weight)
    assert zoo.generate(zoo.load(tmp_path / "four"), "The", max_tokens=1).tokens
