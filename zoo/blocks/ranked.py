"""What joins the parts of a module that ranks compute: its output is handed from rank to rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.model import modules_of
from zoo.runtime import ranks

Exchange = Callable[[mx.array], mx.array]


class Connected:
    """The class of a module whose first input is changed by `before`, and its output by `after`, None: not.

    `whole_class` is what it was without.
    """

    whole_class: type
    before: Exchange | None
    after: Exchange | None


def connect(module: nn.Module, before: Exchange | None = None, after: Exchange | None = None) -> None:
    """Let `before` change the first input of a module from now on, and `after` its output.

    The module keeps its place, its name and its methods.
    """
    whole: Any = type(module)

    def call(self: Any, x: mx.array, *inputs: Any, **named: Any) -> mx.array:
        y = whole.__call__(self, x if before is None else before(x), *inputs, **named)
        return y if after is None else after(y)

    exchanges = {name: staticmethod(each) for name, each in (("before", before), ("after", after)) if each}
    own = {"__call__": call, "whole_class": whole, "before": None, "after": None} | exchanges
    module.__class__ = type(whole.__name__, (whole, Connected), own)


def sum_outputs(model: nn.Module, paths: Iterable[str]) -> None:
    """Let the modules at these paths give the sum of what the ranks' parts of them give."""
    modules = modules_of(model)
    for path in paths:
        connect(modules[path], after=ranks.all_sum)
