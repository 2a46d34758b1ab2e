"""A block whose output does not fit its place in the recipe is named by its path."""

from dataclasses import dataclass, replace

import mlx.core as mx
import mlx.nn as nn
import pytest

import zoo_llama
from tests.helpers.architectures import representatives
from zoo.architecture import Block, hookimpl
from zoo.host.registry import isolated
from zoo.recipe import Spec
from zoo.testing import checks_of, outcome, results_of, subject
from zoo.testing.model_checks import checked_outputs
from zoo.testing.subjects import answer

FAULTS = {
    "cut": lambda x: x[:, :1],
    "none": lambda x: None,
    "integers": lambda x: x.astype(mx.int32),
    "widening": lambda x: x * mx.array(2.0, dtype=mx.float32),
    "sound": lambda x: x * 2.0,
}


@dataclass(frozen=True)
class Faulty(Spec):
    """A feed-forward with one of the faults."""

    kind, name = "feedforward", "faulty"
    fault: str


class FaultyModule(nn.Module):
    def __init__(self, spec, *, dim, index):
        super().__init__()
        self.fault = FAULTS[spec.fault]

    def __call__(self, x):
        return self.fault(x)


class Plugin:
    """An architecture for each fault, in the second layer."""

    @hookimpl
    def zoo_blocks(self):
        yield Block(Faulty, f"{__name__}:FaultyModule")

    @hookimpl
    def zoo_architectures(self):
        llama = next(zoo_llama.zoo_architectures())
        for fault in FAULTS:

            def recipe(config, fault=fault):
                changed = {"feedforward": Faulty(fault)}
                return zoo_llama.llama(config).change_layers(lambda i, layer: changed if i == 1 else {})

            yield replace(llama, name=fault, model_types=(), recipe=recipe)


@pytest.fixture
def made(request):
    return subject(request.param, registry=isolated(Plugin()))


def failure(made, name):
    (check,) = (check for check in checks_of(made) if check.name == name)
    return outcome(check, made).message


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("cut", "layers.1.feedforward (FaultyModule) gives shape (2, 1, 64), expected (2, 24, 64)"),
        ("none", "layers.1.feedforward (FaultyModule) gives NoneType, expected an array"),
        ("integers", "layers.1.feedforward (FaultyModule) gives mlx.core.int32, expected floats"),
    ],
    indirect=["made"],
)
def test_an_output_of_another_shape_or_dtype_is_named_and_nothing_else_is_checked(made, words):
    assert [(result.name, result.message) for result in results_of(made)] == [("model_runs", words)]


@pytest.mark.parametrize("made", ["widening"], indirect=True)
def test_a_block_that_widens_floats_of_16_bits_is_named(made):
    words = "layers.1.feedforward (FaultyModule) widens mlx.core.bfloat16 to mlx.core.float32"
    assert failure(made, "blocks_keep_16_bits") == words


@pytest.mark.parametrize("made", ["sound"], indirect=True)
def test_one_that_keeps_them_passes_and_has_its_own_class_again(made):
    before = type(made.model.layers[1])
    assert failure(made, "model_runs") == failure(made, "blocks_keep_16_bits") == ""
    assert type(made.model.layers[1]) is before


@pytest.mark.parametrize("name", representatives())
def test_every_block_of_the_zoo_keeps_16_bits(name):
    made = subject(name)
    made.model.set_dtype(mx.bfloat16)
    with checked_outputs(made, keeps_16_bits=True):
        mx.eval(answer(made))
