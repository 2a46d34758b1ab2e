"""Records of experiments as JSON files, with the intervals and conclusions that follow from the runs. Imports no mlx."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.files.reading import read_object_at
from zoo.files.writing import write_output
from zoo_lab.plan import Chart, Claim, Curve, Metric
from zoo_lab.record import ArmRecord, ExperimentRecord, RunRecord, file_name, plain, rounded
from zoo_lab.report import conclusion, findings, method

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
    own = plain(record)
    runs = own.pop("runs")
    return {
        "zoo_lab": FORMAT,
        **own,
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


def save(record: ExperimentRecord, path: Path) -> None:
    """Write it as JSON, whole or not at all, over whatever is there. ZooError when it cannot be written."""
    write_output(path, f"{_dumped(as_json(record))}\n".encode(), overwrite=True)


def read(path: Path) -> ExperimentRecord:
    """The record in a JSON file; ZooError for a file that holds none."""
    found = read_object_at(path.resolve(), ZooError, required=True)
    if found.get("zoo_lab") != FORMAT:
        raise ZooError(f"{path}: is no record of an experiment that this zoo reads")
    try:
        parts = {field.name: found[field.name] for field in fields(ExperimentRecord)}
        for chart in parts["charts"]:
            chart["mark"] = tuple(chart["mark"]) if chart.get("mark") else None
        for name, kind in PARTS.items():
            parts[name] = tuple(kind(**item) for item in parts[name])
        parts |= {"references": tuple(parts["references"]), "runs": list(parts["runs"])}
        record = ExperimentRecord(**parts)
        as_json(record)  # refuses what only seems to be one
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise ZooError(f"{path}: the record is damaged ({type(error).__name__}: {error})") from error
    return record


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
