"""Tables of `zoo bench` records: medians, with the lowest and the highest of the runs they are the medians of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, Any]  # of one engine: the median of each metric by its name, and its "runs"


def level(runs: int) -> str:
    """How often the range of so many runs holds the median of all: an order statistic, whatever the distribution."""
    return f"{100 * (1 - 2 * 0.5**runs):.0f} %"


def value(figures: Figures, name: str, unit: str) -> str:
    """A metric with its unit and the range of its runs: "1.2 s (1.1–1.4)", "1.1 s (980 ms–1.2 s)".

    Alone are counts and bytes, which are nearly the same in each run, and numbers whose runs are not on record.
    """
    from zoo_bench.command import format_value

    found = figures.get(name)
    text = format_value(found, unit)
    if found is None or not unit or unit == "bytes" or "runs" not in figures:
        return text
    runs = [run[name] for run in figures["runs"] if run.get(name) is not None]
    if len(runs) < 2:
        return f"{text} (one run)"
    low, high = (format_value(end, unit) for end in (min(runs), max(runs)))
    if len({one.partition(" ")[2] for one in (text, low, high)}) == 1:
        low, high = (one.partition(" ")[0] for one in (low, high))
    return f"{text} ({low}–{high})"


def ratio(own: Figures, other: Figures, name: str) -> str:
    """The zoo's median divided by another engine's, with the range of the same quotient in each round."""
    mine, theirs = own.get(name), other.get(name)
    if not mine or not theirs:
        return "–"
    pairs = zip(own.get("runs", ()), other.get("runs", ()), strict=False)
    rounds = [one[name] / two[name] for one, two in pairs if one.get(name) and two.get(name)]
    text = f"{mine / theirs:.2f} ×"
    return f"{text} ({min(rounds):.2f}–{max(rounds):.2f})" if len(rounds) > 1 else f"{text} (one run)"


def quotient(figures: Figures, name: str, by: str) -> str:
    """One metric divided by another of the same runs, with the range over the runs."""
    rounds = [run[name] / run[by] for run in figures["runs"]]
    text = f"{figures[name] / figures[by]:.1f}"
    return f"{text} ({min(rounds):.1f}–{max(rounds):.1f})" if len(rounds) > 1 else f"{text} (one run)"


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """A record as the rows of a table, its head first: the metrics, a column an engine, and the zoo's divided by theirs.

    The zoo's rates have their share of the machine's limit with them, where that is known.
    """
    from zoo_bench.benchmark import share
    from zoo_bench.workloads import METRICS

    engines = found["engines"]
    own, peers = engines["zoo"], [name for name in engines if name != "zoo"]
    lines = [["", "zoo", *(head for peer in peers for head in (peer, f"zoo / {peer}"))]]
    for one in METRICS:
        if all(figures.get(one.name) is None for figures in engines.values()):
            continue
        part = share(dict(found), one)
        cells = [value(own, one.name, one.unit) + (f", {part:.0%}" if part else "")]
        for peer in peers:
            cells += [value(engines[peer], one.name, one.unit), ratio(own, engines[peer], one.name)]
        lines.append([one.label, *cells])
    return lines
