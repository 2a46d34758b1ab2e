"""Packed matrices whose floats are kept beside them: the same model, multiplied another way."""

from threading import Thread

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import zoo
from zoo import runtime
from zoo.blocks.quantized import FLOATS, DequantizableLayer
from zoo.checkpoint.convert import convert, save
from zoo.compiled_step import compiled_step
from zoo.cpu import floats
from zoo.runtime import device
from zoo.testing import same, subject

KINDS = {"llama": "pocket", "mixtral": None, "deepseek-v3": "pocket"}


@pytest.fixture(
    params=["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mixtral", "deepseek-v3"))]
)
def folder(request, tmp_path):
    """A packed folder of an architecture, its embedding too."""
    made = subject(request.param, KINDS[request.param])
    save(tmp_path / "plain", made.model, made.architecture, made.recipe, made.numbers)
    convert(tmp_path / "plain", tmp_path / "packed", quantize="4", group_size=32)
    return tmp_path / "packed"


def test_the_numbers_are_those_of_the_packed_model(folder):
    packed, unpacked = zoo.load(folder, unpack=False), zoo.load(folder, unpack=True)
    assert unpacked.unpacked and not packed.unpacked
    tokens = mx.array([[3, 1, 4, 1, 5, 9, 2, 6]])
    same(unpacked.model(tokens), packed.model(tokens), "logits of one piece")
    steps = [compiled_step(loaded.model) for loaded in (packed, unpacked)]
    caches = [loaded.model.make_cache() for loaded in (packed, unpacked)]
    for place in range(tokens.shape[1]):
        logits = [
            step(tokens[:, place : place + 1], cache) for step, cache in zip(steps, caches, strict=True)
        ]
        same(logits[1], logits[0], f"logits of token {place + 1}")


def test_parameters_and_what_is_saved_stay_packed(folder, tmp_path):
    packed, unpacked = zoo.load(folder, unpack=False), zoo.load(folder, unpack=True)
    unpacked.model(mx.array([[1, 2]]))
    before, after = (dict(tree_flatten(loaded.model.parameters())) for loaded in (packed, unpacked))
    assert list(before) == list(after) and not any(FLOATS in name for name in after)
    assert all(mx.array_equal(before[name], after[name]) for name in before)


def test_many_rows_are_multiplied_by_floats_made_for_them(folder, monkeypatch):
    loaded = zoo.load(folder, unpack=False)
    tokens = mx.arange(40)[None]
    monkeypatch.setattr(runtime, "multiplies_floats", lambda rows: False)
    expected = loaded.model(tokens)
    counted = []
    monkeypatch.setattr(runtime, "multiplies_floats", lambda rows: counted.append(rows) or rows >= 16)
    same(loaded.model(tokens), expected, "logits")
    assert 40 in counted


@pytest.mark.parametrize(("room", "unpacked"), [(2**40, True), (2**10, False)])
def test_unasked_the_memory_decides(folder, monkeypatch, cpu, room, unpacked):
    monkeypatch.delenv("ZOO_CPU", raising=False)
    monkeypatch.setattr(floats, "total_memory", lambda: room)
    assert zoo.load(folder, force=True).unpacked == unpacked


def test_on_a_gpu_they_stay_packed(monkeypatch):
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    assert not runtime.keeps_floats(1) and not runtime.multiplies_floats(512)


def test_a_thread_runs_what_another_has_loaded(folder):
    loaded, found = zoo.load(folder, unpack=True), []
    thread = Thread(target=lambda: found.append(zoo.generate(loaded, [1, 2, 3], max_tokens=3).tokens))
    thread.start()
    thread.join()
    assert found == [zoo.generate(loaded, [1, 2, 3], max_tokens=3).tokens]


def test_floats_are_made_at_loading_and_joined_ones_are_parts_of_one_matrix(folder):
    model = zoo.load(folder, unpack=True).model
    held = mx.get_active_memory()
    for layer in model.modules():
        assert not isinstance(layer, DequantizableLayer) or FLOATS in layer
    model(mx.array([[1, 2, 3]]))
    step, cache = compiled_step(model), model.make_cache()
    mx.eval(step(mx.array([[1]]), cache))
    del cache
    floats = sum(layer.float_bytes for layer in model.modules() if isinstance(layer, DequantizableLayer))
    assert mx.get_active_memory() - held < 0.2 * floats


def test_a_gradient_and_a_compiled_pass_keep_floats_that_can_be_used(folder):
    tokens = mx.arange(40)[None]
    expected = zoo.load(folder, unpack=False).model(tokens)
    compiled, traced = zoo.load(folder, unpack=True).model, zoo.load(folder, unpack=True).model
    for model, run in (
        (compiled, mx.compile(lambda tokens: compiled(tokens))),
        (traced, mx.compile(lambda tokens: traced(tokens), inputs=traced.state)),
    ):
        same(run(tokens), expected, "logits")
        same(model(tokens), expected, "logits afterwards")
    x = mx.random.normal((1, 40, compiled.spec.dim))
    layer = zoo.load(folder, unpack=True).model.layers[0].mixer.output
    width = layer.weight.shape[-1] * 32 // layer.bits
    gradient = mx.grad(lambda x: layer(x).sum())(x[..., :1] * mx.ones(width))
    assert mx.isfinite(gradient).all().item() and FLOATS in layer
    ones = mx.ones((1, 40, width))
    same(layer(ones), ones @ layer.floats().T, "a product afterwards")
