"""The memory of a step is estimated before the first one."""

import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.errors import ZooError
from zoo.training.loss import next_token_loss
from zoo.training.memory import check_step, step_memory
from zoo.training.record import TrainingSettings

PLAIN = TrainingSettings()
CHECKPOINTED = TrainingSettings(checkpoint=True)


@pytest.fixture
def loaded():
    return zoo.load("llama", dtype="float32")


@pytest.mark.parametrize(("rows", "length"), [(4, 64), (1, 128), (2, 128)])
def test_the_estimate_is_near_the_peak_of_a_step(loaded, rows, length):
    parts = step_memory(loaded, rows, length, PLAIN)
    tokens = mx.zeros((rows, length), mx.int32)
    mx.eval(tokens)
    mx.clear_cache()
    mx.reset_peak_memory()
    mx.eval(nn.value_and_grad(loaded.model, next_token_loss)(loaded.model, tokens, tokens))
    estimate = sum(parts.values()) - parts["optimizer"]
    assert (0.5 if runtime.on_gpu() else 0.7) < estimate / mx.get_peak_memory() < 1.5


def test_what_is_frozen_has_no_gradients_and_no_moments(loaded):
    whole = step_memory(loaded, 1, 64, PLAIN)
    assert whole["optimizer"] == 2 * whole["gradients"] == 2 * 4 * loaded.recipe.parameters(loaded.recipe.dim)
    loaded.model.freeze()
    loaded.model.norm.unfreeze()
    assert step_memory(loaded, 1, 64, PLAIN)["optimizer"] == 2 * 4 * loaded.recipe.dim


def test_activations_grow_with_rows_and_more_than_with_the_length(loaded):
    loaded.model.freeze()

    def activations(rows, length, settings=PLAIN):
        return step_memory(loaded, rows, length, settings)["activations"]

    assert activations(2, 512) == 2 * activations(1, 512)
    assert activations(1, 1024) > 2 * activations(1, 512)
    assert activations(1, 512, CHECKPOINTED) < activations(1, 512)


@pytest.mark.parametrize(
    ("rows", "room", "settings", "advice"),
    [
        (64, 200_000_000, PLAIN, "lower `batch` (and raise `accumulate`), or `length`"),
        (1, 200_000_000, PLAIN, "lower `length`, or set `checkpoint`"),
        (1, 200_000_000, CHECKPOINTED, "lower `length`"),
        (1, 10_000_000, PLAIN, "train fewer `layers` or `parts`, or an adapter"),
    ],
)
def test_a_step_that_does_not_fit_says_the_sum_and_what_to_lower(
    loaded, monkeypatch, rows, room, settings, advice
):
    held = runtime.active_memory()
    monkeypatch.setattr("zoo.runtime.usable_memory", lambda: held + room)
    with pytest.raises(ZooError) as error:
        check_step(loaded, rows, 2048, settings)
    message = str(error.value)
    assert (
        message.startswith(f"a step on {rows} × 2,048 tokens does not fit: model 0.") and "\n" not in message
    )
    assert message.endswith(advice) and "activations" in message and "usable memory" in message
    monkeypatch.setattr("zoo.runtime.usable_memory", lambda: held + 10**12)
    check_step(loaded, rows, 2048, settings)
