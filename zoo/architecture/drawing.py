"""The record of how a block is drawn in diagrams. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.architecture.fields import check_target, import_target
from zoo.errors import PluginError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Spec


@frozen()
class Drawing(Frozen):
    """How one spec is drawn: the function at "package.module:attribute", imported only when it is drawn.

    It is called `function(subject)` with a `zoo.describe.diagram.Subject` and gives the items of the diagram, from bottom
    to top: `zoo.describe.diagram.Box`, `Residual` or `Frame`. Subclasses of `spec` without a drawing of their own are
    drawn by it too.
    """

    spec: type[Spec]
    target: str
    summary: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.spec, type) and issubclass(self.spec, Spec)):
            raise PluginError(f"drawing {self.spec!r}: its spec must be a subclass of Spec")
        check_target(f"drawing of {self.spec.__name__}", self.target)

    def function(self) -> Callable[..., Any]:
        """The function itself, imported now."""
        return import_target(self.target)
