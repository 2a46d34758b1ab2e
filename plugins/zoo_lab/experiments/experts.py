"""The experiment on mixtures of experts: their loss at equal active parameters, and how evenly they are used."""

from __future__ import annotations

from typing import Any

from zoo.loading import Loaded
from zoo.recipe import Experts, MoE, Router
from zoo.training.record import TrainingSettings
from zoo_lab import training
from zoo_lab.experiments.common import (
    LOSS,
    LOSS_CURVE,
    LOSS_CURVES,
    extent,
    recorded,
    settings_of,
    small_llama,
)
from zoo_lab.experiments.measurements import expert_loads
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower

HIDDEN, CHOSEN = 176, 2  # of a dense feed-forward; experts have HIDDEN / CHOSEN each, and a token uses CHOSEN
LOADED = 64  # held-out documents on which the experts' use is counted
EVEN = 1.5  # times its even share: an expert that is used more often makes the load uneven
DENSE, WIDE, FOUR, EIGHT = "dense", "dense, 4 times as wide", "2 of 4 experts", "2 of 8 experts"


def experts(scale: Scale) -> Plan:
    """A dense feed-forward, a wide one, and mixtures of 4 and 8 experts without a loss that balances them."""
    settings = settings_of(scale, 400)
    busiest = "busiest expert's load"
    return Plan(
        arms=(
            _arm(DENSE, scale, settings, 1),
            _arm(WIDE, scale, settings, 1, 4 * HIDDEN),
            _arm(FOUR, scale, settings, 4),
            _arm(EIGHT, scale, settings, 8),
        ),
        metrics=(
            LOSS,
            Metric("active", "active parameters"),
            Metric("parameters", "parameters"),
            Metric("busiest", busiest, "times its even share", "lower"),
        ),
        curves=(LOSS_CURVE, Curve("busiest", busiest, "step", "times its even share")),
        charts=(
            Chart("loss", "points", "loss", "active", labels=True),
            Chart("balance", "curves", "busiest"),
            LOSS_CURVES,
        ),
        claims=_claims(),
        settings=recorded(settings, balancing="none"),
    )


def _claims() -> tuple[Claim, ...]:
    better = (
        "8 experts, 2 of them used, reach a lower loss than a dense feed-forward of equal active parameters"
    )
    worse = "8 experts do not reach the loss of a dense feed-forward of as many parameters in all"
    uneven = f"Without a balancing loss, the busiest of 8 experts does more than {EVEN} times its even share"
    return (
        lower(better, EIGHT, DENSE, "loss"),
        lower("8 experts reach a lower loss than 4", EIGHT, FOUR, "loss"),
        higher(worse, EIGHT, WIDE, "loss"),
        Claim(uneven, "busiest", {EIGHT: 1}, "above", EVEN),
    )


def _recipe(count: int, hidden: int) -> Any:
    """The recipe with `count` experts; 1: with a feed-forward of width `hidden`."""
    if count == 1:
        return small_llama(feedforward=dict(hidden=hidden))
    moe = MoE(router=Router(count, CHOSEN), experts=Experts(count, HIDDEN // CHOSEN))
    return small_llama(feedforward=moe)


def _arm(name: str, scale: Scale, settings: TrainingSettings, count: int, hidden: int = HIDDEN) -> Arm:
    """An arm that trains one of the recipes, and counts in training how its experts are used."""

    def run(trial: Trial) -> Result:
        busiest: list[list[float]] = []

        def observe(loaded: Loaded, step: int) -> None:
            if count > 1:
                loads = expert_loads(loaded, scale.pick(LOADED, 4))
                busiest.append([step, sum(map(max, loads)) / len(loads)])

        recipe = _recipe(count, hidden)
        done = training.trained(recipe, settings, trial, observe=observe, **extent(scale))
        found = done.loaded.recipe
        numbers = {
            "loss": done.loss,
            "active": float(found.active_parameters(found.dim)),
            "parameters": float(found.parameters(found.dim)),
        }
        if not busiest:
            return Result(numbers, {"loss": done.curve})
        return Result(numbers | {"busiest": busiest[-1][1]}, {"loss": done.curve, "busiest": busiest})

    return Arm(name, run, {"experts": count})
