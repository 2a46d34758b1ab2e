"""Measure every embedded checkpoint on this machine, alike, and write the record that the docs show.

    python tools/measure_pockets.py [NAME …]

Held-out text in bits a byte, and speed: several runs, each in a process of its own, in turn, and their medians. With names only
these are measured, and the others stay in the record. The machine should do nothing else: the record says what its load was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.files.writing import write_text
from zoo.host.registry import default_registry
from zoo.inspect.measure import measure
from zoo.runtime import versions

RECORD = Path(__file__).parent.parent / "docs" / "records" / "pockets.json"
RUNS = 5
FIGURES = (
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "first_token_seconds",
    "peak_memory_bytes",
)


def pockets() -> list[str]:
    """The architectures that have an embedded checkpoint."""
    architectures = default_registry().architectures.items()
    return [
        name
        for name, architecture in architectures
        if any(preset.embedded for preset in architecture.presets)
    ]


def held_out_bits(name: str) -> float | None:
    """Bits a byte of the atlas' held-out documents; None for a checkpoint that gives no probability of a next token."""
    from zoo.loading import load
    from zoo_lab.experiments.common import bits_a_byte, held_out

    architecture = default_registry().architecture(name)
    if (architecture.task, architecture.causality) != ("generate", "causal"):
        return None
    return round(bits_a_byte(load(name, dtype="float32"), held_out()), 5)


def rounded(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """The figures in four digits after the point; None where a model does not do it."""
    return {key: None if figures[key] is None else round(figures[key], 4) for key in FIGURES}


def report(done: int, whole: int) -> None:
    """How far it is, on the error stream."""
    print(f"\r{done} of {whole} runs", end="" if done < whole else "\n", file=sys.stderr, flush=True)


def main(names: Sequence[str]) -> None:
    """Measure the checkpoints named, or all, and write the record."""
    chosen = list(names) or pockets()
    old: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if names and RECORD.is_file() else {}
    before = os.getloadavg()[0]
    taken = measure(
        chosen, prompt_tokens=old.get("tokens"), new_tokens=old.get("new"), runs=RUNS, report=report
    )
    after = os.getloadavg()[0]
    figures = old.get("pockets", {}) | {
        measured.source: {"bits_per_byte": held_out_bits(measured.source)}
        | rounded({key: getattr(measured, key) for key in FIGURES})
        | {"runs": [rounded(run) for run in measured.runs]}
        for measured in taken
    }
    record = {
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
        "load": f"{before:.1f} – {after:.1f}",
        "runs": RUNS,
        "tokens": taken[0].prompt_tokens,
        "new": next((measured.new_tokens for measured in taken if measured.new_tokens), 0),
        "pockets": figures,
    }
    write_text(RECORD, json.dumps(record, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
