"""The compiled step computes what the model does, and is made again when the model has changed.

The conformance suite holds it to every architecture; here is what the suite does not see.
"""

import copy
import pickle

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import zoo
from zoo import runtime
from zoo.blocks.joined import joined_arrays
from zoo.blocks.quantized import FLOATS
from zoo.checkpoint.convert import convert
from zoo.compiled_step import compiled_step
from zoo.compiled_step.compiler import StepCompiler
from zoo.inspect.tracing import trace
from zoo.runtime import device, operations
from zoo.testing import same, subject

PREPARED = (
    "llama",
    "qwen2",
    "gpt2",
    "gpt2-postln",
    "gemma2",
    "mixtral",
    "gpt-oss",
    "deepseek-v3",
    "mamba",
    "lstm",
)


def both(model, tokens):
    """The logits of tokens one by one, (B, T, V): of the model and of its compiled step."""
    step, caches = compiled_step(model), (model.make_cache(), model.make_cache())
    for cache in caches:
        mx.eval(model(tokens[:, :3], cache))
    rows = [(model(one, caches[0])[:, 0], step(one, caches[1])) for one in mx.split(tokens[:, 3:], 6, axis=1)]
    return tuple(mx.stack(logits, axis=1) for logits in zip(*rows, strict=True))


@pytest.mark.parametrize("joins", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PREPARED)
def test_joined_or_not_it_gives_the_models_logits(name, joins, monkeypatch):
    monkeypatch.setattr(runtime, "joins_projections", lambda nbytes: joins)
    made = subject(name)
    same(*both(made.model, made.tokens[:, :9]), "the logits")


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
def test_vectors_as_columns_give_the_models_logits(name, monkeypatch):
    monkeypatch.setattr(runtime, "prefers_columns", lambda rows, shape: True)
    made = subject(name)
    same(*both(made.model, made.tokens[:, :9]), "the logits")


def test_some_numbers_of_vectors_are_columns_and_on_no_gpu(monkeypatch, cpu):
    def counts(shape):
        return [rows for rows in range(1, 60) if runtime.prefers_columns(rows, shape)]

    monkeypatch.setattr(operations, "blas", lambda: "MKL")
    assert counts((1024, 1024)) == []
    assert counts((4096, 576)) == list(range(4, operations.MOST_BY_SHORT_ROWS + 1))
    assert counts((2048, 1024)) == list(range(4, operations.MOST_COLUMNS + 1))
    monkeypatch.setattr(operations, "blas", lambda: "OpenBLAS")
    assert counts((7, 3)) == list(range(2, operations.MOST_COLUMNS + 1))
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    assert counts((7, 3)) == []
    monkeypatch.setattr(device, "on_gpu", lambda: False)
    monkeypatch.setattr(operations, "blas", lambda: "none")
    assert counts((7, 3)) == []


@pytest.fixture
def reordering(monkeypatch):
    """Matrices of any size become column-major after four tokens, but for those with more inputs than outputs."""
    monkeypatch.setattr(operations, "blas", lambda: "OpenBLAS")
    monkeypatch.setattr(device, "on_gpu", lambda: False)
    monkeypatch.setattr(operations, "LEAST_COLUMN_MAJOR", 1)
    monkeypatch.setattr("zoo.compiled_step.UNHURRIED", 4)


def reorder_all(step):
    while step._made.row_major:
        step._made.reorder_some()


def is_column_major(matrix):
    first, second = memoryview(matrix).strides
    return first < second


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
def test_column_major_matrices_give_the_models_logits(name, reordering):
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


def test_floats_of_a_packed_model_become_column_major(reordering, tmp_path):
    convert("llama", tmp_path / "packed", quantize="8", group_size=32)
    loaded = zoo.load(tmp_path / "packed", unpack=True)
    step, tokens = compiled_step(loaded.model), mx.arange(18).reshape(2, 9)
    same(*both(loaded.model, tokens), "the logits before")
    reorder_all(step)
    layer = loaded.model.layers[0].feedforward.up
    assert is_column_major(layer[FLOATS]) and not is_column_major(layer.weight)
    same(*both(loaded.model, tokens), "the logits")


def test_a_matrix_that_was_replaced_is_not_reordered(reordering):
    model = subject("llama").model
    step, layer = compiled_step(model), model.layers[0].feedforward.up
    layer.weight = replaced = 2 * layer.weight
    reorder_all(step)
    assert layer.weight is replaced and compiled_step(model) is not step


def test_saved_weights_do_not_depend_on_the_order_of_memory(tmp_path):
    matrix = mx.random.normal((37, 19))
    copy = runtime.column_major_copy(matrix)
    assert [copy.extend(150), copy.matrix, copy.extend(10_000)] == [152, None, 37 * 19 - 152]
    moved = copy.matrix
    mx.save_safetensors(str(tmp_path / "a.safetensors"), {"a": moved})
    assert mx.array_equal(moved, matrix).item()
    assert mx.array_equal(mx.load(str(tmp_path / "a.safetensors"))["a"], matrix).item()


def test_large_matrices_are_column_major_with_openblas_alone(monkeypatch):
    monkeypatch.setattr(device, "on_gpu", lambda: False)
    for library, expected in (("OpenBLAS", [True, False, True, False, False]), ("MKL", [False] * 5)):
        monkeypatch.setattr(operations, "blas", lambda library=library: library)
        shapes = [((3072, 576), mx.float32), ((576, 3072), mx.float32), ((2048, 5504), mx.float32)]
        shapes += [((256, 576), mx.float32), ((3072, 576), mx.bfloat16)]
        assert [runtime.prefers_column_major(*shape) for shape in shapes] == expected


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_rows_of_different_lengths_have_the_models_logits_and_angles_are_computed_once(
    name, monkeypatch, cpu
):
    made, computed, cos = subject(name), [], mx.cos
    model, tokens = made.model, made.tokens[:, :9]
    step, caches = compiled_step(model), (model.make_cache(), model.make_cache())
    for cache in caches:
        mx.eval(model(tokens[:, :3], cache, mask=mx.array([[0, 0, 1], [1, 1, 1]])))
    monkeypatch.setattr(mx, "cos", lambda angles: computed.append(angles.shape) or cos(angles))
    for number, one in enumerate(mx.split(tokens[:, 3:], 6, axis=1), 1):
        found = step(one, caches[1])
        assert len(computed) == number and computed[-1][0] == 2
        same(found, model(one, caches[0])[:, 0], "the logits")


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", ["transformer", "bart", "m2m-100", "t5"])
def test_a_translation_has_the_models_logits(name, rows):
    made = subject(name)
    model, source, target = made.model, made.tokens[:1, :7], mx.repeat(made.tokens[1:, :9], rows, axis=0)
    step, caches = compiled_step(model), (model.make_cache(), model.make_cache())
    memory = model.encode(source)  # one source for all rows
    for cache in caches:
        mx.eval(model.decode(target[:, :3], memory, cache))
    for one in mx.split(target[:, 3:], 6, axis=1):
        same(step(one, caches[1]), model.decode(one, None, caches[0])[:, 0], "the logits")


def test_sines_beyond_the_first_table_are_computed():
    model = subject("transformer").model.decoder
    embed, tokens = StepCompiler(model, False).compile_if_known(model.embedding), mx.array([[5]])
    for position in (0, 255, 256, 1000, 3):
        same(embed(tokens, position), model.embedding(tokens, position)[:, 0], f"position {position}")


def test_a_packed_model_has_packed_products(monkeypatch):
    made = subject("llama", "pocket")
    nn.quantize(made.model, group_size=32, bits=8)
    found = both(made.model, made.tokens[:, :9])
    same(*found, "the logits")
    assert made.model.layers[0].mixer.query.weight.dtype == mx.uint32


def test_names_numbers_and_memory_stay():
    made = subject("qwen3")
    before = {name: mx.array(array) for name, array in tree_flatten(made.model.parameters())}
    mx.eval(before)
    compiled_step(made.model)
    after = dict(tree_flatten(made.model.parameters()))
    assert list(after) == list(before)
    assert all(mx.array_equal(after[name], before[name]) for name in before)


def test_a_model_takes_no_more_memory_than_its_weights():
    made = subject("llama", "pocket")
    mx.eval(made.model.parameters())
    before = mx.get_active_memory()
    compiled_step(made.model)
    assert (
        mx.get_active_memory() - before < (0.1 if runtime.on_gpu() else 0.02) * before
    )  # GPUs round small arrays up


def test_it_is_made_once_and_again_when_numbers_change():
    model = subject("llama").model
    first = compiled_step(model)
    assert compiled_step(model) is first and first.current
    query = model.layers[1].mixer.query
    query.weight = query.weight * 2
    assert not first.current
    tokens = subject("llama").tokens[:, :9]
    same(*both(model, tokens), "the logits after a change")
    assert compiled_step(model) is not first


def test_a_replaced_or_wrapped_module_is_used():
    class Doubled(nn.Linear):
        def __call__(self, x):
            return 2 * super().__call__(x)

    model = subject("llama").model
    first = compiled_step(model)
    model.layers[0].mixer.query.__class__ = Doubled
    assert not first.current
    tokens = subject("llama").tokens[:, :9]
    same(*both(model, tokens), "the logits with a wrapped layer")


def test_another_module_in_the_place_of_one_is_used():
    model = subject("llama").model
    first = compiled_step(model)
    mixer = model.layers[0].mixer
    mixer.query = nn.Linear(*reversed(mixer.query.weight.shape), bias=False)
    assert not first.current
    tokens = subject("llama").tokens[:, :9]
    same(*both(model, tokens), "the logits with another layer")


def test_a_trace_and_a_text_do_not_disturb_each_other():
    loaded = zoo.load("llama")
    prompt = "The capital city of China is"
    text = zoo.generate(loaded, prompt)
    assert "layers.3.mixer.query" in trace(loaded, prompt)
    assert zoo.generate(loaded, prompt) == text


def test_a_model_of_its_own_kind_runs_as_it_is():
    assert compiled_step(subject("bert").model) is None
    assert compiled_step(object()) is None


def test_a_copy_has_a_step_of_its_own():
    model = subject("llama").model
    step = compiled_step(model)
    other = copy.deepcopy(model)
    assert compiled_step(other) is not step
    assert pickle.loads(pickle.dumps(step)) is None
