"""Connections between the ranks of a divided model: sums of outputs, and vectors handed from stage to stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.model import modules_of
from zoo.recipe import Spec
from zoo.recipe.division import Division, Source
from zoo.runtime import ranks

Exchange = Callable[[mx.array], mx.array]


class Connected:
    """The class of a connected module: `before` changes its first input, `after` its output; None changes nothing.

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


def connect_ranks(model: nn.Module, division: Division) -> None:
    """Let the parts of a model that is divided among ranks hand each other what they compute.

    The ranks of a pipeline compute different graphs, of which one may be evaluated in part: what goes between them is
    scheduled at once, so that all ranks do it in one order.
    """
    modules = modules_of(model)
    before = {path: _receive(source) for path, source in division.receives.items()}
    after: dict[str, Exchange] = dict.fromkeys(division.sums, ranks.all_sum)
    after |= {path: _scheduled(ranks.send, rank) for path, rank in division.sends.items()}
    after |= {path: _scheduled(ranks.broadcast, rank) for path, rank in division.broadcasts.items()}
    for path in before | after:
        connect(modules[path], before.get(path), after.get(path))


def _scheduled(exchange: Callable[[mx.array, int], mx.array], rank: int) -> Exchange:
    """An exchange with a rank that begins when it is called."""

    def begin(x: mx.array) -> mx.array:
        y = exchange(x, rank)
        mx.async_eval(y)
        return y

    return begin


def _receive(source: Source) -> Exchange:
    """A function that replaces an input by the output of the layer before, which another rank computes."""

    def receive(x: mx.array) -> mx.array:
        mx.async_eval(x)  # what is received does not depend on it
        return ranks.receive(x.astype(mx.float32) if source.widened else x, source.rank)

    return receive


class Elsewhere(nn.Module):
    """The place of a layer that another rank has: what comes in goes out."""

    def __init__(self, spec: Spec, *, dim: int, index: int = 0) -> None:
        super().__init__()

    def __call__(self, x: mx.array, *inputs: Any, **named: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        return x
