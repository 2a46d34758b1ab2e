"""What docs/records/tuning/example.json says of the models that were tuned, for docs/guides/tune.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from figures.records import RECORDS, record, table

EXAMPLE = record("tuning/example.json")  # written by tools/tuning_example.py
WIDEST = 90  # characters of an answer that are shown

Answer = Mapping[str, str]


def examples(name: str) -> list[dict[str, Any]]:
    """The lines of a data file of docs/guides/examples."""
    text = (RECORDS.parent / "guides" / "examples" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def answers(found: Sequence[Answer], heads: Sequence[str] = ("", "before", "after")) -> None:
    """Print a table of questions with the answers before and after."""
    rows = [[one["question"], code(one["before"]), code(one["after"])] for one in found]
    print("|", " | ".join(heads), "|")
    print("| --- | --- | --- |")
    for row in rows:
        print("|", " | ".join(row), "|")


def code(text: str) -> str:
    """A text in one line as code of Markdown, its end left out where it is long."""
    line = " ".join(text.split()).replace("|", "¦").replace("`", "'")
    return f"`{line[: WIDEST - 1]}…`" if len(line) > WIDEST else f"`{line}`"


def equal(found: Sequence[Answer], when: str = "after") -> str:
    """How many answers are exactly those expected, of how many."""
    return f"{sum(one[when] == one['expected'] for one in found)} of {len(found)}"


def containing(found: Sequence[Answer], when: str = "after") -> str:
    """How many answers contain the word expected, of how many."""
    return f"{sum(one['expected'].lower() in one[when].lower() for one in found)} of {len(found)}"


def as_json(found: Sequence[Answer], when: str = "after") -> str:
    """How many answers are JSON objects with the keys of the catalogue, of how many."""
    keys = ["product", "kind", "colour", "price"]
    return f"{sum(list(fields(one[when])) == keys for one in found)} of {len(found)}"


def fields(text: str) -> dict[str, Any]:
    """The JSON object that a text is; empty where it is none."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def losses(
    names: Mapping[str, str],
    heads: Sequence[str] = ("", "held-out loss before", "after", "steps", "trained parameters"),
) -> None:
    """Print a table of the runs called `names`: the held-out loss before and after, steps, and trained parameters."""
    rows = []
    for name, said in names.items():
        one = EXAMPLE[name]
        trained = one["training"]
        rows.append(
            [
                said,
                f"{one['before']:.2f}",
                f"{trained['validation'][-1][1]:.2f}",
                str(trained["settings"]["steps"]),
                f"{trained['parameters']:,}",
            ]
        )
    table(heads, rows)
