"""Writes a trace: as JSON, as a page, one value as numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zoo.files.writing import write_record
from zoo.inspect.tracing.traced_run import Trace


def write_json(values: dict[str, Any], target: str, overwrite: bool = False) -> None:
    """Write JSON to a file or, for "-", to standard output. SourceError when it cannot be written."""
    if target == "-":
        sys.stdout.write(json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        write_record(Path(target), values, overwrite, allow_nan=False)


def value_lines(trace: Trace, address: str) -> Iterator[str]:
    """One value as lines of numbers: the last axis along a line, an empty line between matrices."""
    value = trace[address]
    rows = value.reshape(-1, value.shape[-1]) if value.ndim else value.reshape(1, 1)
    height = value.shape[-2] if value.ndim > 1 else 1
    for number, row in enumerate(rows):
        if number and number % height == 0:
            yield ""
        yield " ".join(f"{x:.6g}" for x in row.tolist())


def value_json(trace: Trace, address: str) -> dict[str, Any]:
    """One value with its description; infinities and NaN are null."""
    value, about = trace[address], trace.about(address)
    finite = value
    if value.dtype.kind == "f":
        finite = value.astype(object)
        finite[~np.isfinite(value)] = None
    return {
        "address": address,
        "axes": about.axes.split()[1:],
        "shape": list(value.shape),
        "dtype": trace.dtype(address),
        "unit": about.unit,
        "summary": about.summary,
        "values": finite.tolist(),
    }
