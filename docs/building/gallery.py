"""`{gallery}`: the block diagrams of all architectures by time, each leading to the architecture's page."""

from __future__ import annotations

import dataclasses
import re
from html import escape
from typing import Any

from docutils import nodes

from building.architecture_words import WORDS, month
from building.directive import ZooDirective, html
from building.family import Member, by_period, members
from building.task_filter import task_filter
from zoo.describe.language import in_language
from zoo.host.registry import default_registry

SAID = re.compile(r"<(title|desc)\b.*?</\1>\n?", re.DOTALL)
STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)
ROLE = re.compile(r' role="graphics-document" aria-labelledby="[^"]*" aria-describedby="[^"]*"')
PLACE = re.compile(
    r' data-(?:path|role)="[^"]*"'
)  # of a part: the pictures here are not pressed part by part
SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)" viewBox="[^"]*"')
LEFT, TOP = 14, 26  # pixels of a picture's margins that are cut off: a card has its own


def picture(one: Member, language: str) -> tuple[str, bool]:
    """The diagram as SVG without notes, whose text is legible at its own size, and whether it has several stacks.

    The link around it says all that a screen reader needs: the parts are told on the page that it leads to.
    """
    from zoo.describe.diagram import diagram_in, diagram_of
    from zoo.describe.diagram.model import without_notes
    from zoo.describe.diagram.svg import to_svgs

    whole = diagram_of(one.found.recipe, one.origin, default_registry())
    plain = dataclasses.replace(without_notes(whole), name="", summary="")
    drawn = to_svgs([diagram_in(plain, language)], ident=f"gallery-{one.name}")[0]
    return SIZE.sub(_cut, ROLE.sub(' aria-hidden="true"', PLACE.sub("", SAID.sub("", drawn))), count=1), len(
        whole.stacks
    ) > 1


def _cut(size: re.Match[str]) -> str:
    width, height = float(size[1]) - 2 * LEFT, float(size[2]) - TOP - LEFT
    return f'style="--width:{width:.0f}px" viewBox="{LEFT} {TOP} {width:.0f} {height:.0f}"'


def card(one: Member, language: str, address: str) -> tuple[str, str]:
    """One picture with what is said of it, and the style sheet that was in it."""
    drawn, wide = picture(one, language)
    summary = escape(in_language(one.found.architecture.summary, language))
    style = STYLE.search(drawn)
    when = f" <time>{month(one.published, language)}</time>" if one.published else ""
    item = (
        f'<li{" class=wide" if wide else ""} data-task="{one.task}"><a href="{address}{one.name}.html">'
        f"<strong>{one.name}</strong>{when}{STYLE.sub('', drawn)}</a><span>{summary}</span></li>"
    )
    return item, style[0] if style else ""


def gallery(among: dict[str, Member], language: str, address: str) -> str:
    """The pictures by time as HTML; the style sheet that they share stands once."""
    words, parts, style = WORDS[language], [], ""
    for years, some in by_period(among.values()).items():
        cards = [card(one, language, address) for one in some]
        style = style or cards[0][1]
        title = years or words["undated"]
        items = "".join(item for item, _ in cards)
        tasks = " ".join(sorted({one.task for one in some}))
        parts.append(
            f'<div data-tasks="{tasks}"><h2>{title}</h2><ul class="zoo-gallery" aria-label="{title}">{items}</ul></div>'
        )
    return f'<div class="zoo-filtered">{style}{task_filter(among, language, "gallery")}{"".join(parts)}</div>'


class Gallery(ZooDirective):
    """The pictures of all architectures."""

    def made(self) -> list[nodes.Node]:
        return [html(gallery(members(), self.language, "architectures/"))]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("gallery", Gallery)
