"""The experiment on teacher forcing: errors along a text that a model reads, and along one that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import mlx.core as mx

from zoo.training.record import TrainingSettings
from zoo_lab import training
from zoo_lab.experiments.common import LOSS, extent, recorded, settings_of, small_llama
from zoo_lab.experiments.scheduled_sampling import errors_by_position, scheduled_sampling
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower
from zoo_lab.training import Trained

LENGTH, BUCKET = 64, 8  # tokens: of a row, and of one point of the curve
SHARE = 0.5  # of the tokens shown at the end of training, the model's own in the place of the true ones
GRAM = 4  # tokens of a run: its last is wrong where the corpus has the run without it, and not with it
DOCUMENTS = 10_000  # of the corpus, in which runs are looked up
TRAINED = {"teacher forcing": 0.0, "own tokens": SHARE}
READ = ("true text", "own text")


def teacher_forcing(scale: Scale) -> Plan:
    """Two ways to train, each measured on the text of the corpus and on text that the model writes itself."""
    settings = settings_of(scale, 500, length=LENGTH)
    arms = tuple(_arm(how, what, scale, settings) for how in TRAINED for what in READ)
    forced, free, own_forced, own_free = (arm.name for arm in arms)
    more = "A model trained by teacher forcing errs more on its own text than on true text"
    return Plan(
        arms=arms,
        metrics=(
            LOSS,
            Metric("errors", "wrong tokens", "%", "lower"),
            Metric("rise", "errors in the last quarter − in the first", "percentage points"),
        ),
        curves=(Curve("errors", "wrong tokens", "position in the text", "%", "tokens"),),
        charts=(Chart("position", "curves", "errors"), Chart("errors", "dots", "errors")),
        claims=(
            higher(more, free, forced, "errors"),
            Claim("Its errors become more along its own text", "rise", {free: 1}, "above"),
            lower("Training on own tokens lowers the errors on own text", own_free, free, "errors"),
            higher("It costs loss under teacher forcing", own_forced, forced, "loss"),
        ),
        settings=recorded(
            settings,
            own_tokens=f"a share that rises from 0 to {SHARE}",
            temperature=1.0,
            wrong=f"never in the corpus after the {GRAM - 1} tokens before it, which are there in a row",
        ),
    )


def _arm(how: str, what: str, scale: Scale, settings: TrainingSettings) -> Arm:
    """An arm that trains in one way and reads one kind of text."""

    def run(trial: Trial) -> Result:
        trained = _model(TRAINED[how], trial.seed, scale, settings)
        found = errors_by_position(
            trained.loaded,
            rows=scale.pick(96, 4),
            length=LENGTH,
            gram=GRAM,
            documents=scale.pick(DOCUMENTS, 200),
            free=what == "own text",
            seed=trial.seed,
        )
        return _result(trained.loss, found)

    return Arm(f"{how}, {what}", run, {"trained by": how, "read": what})


@lru_cache(maxsize=1)  # both readings of a training come one after the other
def _model(share: float, seed: int, scale: Scale, settings: TrainingSettings) -> Trained:
    """The model trained with a share of its own tokens."""
    mx.random.seed(seed)  # of the tokens that are drawn in training
    objective = scheduled_sampling(share, settings.steps) if share else None
    return training.trained(small_llama(), settings, Trial(seed), objective=objective, **extent(scale))


def _result(loss: float, found: Sequence[tuple[int, int]]) -> Result:
    """The numbers of errors and of tokens judged at each position, as a metric, its rise and a curve."""
    quarter = LENGTH // 4
    whole, first, last = (_share(part) for part in (found, found[:quarter], found[-quarter:]))
    numbers = {"loss": loss}
    if whole is not None:
        numbers["errors"] = whole
    if first is not None and last is not None:
        numbers["rise"] = last - first
    points = [
        [start + BUCKET // 2, share]
        for start in range(0, LENGTH, BUCKET)
        if (share := _share(found[start : start + BUCKET])) is not None
    ]
    return Result(numbers, {"errors": points})


def _share(found: Sequence[tuple[int, int]]) -> float | None:
    """The percentage of errors, None where nothing was judged."""
    judged = sum(count for _, count in found)
    return 100 * sum(errors for errors, _ in found) / judged if judged else None
