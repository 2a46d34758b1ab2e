"""What the lab measured, in words, from the committed records of docs/records/lab. Needs no Sphinx."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from building.build_cache import DOCS

UNITS = {
    "nats a token": "纳特每词元",
    "bits a byte": "比特每字节",
    "percentage points": "百分点",
    "µs a token": "微秒每词元",
    "ms": "毫秒",
    "times": "倍",
    "times its even share": "倍平均份额",
    "%": "%",
}
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


def in_chinese(words: str) -> str:
    """The words of a finding in Chinese."""
    found = WORDS.fullmatch(words)
    if found is None:
        raise ValueError(f"no Chinese for: {words}")
    what = "相差" if found["what"] == "difference " else "为"
    space = "" if found["unit"] == "%" else " "
    unit, low, high, runs = UNITS[found["unit"]], found["low"], found["high"], found["runs"]
    return f"{what} {found['mean']}{space}{unit}，区间 {low} 至 {high}，{runs} 次运行"
