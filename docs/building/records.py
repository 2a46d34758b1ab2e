"""What was measured, in words and tables, from the committed records of docs/records/lab. Needs no Sphinx."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from building.kept import DOCS

POCKETS = "pockets"  # the experiment that measures the embedded checkpoints
LABELS = {
    "right answers (%)": "答对的问题（%）",
    "held-out text (bits a byte)": "未见过的文本（比特每字节）",
    "active parameters (millions)": "激活参数（百万）",
    "cache (bytes a token at 16 bits)": "缓存（字节每词元，16 位）",
    "state, whatever the length (kB at 16 bits)": "状态，与长度无关（kB，16 位）",
}
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
SAID = {
    "en": "Means with {level} % intervals, over parts of the held-out text and of the questions; measured on {machine}, "
    "mlx {mlx}, {backend}, {blas}.",
    "zh": "均值与 {level}% 区间，取自未见过的文本和问题的各部分；测于 {machine}，mlx {mlx}，{backend}，{blas}。",
}
WORDS = re.compile(
    r"(?P<what>.+? )?(?P<mean>[+−]?[\d.e-]+) (?P<unit>[^,\d]+), "
    r"interval (?P<low>\S+) to (?P<high>\S+), (?P<runs>\d+) runs"
)


@cache
def record(name: str) -> Any:
    """The record of an experiment."""
    from zoo.lab.saving import read

    return read(DOCS / "records" / "lab" / f"{name}.json")


def finding(name: str, number: int, verdict: str) -> str:
    """What was measured for a claim of an experiment, in words; claims count from 1.

    Raises ValueError when the verdict is another one, so that no page says what a new record does not show.
    """
    from zoo.lab.conclusion import findings

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


def measured(names: list[str], language: str) -> tuple[list[str], list[list[str]]]:
    """A table of what embedded checkpoints reached: its head, and a row a metric that one of them has."""
    from zoo.lab.summary import rows

    head, *body = rows(record(POCKETS))
    arms = {cells[0]: cells for cells in body}
    found = []
    for column in range(1, len(head)):
        cells = [arms[name][column] for name in names]
        if set(cells) - {"0", "–"}:
            found.append([LABELS[head[column]] if language == "zh" else head[column], *cells])
    return ["", *names], found
