"""Writes an experiment's record as a JSON file and as text: verdicts on claims, a conclusion, a table of the arms.

All of it is computed from the record's numbers, and the file has the intervals and the conclusion too. Imports no mlx.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from zoo.errors import ZooError, pluralize
from zoo.files.reading import read_object_at
from zoo.files.writing import write_output
from zoo.inspect.interval import LEVEL, Interval, contrast
from zoo_lab.plan import Chart, Claim, Curve, Metric
from zoo_lab.record import (
    ArmRecord,
    ExperimentRecord,
    RunRecord,
    file_name,
    plain,
    rounded,
)

SEEN, CONTRARY, NOT_SHOWN, NOT_MEASURED = "seen", "contrary", "not shown", "not measured"
SAID = {
    CONTRARY: "Contradicted",
    NOT_SHOWN: "Not shown",
    NOT_MEASURED: "Not measured",
}
POINTS = "percentage points"  # the unit of a difference of percentages


@dataclass(frozen=True)
class Finding:
    """A claim with its verdict, the interval of its contrast (None: not measured), and all of it in words."""

    claim: Claim
    verdict: str
    value: Interval | None
    words: str

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        value = None if self.value is None else _interval_values(self.value)
        return {"claim": self.claim.text, "verdict": self.verdict, "contrast": value, "words": self.words}


def _interval_values(found: Interval) -> dict[str, Any]:
    """A mean over runs with its interval, as JSON values."""
    bounds = {"mean": found.value, "low": found.low, "high": found.high}
    return {key: rounded(value) for key, value in bounds.items()} | {"runs": found.count}


def findings(record: ExperimentRecord) -> list[Finding]:
    """The verdict on each claim, in their order."""
    return [_finding(record, claim) for claim in record.claims]


def _finding(record: ExperimentRecord, claim: Claim) -> Finding:
    arms = [(weight, record.values(arm, claim.metric)) for arm, weight in claim.contrast.items()]
    unequal = record.paired and len({len(values) for _, values in arms}) > 1
    if unequal or not all(values for _, values in arms):
        failed = ", ".join(
            f"{count} of {record.seeds} runs of {arm} failed"
            for arm in claim.contrast
            if (count := record.failures(arm))
        )
        return Finding(claim, NOT_MEASURED, None, failed or "runs of some arms gave no such number")
    value = contrast(arms, record.paired)
    return Finding(claim, _verdict(claim, value), value, _words(record, claim, value))


def measured(record: ExperimentRecord, claim: Claim) -> str:
    """What was measured for a claim, in words."""
    return _finding(record, claim).words


def _verdict(claim: Claim, value: Interval) -> str:
    """SEEN when the whole interval lies where the claim says, CONTRARY when none of it does, else NOT_SHOWN."""
    low, high, margin = value.low, value.high, claim.margin
    if low is None or high is None:
        return NOT_SHOWN
    if claim.expect == "near":
        inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
    elif claim.expect == "above":
        inside, outside = low > margin, high < margin
    else:
        inside, outside = high < margin, low > margin
    return SEEN if inside else CONTRARY if outside else NOT_SHOWN


def _words(record: ExperimentRecord, claim: Claim, value: Interval) -> str:
    signed = sum(claim.contrast.values()) == 0
    unit = record.metric(claim.metric).unit
    unit = POINTS if signed and unit == "%" else unit
    what = "difference" if signed else record.metric(claim.metric).label
    text = f"{what} {number(value.value, signed)}{f' {unit}' if unit else ''}"
    if value.low is None or value.high is None:
        return f"{text}; one run gives no interval"
    return f"{text}, interval {number(value.low, signed)} to {number(value.high, signed)}, {pluralize(value.count, 'run')}"


def number(value: float, signed: bool = False) -> str:
    """A number in three digits, with a true minus; `signed` writes a plus, too."""
    size = abs(value)
    text = f"{size:,.0f}" if size >= 1000 else f"{size:.3g}" if size >= 0.001 or size == 0 else f"{size:.1e}"
    return ("−" if value < 0 else "+" if signed and value > 0 else "") + text


def conclusion(record: ExperimentRecord) -> str:
    """In a sentence or two, how many of the claims were seen, and which were not."""
    if record.settings.get("quick"):
        return "A quick run: it shows that everything runs, and nothing about the question."
    judged = findings(record)
    if not judged:
        return "Nothing was claimed beforehand: the numbers are shown as they are."
    if not record.complete:
        return f"Not finished: {len(record.runs)} of {pluralize(record.seeds * len(record.arms), 'run')}."
    if {finding.verdict for finding in judged} <= {NOT_SHOWN, NOT_MEASURED}:
        return (
            "It showed nothing: no claim's interval lies wholly on the side that it expects, or on the other."
        )
    parts = [f"Claims seen: {sum(finding.verdict == SEEN for finding in judged)} of {len(judged)}."]
    for verdict, said in SAID.items():
        if texts := [finding.claim.text for finding in judged if finding.verdict == verdict]:
            parts.append(f"{said}: {'; '.join(texts)}.")
    return " ".join(parts)


def method(record: ExperimentRecord) -> str:
    """A paragraph on how means, intervals and verdicts were made."""
    compared = (
        f"Arms are compared run by run, since runs of one {record.repeated} saw the same data."
        if record.paired
        else "Differences of arms have the degrees of freedom of Welch and Satterthwaite."
    )
    return (
        f"Each arm has {pluralize(record.seeds, 'run')}, which differ by {record.repeated}. Numbers are means with Student's "
        f"{100 * LEVEL:.0f} % intervals; a number without one was the same in all runs. {compared} A claim is seen when the "
        "whole interval lies where it says, contradicted when none of it does, and otherwise not shown. Each claim is judged "
        "by itself: no correction is made for their number."
    )


def rows(record: ExperimentRecord) -> list[list[str]]:
    """A table of the arms: a head, then each arm with the mean of each metric and half its interval."""
    head = ["arm", *(metric.axis for metric in record.metrics)]
    body = []
    for arm in record.arms:
        failed = record.failures(arm.name)
        cells = [text_of(record.interval(arm.name, metric.name)) for metric in record.metrics]
        body.append([f"{arm.name} ({failed} failed)" if failed else arm.name, *cells])
    return [head, *body]


def text_of(found: Interval | None) -> str:
    """A mean with half its interval: "1.234 ± 0.012"; "–" where nothing was measured."""
    if found is None:
        return "–"
    if found.low is None or found.high is None or found.high == found.low:
        return number(found.value)
    half = (found.high - found.low) / 2
    places = min(max(1 - math.floor(math.log10(half)), 0), 9)  # two digits of what is uncertain
    if half >= 1000 or half < 1e-6:
        return f"{number(found.value)} ± {number(half)}"
    return f"{found.value:.{places}f} ± {half:.{places}f}".replace("-", "−")


def axes_text(record: ExperimentRecord, chart: Chart) -> str:
    """The axes of a figure, in words."""
    if chart.kind == "curves":
        curve = next(curve for curve in record.curves if curve.name == chart.y)
        return f"{curve.axis} against {curve.along}, a line an arm"
    axis = record.metric(chart.y).axis
    if chart.kind == "dots":
        return f"{axis} of each arm"
    names = {metric.name: metric.axis for metric in record.metrics}
    return f"{axis} against {names.get(chart.x, chart.x)}"


FORMAT = 1

# The records that a list in the file holds.
PARTS: dict[str, type] = {
    "arms": ArmRecord,
    "metrics": Metric,
    "curves": Curve,
    "charts": Chart,
    "claims": Claim,
    "runs": RunRecord,
}


def record_path(name: str, out: Path) -> Path:
    """The path of an experiment's record."""
    return out / f"{file_name(name)}.json"


def as_json(record: ExperimentRecord) -> dict[str, Any]:
    """All of a record, with the intervals and the conclusion that follow from the runs."""
    values = plain(record)
    runs = values.pop("runs")
    return {
        "zoo_lab": FORMAT,
        **values,
        "complete": record.complete,
        "seconds": round(record.seconds, 1),
        "method": method(record),
        "conclusion": conclusion(record),
        "findings": [finding.as_json() for finding in findings(record)],
        "summary": [
            {"arm": arm.name, "metric": metric.name, "unit": metric.unit} | _interval_values(found)
            for arm in record.arms
            for metric in record.metrics
            if (found := record.interval(arm.name, metric.name)) is not None
        ],
        "runs": runs,
    }


def save(record: ExperimentRecord, path: Path) -> None:
    """Write a record as JSON, whole or not at all, in the place of an older one. ZooError when it cannot be written."""
    write_output(path, f"{_dump(as_json(record))}\n".encode(), overwrite=True)


def read(path: Path) -> ExperimentRecord:
    """The record in a JSON file; ZooError for a file without one."""
    values = read_object_at(path.resolve(), ZooError, required=True)
    if values.get("zoo_lab") != FORMAT:
        raise ZooError(f"{path}: is not a record of an experiment that this zoo reads")
    try:
        parts = {field.name: values[field.name] for field in fields(ExperimentRecord)}
        for chart in parts["charts"]:
            chart["mark"] = tuple(chart["mark"]) if chart.get("mark") else None
        for name, kind in PARTS.items():
            parts[name] = tuple(kind(**item) for item in parts[name])
        parts |= {"references": tuple(parts["references"]), "runs": list(parts["runs"])}
        record = ExperimentRecord(**parts)
        as_json(record)  # which fails where values do not fit together
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ZooError(f"{path}: the record is damaged ({type(error).__name__}: {error})") from error
    return record


def _dump(values: dict[str, Any]) -> str:
    """JSON with a line for each run, arm and finding: short, and readable where it differs."""
    line, parts = partial(json.dumps, ensure_ascii=False, allow_nan=False), []
    for key, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n  ".join(map(line, value))
            parts.append(f" {line(key)}: [\n  {items}\n ]")
        else:
            parts.append(f" {line(key)}: {line(value)}")
    return "{\n" + ",\n".join(parts) + "\n}"
