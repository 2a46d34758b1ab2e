"""Aligns the items of several stacks: items of one role stand at one height. Imports no mlx.

Heights are in whatever unit the renderer has, pixels or lines; `y` counts upwards from the bottom.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from zoo.describe.diagram.model import Box, Diagram, Frame, LayerStack, Residual


class Sizes(Protocol):
    """The heights of what a renderer draws: gaps, forks, sums, the lower and upper edges of frames, boxes."""

    gap: float
    fork: float
    sum: float
    open: float
    close: float

    def box(self, box: Box) -> float:
        """The height of a box, its notes included."""


@dataclasses.dataclass
class Element:
    """What stands in a column: a "box", the "fork" and the "sum" of a residual, the "open" and "close" of a frame.

    Elements of one key in several columns stand in one line. `partner` of a sum is its fork, of a close its open.
    """

    kind: str
    item: Any
    key: str
    height: float
    y: float = 0.0
    partner: Element | None = None

    @property
    def top(self) -> float:
        """The upper edge."""
        return self.y + self.height


def main_role(items: Sequence[Any]) -> str:
    """The role of a residual's main part: its last box that is not a norm."""
    roles = [item.role for item in items if isinstance(item, Box)]
    return next((role for role in reversed(roles) if role != "norm"), "norm")


def keyed(items: Sequence[Any]) -> list[tuple[str, Any]]:
    """All items in order, each with a key made of its frame, its role and, for a norm, its place."""
    found: list[tuple[str, Any]] = []
    counts: dict[str, int] = {}
    for key, item in _keyed(items, "", ""):
        counts[key] = counts.get(key, 0) + 1
        found.append((key if counts[key] == 1 else f"{key}#{counts[key]}", item))
    return found


def _keyed(items: Sequence[Any], prefix: str, inside: str) -> Iterator[tuple[str, Any]]:
    last, frames = "", [item.count for item in items if isinstance(item, Frame)]
    # The frame of most layers stands beside that of others, whatever is below or above it.
    number = -frames.index(max(frames)) if frames else 0
    for item in items:
        if isinstance(item, Frame):
            key = f"{prefix}frame{number:+}"
            yield key, item
            yield from _keyed(item.items, f"{key}/", "")
            number += 1
        elif isinstance(item, Residual):
            last = main_role(item.items)
            yield f"{prefix}{last}+", item
            yield from _keyed(item.items, prefix, last)
        elif item.role == "norm":
            place = f"{inside}{'>' if last else '<'}" if inside else f"{last}|"
            yield f"{prefix}{place}norm", item
        else:
            last = item.role
            yield f"{prefix}{last}", item


def elements(stack: LayerStack, sizes: Sizes) -> list[Element]:
    """The elements of a stack from bottom to top, not yet placed."""
    keys = iter(keyed(stack.items))

    def visit(items: Sequence[Any]) -> Iterator[Element]:
        for item in items:
            key, _ = next(keys)
            if isinstance(item, Box):
                yield Element("box", item, key, sizes.box(item))
            elif isinstance(item, Frame):
                first = Element("open", item, f"{key} open", sizes.open)
                yield first
                yield from visit(item.items)
                yield Element("close", item, f"{key} close", sizes.close, partner=first)
            else:
                first = Element("fork", item, f"{key} fork", sizes.fork)
                yield first
                yield from visit(item.items)
                yield Element("sum", item, f"{key} sum", sizes.sum, partner=first)

    start = Element("box", stack.start, stack.start.role, sizes.box(stack.start))
    end = Element("box", stack.end, stack.end.role, sizes.box(stack.end))
    return [start, *visit(stack.items), end]


def align(columns: Sequence[Sequence[Element]], gap: float) -> float:
    """Set `y` of all elements, the same for elements of one key; returns the height of the highest column."""
    order: list[str] = []
    aligned: list[set[str]] = []
    for column in columns:
        at, own = -1, set()
        for element in column:
            if element.key in order:
                index = order.index(element.key)
                if index <= at:
                    continue
                at = index
            else:
                at += 1
                order.insert(at, element.key)
            own.add(element.key)
        aligned.append(own)
    places = [0] * len(columns)

    def place(number: int, until: str | None) -> Element | None:
        """Place a column's elements below the one of this key, and return that one at its lowest place."""
        column = columns[number]
        while places[number] < len(column):
            element = column[places[number]]
            below = column[places[number] - 1] if places[number] else None
            element.y = below.top + gap if below else 0.0
            if element.key == until:
                return element
            places[number] += 1
        return None

    for key in order:
        found = [e for n, own in enumerate(aligned) if key in own and (e := place(n, key))]
        highest = max(element.y for element in found)
        for element in found:
            element.y = highest
        for number, own in enumerate(aligned):
            if key in own:
                places[number] += 1
    for number in range(len(columns)):
        place(number, None)
    return max((column[-1].top for column in columns), default=0.0)


def paired_roles(diagrams: Sequence[Diagram]) -> bool:
    """Whether stacks are compared by role; False where each diagram has a single stack."""
    return any(len(diagram.stacks) > 1 for diagram in diagrams)
