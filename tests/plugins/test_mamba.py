"""Mamba: the scan against a plain loop, the state cache, what training starts from, what config.json may say."""

import math

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache

from zoo.assemble import assemble
from zoo.checkpoint.open import make_recipe
from zoo.config import Config
from zoo.errors import RecipeError
from zoo.host.registry import default_registry
from zoo.testing import randomise, same
from zoo.training.loop import initialise
from zoo_mamba import POCKET, MixerLayer, SelectiveStateSpace, mamba
from zoo_mamba.block import CHUNK, SEGMENT, scan
from zoo_mlx_lm.tools import Served

SMALL = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=4, use_bias=True)
LONG = CHUNK + 7  # more than one chunk, the last one not full


def small(**changes):
    model = assemble(mamba(Config(SMALL | changes)), default_registry())
    randomise(model)
    return model


def texts(length, batch=2):
    return mx.random.randint(0, 50, (batch, length), key=mx.random.key(1))


def inputs(length, largest, channels=6, state=3, batch=2):
    """x, dt, B, C, A and the state before, with dt up to `largest`."""
    draw = np.random.default_rng(length)
    x, dt = draw.normal(size=(2, batch, length, channels))
    B, C = draw.normal(size=(2, batch, length, state))
    A = -draw.uniform(0.1, 3, (state, channels))
    return x, largest * np.abs(dt), B, C, A, draw.normal(size=(batch, state, channels))


def loop(x, dt, B, C, A, h):
    """The recurrence as the paper writes it, one token after the other, in float64."""
    y = []
    for t in range(x.shape[1]):
        h = 2 ** (dt[:, t, None] * A) * h + B[:, t, :, None] * x[:, t, None]
        y.append(np.einsum("bn,bne->be", C[:, t], h))
    return np.stack(y, axis=1), h


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5, SEGMENT + CHUNK + 1])
@pytest.mark.parametrize(
    "largest", [1e-4, 0.3, 100.0]
)  # from a state that hardly fades to one that underflows
def test_scan_is_the_recurrence(length, largest):
    given = inputs(length, largest)
    found = scan(*(mx.array(array.astype(np.float32)) for array in given))
    for array, expected, what in zip(found, loop(*given), ("outputs", "state"), strict=True):
        same(array, mx.array(expected.astype(np.float32)), what, 1e-5)


def test_gradients_of_the_scan_are_the_loops():
    given = [mx.array(array.astype(np.float32)) for array in inputs(LONG, 0.3)]

    def plain(x, dt, B, C, A, h):
        y = []
        for t in range(x.shape[1]):
            h = 2 ** (dt[:, t, None] * A) * h + B[:, t, :, None] * x[:, t, None]
            y.append((C[:, t, :, None] * h).sum(axis=1))
        return mx.stack(y, axis=1), h

    def gradients(function):
        return mx.grad(lambda *args: mx.square(function(*args)[0]).sum(), argnums=range(6))(*given)

    for found, expected in zip(gradients(scan), gradients(plain), strict=True):
        same(found, expected, "gradient", 1e-5)


def test_long_text_in_one_piece_in_chunks_and_token_by_token():
    model, tokens = small(), texts(LONG)
    whole, cache, pieces = model(tokens), model.make_cache(), []
    for start, end in ((0, 2), (2, CHUNK + 3), *((t, t + 1) for t in range(CHUNK + 3, LONG))):
        pieces.append(model(tokens[:, start:end], cache))
    same(mx.concatenate(pieces, axis=1), whole, "logits")


@pytest.mark.parametrize("padding", [1, CHUNK + 1])
def test_a_row_padded_by_more_or_less_than_a_chunk(padding):
    model, tokens = small(), texts(LONG)
    mask = mx.array([[1] * LONG, [0] * padding + [1] * (LONG - padding)])
    cache, alone = model.make_cache(), model.make_cache()
    same(model(tokens, cache, mask)[1:, padding:], model(tokens[1:, padding:], alone), "prompt")
    same(model(texts(1), cache)[1:], model(texts(1)[1:], alone), "next token")


@pytest.mark.parametrize("pieces", [(9,), (2, 4, 3)])
def test_a_prompt_padded_on_the_right_leaves_the_state_of_its_last_token(pieces):
    model, tokens = small(), texts(9)
    served, caches = Served(model, {}, "mamba"), [ArraysCache(2) for _ in model.layers]
    for cache in caches:
        cache.prepare(lengths=[9, 4])
    start = 0
    for length in pieces:
        served(tokens[:, start : start + length], caches)
        start += length
    for cache in caches:
        cache.finalize()
    alone = mx.concatenate([tokens[1:, :4], texts(1)[1:]], axis=1)
    same(served(texts(1), caches)[1:], model(alone)[:, -1:], "next token")


def test_the_residual_stream_is_float32_and_the_rest_is_not():
    model = small()
    model.set_dtype(mx.bfloat16)
    x = model.embedding(texts(3))
    assert model.layers[0](x).dtype == mx.float32
    assert model(texts(3)).dtype == mx.bfloat16
    plain = small(residual_in_fp32=False)
    plain.set_dtype(mx.bfloat16)
    assert plain.layers[0](x).dtype == mx.bfloat16


def test_training_starts_as_the_paper_does():
    model = small()
    initialise(model, seed=3, layers=2)
    mixer = model.layers[1].mixer
    assert mx.allclose(mx.exp(mixer.A_log[:, 0]), mx.arange(1.0, 5.0))
    steps = mx.logaddexp(mixer.dt_proj.bias, 0.0)
    assert steps.min().item() >= 0.001 and steps.max().item() <= 0.1 + 1e-6
    assert mx.abs(mixer.convolution.weight).max().item() > 0.1


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        (dict(), "dt_rank", math.ceil(160 / 16)),
        (dict(time_step_rank="auto", hidden_size=30), "dt_rank", 2),
        (dict(time_step_rank=7), "dt_rank", 7),
        (dict(), "hidden", 320),
        (dict(expand=3), "hidden", 480),
        (dict(expand=3, intermediate_size=100), "hidden", 100),
        (dict(hidden_act="gelu"), "activation", "gelu"),
        (dict(use_conv_bias=False), "kernel_bias", False),
    ],
)
def test_what_config_says_is_honoured(changes, field, value):
    assert getattr(mamba(Config(POCKET | changes)).layers[0].mixer, field) == value


def test_a_recipe_names_the_field_that_cannot_be():
    with pytest.raises(RecipeError, match="activation"):
        SelectiveStateSpace(hidden=8, dt_rank=1, activation="softmax")


def test_blocks_are_registered():
    recipe = make_recipe(default_registry().architecture("mamba"), POCKET, default_registry())
    assert isinstance(recipe.layers[0], MixerLayer)
    assert default_registry().block("mixer/selective-state-space").spec is SelectiveStateSpace
