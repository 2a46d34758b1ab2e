"""The capabilities that a model class declares."""

import inspect

import mlx.core as mx
import mlx.nn as nn
import pytest

from zoo.blocks.layer import CachedLayer
from zoo.blocks.model import Initialises, MakesCache, Model, Quantizable
from zoo.blocks.quantized import QuantizedLinear
from zoo.generation.loop.prompt import Prefill
from zoo.host.registry import default_registry
from zoo.recipe import Attention
from zoo.testing import subject

DECODER = ("tokens", True, False, {"left"}, None)
DECLARED = {
    "llama": DECODER,
    "mamba": DECODER,
    "llada": DECODER,
    "prefix-lm": DECODER,
    "bert": ("tokens", False, True, {"left", "right"}, None),
    "transformer": ("source and target", True, True, {"left", "right"}, None),
}


def declarations(model):
    return model.inputs, model.decodes, model.encodes, set(model.padding), model.last_chunk


@pytest.mark.parametrize("name", DECLARED)
def test_models_of_the_zoo_declare_what_they_are(name):
    assert declarations(subject(name).model) == DECLARED[name]


def test_a_model_of_another_library_declares_what_it_cannot():
    from zoo_mlx_lm.block import BridgedDecoder

    made = BridgedDecoder.__new__(BridgedDecoder)
    nn.Module.__init__(made)
    assert declarations(made) == ("tokens", True, False, set(), 1)


class Counting(Model):
    """Logits that are always the same, and how many tokens each pass had."""

    def __init__(self, last_chunk):
        self.last_chunk, self.passes = last_chunk, []

    def make_cache(self, policy=None):
        return []

    def backbone(self, tokens, cache=None):
        self.passes.append(tokens.shape[1])
        return mx.zeros((*tokens.shape, 4))

    def head(self, hidden):
        return hidden


@pytest.mark.parametrize(("last", "passes"), [(None, [3, 3, 2]), (1, [3, 3, 1, 1]), (2, [3, 3, 2])])
def test_the_last_pass_over_a_prompt_takes_no_more_than_the_model_declares(last, passes):
    model = Counting(last)
    Prefill(model, list(range(8)), [], chunk=3).finish()
    assert model.passes == passes


def test_every_layer_of_the_zoos_decoders_makes_its_cache():
    registry = default_registry()
    for name, architecture in registry.architectures.items():
        if architecture.task in ("generate", "denoise"):
            layers = subject(name).model.layers
            assert all(isinstance(layer, MakesCache) for layer in layers), name


@pytest.mark.parametrize("protocol", [Initialises, MakesCache, Quantizable])
def test_protocols_ask_for_methods_alone_since_isinstance_sees_no_parameters_from_python_3_12_on(protocol):
    assert not inspect.get_annotations(protocol)


def test_the_protocols_of_modules_are_methods():
    linear = nn.Linear(4, 4)
    assert isinstance(linear, Quantizable)
    assert not isinstance(linear, MakesCache) and not isinstance(linear, Initialises)
    assert not isinstance(None, Quantizable)
    assert isinstance(CachedLayer(Attention(2)), MakesCache)


@pytest.mark.parametrize("settings", [dict(group_size=32, bits=4), dict(mode="mxfp4"), dict(mode="nvfp4")])
@pytest.mark.parametrize("bias", [True, False])
def test_a_quantized_layer_is_made_of_mlxs(settings, bias):
    plain = nn.Linear(64, 8, bias=bias).to_quantized(**settings)
    made = QuantizedLinear(plain)
    assert (made.group_size, made.bits, made.mode) == (plain.group_size, plain.bits, plain.mode)
    assert made.parameters().keys() == plain.parameters().keys() and not made.trainable_parameters()
    x = mx.random.normal((3, 64))
    assert mx.allclose(made(x), plain(x), atol=1e-5)
    made["global_scale"] = mx.array([2.0])
    doubled = 2 * (plain(x) - (plain.bias if bias else 0)) + (plain.bias if bias else 0)
    assert mx.allclose(made(x), doubled, atol=1e-5)
