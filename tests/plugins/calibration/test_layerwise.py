"""A model run a layer at a time: what each linear layer is given, and what later layers see of a change."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from zoo.blocks.model import Quantizable
from zoo.testing import subject
from zoo_calibration.layerwise import Layerwise
from zoo_calibration.watch import InputSums, watched


def linears_of(model):
    return {
        path: layer
        for path, layer in model.named_modules()
        if isinstance(layer, Quantizable) and not isinstance(layer, nn.Embedding)
    }


def passes_of(found):
    inputs = (found.tokens, found.tokens) if found.model.translates else (found.tokens,)
    return [inputs, tuple(side[:, ::-1] for side in inputs)]


def of_whole_passes(model, linears, passes):
    with watched(linears) as sums:
        for inputs in passes:
            mx.eval(model(*inputs))
    return sums


def close(found, expected):
    return mx.allclose(found, expected, rtol=1e-4, atol=1e-4 * mx.abs(expected).max().item()).item()


@pytest.mark.parametrize("name", ["llama", "mixtral", "mamba", "gru", "bert", "transformer", "deepseek-v3"])
def test_the_layers_are_given_what_they_are_in_whole_passes(name):
    found = subject(name)
    linears, passes = linears_of(found.model), passes_of(found)
    expected = of_whole_passes(found.model, linears, passes)
    sums = {}
    for layer in Layerwise(found.model, passes, linears):
        sums |= layer.sums
    assert sums.keys() == expected.keys()
    for path, each in sums.items():
        assert close(each.gram, expected[path].gram), path
        assert mx.array_equal(each.rows, expected[path].rows), path


@pytest.mark.parametrize("name", ["llama", "transformer"])
def test_later_layers_see_the_outputs_of_changed_ones(name):
    found = subject(name)
    linears, passes = linears_of(found.model), passes_of(found)
    sums = {}
    for layer in Layerwise(found.model, passes, linears):
        sums |= layer.sums
        for linear in layer.linears.values():
            linear.weight = linear.weight * 0.5
    last = max(path for path in sums if path.endswith("layers.1.mixer.query"))
    expected = of_whole_passes(found.model, linears, passes)[last]
    assert close(sums[last].gram, expected.gram)


def test_a_layer_is_run_once_a_pass_for_its_sums_and_once_for_its_outputs(monkeypatch):
    found = subject("llama")
    calls = []
    kind = type(found.model.layers[0].feedforward)
    own = kind.__call__
    monkeypatch.setattr(kind, "__call__", lambda self, x: (calls.append(id(self)), own(self, x))[1])
    list(Layerwise(found.model, passes_of(found), linears_of(found.model)))
    layers = [id(layer.feedforward) for layer in found.model.layers]
    first, last = calls.count(layers[0]), calls.count(layers[-1])
    assert (first, last) == (
        2 * 2 + 1,
        2 * 2 + 2,
    )  # the chain is found by one pass whole, and one of the last layer


class Branches(nn.Module):
    """A list whose members are all given the same."""

    def __init__(self):
        super().__init__()
        self.branches = [nn.Sequential(nn.Linear(4, 4)) for _ in range(3)]

    def __call__(self, x):
        return sum(branch(x) for branch in self.branches)


def test_members_that_do_not_follow_each_other_are_run_all_at_once():
    model, x = Branches(), mx.random.normal((5, 4))
    linears = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    (whole,) = Layerwise(model, [(x,)], linears)
    assert whole.path == "" and set(whole.sums) == set(linears)
    for sums in whole.sums.values():
        assert close(sums.gram, x.T @ x)


def test_each_stacked_matrix_has_the_sums_of_its_own_rows():
    x = mx.random.normal((2, 3, 1, 1, 4))  # (B, T, 1, 1, I), for each of two matrices
    indices = mx.array([[[0, 2], [2, 1], [0, 1]], [[2, 0], [1, 0], [2, 0]]])
    sums = InputSums(mx.zeros((4, 8, 4)))
    sums.add(x, indices)
    rows = x.reshape(6, 4)
    for index, own in enumerate(([0, 2, 3, 4, 5], [1, 2, 4], [0, 1, 3, 5], [])):
        expected = sum((rows[i][:, None] * rows[i] for i in own), mx.zeros((4, 4)))
        assert close(sums.gram[index], expected)
        assert sums.rows[index].item() == len(own)
