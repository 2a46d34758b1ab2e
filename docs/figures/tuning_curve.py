"""The losses of a run of docs/records/tuning/example.json."""

from __future__ import annotations

from figures.plots import Axes
from figures.tour_marks import said
from figures.tuning import EXAMPLE


def draw(language: str, name: str) -> str:
    """The losses of training and of the held-out examples by step, the latter from before the first one."""
    found = EXAMPLE[name]
    steps = found["training"]["settings"]["steps"]
    losses, held_out = found["training"]["losses"], [[0, found["before"]], *found["training"]["validation"]]
    most = max(loss for _, loss in [*losses, *held_out])
    axes = Axes((0, steps), (0, most * 1.1), width=350, height=240, right=22)
    axes.frame(
        said(language, "loss (nats a token)", "损失（奈特/词元）"),
        {step: f"{step}" for step in range(0, steps + 1, 20)},
        {value: f"{value}" for value in range(int(most) + 1)},
        said(language, "step", "步"),
    )
    axes.curve(losses, colour="line", width=1.4)
    axes.curve(held_out, dots=True)
    words = said(language, "held-out examples", "留出样本")
    axes.name(steps, found["before"], words, colour="accent", anchor="end")
    return axes.picture()
