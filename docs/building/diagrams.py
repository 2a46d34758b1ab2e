"""`{diagram}`: block diagrams of some models, differences marked; a box leads to its code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from docutils import nodes

from building.code import address_of
from building.pieces import ZooDirective, html

BLOCK = re.compile(r'(<g class="block [^"]*" data-path="([^"]*)"[^>]*>.*?\n</g>)', re.DOTALL)


def spec_at(recipe: Any, path: str) -> Any:
    """The spec at the path of a diagram's box, where `*` is any layer that has such a part; None where there is none."""
    found: list[Any] = [recipe]
    for step in path.split(".") if path else ():
        following: list[Any] = []
        for one in found:
            if isinstance(one, tuple):
                following += one if step == "*" else [one[int(step)]] if step.isdigit() else []
            else:
                following.append(getattr(one, step, None))
        found = [one for one in following if one is not None]
    return found[0] if found else None


def linked(picture: str, recipe: Any, address: Callable[[type], str | None]) -> str:
    """A diagram whose boxes are links to what `address` gives for the type of their spec."""

    def link(found: re.Match[str]) -> str:
        spec = spec_at(recipe, found[2])
        target = None if spec is None else address(type(spec))
        return found[1] if target is None else f'<a href="{target}">{found[1]}</a>'

    return BLOCK.sub(link, picture)


def figure(picture: str, diagram: Any, recipe: Any, docname: str, language: str) -> str:
    """A diagram's picture in a page, its boxes links to their code where that has a page."""
    from zoo.host.registry import default_registry

    registry = default_registry()

    def address(spec: type) -> str | None:
        try:
            return address_of(registry.module(spec), docname, language)
        except Exception:
            return None

    return f'<figure style="--stacks:{len(diagram.stacks)}">{linked(picture, recipe, address)}</figure>'


class DiagramDirective(ZooDirective):
    """The diagrams of the models that are named."""

    required_arguments = 1
    final_argument_whitespace = True

    def made(self) -> list[nodes.Node]:
        from zoo.facts import describe
        from zoo.host.registry import default_registry
        from zoo.insight.diagram import diagram_in, diagram_of, marked
        from zoo.insight.diagram.svg import to_svgs

        registry = default_registry()
        found = [describe(name, registry) for name in self.arguments[0].split()]
        plain = [diagram_of(one.recipe, one.origin, registry) for one in found]
        diagrams = [diagram_in(diagram, self.language) for diagram in marked(plain)]
        number = self.env.new_serialno("diagram")
        pictures = to_svgs(diagrams, ident=f"diagram-{number}")
        shown = (
            figure(picture, diagram, one.recipe, self.env.docname, self.language)
            for one, diagram, picture in zip(found, diagrams, pictures, strict=True)
        )
        return [html(f'<div class="zoo-diagrams">{"".join(shown)}</div>')]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("diagram", DiagramDirective)
