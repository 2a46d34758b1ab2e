"""Where classes and functions of this repository stand, and their source. Needs no Sphinx."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from building.build_cache import ROOT


@cache
def place_of(target: Any) -> tuple[Path, int]:
    """Where a class or function is: its file from the root, and its first line. ValueError for one that is not the zoo's."""
    path = Path(inspect.getsourcefile(target) or "").resolve()
    if not path.is_relative_to(ROOT):
        raise ValueError(f"{target} is not in this repository")
    return path.relative_to(ROOT), inspect.getsourcelines(target)[1]


def found_by_name(name: str) -> Any:
    """What "zoo.blocks.attention:Attention" names; a method may follow: "…:Attention.__call__"."""
    module, _, attribute = name.partition(":")
    found: Any = import_module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found


def source_of(name: str) -> str:
    """The source of what `found_by_name` finds; of a method below the line that begins its class, as it stands there."""
    source = inspect.getsource(found_by_name(name))
    if source[0] != " ":
        return source.rstrip()
    owner = found_by_name(name.rpartition(".")[0])
    head = next(line for line in inspect.getsource(owner).splitlines() if line.startswith("class "))
    return f"{head}\n{source.rstrip()}"
