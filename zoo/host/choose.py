"""Chooses the strategy that runs a model and the objective that trains it, where a person names none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from zoo.architecture import Architecture, Objective, Strategy
from zoo.errors import PluginError
from zoo.host.discovery import Plugin
from zoo.host.precedence import RecordTable

R = TypeVar("R", Strategy, Objective)


def choose_strategy(
    table: RecordTable[Strategy],
    task: str,
    settings: Iterable[str] = (),
    *,
    name: str | None = None,
    distribution: str | None = None,
) -> Strategy:
    """The strategy `name`, else the first that serves the task and takes all of `settings`, else the first.

    Those of `distribution`, which is the architecture's, come first, then the zoo's own; no other third party's runs
    a model unasked where one of these can. PluginError when there is none, or several third parties' fit.
    """
    if name is not None:
        found = table.get(name)
        if found is None or task not in found.tasks:
            names = ", ".join(n for n, strategy in table.listed().items() if task in strategy.tasks)
            raise PluginError(
                f"strategy {name!r}: none of that name serves the task {task!r}; known: {names}"
            )
        return found
    rank = _rank(distribution)
    serving = sorted((claim for claim in table.pairs() if task in claim[1].tasks), key=rank)
    wanted = set(settings)
    fitting = [claim for claim in serving if wanted <= set(claim[1].takes)] or serving[:1]
    if not fitting:
        raise PluginError(f"no strategy serves the task {task!r}")
    return _first(fitting, rank, "strategies")


def choose_objective(
    table: RecordTable[Objective],
    architecture: Architecture,
    *,
    name: str | None = None,
    distribution: str | None = None,
) -> Objective:
    """The objective `name`, else the first that can train the architecture, chosen as a strategy is.

    PluginError when there is none, it trains other architectures, or several third parties' fit.
    """
    kind = f"{architecture.task} with attention {architecture.causality}"
    if name is not None:
        found = table.get(name)
        if found is None or not found.serves(architecture):
            names = ", ".join(n for n, objective in table.listed().items() if objective.serves(architecture))
            raise PluginError(
                f"objective {name!r}: none of that name trains to {kind}; known: {names or 'none'}"
            )
        return found
    rank = _rank(distribution)
    serving = sorted((claim for claim in table.pairs() if claim[1].serves(architecture)), key=rank)
    if not serving:
        raise PluginError(f"{architecture.name}: training to {kind} is not implemented")
    return _first(serving, rank, "objectives")


def _rank(distribution: str | None) -> Callable[[tuple[Plugin, object]], int]:
    """The order of claims: 0 for those of the architecture's distribution, 1 for the zoo's own, 2 for the others."""

    def rank(claim: tuple[Plugin, object]) -> int:
        plugin = claim[0]
        return 0 if plugin.distribution == distribution else 1 if plugin.first_party else 2

    return rank


def _first(claims: list[tuple[Plugin, R]], rank: Callable[[tuple[Plugin, object]], int], plural: str) -> R:
    """The first of ranked claims; PluginError when all are of other third parties, and there are several."""
    if rank(claims[0]) == 2 and len(claims) > 1:
        options = " or ".join(f"{plugin.distribution}::{record.name}" for plugin, record in claims)
        raise PluginError(f"several plugins' {plural} could serve this: ask for {options}")
    return claims[0][1]
