"""Records of experiments as JSON files, with the intervals and conclusions that follow from the runs. Imports no mlx."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from zoo.errors import ZooError
from zoo.files.reading import read_object_at
from zoo.files.writing import write_output
from zoo_lab.conclusion import conclusion, findings, method
from zoo_lab.plan import Chart, Claim, Curve, Metric
from zoo_lab.record import ArmRecord, ExperimentRecord, RunRecord, plain, rounded

FORMAT = 1

Part = TypeVar("Part")


def as_json(record: ExperimentRecord) -> dict[str, Any]:
    """All of a record, with the intervals and the conclusion that follow from the runs."""
    own = {f.name: plain(getattr(record, f.name)) for f in fields(record)}
    runs = own.pop("runs")
    return (
        {"zoo_lab": FORMAT}
        | own
        | {
            "complete": record.complete,
            "seconds": round(record.seconds, 1),
            "method": method(record),
            "conclusion": conclusion(record),
            "findings": [finding.as_json() for finding in findings(record)],
            "summary": [
                {"arm": arm.name, "metric": metric.name, "unit": metric.unit}
                | {key: rounded(value) for key, value in asdict(found).items()}
                for arm in record.arms
                for metric in record.metrics
                if (found := record.interval(arm.name, metric.name)) is not None
            ],
            "runs": runs,
        }
    )


def save(record: ExperimentRecord, path: Path) -> None:
    """Write it as JSON, whole or not at all, over whatever is there. ZooError when it cannot be written."""
    write_output(path, f"{_dumped(as_json(record))}\n".encode(), overwrite=True)


def read(path: Path) -> ExperimentRecord:
    """The record in a JSON file; ZooError for a file that holds none."""
    found = read_object_at(path.resolve(), ZooError, required=True)
    if found.get("zoo_lab") != FORMAT:
        raise ZooError(f"{path}: is no record of an experiment that this zoo reads")
    try:
        charts = [
            chart | {"mark": tuple(chart["mark"]) if chart.get("mark") else None} for chart in found["charts"]
        ]
        record = ExperimentRecord(
            **{name: found[name] for name in ("experiment", "question", "expected", "settings", "repeated")},
            **{name: found[name] for name in ("paired", "seeds", "versions")},
            references=tuple(found["references"]),
            arms=_each(ArmRecord, found["arms"]),
            metrics=_each(Metric, found["metrics"]),
            curves=_each(Curve, found["curves"]),
            charts=_each(Chart, charts),
            claims=_each(Claim, found["claims"]),
            runs=list(_each(RunRecord, found["runs"])),
        )
        as_json(record)  # refuses what only seems to be one
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ZooError(f"{path}: the record is damaged ({type(error).__name__}: {error})") from error
    return record


def _each(kind: type[Part], items: Iterable[Mapping[str, Any]]) -> tuple[Part, ...]:
    return tuple(kind(**item) for item in items)


def _dumped(values: dict[str, Any]) -> str:
    """JSON with a line for each run, arm and finding: short, and readable where it differs."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    parts = []
    for key, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n  ".join(line(item) for item in value)
            parts.append(f" {line(key)}: [\n  {items}\n ]")
        else:
            parts.append(f" {line(key)}: {line(value)}")
    return "{\n" + ",\n".join(parts) + "\n}"
