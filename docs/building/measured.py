"""The directive `{measured}`, a table of what embedded checkpoints reached, and the role `{finding}`, for a claim of the lab."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from building import records
from building.kept import DOCS
from building.pieces import ZooDirective, boxed


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
        self.env.note_dependency(str(DOCS / "records" / "lab" / f"{records.POCKETS}.json"))
        from zoo.lab.intervals import LEVEL

        head, body = records.measured(self.arguments[0].split(), self.language)
        said = records.SAID[self.language].format(
            level=round(100 * LEVEL), **records.record(records.POCKETS).versions
        )
        return [boxed(table(head, body), nodes.paragraph("", said), classes=("zoo-measured",))]


class FindingRole(SphinxRole):
    """`EXPERIMENT NUMBER VERDICT`: what was measured for a claim, whose verdict must be the one that the page tells of."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            name, number, verdict = self.text.split(maxsplit=2)
            words = records.finding(name, int(number), verdict)
            text = records.in_chinese(words) if self.config.zoo_language == "zh" else words
        except Exception as error:
            problem = self.inliner.reporter.error(f"finding: {self.text}: {error!r}", line=self.lineno)
            return [], [problem]
        return [nodes.Text(text)], []


def setup(app: Any) -> None:
    """Add the directive and the role."""
    app.add_directive("measured", Measured)
    app.add_role("finding", FindingRole())
