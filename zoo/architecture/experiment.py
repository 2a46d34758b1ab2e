"""The record of an experiment that a plugin gives to `zoo lab`. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.architecture.fields import check_target, check_tuples, checked_name, import_target
from zoo.errors import PluginError
from zoo.frozen import Frozen, frozen


@frozen()
class Experiment(Frozen):
    """An experiment of `zoo lab`: the function at "package.module:attribute", imported only when it is run.

    It is called `function(scale)`, with a `zoo_lab.plan.Scale`, and gives a `zoo_lab.plan.Plan`: what is run, measured,
    drawn and claimed. `question` is what it asks, `expected` what its author expects to see, and by which source of
    `references`: both are shown with the results. `seeds` is how many times each arm is run unless another number is
    asked for, `seconds` what that took where the record of its documentation was made.
    """

    name: str
    target: str
    question: str
    expected: str
    summary: str = ""
    references: tuple[str, ...] = ()
    seeds: int = 3
    seconds: float | None = None

    def __post_init__(self) -> None:
        label = f"experiment {checked_name('experiment', self.name)}"
        check_target(label, self.target)
        check_tuples(label, self, ("references",), str)
        for field in ("question", "expected"):
            if not isinstance(getattr(self, field), str) or not getattr(self, field).strip():
                raise PluginError(f"{label}: {field} is a text, not {getattr(self, field)!r:.60}")
        if type(self.seeds) is not int or self.seeds < 1:
            raise PluginError(f"{label}: seeds is a whole number from 1, not {self.seeds!r:.60}")

    def function(self) -> Callable[..., Any]:
        """The function itself, imported now."""
        return import_target(self.target)
