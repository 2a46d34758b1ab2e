"""The settings of a training run, and its measurements. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from zoo.errors import ZooError

TRAINING = "training.json"  # the record of a run, beside the weights


@dataclass(frozen=True)
class TrainingSettings:
    """The hyperparameters of a training run.

    `rate` is the peak learning rate: it is reached after `warmup` steps and falls by a cosine to a tenth. `decay` is the
    weight decay, `clip` the largest norm of the gradients.
    `corpus` and `objective` None are those that suit the model's task. `packed` cuts rows from running text, nothing
    left out. `ends` are the steps at which earlier parts of an extended run ended: each part has a warm-up and a cosine
    of its own.
    """

    steps: int = 2000
    batch: int = 16
    length: int = 64
    rate: float = 3e-3
    warmup: int = 100
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    corpus: str | None = None
    objective: str | None = None
    packed: bool = False
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "length"):
            if getattr(self, name) < 1:
                raise ZooError(f"`{name}` must be at least 1, got {getattr(self, name)}")
        if not 0 < self.rate < float("inf"):
            raise ZooError(f"`rate` must be positive, got {self.rate}")
        if not 0 <= self.seed < 2**64:
            raise ZooError(f"`seed` must be a whole number from 0, got {self.seed}")

    def to(self, steps: int, done: int) -> TrainingSettings:
        """The settings of the same run with `steps` in all, after `done` steps.

        A run that is not finished goes on with the rates of the longer or shorter one. A finished one gets another
        part: the rate warms up again to its peak and falls by a cosine to a tenth at the new end.
        """
        if steps < done:
            raise ZooError(f"`steps`: {done} are done already, {steps} is fewer")
        ends = (*self.ends, self.steps) if done == self.steps != steps else self.ends
        return replace(self, steps=steps, ends=ends)


def settings_in(saved: Mapping[str, Any]) -> TrainingSettings:
    """The settings that a record holds."""
    own = {name: saved[name] for name in (f.name for f in fields(TrainingSettings)) if name in saved}
    return TrainingSettings(**own | {"ends": tuple(own.get("ends", ()))})


@dataclass
class TrainingRecord:
    """The measurements of a training run: losses in nats a token as [step, loss], validation likewise, and seconds.

    `documents` says whether it saw the corpus's documents or single sentences; `tokenizer` how many tokens its own has,
    and how many of them are whole names of the corpus.
    """

    architecture: str
    parameters: int
    settings: dict[str, Any]
    documents: str = "documents"
    tokenizer: dict[str, Any] = field(default_factory=dict)
    losses: list[list[float]] = field(default_factory=list)
    validation: list[list[float]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
