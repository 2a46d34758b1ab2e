"""The role `{finding}`: what the lab measured for a claim, as {finding}`experts 1 seen`."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from building import records


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
    """Add the role."""
    app.add_role("finding", FindingRole())
