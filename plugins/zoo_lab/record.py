"""The record of an experiment: how it was planned, and every run of it. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zoo.inspect.interval import Interval, interval
from zoo_lab.plan import Chart, Claim, Curve, Metric

POINTS = 100  # of a curve at most
DIGITS = 6  # significant ones of a number that is kept


@dataclass(frozen=True)
class RunRecord:
    """One run: its arm and seed, what it measured, the seconds it took, and the machine's load as it began.

    `load` is the mean number of processes that ran or waited in the minute before. `failed` is why nothing was measured.
    """

    arm: str
    seed: int
    numbers: Mapping[str, float]
    curves: Mapping[str, list[list[float]]]
    seconds: float
    load: float | None = None
    failed: str | None = None


@dataclass(frozen=True)
class ArmRecord:
    """An arm: its name, the values that tell it from the others, and the series it is drawn in."""

    name: str
    values: Mapping[str, float | str] = field(default_factory=dict)
    series: str = ""

    @property
    def line(self) -> str:
        """The name of the line that it is a part of."""
        return self.series or self.name


@dataclass
class ExperimentRecord:
    """An experiment as it was planned, and its runs so far. `seeds` is the number of runs an arm is to have.

    `settings` says how it was run, `versions` by which software and machine.
    """

    experiment: str
    question: str
    expected: str
    references: tuple[str, ...]
    arms: tuple[ArmRecord, ...]
    metrics: tuple[Metric, ...]
    curves: tuple[Curve, ...]
    charts: tuple[Chart, ...]
    claims: tuple[Claim, ...]
    settings: Mapping[str, Any]
    repeated: str
    paired: bool
    seeds: int
    versions: Mapping[str, str]
    runs: list[RunRecord] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The seconds that all runs took."""
        return sum(run.seconds for run in self.runs)

    @property
    def complete(self) -> bool:
        """Whether every arm was run with every seed."""
        return len(self.runs) >= self.seeds * len(self.arms)

    def metric(self, name: str) -> Metric:
        """The metric of that name."""
        return next(metric for metric in self.metrics if metric.name == name)

    def values(self, arm: str, metric: str) -> list[float]:
        """The values of a metric in the runs of an arm, in the order of their seeds. Failed runs have none."""
        runs = sorted((run for run in self.runs if run.arm == arm), key=lambda run: run.seed)
        return [run.numbers[metric] for run in runs if metric in run.numbers]

    def interval(self, arm: str, metric: str) -> Interval | None:
        """The mean of an arm's metric and its interval, None where it was not measured."""
        values = self.values(arm, metric)
        return interval(values) if values else None

    def failures(self, arm: str) -> int:
        """The number of failed runs of an arm."""
        return sum(run.arm == arm and run.failed is not None for run in self.runs)

    def same_design(self, other: ExperimentRecord) -> bool:
        """Whether runs of the other are runs of this: the same arms, metrics and settings on the same software."""
        names = ("experiment", "arms", "metrics", "curves", "settings", "versions")
        return all(plain(getattr(self, name)) == plain(getattr(other, name)) for name in names)


def file_name(experiment: str) -> str:
    """The name of an experiment's files, without their suffix."""
    return experiment.replace("::", "-")


def rounded(value: Any) -> Any:
    """A float rounded to `DIGITS` significant digits; any other value as it is."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def thinned(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """At most `POINTS` of the points, evenly spaced, the first and the last among them."""
    if len(points) > POINTS:
        last = len(points) - 1
        points = [points[round(index * last / (POINTS - 1))] for index in range(POINTS)]
    return [[rounded(float(value)) for value in point] for point in points]


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(asdict(value)) if hasattr(value, "__dataclass_fields__") else value
