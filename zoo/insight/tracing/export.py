"""What a trace leaves in files: JSON, a page, one value as numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import SourceError
from zoo.files import write_text
from zoo.insight.tracing.result import Trace
from zoo.insight.tracing.view import TraceView


def check_writable(paths: Iterable[Path]) -> None:
    """SourceError for a file whose folder is not there, before anything is computed."""
    for path in paths:
        if not path.parent.is_dir():
            raise SourceError(f"{path}: cannot be written, there is no folder {path.parent}")
        if path.is_dir():
            raise SourceError(f"{path}: is a folder, where a file is to be written")


def write_html(view: TraceView, path: Path, language: str = "en") -> None:
    """Write the page of a view; SourceError when that cannot be."""
    from zoo.insight.tracing.page import page

    _write(path, page(view, language))


def write_json(values: dict[str, Any], target: str) -> None:
    """Write JSON to a file or, for "-", to the output; SourceError when that cannot be."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    if target == "-":
        sys.stdout.write(text + "\n")
    else:
        _write(Path(target), text + "\n")


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise SourceError(f"{path}: cannot be written ({error.strerror or error})") from error


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
    """One value with what is known of it, infinite numbers and NaN as null."""
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
