"""Records of measurements, docs/records, as pages show them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from building.build_cache import DOCS

RECORDS = DOCS / "records"


def record(name: str) -> Any:
    """A record's content, None where it has not been made."""
    path = RECORDS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def machine(versions: Mapping[str, str]) -> str:
    """The machine and the versions of a record, in words."""
    return f"{versions['machine']}; mlx {versions['mlx']}, {versions['backend']}, {versions['blas']}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown, its first column of words, the others of numbers."""
    for line in (heads, ["---", *("---:" for _ in heads[1:])], *(map(in_whole_parts, row) for row in rows)):
        print("|", " | ".join(line), "|")


def in_whole_parts(cell: str) -> str:
    """A cell of numbers, "12 ms (11–14)", so that a line breaks only before a bracket or after a comma."""
    if not cell[:1].isdigit():
        return cell
    return re.sub(r"(?<!,) (?!\()", "\N{NO-BREAK SPACE}", cell).replace("–", "–\N{WORD JOINER}")


def console(command: Mapping[str, Any], first: int = 0, last: int | None = None) -> str:
    """A recorded command and the lines of its output from `first` to before `last`, as a block of Markdown."""
    lines = command["out"][first:last]
    before = ["…"] * (first > 0)
    after = ["…"] * (last is not None and last < len(command["out"]))
    return "\n".join(["```console", f"$ {command['line']}", *before, *lines, *after, "```"])
