"""Blocks whose memory of a text is a state: Mamba, Mamba-2, LSTM and GRU hold the same."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache

from zoo.assemble import assemble
from zoo.config import Config
from zoo.host.registry import default_registry
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, Layer, RMSNorm
from zoo.testing import randomise, same
from zoo.training.loop import initialise
from zoo.training.loss import next_token_loss
from zoo_mamba import CHUNK, SelectiveStateSpace, mamba
from zoo_mamba2 import TINY, mamba2
from zoo_mlx_lm.tools import Served
from zoo_rnn import LSTM, gru, lstm

VOCAB, DIM = 50, 16
LONG = CHUNK + 7  # more than a chunk of any of their scans
UNITS = dict(vocab_size=VOCAB, hidden_size=DIM, num_layers=2)
RECIPES = {
    "mamba": lambda: mamba(
        Config(dict(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=2, state_size=4, use_bias=True))
    ),
    "mamba2": lambda: mamba2(Config(TINY)),
    "lstm": lambda: lstm(Config(UNITS)),
    "gru": lambda: gru(Config(UNITS)),
}
EACH = pytest.mark.parametrize("name", RECIPES)


def model_of(recipe):
    model = assemble(recipe, default_registry())
    randomise(model)
    return model


def texts(length, batch=2):
    return mx.random.randint(0, VOCAB, (batch, length), key=mx.random.key(1))


@EACH
def test_the_cache_does_not_grow(name):
    model, sizes = model_of(RECIPES[name]()), []
    cache = model.make_cache()
    for length in (1, LONG):
        model(texts(length), cache)
        sizes.append(sum(array.size for array in cache[0].state))
    layer = model.spec.layers[0]
    dim = model.spec.embedding.dim
    assert sizes[0] == sizes[1] == 2 * getattr(layer, "mixer", layer).state_size(dim)
    assert cache[0].length == cache[0].offset == 1 + LONG


@EACH
def test_padding_that_reaches_past_the_first_chunk_of_a_prompt(name):
    model, tokens = model_of(RECIPES[name]()), texts(12)
    cache, mask = model.make_cache(), mx.array([[1] * 12, [0] * 5 + [1] * 7])
    model(tokens[:, :3], cache, mask)
    same(model(tokens[:, 3:], cache)[1:, 2:], model(tokens[1:, 5:]), "logits")


@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_it_runs_with_the_caches_of_mlx_lm(name):
    model, tokens = model_of(RECIPES[name]()), texts(9)
    caches = [ArraysCache(2, left_padding=[0, 4]) for _ in model.layers]
    same(Served(model, {}, name)(tokens, caches)[1:, 4:], model(tokens[1:, 4:]), "logits")


@pytest.mark.parametrize("mixer", [LSTM(), SelectiveStateSpace(hidden=32, dt_rank=2, state=4)])
def test_it_stands_beside_attention_in_one_model(mixer):
    norm = RMSNorm()
    attention = Layer(Attention(heads=4), GatedMLP(hidden=20), norm, norm)
    state = attention.change(mixer=mixer)
    model = model_of(Decoder(Embedding(VOCAB, DIM), (state, attention, state), norm, Head()))
    tokens, cache = texts(12), model.make_cache()
    padded = model(tokens, cache, mx.array([[1] * 12, [0] * 5 + [1] * 7]))
    same(padded[1:, 5:], model(tokens[1:, 5:]), "padded")
    continued = mx.concatenate([tokens[:1], tokens[:1, :1]], axis=1)
    same(model(tokens[:, :1], cache)[:1], model(continued)[:, -1:], "next")


@EACH
def test_training_starts_from_the_seed(name):
    models = [assemble(RECIPES[name](), default_registry()) for _ in range(2)]
    for model in models:
        initialise(model, seed=3, layers=2)
    for (path, first), (_, second) in zip(*(tree_flatten(m.parameters()) for m in models), strict=True):
        assert mx.array_equal(first, second).item(), path


@EACH
def test_every_parameter_has_a_gradient(name):
    model, tokens = model_of(RECIPES[name]()), texts(LONG)
    _, gradients = nn.value_and_grad(model, next_token_loss)(model, tokens[:, :-1], tokens[:, 1:])
    for path, gradient in tree_flatten(gradients):
        assert mx.isfinite(gradient).all().item() and mx.abs(gradient).max().item() > 0, path
