"""The loss of the LLaMA pocket while it was trained, from the record that lies beside its weights."""

from __future__ import annotations

import json
import math
from typing import Any

from figures.plots import Axes
from figures.tour_marks import said


def record() -> dict[str, Any]:
    """The record of the training."""
    import zoo

    path = zoo.load("llama").folder / "training.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def draw(language: str) -> str:
    """The losses of training and validation by step, and the cost of a guess among all tokens."""
    found = record()
    steps, vocab = found["settings"]["steps"], found["settings"]["config"]["vocab_size"]
    guess = math.log(vocab)
    axes = Axes((0, steps), (0, 8), width=350, height=240, right=22)
    axes.frame(
        said(language, "loss (nats a token)", "损失（奈特/词元）"),
        {step: f"{step:,}" for step in range(0, steps + 1, 500)},
        {value: f"{value}" for value in range(0, 9, 2)},
        said(language, "step", "步"),
    )
    axes.curve([(0, guess), (steps, guess)], colour="line", width=1.2, dashed=True)
    axes.curve(found["losses"], colour="line", width=1.4)
    axes.curve(found["validation"], dots=True)
    axes.name(
        steps,
        guess,
        said(language, f"uniform guess, ln {vocab:,}", f"均匀猜测，ln {vocab:,}"),
        anchor="end",
        by=(0, 16),
    )
    step, loss = found["validation"][1]
    axes.name(step, loss, said(language, "held-out text", "留出文本"), colour="accent", by=(6, -14))
    return axes.picture()
