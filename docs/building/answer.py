"""`{answer}`: the answer to a question, folded until the reader opens it."""

from __future__ import annotations

from typing import Any

from docutils import nodes

from building.directive import ZooDirective, html
from building.language_switch import SAID


class Answer(ZooDirective):
    """A text under "Answer"."""

    has_content = True

    def made(self) -> list[nodes.Node]:
        inside = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, inside)
        summary = SAID[self.language]["answer"]
        return [
            html(f'<details class="zoo-answer"><summary>{summary}</summary>'),
            inside,
            html("</details>"),
        ]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("answer", Answer)
