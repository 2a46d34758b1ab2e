"""The experiment on mixtures of experts: their loss at equal active parameters, and how evenly they are used."""

from __future__ import annotations

from typing import Any

from zoo_lab.experiments.common import LOSS, LOSS_CURVE, SMALL, extent, settings_of, told
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower

HIDDEN, CHOSEN = 176, 2  # of a dense feed-forward; experts have HIDDEN / CHOSEN each, and a token uses CHOSEN
LOADED = 64  # held-out documents on which the experts' use is counted
EVEN = 1.5  # times its even share: an expert that is used more often makes the load uneven


def experts(scale: Scale) -> Plan:
    """A dense feed-forward, a wide one, and mixtures of 4 and 8 experts without a loss that balances them."""
    from zoo_lab.training import recipe_of, trained

    settings = settings_of(scale, 400)

    def recipe(count: int, hidden: int) -> Any:
        from zoo.recipe import Experts, MoE, Router

        base = recipe_of("llama", SMALL)
        if count == 1:
            return base.change_layers(feedforward=dict(hidden=hidden))
        mixture = MoE(router=Router(count, CHOSEN), experts=Experts(count, HIDDEN // CHOSEN))
        return base.change_layers(feedforward=mixture)

    def arm(name: str, count: int, hidden: int = HIDDEN) -> Arm:
        def run(trial: Trial) -> Result:
            from zoo_lab.experiments.model_metrics import expert_loads

            busiest: list[list[float]] = []

            def observe(loaded: Any, step: int) -> None:
                if count > 1:
                    loads = expert_loads(loaded, scale.pick(LOADED, 4))
                    busiest.append([step, sum(map(max, loads)) / len(loads)])

            done = trained(recipe(count, hidden), settings, trial, observe=observe, **extent(scale))
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

    dense, wide, four, eight = "dense", "dense, 4 times as wide", "2 of 4 experts", "2 of 8 experts"
    busiest = "busiest expert's load"
    return Plan(
        arms=(arm(dense, 1), arm(wide, 1, 4 * HIDDEN), arm(four, 4), arm(eight, 8)),
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
            Chart("curves", "curves", "loss"),
        ),
        claims=(
            lower(
                "8 experts, 2 of them used, reach a lower loss than a dense feed-forward of equal active parameters",
                eight,
                dense,
                "loss",
            ),
            lower("8 experts reach a lower loss than 4", eight, four, "loss"),
            higher(
                "8 experts do not reach the loss of a dense feed-forward of as many parameters in all",
                eight,
                wide,
                "loss",
            ),
            Claim(
                f"Without a balancing loss, the busiest of 8 experts does more than {EVEN} times its even share",
                "busiest",
                {eight: 1},
                "above",
                EVEN,
            ),
        ),
        settings=told(settings, balancing="none"),
    )
