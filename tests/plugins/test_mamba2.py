"""Mamba-2: its scan against the recurrence, its state, what training starts from, what its config.json may say."""

import math

import mlx.core as mx
import pytest

from zoo.assemble import assemble
from zoo.config import Config
from zoo.errors import ConfigError, RecipeError
from zoo.host.registry import default_registry
from zoo.testing import randomise, same
from zoo.training.loop import initialise
from zoo_mamba2 import TINY, StateSpace, mamba2
from zoo_mamba2.block import bounded_step, scan


def small(**changes):
    model = assemble(mamba2(Config(TINY | changes)), default_registry())
    randomise(model)
    return model


@pytest.mark.parametrize("chunk", [1, 5, 16, 40])
def test_chunks_of_any_size_give_the_recurrence(chunk):
    x, B, C = (mx.random.normal((2, 3, 33, size), key=mx.random.key(i)) for i, size in enumerate((4, 5, 5)))
    rate = -mx.random.uniform(shape=(2, 3, 33), key=mx.random.key(7))
    state = mx.random.normal((2, 3, 4, 5), key=mx.random.key(8))
    expected, h = [], state
    for t in range(33):
        h = mx.exp(rate[:, :, t])[..., None, None] * h + x[:, :, t, :, None] * B[:, :, t, None]
        expected.append((h * C[:, :, t, None]).sum(axis=-1))
    y, last = scan(x, rate, B, C, state, chunk)
    same(y, mx.stack(expected, axis=2), "outputs")
    same(last, h, "state")


@pytest.mark.parametrize("rate", [-1e-6, -50.0])
def test_a_state_that_hardly_fades_or_at_once_stays_finite(rate):
    x, B, C = (mx.ones((1, 1, 40, 2)) for _ in range(3))
    y, last = scan(x, mx.full((1, 1, 40), rate), B, C, None, 16)
    held = 2.0 if rate < -1 else 80.0
    assert mx.isfinite(y).all() and mx.allclose(y[0, 0, -1], mx.array(held), rtol=1e-3)
    assert mx.allclose(last, mx.array(held / 2), rtol=1e-3)


def test_training_starts_with_steps_and_decays_of_the_authors_code():
    model = small()
    initialise(model, seed=3, layers=2)
    mixer = model.layers[1].mixer
    A, dt = mx.exp(mixer.A_log), mx.logaddexp(mixer.dt_bias, 0.0)
    assert A.min().item() >= 1 - 1e-6 and A.max().item() <= 16 + 1e-5
    assert dt.min().item() >= 0.001 - 1e-6 and dt.max().item() <= 0.1 + 1e-6
    assert mx.abs(mixer.convolution.weight).max().item() > 0.1


@pytest.mark.parametrize("limit", [[0.0, math.inf], [0.0, {"__float__": "Infinity"}], None])
def test_a_limit_that_limits_nothing_is_taken(limit):
    config = Config(TINY | dict(time_step_limit=limit))
    mamba2(config)
    assert config.unread() == []


def test_a_step_stays_within_its_limits_in_both_forms():
    mixer = mamba2(Config(TINY | dict(time_step_limit=[0.6, 0.8]))).layers[0].mixer
    assert (mixer.step_min, mixer.step_max) == (0.6, 0.8)
    steps = bounded_step(mixer, mx.array([-2.0, 0.0, 3.0]))
    assert mx.allclose(steps, mx.array([0.6, math.log(2), 0.8])).item()


@pytest.mark.parametrize("limit", [[0.1], "none", [0.1, "1"], [-1.0, 1.0], [2.0, 1.0], [math.inf, math.inf]])
def test_limits_of_a_step_that_cannot_be_are_named(limit):
    with pytest.raises(ConfigError, match="time_step_limit"):
        mamba2(Config(TINY | dict(time_step_limit=limit)))


def test_groups_divide_the_heads():
    with pytest.raises(RecipeError, match="groups: 3 does not divide heads, 4"):
        StateSpace(heads=4, head_dim=8, state=4, groups=3)
