"""What was measured, from the committed records of docs/records/lab: the directive `{measured}` and the role `{finding}`."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from building.kept import DOCS
from building.languages import SAID
from building.pieces import ZooDirective, boxed

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
    "%": "%",
}
WORDS = re.compile(
    r"(?:difference )?(?P<mean>[+−\d.e-]+) (?P<unit>.+), interval (?P<low>\S+) to (?P<high>\S+), (?P<runs>\d+) runs"
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
    unit = UNITS[found["unit"]]
    space = "" if unit == "%" else " "
    return f"相差 {found['mean']}{space}{unit}，区间 {found['low']} 至 {found['high']}，{found['runs']} 次运行"


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


def table(head: list[str], body: list[list[str]]) -> nodes.table:
    """A table whose first column names its rows."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    for part, lines in ((nodes.thead(), [head]), (nodes.tbody(), body)):
        for line in lines:
            cells = (nodes.entry("", nodes.paragraph("", cell)) for cell in line)
            part += nodes.row("", *cells)
        group += part
    return nodes.table("", group)


class Measured(ZooDirective):
    """What the embedded checkpoints of some architectures reached, on the same data, with 95 % intervals."""

    required_arguments = 1
    final_argument_whitespace = True

    def made(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DOCS / "records" / "lab" / f"{POCKETS}.json"))
        head, body = measured(self.arguments[0].split(), self.language)
        about = record(POCKETS).versions
        said = SAID[self.language]["measured"].format(
            machine=about["machine"], mlx=about["mlx"], backend=about["backend"], blas=about["blas"]
        )
        return [
            boxed(table(head, body), nodes.paragraph("", said), classes=("zoo-measured",)),
        ]


class FindingRole(SphinxRole):
    """`EXPERIMENT NUMBER VERDICT`: what was measured for a claim, whose verdict must be the one that the page tells of."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            name, number, verdict = self.text.split(maxsplit=2)
            words = finding(name, int(number), verdict)
            text = in_chinese(words) if self.config.zoo_language == "zh" else words
        except Exception as error:
            problem = self.inliner.reporter.error(f"finding: {self.text}: {error!r}", line=self.lineno)
            return [], [problem]
        return [nodes.Text(text)], []


def setup(app: Any) -> None:
    """Add the directive and the role."""
    app.add_directive("measured", Measured)
    app.add_role("finding", FindingRole())
