"""`{experiment}`: a part of a lab page that follows from the experiment's record; `{experiments}`: the list of them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList

from building.build_cache import DOCS
from building.directive import ZooDirective
from building.lab_page import PARTS, listed


class _FromRecord(ZooDirective):
    """A part of a page that is made as Markdown."""

    def parsed(self, text: str) -> list[nodes.Node]:
        """The nodes of a text in Markdown."""
        inside = nodes.container()
        lines = StringList(text.splitlines(), source=self.env.docname)
        self.state.nested_parse(lines, self.content_offset, inside)
        return inside.children


class ExperimentPart(_FromRecord):
    """`NAME PART`: a part of PARTS, such as the claims with their verdicts, of an experiment."""

    required_arguments = 2

    def made(self) -> list[nodes.Node]:
        name, part = self.arguments
        self.env.note_dependency(str(DOCS / "records" / "lab" / f"{name}.json"))
        return self.parsed(PARTS[part](name, self.language))


class ExperimentList(_FromRecord):
    """Every experiment with its question, and how many of its claims were seen."""

    def made(self) -> list[nodes.Node]:
        return self.parsed(listed(self.language))


def setup(app: Any) -> None:
    """Add the directives."""
    app.add_directive("experiment", ExperimentPart)
    app.add_directive("experiments", ExperimentList)
