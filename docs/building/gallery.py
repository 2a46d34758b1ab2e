"""`{gallery}`: the block diagrams of all architectures, each leading to the architecture's page."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes

from building.architecture_words import WORDS
from building.directive import ZooDirective, html
from building.family import Member, members
from building.task_filter import task_filter
from zoo.describe.language import in_language
from zoo.host.registry import default_registry

SAID = re.compile(r"<(title|desc)\b.*?</\1>\n?", re.DOTALL)
STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)
ROLE = re.compile(r' role="graphics-document" aria-labelledby="[^"]*" aria-describedby="[^"]*"')


def gallery(among: dict[str, Member], language: str, address: str) -> str:
    """A list of pictures as HTML; the style sheet that they share stands once."""
    from zoo.describe.diagram import diagram_in, diagram_of
    from zoo.describe.diagram.svg import to_svgs

    registry, words = default_registry(), WORDS[language]
    shown, style = [], ""
    for name, one in among.items():
        drawn = diagram_in(diagram_of(one.found.recipe, one.origin, registry), language)
        picture = to_svgs([drawn], ident=f"gallery-{name}")[0]
        found = STYLE.search(picture)
        style = found[0] if found else style
        # The link says all that a screen reader needs: the parts are told on the page that it leads to.
        plain = ROLE.sub(' aria-hidden="true"', STYLE.sub("", SAID.sub("", picture)))
        summary = escape(in_language(one.found.architecture.summary, language))
        wide = ' class="wide"' if len(drawn.stacks) > 1 else ""
        shown.append(
            f'<li{wide} data-task="{one.task}"><a href="{address}{name}.html">{plain}'
            f"<strong>{name}</strong></a><span>{summary}</span></li>"
        )
    return (
        f'<div class="zoo-filtered">{style}{task_filter(among, language, "gallery")}'
        f'<ul class="zoo-gallery" aria-label="{words["diagram"]}">{"".join(shown)}</ul></div>'
    )


class Gallery(ZooDirective):
    """The pictures of all architectures."""

    def made(self) -> list[nodes.Node]:
        return [html(gallery(members(), self.language, "architectures/"))]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("gallery", Gallery)
