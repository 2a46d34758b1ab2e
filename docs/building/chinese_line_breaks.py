"""Chinese text whose source has lines: the end of a line is no space between two Chinese characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from docutils import nodes

MARK = "，。；：、！？（）《》“”…"  # beside these no space is written
WORD = "\u3400-\u9fff"
BREAK = re.compile(rf"(?<=[{MARK}])\n|\n(?=[{MARK}])|(?<=[{WORD}])\n(?=[{WORD}])")


def joined(pieces: Sequence[str]) -> list[str]:
    """The pieces of a paragraph, as they follow one another, without the ends of lines that would show as spaces.

    An end of a line between Chinese and a Latin letter stays: there a space is written.
    """
    whole, found, start = "".join(pieces), [], 0
    dropped = {match.start() for match in BREAK.finditer(whole)}
    for piece in pieces:
        kept = (letter for index, letter in enumerate(piece, start) if index not in dropped)
        found.append("".join(kept))
        start += len(piece)
    return found


def join_lines(app: Any, doctree: nodes.document) -> None:
    """Join the lines of a Chinese page's paragraphs, headings and cells."""
    if app.config.zoo_language != "zh":
        return
    for block in list(doctree.findall(nodes.TextElement)):
        if isinstance(block, nodes.FixedTextElement) or isinstance(block.parent, nodes.TextElement):
            continue
        texts = list(block.findall(nodes.Text))
        for text, words in zip(texts, joined(texts), strict=True):
            if words != text:
                parent = text.parent
                # By identity: equal texts, such as two ends of lines, are equal nodes.
                place = next(index for index, child in enumerate(parent.children) if child is text)
                parent[place] = nodes.Text(words)


def setup(app: Any) -> None:
    """Add the step after a page has been read."""
    app.connect("doctree-read", join_lines)
