"""Vectors as columns, and column-major matrices: the compiled step computes what the model does."""

import mlx.core as mx
import pytest

import zoo
from tests.helpers.decoded import both
from zoo.blocks.joined import joined_arrays
from zoo.blocks.quantized import FLOATS
from zoo.checkpoint.convert import convert
from zoo.compiled_step import compiled_step
from zoo.cpu import matrices
from zoo.testing import same, subject


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
def test_vectors_as_columns_give_the_models_logits(name, monkeypatch, cpu):
    monkeypatch.setattr(matrices, "prefers_columns", lambda rows, shape: True)
    made = subject(name)
    same(*both(made.model, made.tokens[:, :9]), "the logits")


def test_some_numbers_of_vectors_are_columns(monkeypatch):
    def counts(shape):
        return [rows for rows in range(1, 60) if matrices.prefers_columns(rows, shape)]

    monkeypatch.setattr(matrices, "blas", lambda: "MKL")
    assert counts((1024, 1024)) == []
    assert counts((4096, 576)) == list(range(4, matrices.MOST_BY_SHORT_ROWS + 1))
    assert counts((2048, 1024)) == list(range(4, matrices.MOST_COLUMNS + 1))
    monkeypatch.setattr(matrices, "blas", lambda: "OpenBLAS")
    assert counts((7, 3)) == list(range(2, matrices.MOST_COLUMNS + 1))
    monkeypatch.setattr(matrices, "blas", lambda: "none")
    assert counts((7, 3)) == []


@pytest.fixture
def reordering(monkeypatch):
    """Matrices of any size become column-major after four tokens, but for those with more inputs than outputs."""
    monkeypatch.setattr(matrices, "blas", lambda: "OpenBLAS")
    monkeypatch.setattr(matrices, "LEAST_COLUMN_MAJOR", 1)
    monkeypatch.setattr(matrices, "UNHURRIED", 4)


def reorder_all(step):
    while step._made.matrices._reordering.waiting:
        step._made.matrices.advance(matrices.UNHURRIED)


def is_column_major(matrix):
    first, second = memoryview(matrix).strides
    return first < second


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
def test_column_major_matrices_give_the_models_logits(name, reordering, cpu):
    made = subject(name)
    model, block = made.model, made.model.layers[-1].feedforward
    step = compiled_step(model)
    wide = [block[name] for name in ("gate", "up") if name in block]
    assert len(wide) == 1 or joined_arrays(*wide) is None
    same(*both(model, made.tokens[:, :9]), "the logits before")  # six tokens of two rows
    assert not any(is_column_major(layer.weight) for layer in wide), "the head's matrix is the first"
    reorder_all(step)
    assert all(is_column_major(layer.weight) for layer in wide) and not is_column_major(block.down.weight)
    assert compiled_step(model) is step, "it is current"
    same(*both(model, made.tokens[:, :9]), "the logits")


def test_floats_of_a_packed_model_become_column_major(reordering, tmp_path, cpu):
    convert("llama", tmp_path / "packed", quantize="8", group_size=32)
    loaded = zoo.load(tmp_path / "packed", unpack=True)
    step, tokens = compiled_step(loaded.model), mx.arange(18).reshape(2, 9)
    same(*both(loaded.model, tokens), "the logits before")
    reorder_all(step)
    layer = loaded.model.layers[0].feedforward.up
    assert is_column_major(layer[FLOATS]) and not is_column_major(layer.weight)
    same(*both(loaded.model, tokens), "the logits")


def test_a_matrix_that_was_replaced_is_not_reordered(reordering, cpu):
    model = subject("llama").model
    step, layer = compiled_step(model), model.layers[0].feedforward.up
    layer.weight = replaced = 2 * layer.weight
    reorder_all(step)
    assert layer.weight is replaced and compiled_step(model) is not step


def test_saved_weights_do_not_depend_on_the_order_of_memory(tmp_path):
    matrix = mx.random.normal((37, 19))
    copy = matrices.ColumnMajorCopy(matrix)
    assert [copy.extend(150), copy.matrix, copy.extend(10_000)] == [152, None, 37 * 19 - 152]
    moved = copy.matrix
    mx.save_safetensors(str(tmp_path / "a.safetensors"), {"a": moved})
    assert mx.array_equal(moved, matrix).item()
    assert mx.array_equal(mx.load(str(tmp_path / "a.safetensors"))["a"], matrix).item()


def test_large_matrices_are_column_major_with_openblas_alone(monkeypatch):
    for library, expected in (("OpenBLAS", [True, False, True, False, False]), ("MKL", [False] * 5)):
        monkeypatch.setattr(matrices, "blas", lambda library=library: library)
        shapes = [((3072, 576), mx.float32), ((576, 3072), mx.float32), ((2048, 5504), mx.float32)]
        shapes += [((256, 576), mx.float32), ((3072, 576), mx.bfloat16)]
        assert [matrices.prefers_column_major(*shape) for shape in shapes] == expected
