"""LSTM and GRU: against MLX's own, the state cache, what training starts from, what config.json may say."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from zoo.assemble import assemble, build
from zoo.config import Config
from zoo.errors import ConfigError
from zoo.host.registry import default_registry
from zoo.testing import randomise, same
from zoo.training.loop import initialise
from zoo_rnn import GRU, LSTM, ZAREMBA, gru, lstm

SMALL = dict(vocab_size=50, hidden_size=12, num_layers=2)
BOTH = pytest.mark.parametrize("family", [lstm, gru])


def small(family, **changes):
    model = assemble(family(Config(SMALL | changes)), default_registry())
    randomise(model)
    return model


def test_an_lstm_layer_is_mlxs():
    unit, reference = build(LSTM(), 12, registry=default_registry()), nn.LSTM(12, 12)
    randomise(unit)
    reference.Wx, reference.Wh = unit.input.weight, unit.recurrent.weight
    reference.bias = unit.input.bias + unit.recurrent.bias
    x, cache = mx.random.normal((3, 20, 12)), unit.make_cache()
    hidden, cell = reference(x)
    same(unit(x, cache=cache), hidden, "outputs", 1e-5)
    same(cache[1], cell[:, -1], "cell", 1e-5)


def test_a_gru_layer_is_mlxs():
    unit, reference = build(GRU(), 12, registry=default_registry()), nn.GRU(12, 12)
    randomise(unit)
    # MLX adds the state's biases of the two gates to the input's, and keeps that inside the reset product apart.
    reference.Wx, reference.Wh, reference.bhn = (
        unit.input.weight,
        unit.recurrent.weight,
        unit.recurrent.bias[24:],
    )
    reference.b = unit.input.bias + mx.concatenate([unit.recurrent.bias[:24], mx.zeros(12)])
    x = mx.random.normal((3, 20, 12))
    same(unit(x), reference(x), "outputs", 1e-5)


@BOTH
def test_training_starts_within_the_bounds_of_a_unit_and_without_biases(family):
    model = small(family)
    initialise(model, seed=3, layers=2)
    unit = model.layers[0].mixer
    assert 0.2 < mx.abs(unit.recurrent.weight).max().item() <= 12**-0.5
    assert unit.recurrent.bias.max().item() == 0


def test_the_embedding_starts_as_large_as_it_is_told():
    model = small(lstm)
    initialise(model, seed=0, layers=2, init_std=0.3)
    assert model.embedding.tokens.weight.square().mean().sqrt().item() == pytest.approx(0.3, rel=0.1)


def test_the_forget_gate_starts_open():
    model = small(lstm)
    initialise(model, seed=0, layers=2)
    assert model.layers[1].mixer.input.bias.tolist() == [0.0] * 12 + [1.0] * 12 + [0.0] * 24


def test_parameters_of_the_large_model_of_zaremba():
    assert lstm(Config(ZAREMBA)).parameters(1500) == 2 * 10_000 * 1500 + 2 * (8 * 1500 * 1500 + 8 * 1500)


@BOTH
def test_without_biases_and_with_a_tied_head(family):
    model = small(family, bias=False, tie_word_embeddings=True)
    held = dict(tree_flatten(model.parameters()))
    assert not [path for path in held if "bias" in path or "head" in path]
    assert sum(array.size for array in held.values()) == model.spec.parameters(12)


@BOTH
@pytest.mark.parametrize("key", SMALL)
def test_sizes_are_required_by_name(family, key):
    with pytest.raises(ConfigError, match=rf"config\.json: {key} is missing"):
        family(Config({name: value for name, value in SMALL.items() if name != key}))
