"""Block diagrams of some models, differences marked; a box leads to its code."""

from __future__ import annotations

import re
from typing import Any

from building.code_pages import address_of
from building.page_parts import marked_diagrams

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


def side_by_side(names: list[str], docname: str, language: str, ident: str) -> str:
    """The diagrams of the models that are named; `ident` begins the ids in them."""
    from zoo.describe.diagram.svg import to_svgs

    diagrams = marked_diagrams(names, language)
    shown = (
        figure(picture, diagram, docname, language)
        for diagram, picture in zip(diagrams, to_svgs(diagrams, ident=ident), strict=True)
    )
    return f'<div class="zoo-diagrams">{"".join(shown)}</div>'
