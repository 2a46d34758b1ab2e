"""`{diagram}`: block diagrams of some models, differences marked; a box leads to its code."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

from building.code_pages import address_of
from building.directive import ZooDirective, html

BLOCK = re.compile(r'(<g class="block [^"]*" data-path="([^"]*)"[^>]*>.*?\n</g>)', re.DOTALL)


def figure(picture: str, diagram: Any, docname: str, language: str) -> str:
    """A diagram's picture in a page, its boxes links to their code where that has a page."""
    from zoo.describe.diagram.model import boxes
    from zoo.errors import PluginError
    from zoo.host.registry import default_registry

    registry = default_registry()
    blocks = {box.path: box.block for box in boxes(diagram.stacks) if box.block}

    def link(found: re.Match[str]) -> str:
        try:
            module = registry.module(registry.block(blocks[found[2]]).spec)
            address = address_of(module, docname, language)
        except (
            KeyError,
            PluginError,
            ValueError,
        ):  # what a stack starts with is no block; another's code has no page
            return found[1]
        return f'<a href="{address}">{found[1]}</a>'

    return f'<figure style="--stacks:{len(diagram.stacks)}">{BLOCK.sub(link, picture)}</figure>'


class DiagramDirective(ZooDirective):
    """The diagrams of the models that are named."""

    required_arguments = 1
    final_argument_whitespace = True

    def made(self) -> list[nodes.Node]:
        from zoo.describe import describe
        from zoo.describe.diagram import diagram_in, diagram_of, marked
        from zoo.describe.diagram.svg import to_svgs
        from zoo.host.registry import default_registry

        registry = default_registry()
        found = [describe(name, registry) for name in self.arguments[0].split()]
        plain = [diagram_of(one.recipe, one.origin, registry) for one in found]
        diagrams = [diagram_in(diagram, self.language) for diagram in marked(plain)]
        number = self.env.new_serialno("diagram")
        pictures = to_svgs(diagrams, ident=f"diagram-{number}")
        shown = (
            figure(picture, diagram, self.env.docname, self.language)
            for diagram, picture in zip(diagrams, pictures, strict=True)
        )
        return [html(f'<div class="zoo-diagrams">{"".join(shown)}</div>')]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("diagram", DiagramDirective)
