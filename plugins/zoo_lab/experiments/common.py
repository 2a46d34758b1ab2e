"""Shared parts of the training experiments: settings, metrics, a base recipe, and an arm that trains one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zoo.recipe import Model
from zoo.training.record import TrainingSettings
from zoo_lab import training
from zoo_lab.plan import Arm, Chart, Curve, Metric, Result, Scale, Trial
from zoo_lab.training import Trained

LOSS = Metric("loss", "held-out loss", "nats a token", "lower")
LOSS_CURVE = Curve("loss", "held-out loss", "step", "nats a token")
LOSS_DOTS = Chart("loss", "dots", "loss")
LOSS_CURVES = Chart("curves", "curves", "loss")

# Width 64 and three layers: about 0.2 million parameters with a vocabulary of 512.
SMALL = dict(
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=512,
    tie_word_embeddings=True,
)


def small_llama(**layers: Any) -> Any:
    """The recipe of a small LLaMA, with the parts of its layers changed as `change_layers` does."""
    return training.recipe_of("llama", SMALL).change_layers(**layers)


def settings_of(scale: Scale, steps: int, **changes: Any) -> TrainingSettings:
    """The settings of a small training, with a warm-up of a tenth of its steps."""
    steps = scale.training(steps)
    given: dict[str, Any] = {"steps": steps, "warmup": max(steps // 10, 1), "corpus": "atlas"} | changes
    return TrainingSettings(**given)


def recorded(settings: TrainingSettings, **more: Any) -> dict[str, Any]:
    """The settings of a training, as a record has them."""
    names = ("steps", "batch", "length", "rate", "warmup", "decay", "clip", "corpus")
    initialised = {
        "vocabulary": 512,
        "initial_spread": "0.02 · √(768 / width)",
        "residual_branches_scaled_by_depth": True,
    }
    return {name: getattr(settings, name) for name in names} | initialised | more


def extent(scale: Scale) -> dict[str, Any]:
    """The size of a training's measurements: the points of its curve, and the held-out documents at the end."""
    return scale.pick(dict(points=10, documents=800), dict(points=2, documents=32))


def loss_of(trained: Trained, **numbers: float) -> Result:
    """The held-out loss of a training and its curve, with other numbers of it."""
    return Result({"loss": trained.loss} | numbers, {"loss": trained.curve})


def trains(
    name: str,
    scale: Scale,
    recipe: Callable[[], Model],
    settings: TrainingSettings,
    values: Mapping[str, float | str],
    *,
    series: str = "",
    measure: Callable[[Trained], Result] = loss_of,
    depth_scaled: bool = True,
) -> Arm:
    """An arm that trains a recipe and measures it; `depth_scaled` as in `zoo_lab.training.trained`."""

    def run(trial: Trial) -> Result:
        options = extent(scale)
        return measure(training.trained(recipe(), settings, trial, depth_scaled=depth_scaled, **options))

    return Arm(name, run, values, series)
