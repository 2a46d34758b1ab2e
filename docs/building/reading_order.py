"""The order in which pages are read, so that all processes end at about the same time.

Sphinx gives each process a run of pages, and another when it is done. Later runs are to take less time than earlier ones: then
no process has a long run left when the others have none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sphinx.util.parallel import make_chunks

COMMAND = re.compile(r"^<!-- console: ", re.MULTILINE)
PART = re.compile(r"^`{3,}\{|^<!-- \w+: |^!\[", re.MULTILINE)
START = 4  # parts that take as long as a command


def cost(text: str) -> int:
    """About how long a page takes to be read: by its commands, and the parts that are made for the site."""
    return 1 + START * len(COMMAND.findall(text)) + len(PART.findall(text))


def spread(costs: dict[str, int], sizes: Sequence[int]) -> list[str]:
    """The names in such an order that runs of these sizes cost the less the later they are; each begins with its dearest."""
    shares = range(len(sizes), 0, -1)
    runs: list[list[str]] = [[] for _ in sizes]
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        open_runs = [at for at, run in enumerate(runs) if len(run) < sizes[at]]
        least = min(
            open_runs, key=lambda at: (sum(costs[one] for one in runs[at]) + costs[name]) / shares[at]
        )
        runs[least].append(name)
    return [name for run in runs for name in run]


def order(app: Any, env: Any, names: list[str]) -> None:
    """Put the pages that are to be read in that order."""
    if app.parallel > 1:
        costs = {name: cost(Path(env.doc2path(name)).read_text(encoding="utf-8")) for name in names}
        names[:] = spread(costs, [len(run) for run in make_chunks(names, app.parallel)])


def setup(app: Any) -> None:
    """Order the pages."""
    app.connect("env-before-read-docs", order)
