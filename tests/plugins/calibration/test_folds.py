"""Where scales can be folded: found by trial, and taken only where a layer then computes the same."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from zoo.inspect.tracing.probe import modules_of
from zoo.testing import same, subject
from zoo_calibration.folds import folds
from zoo_calibration.layerwise import Layerwise

NORMS = {
    "mixer_norm": {"mixer.query", "mixer.key", "mixer.value"},
    "feedforward_norm": {"feedforward.gate", "feedforward.up"},
}
ROUTED = {"feedforward.router.scores", "feedforward.experts.gate", "feedforward.experts.up"}
EXPECTED = {
    "llama": NORMS | {"feedforward.up": {"feedforward.down"}},
    "gemma2": NORMS | {"feedforward.up": {"feedforward.down"}},
    "gpt2-postln": {"mixer.value": {"mixer.output"}},
    "gpt2": {
        "mixer_norm": NORMS["mixer_norm"],
        "feedforward_norm": {"feedforward.up"},
        "mixer.value": {"mixer.output"},
    },
    "mixtral": {
        "mixer_norm": NORMS["mixer_norm"],
        "feedforward_norm": ROUTED,
        "feedforward.experts.up": {"feedforward.experts.down"},
    },
    "mamba": {"mixer_norm": {"mixer.input"}},
    "gru": {},
}


def first_layer(found):
    modules = modules_of(found.model)
    linears = {
        path: layer
        for path, layer in modules.items()
        if hasattr(layer, "to_quantized") and not isinstance(layer, nn.Embedding)
    }
    return next(iter(Layerwise(found.model, [(found.tokens,)], linears))), modules


@pytest.mark.parametrize("name", EXPECTED)
def test_the_folds_of_a_layer(name):
    layer, modules = first_layer(subject(name))
    prefix = f"{layer.path}."
    found = {
        fold.before.removeprefix(prefix): {path.removeprefix(prefix) for path in fold.after}
        for fold in folds(layer, modules)
    }
    assert found == EXPECTED[name]


@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral", "gpt2"])
def test_a_fold_leaves_the_logits(name):
    found = subject(name)
    expected = found.model(found.tokens)
    mx.eval(expected)
    layer, modules = first_layer(found)
    for fold in folds(layer, modules):
        before = mx.array(modules[fold.after[0]].weight)
        width = before.shape[-1]
        fold.apply(mx.linspace(0.5, 2.0, width))
        assert not mx.allclose(modules[fold.after[0]].weight, before).item()
    same(found.model(found.tokens), expected, "logits")


def test_a_trial_leaves_the_weights():
    found = subject("llama")
    layer, modules = first_layer(found)
    before = {path: mx.array(module.weight) for path, module in modules.items() if "weight" in module}
    list(folds(layer, modules))
    assert all(mx.array_equal(modules[path].weight, weight).item() for path, weight in before.items())


class Peeking(nn.Module):
    """A layer that reads its norm's output beside its linear layer."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.RMSNorm(8), nn.Linear(8, 8)

    def __call__(self, x):
        y = self.norm(x)
        return x + self.linear(y) + y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Peeking(), Peeking()]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_no_scale_is_folded_into_what_something_else_reads():
    model = Model()
    linears = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    layers = list(Layerwise(model, [(mx.random.normal((3, 8)),)], linears))
    assert [layer.path for layer in layers] == ["layers.0", "layers.1"]
    assert not [fold for layer in layers for fold in folds(layer, modules_of(model))]
