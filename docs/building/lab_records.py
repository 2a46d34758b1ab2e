"""What the lab measured, in words, from the committed records of docs/records/lab. Needs no Sphinx."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from building.build_cache import DOCS
from building.lab_words import word

WORDS = re.compile(
    r"(?P<what>.+? )?(?P<mean>[+−]?[\d.e-]+) (?P<unit>[^,\d]+), "
    r"interval (?P<low>\S+) to (?P<high>\S+), (?P<runs>\d+) runs"
)


@cache
def record(name: str) -> Any:
    """The record of an experiment."""
    from zoo_lab.report import read

    return read(DOCS / "records" / "lab" / f"{name}.json")


def finding(name: str, number: int, verdict: str) -> str:
    """What was measured for a claim of an experiment, in words; claims count from 1.

    Raises ValueError when the verdict is another one, so that no page says what a new record does not show.
    """
    from zoo_lab.report import findings

    found = findings(record(name))[number - 1]
    if found.verdict != verdict:
        raise ValueError(f"{name}: {found.claim.text}: {found.verdict}, not {verdict}")
    return found.words


def difference(name: str, arm: str, other: str, metric: str, language: str = "en") -> str:
    """The difference of two arms of an experiment with its interval, in words, where no claim was made about it."""
    from zoo_lab.plan import Claim
    from zoo_lab.report import measured

    words = measured(record(name), Claim("", metric, {arm: 1, other: -1}, "near"))
    return in_chinese(words) if language == "zh" else words


def mean(name: str, arm: str, metric: str) -> str:
    """The mean of a metric of an arm with half its interval: "1.234 ± 0.012"."""
    from zoo_lab.report import text_of

    return text_of(record(name).interval(arm, metric))


def in_chinese(words: str) -> str:
    """The words of a finding in Chinese."""
    found = WORDS.fullmatch(words)
    if found is None:
        raise ValueError(f"no Chinese for: {words}")
    what = "相差" if found["what"] == "difference " else "为"
    space = "" if found["unit"] == "%" else " "
    unit, low, high, runs = word(found["unit"], "zh"), found["low"], found["high"], found["runs"]
    return f"{what} {found['mean']}{space}{unit}，区间 {low} 至 {high}，{runs} 次运行"


def at_step(name: str, arm: str, curve: str, place: int) -> str:
    """The mean of a curve of an arm over its runs at its point `place`, with half its interval; −1 is the last point."""
    from zoo.inspect.interval import interval
    from zoo_lab.report import text_of

    return text_of(interval([run.curves[curve][place][1] for run in record(name).runs if run.arm == arm]))


def span(values: Sequence[float], digits: int) -> str:
    """The least and the largest of values: "1.5 – 2.0"."""
    return f"{min(values):.{digits}f}–{max(values):.{digits}f}"
