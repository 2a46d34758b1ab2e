"""The plan of an experiment: its arms, metrics, charts, and the claims made beforehand.

Imports no mlx, so that a record can be read and drawn where nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zoo.errors import PluginError, ZooError

EXPECTATIONS = ("below", "above", "near")
CHARTS = ("curves", "points", "dots")


@dataclass(frozen=True)
class Scale:
    """The size of an experiment: the `steps` of training that a person asks for, and whether it is `quick`.

    A quick one takes seconds and shows that everything runs; its numbers say nothing.
    """

    steps: int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ZooError(f"`steps` must be at least 1, got {self.steps}")

    def training(self, default: int) -> int:
        """The steps of a training that has `default` of them unless asked otherwise."""
        return self.steps or (12 if self.quick else default)

    def pick(self, whole: Any, quick: Any) -> Any:
        """One of two values: of the whole experiment, or of a quick one."""
        return quick if self.quick else whole


@dataclass(frozen=True)
class Trial:
    """One run of one arm: its seed, from 0, and how it reports what is done of it."""

    seed: int
    report: Callable[[int, int], None] = field(default_factory=lambda: lambda done, total: None, repr=False)


@dataclass(frozen=True)
class Result:
    """The measurements of a run: numbers by the name of their metric, and points [x, y] by the name of their curve."""

    numbers: Mapping[str, float]
    curves: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """One thing that is compared: `run` is called with a `Trial` and returns a `Result`.

    `values` are what tells it from the others, such as {"layers": 6}; a chart has them on its axes and panels. Arms of
    one `series` (default: each its own) are drawn as one line.
    """

    name: str
    run: Callable[[Trial], Result] = field(repr=False)
    values: Mapping[str, float | str] = field(default_factory=dict)
    series: str = ""


@dataclass(frozen=True)
class Metric:
    """A number that every run gives. `better` is "lower", "higher", or "" where neither is."""

    name: str
    label: str
    unit: str = ""
    better: str = ""

    @property
    def axis(self) -> str:
        """The label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Curve:
    """Numbers along something: steps of training, positions in a text. `along` labels the x axis."""

    name: str
    label: str
    along: str
    unit: str = ""
    along_unit: str = ""

    @property
    def axis(self) -> str:
        """The label of the y axis, with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def along_axis(self) -> str:
        """The label of the x axis, with its unit."""
        return f"{self.along} ({self.along_unit})" if self.along_unit else self.along


@dataclass(frozen=True)
class Chart:
    """A figure of the record: all series, means over the seeds, with their intervals.

    `kind` "curves": the curve `y`, one line an arm. "points": the metric `y` against `x`, a metric or a value of the
    arms, a line a series. "dots": the metric `y`, one row an arm, each run a faint dot. `panel` is the value of the arms
    by which the figure is parted; `labels` writes the arms' names beside their points. `mark` draws a line at an x, with
    a text.
    """

    name: str
    kind: str
    y: str
    x: str = ""
    panel: str = ""
    log_x: bool = False
    log_y: bool = False
    labels: bool = False
    mark: tuple[float, str] | None = None


@dataclass(frozen=True)
class Claim:
    """An expectation about a metric, stated before anything is run.

    `contrast` gives each arm in it a weight: their weighted sum of means is expected "below" or "above" `margin`, or
    "near" 0 by at most `margin`. {"a": 1, "b": -1} is the difference of two arms.
    """

    text: str
    metric: str
    contrast: Mapping[str, float]
    expect: str
    margin: float = 0.0


def lower(text: str, arm: str, than: str, metric: str) -> Claim:
    """The claim that the metric of `arm` is lower than that of `than`."""
    return Claim(text, metric, {arm: 1, than: -1}, "below")


def higher(text: str, arm: str, than: str, metric: str) -> Claim:
    """The claim that the metric of `arm` is higher than that of `than`."""
    return Claim(text, metric, {arm: 1, than: -1}, "above")


def near(text: str, arm: str, other: str, metric: str, margin: float) -> Claim:
    """The claim that the metrics of two arms differ by at most `margin`."""
    return Claim(text, metric, {arm: 1, other: -1}, "near", margin)


@dataclass(frozen=True)
class Plan:
    """The arms that an experiment runs, and what is measured, drawn and claimed of them.

    `settings` is what the record says about how it was run. `repeated` says in a word or two what differs between the
    runs of one arm: their seeds, unless it is something else, such as a part of a text. With `paired`, runs of one
    number see the same data in each arm, and arms are compared run by run.
    """

    arms: tuple[Arm, ...]
    metrics: tuple[Metric, ...]
    curves: tuple[Curve, ...] = ()
    charts: tuple[Chart, ...] = ()
    claims: tuple[Claim, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    repeated: str = "seed"
    paired: bool = False

    def check(self, label: str) -> None:
        """PluginError, beginning with `label`, for names that do not fit together."""
        arms, metrics, curves = (_names(label, items) for items in (self.arms, self.metrics, self.curves))
        _names(label, self.charts)
        if not arms or not metrics:
            raise PluginError(f"{label}: a plan has at least one arm and one metric")
        values = set().union(*(arm.values for arm in self.arms))
        if both := sorted(values & metrics):
            raise PluginError(
                f"{label}: {both[0]!r} is a metric and a value of the arms: a chart could mean either"
            )
        for chart in self.charts:
            where = f"{label}: chart {chart.name}"
            if chart.kind not in CHARTS:
                raise PluginError(f"{where}: {chart.kind!r} is not one of {', '.join(CHARTS)}")
            _check_known(where, chart.y, curves if chart.kind == "curves" else metrics)
            if chart.kind == "points":
                _check_known(where, chart.x, metrics | values)
            if chart.panel:
                _check_known(where, chart.panel, values)
        for claim in self.claims:
            where = f"{label}: claim {claim.text!r}"
            _check_known(where, claim.metric, metrics)
            for arm in claim.contrast:
                _check_known(where, arm, arms)
            if claim.expect not in EXPECTATIONS:
                raise PluginError(f"{where}: {claim.expect!r} is not one of {', '.join(EXPECTATIONS)}")


def _names(label: str, items: Iterable[Any]) -> set[str]:
    names = [item.name for item in items]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise PluginError(f"{label}: two are called {repeated!r}")
    return set(names)


def _check_known(label: str, name: str, known: set[str]) -> None:
    if name not in known:
        raise PluginError(f"{label}: {name!r} is not one of {', '.join(sorted(known)) or 'any'}")
