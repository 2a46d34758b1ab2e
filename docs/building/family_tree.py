"""`{family-tree}`: which architecture is a variant of which, by time, drawn, and as a list with all differences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from docutils import nodes
from figures.parts import rect, svg, text

from building.architecture_words import WORDS, month
from building.directive import ZooDirective, html
from building.family import Member, members, roots, variants
from zoo.architecture.architecture import TASKS
from zoo.describe.diagram.text_width import lines_within
from zoo.describe.language import in_language
from zoo.frozen import Frozen, frozen

BOX, GAP = 216, 44  # the width of a box and the room between generations
LINE, PAD = 16, 9  # of the small text in a box
APART = 10  # between boxes
LINES = 3
ASIDE = re.compile(r" ?[(\uff08][^()\uff08\uff09]*[)\uff09]")  # what a sentence says in brackets


@frozen()
class Placed(Frozen):
    """A member's box: its left edge, its middle, its height, and the lines in it."""

    one: Member
    x: float
    middle: float
    height: float
    lines: tuple[str, ...]


def label(one: Member, language: str) -> list[str]:
    """What the box says: the first difference from the base, and how many more there are; of a root its summary."""
    plain = one.sentences[0] if one.sentences else one.found.architecture.summary
    said = without_asides(in_language(plain, language)).rstrip(".。")
    lines = lines_within(said, BOX - 2 * PAD, 12)
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"{lines[LINES - 1]} …"]
    if (more := len(one.sentences) - 1) > 0:
        lines.append(WORDS[language]["and more"].format(count=more))
    return lines


def without_asides(sentence: str) -> str:
    """A sentence without what it says in brackets, and in brackets within these."""
    while (shorter := ASIDE.sub("", sentence)) != sentence:
        sentence = shorter
    return sentence


def placed(one: Member, among: dict[str, Member], top: float, language: str, depth: int = 0) -> list[Placed]:
    """The boxes of a member and of all its variants, below `top`; the member's own is the first."""
    lines = tuple(label(one, language))
    height = 2 * PAD + 18 + LINE * (len(lines) + (one.task != TASKS[0]))
    below: list[Placed] = []
    heads: list[float] = []
    end = top
    for variant in variants(one.name, among):
        found = placed(variant, among, end, language, depth + 1)
        heads.append(found[0].middle)
        end = max(bottom(found) + APART, end)
        below += found
    middle = max((heads[0] + heads[-1]) / 2 if heads else 0, top + height / 2)
    return [Placed(one, depth * (BOX + GAP), middle, height, lines), *below]


def bottom(boxes: list[Placed]) -> float:
    """The lowest edge of some boxes."""
    return max(box.middle + box.height / 2 for box in boxes)


def drawn(among: dict[str, Member], language: str, address: str) -> str:
    """The tree as SVG, the oldest family first; each box leads to the page of its architecture at `address`."""
    words, parts, top, width = WORDS[language], [], 0.0, 0.0
    for one in roots(among):
        boxes = placed(one, among, top, language)
        by_name = {box.one.name: box for box in boxes}
        parts += [_edge(by_name[box.one.base], box) for box in boxes[1:]]
        parts += [part for box in boxes for part in _box(box, words, language, address)]
        top = bottom(boxes) + 2 * APART
        width = max(width, *(box.x + BOX for box in boxes))
    return svg(width + 2, top, parts).replace('aria-hidden="true"', 'role="presentation"')


def _edge(base: Placed, variant: Placed) -> str:
    """A curve from a base to a variant."""
    start, end = base.x + BOX, variant.x
    half = (start + end) / 2
    return (
        f'<path d="M{start:.1f} {base.middle:.1f}C{half:.1f} {base.middle:.1f} {half:.1f} {variant.middle:.1f} '
        f'{end:.1f} {variant.middle:.1f}" style="fill:none;stroke:var(--line);stroke-width:1.5"/>'
    )


def _box(box: Placed, words: dict[str, str], language: str, address: str) -> Iterator[str]:
    """The box of a member, with its task where that is not the writing of text."""
    one, top = box.one, box.middle - box.height / 2
    yield f'<a href="{address}{one.name}.html"><title>{escape(" ".join(one.sentences))}</title>'
    yield rect(box.x + 1, top, BOX - 2, box.height, radius=8)
    yield text(box.x + PAD, top + PAD + 13, one.name, size=15, bold=True)
    if one.published:
        when = month(one.published, language, short=True)
        yield text(box.x + BOX - PAD, top + PAD + 13, when, size=12, colour="quiet", anchor="end")
    lines = [(said, "quiet") for said in box.lines]
    if one.task != TASKS[0]:
        lines.append((words[f"task {one.task}"], "accent"))
    for number, (said, colour) in enumerate(lines):
        yield text(box.x + PAD, top + PAD + 31 + number * LINE, said, size=12, colour=colour)
    yield "</a>"


def listed(one: Member, among: dict[str, Member], language: str, address: str) -> str:
    """A member and all its variants as a nested list with every difference."""
    stop = "。" if language == "zh" else "."
    told = [in_language(sentence, language) for sentence in one.sentences]
    told = told or [in_language(one.found.architecture.summary, language) + stop]
    inside = "".join(listed(variant, among, language, address) for variant in variants(one.name, among))
    said = "<br>".join(map(escape, told))
    below = f"<ul>{inside}</ul>" if inside else ""
    when = [month(one.published, language)] if one.published else []
    about = ", ".join([*when, *([WORDS[language][f"task {one.task}"]] if one.task != TASKS[0] else [])])
    return f'<li><a href="{address}{one.name}.html">{one.name}</a> <small>{about}</small><div>{said}</div>{below}</li>'


class FamilyTree(ZooDirective):
    """The picture, where there is room for it, and the list."""

    def made(self) -> list[nodes.Node]:
        among, words = members(), WORDS[self.language]
        address = "architectures/"
        lists = "".join(listed(one, among, self.language, address) for one in roots(among))
        picture = drawn(among, self.language, address)
        return [
            html(f'<nav class="zoo-tree-drawn" aria-label="{words["tree"]}">{picture}</nav>'),
            html(f'<div class="zoo-tree"><ul>{lists}</ul></div>'),
        ]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("family-tree", FamilyTree)
