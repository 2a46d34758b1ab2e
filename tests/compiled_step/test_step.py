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
from tests.helpers.decoded import both
from zoo import runtime
from zoo.compiled_step import compiled_step
from zoo.compiled_step.compiler import StepCompiler
from zoo.host.registry import default_registry
from zoo.inspect.tracing import trace
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

DECODERS = [
    name
    for name, architecture in default_registry().architectures.items()
    if architecture.causality
    and not (architecture.causality == "full" and architecture.task in ("fill-mask", "encode", "classify"))
]


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_has_a_compiled_step(name):
    assert compiled_step(subject(name).model) is not None


# The layers and their parts that a compiled step runs as they are, with the reason.
AS_THEY_ARE = {
    **dict.fromkeys(("AltUp", "Laurel", "StreamMean"), "they are few operations beside a layer's"),
    "LateNormAttention": "its norms come after the rotations",
    **dict.fromkeys(
        ("AlibiAttention", "RelativeAttention"), "their biases depend on the positions of cached keys"
    ),
    **dict.fromkeys(("GRU", "LSTM", "StackedLayer"), "their gates are few operations already"),
}


@pytest.mark.parametrize("name", DECODERS)
def test_each_part_of_a_decoder_has_a_compiled_form_unless_a_reason_is_known(name):
    model = subject(name).model
    decoder = getattr(model, "decoder", model)
    compiler = StepCompiler(decoder, False)
    parts = [
        part
        for path, part in decoder.named_modules()
        if path.startswith("layers.") and path.count(".") in (1, 2) and part is not decoder
    ]
    unknown = {type(part).__name__ for part in parts if isinstance(part, nn.Module)} - AS_THEY_ARE.keys()
    compiled = {type(part).__name__ for part in parts if compiler.compile_if_known(part) is not None}
    assert unknown <= compiled


@pytest.mark.parametrize("joins", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PREPARED)
def test_joined_or_not_it_gives_the_models_logits(name, joins, monkeypatch):
    monkeypatch.setattr(runtime, "joins_projections", lambda nbytes: joins)
    made = subject(name)
    same(*both(made.model, made.tokens[:, :9]), "the logits")


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_rows_of_different_lengths_have_the_models_logits_and_angles_are_computed_once(
    name, monkeypatch, cpu
):
    monkeypatch.delenv("ZOO_CPU", raising=False)
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
