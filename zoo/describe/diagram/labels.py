"""Formats numbers, activations and ranges of layers for diagrams. Imports no mlx."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from zoo.describe.diagram.model import Note
from zoo.describe.language import message
from zoo.recipe.parts import ACTIVATION_TITLES

LISTED = 6  # layers whose numbers are written one by one


def number(value: float) -> str:
    """A number with separators between thousands; a fraction in four digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}"


def counted(count: int, noun: str) -> str:
    """ "1 head", "8 heads"."""
    return f"1 {noun}" if count == 1 else message(f"{{n}} {noun}s", n=number(count))


def note(key: str, template: str, **values: float) -> Note:
    """A fact with numbers: `note("heads", "{n} heads", n=8)`."""
    return Note(message(template, **{name: number(value) for name, value in values.items()}), key)


def activation(name: str) -> str:
    """An activation's name in texts."""
    return ACTIVATION_TITLES.get(name, name)


def spaced(name: str) -> str:
    """A spec's name as words: "selective-state-space" -> "Selective state space"."""
    words = name.replace("-", " ").replace("_", " ").strip() or "block"
    return words[:1].upper() + words[1:]


def which(indices: Sequence[int], total: int) -> str:
    """Which layers of `total`, counted from 0: "even layers", "first 3 layers", "every 4th layer from 3"."""
    count = len(indices)
    if count == total:
        return ""
    if told := _regular(indices, total):
        return told
    others = _regular(sorted(set(range(total)) - set(indices)), total)
    if others and count > total // 2:
        return message("all but {layers}", layers=others)
    if count <= LISTED:
        return message("layers {list}", list=", ".join(map(str, indices)))
    return message("{n} layers from {m} to {k}", n=count, m=indices[0], k=indices[-1])


def _regular(indices: Sequence[int], total: int) -> str:
    """Words for one layer, for neighbours, and for layers at equal distances; "" for others."""
    count, first, last = len(indices), indices[0], indices[-1]
    if count == 1:
        return message("layer {n}", n=first)
    if last - first == count - 1:
        if first == 0:
            return message("first {n} layers", n=count)
        if last == total - 1:
            return message("last {n} layers", n=count)
        return message("layers {n}–{m}", n=first, m=last)
    steps = {after - before for before, after in pairwise(indices)}
    if len(steps) > 1 or first >= (step := steps.pop()) or last + step < total:
        return ""
    if step == 2:
        return "odd layers" if first else "even layers"
    return f"every {_ordinal(step)} layer from {first}"


def _ordinal(value: int) -> str:
    last = value % 10 if value % 100 not in (11, 12, 13) else 0
    return f"{value}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"
