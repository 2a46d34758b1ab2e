"""A diagram in words, for those who cannot see it. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zoo.describe.diagram.model import Box, Diagram, Frame

WORDS = {
    "en": {
        "picture": "Block diagram of {}",
        "titled": "{}: ",
        "aside": " ({})",
        "upwards": "{}, from bottom to top",
        "stop": ". ",
        "then": "; ",
        "list": ", ",
        "memory": " over the encoder's output",
        "differs": ", differs",
        "frame": "{count} layers{label}, each: {inner}; end of the layer",
        "sum": "residual sum around: {}",
    },
    "zh": {
        "picture": "{} 的结构图",
        "titled": "{}：",
        "aside": "（{}）",
        "upwards": "{}，自下而上",
        "stop": "。",
        "then": "；",
        "list": "，",
        "memory": "，读取编码器的输出",
        "differs": "，有差异",
        "frame": "{count} 层{label}，每层：{inner}；该层结束",
        "sum": "残差相加，跨过：{}",
    },
}


def described(diagram: Diagram) -> str:
    """The boxes of a diagram from bottom to top, with their facts and what repeats, in the diagram's language."""
    words = WORDS[diagram.language]
    parts = []
    for stack in diagram.stacks:
        title = words["titled"].format(stack.title) if stack.title else ""
        parts.append(title + words["then"].join(_said([stack.start, *stack.items, stack.end], words)))
    about = words["aside"].format(diagram.summary) if diagram.summary else ""
    stop = words["stop"]
    return words["upwards"].format(diagram.name + about) + stop + stop.join(parts) + stop.rstrip()


def _said(items: Sequence[Any], words: dict[str, str]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Box):
            notes = words["list"].join(note.text for note in item.notes)
            reads = words["memory"] if item.memory else ""
            differs = words["differs"] if item.differs else ""
            yield f"{item.title}{reads}{words['aside'].format(notes) if notes else ''}{differs}"
        elif isinstance(item, Frame):
            inner = words["then"].join(_said(item.items, words))
            label = words["list"] + item.label if item.label else ""
            yield words["frame"].format(count=item.count, label=label, inner=inner)
        else:
            yield words["sum"].format(words["list"].join(_said(item.items, words)))
