"""The bar of a training: what it says and estimates."""

import pytest

from zoo.cli.training import TrainingProgress


def test_the_time_that_is_left_is_known_where_a_step_takes_long():
    progress = TrainingProgress("out")
    now = 0.0
    progress._bar.get_time = lambda: now
    progress.total(10)
    for step in (1, 2, 3):
        now += 40
        progress.step(step, 1.0, 5.0)
    (task,) = progress._bar.tasks
    assert task.time_remaining == pytest.approx(7 * 40)


def test_a_measurement_without_a_loss_of_its_step_has_none(capsys):
    progress = TrainingProgress("out")
    progress.measured(0, None, 2.0, None)
    progress.measured(4, 1.5, 2.0, "a → b")
    assert capsys.readouterr().err.splitlines() == [
        "step 0 · validation 2.000",
        "step 4 · loss 1.500 · validation 2.000",
        "  a → b",
    ]
