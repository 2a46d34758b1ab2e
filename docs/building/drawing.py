"""`{drawing}`: a figure that a file of docs/figures draws when the docs are built."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives

from building.build_cache import cached_result
from building.directive import ZooDirective, html


class DrawnFigure(ZooDirective):
    """The figure `NAME`: what `draw(language)` of docs/figures/NAME.py returns, with an alternative text and a caption.

    Words after the name are given to `draw`, too.
    """

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012

    def made(self) -> list[nodes.Node]:
        name, *words = " ".join(self.arguments).split()
        if "alt" not in self.options:
            raise ValueError("no :alt:, the text for those who cannot see it")
        module = import_module(f"figures.{name}")
        self.env.note_dependency(module.__file__)
        drawn = cached_result(
            lambda: module.draw(self.language, *words), "drawing", name, self.language, *words
        )
        alt = escape(" ".join(self.options["alt"].split()))
        shown: list[nodes.Node] = [
            html(
                f'<figure class="zoo-figure"><div class="zoo-drawing" role="group" aria-label="{alt}">{drawn}</div>'
            )
        ]
        if self.content:
            caption = nodes.container()
            self.state.nested_parse(self.content, self.content_offset, caption)
            shown += [html("<figcaption>"), *caption.children, html("</figcaption>")]
        return [*shown, html("</figure>")]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("drawing", DrawnFigure)
