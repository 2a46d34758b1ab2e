"""Layers by value: parallel parts with one norm or two, a scale on what is added, parts without a norm."""

import mlx.core as mx
import pytest

from zoo.assemble import assemble, build
from zoo.compiled_step import compiled_step
from zoo.errors import RecipeError
from zoo.host.registry import default_registry
from zoo.host.resolve import recipe_from_json
from zoo.inspect.tracing.probe import Recorder, hooked, values_of
from zoo.recipe import (
    MLP,
    Attention,
    CrossAttention,
    CrossLayer,
    Decoder,
    Embedding,
    Head,
    Layer,
    RMSNorm,
    RoPE,
    repeat,
)
from zoo.testing import randomise, same

DIM, NORM = 8, RMSNorm()
LAYER = Layer(mixer=Attention(2, rope=RoPE()), feedforward=MLP(16), mixer_norm=NORM, feedforward_norm=NORM)
KINDS = {
    "two norms": dict(parallel=True),
    "one norm": dict(parallel=True, feedforward_norm=None),
    "scaled": dict(residual_scale=0.22),
    "scaled, norms after": dict(residual_scale=0.22, placement="post"),
    "scaled and parallel": dict(parallel=True, feedforward_norm=None, residual_scale=0.5),
    "no norm before the mixer": dict(mixer_norm=None),
    "no norms": dict(mixer_norm=None, feedforward_norm=None, parallel=True),
}


def by_hand(layer, spec, x):
    """The sum, or the two, of one layer."""
    norm = layer.mixer_norm if spec.mixer_norm else lambda x: x
    own = layer.feedforward_norm if spec.feedforward_norm else norm if spec.parallel else lambda x: x
    if spec.parallel:
        return x + spec.residual_scale * (layer.mixer(norm(x)) + layer.feedforward(own(x)))
    if spec.placement == "post":
        x = norm(x + spec.residual_scale * layer.mixer(x))
        return own(x + spec.residual_scale * layer.feedforward(x))
    x = x + spec.residual_scale * layer.mixer(norm(x))
    return x + spec.residual_scale * layer.feedforward(own(x))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_adds_what_its_values_say(kind):
    spec = LAYER.change(**KINDS[kind])
    layer = build(spec, DIM, registry=default_registry())
    randomise(layer)
    x = mx.random.normal((2, 5, DIM), key=mx.random.key(1))
    same(layer(x), by_hand(layer, spec, x), "the layer")


def model_of(kind, layers=2):
    spec = LAYER.change(**KINDS[kind])
    recipe = Decoder(Embedding(16, DIM), repeat(spec, layers), NORM, Head(tied=True))
    model = assemble(recipe, default_registry())
    randomise(model)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_the_compiled_step_of_such_layers_gives_the_models_logits(kind):
    model = model_of(kind)
    step, caches = compiled_step(model), (model.make_cache(), model.make_cache())
    tokens = mx.random.randint(0, 16, (2, 6), key=mx.random.key(2))
    for cache in caches:
        mx.eval(model(tokens[:, :3], cache))
    for place in range(3, 6):
        token = tokens[:, place : place + 1]
        same(step(token, caches[1]), model(token, caches[0])[:, 0], "the logits")
    assert step._made.compile_if_known(model.layers[0]) is not None  # the layer runs as a function


@pytest.mark.parametrize(("kind", "middle"), [("one norm", False), ("two norms", False), ("scaled", True)])
def test_a_trace_has_a_stream_between_the_parts_only_where_there_is_one(kind, middle):
    model, recorder = model_of(kind), Recorder()
    with hooked(model, recorder, default_registry()):
        mx.eval(model(mx.array([[1, 2, 3]])))
    known, values = values_of(model, default_registry()), recorder.passes[0].values
    assert ("layers.0.resid_mid" in known) == ("layers.0.resid_mid" in values) == middle
    assert known.keys() - {""} >= values.keys()
    added = values["layers.0.mixer"] + values["layers.0.feedforward"]
    scale = KINDS[kind].get("residual_scale", 1.0)
    same(values["layers.0"], values["embedding"] + scale * added, "the residual stream after the layer")
    assert ("multiplied by 0.22" in known["layers.0.mixer"].summary) == (kind == "scaled")


def test_such_layers_are_written_and_read():
    for values in KINDS.values():
        recipe = Decoder(Embedding(16, DIM), (LAYER.change(**values),), NORM, Head())
        assert recipe_from_json(recipe.to_json(), default_registry()) == recipe
    plain = Decoder(Embedding(16, DIM), (LAYER,), NORM, Head())
    older = plain.to_json()
    for name in ("parallel", "residual_scale"):
        del older["layers"][0][name]
    assert recipe_from_json(older, default_registry()) == plain


def test_a_parallel_layer_has_its_norms_before_its_parts_and_no_cross_attention():
    with pytest.raises(RecipeError, match="placement: must be 'pre'"):
        LAYER.change(parallel=True, placement="post")
    parts = dict(vars(LAYER), cross=CrossAttention(2), cross_norm=NORM)
    with pytest.raises(RecipeError, match="parallel: cross-attention reads what the mixer gives"):
        CrossLayer(**parts | dict(parallel=True))
