"""Operations, kernels and host time of one decode step of every family that mlx-lm has too, as on a GPU.

PYTHONPATH=plugins .venv-parity/bin/python -m tools.count_graphs docs/records/graph.json [FAMILY ...]

The models are small, random and in bfloat16. A family that is named replaces its row of the record; without names all are counted.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tests.parity.families import DECODERS, FAMILIES
from tests.parity.family import edit
from zoo.checkpoint.convert import convert
from zoo.compiled_step import compiled_step
from zoo.runtime import versions
from zoo_bench.engine import Job, Lengths
from zoo_bench.engines import ENGINES, ZooDecoder
from zoo_bench.graph import graph, pretend_gpu

ROUNDS = 5  # in which the engines take turns; the host's time is the shortest
MORE = {
    "mamba2": dict(intermediate_size=64)
}  # what mlx-lm asks of configs that the comparisons do not give it
# What mlx-lm cannot read of a family's first variant.
CHANGES: dict[str, dict[str, Any]] = {
    "mamba2": {},
    "falcon-h1": dict(attention_in_multiplier=1.0, mamba_d_head=6, head_dim=8),
}
KEPT = ("operations", "kernels")


def counted(name: str, folder: Path) -> dict[str, Any]:
    """The counts of both engines on a small model of a family."""
    model = FAMILIES[name].make(CHANGES.get(name, 0), wide=name not in CHANGES)
    model.to(torch.bfloat16).save_pretrained(folder / "hf")
    convert(folder / "hf", folder / "mlx")
    edit(folder / "mlx", lambda config: config | (FAMILIES[name].mlx or {}) | MORE.get(name, {}))
    job = Job(str(folder / "mlx"), ["graph"], Lengths())
    engines = {engine: ENGINES[engine](job) for engine in ("zoo", "mlx-lm")}
    runs = [{engine: graph(loaded) for engine, loaded in engines.items()} for _ in range(ROUNDS)]
    row: dict[str, Any] = {
        engine: {key: runs[0][engine][key] for key in KEPT}
        | {"graph_seconds": min(run[engine]["graph_seconds"] for run in runs)}
        for engine in engines
    }
    own = engines["zoo"]
    assert isinstance(own, ZooDecoder)
    return row | {"compiled": compiled_step(own.loaded.model) is not None}


def main(path: str, *names: str) -> None:
    """Write the record, and print it."""
    pretend_gpu()
    file = Path(path)
    rows = json.loads(file.read_text(encoding="utf-8"))["families"] if names and file.exists() else {}
    for name in names or DECODERS:
        with TemporaryDirectory() as folder:
            try:
                rows[name] = counted(name, Path(folder))
            except Exception as error:  # mlx-lm does not have it, or not in this shape
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
        own, other = rows[name]["zoo"], rows[name]["mlx-lm"]
        ratios = "  ".join(f"{key} {own[key] / other[key]:.2f}" for key in own)
        print(f"{name:16} {ratios}  {own['kernels']}/{other['kernels']} compiled {rows[name]['compiled']}")
    record = {"families": dict(sorted(rows.items())), "versions": versions() | {"mlx-lm": _version()}}
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _version() -> str:
    return str(import_module("mlx_lm").__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
