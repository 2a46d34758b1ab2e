"""Outputs that stand in a page between markers, as the site shows them: in a box of their kind, without the markers."""

from __future__ import annotations

from typing import Any

from docutils import nodes

from building.directive import boxed


def unmarked(app: Any, doctree: nodes.document) -> None:
    """Put what stands between `<!-- run … -->` and `<!-- end -->` into a box, and drop these comments."""
    for marker in [one for one in doctree.findall(nodes.raw) if one.astext().startswith("<!-- ")]:
        words = marker.astext().split()[1:]
        if words[:2] == ["run", "python"] or words[:2] == ["run", "console"]:
            _box(marker, words[1])
    for marker in list(doctree.findall(nodes.raw)):
        if marker.astext().startswith(("<!-- run ", "<!-- py: ", "<!-- fact: ", "<!-- end -->")):
            marker.parent.remove(marker)


def _box(marker: nodes.raw, kind: str) -> None:
    """Box the blocks of code that follow a marker; in a box of Python, all but code are outputs."""
    parent = marker.parent
    start = parent.index(marker) + 1
    inside = []
    while start < len(parent) and isinstance(parent[start], nodes.literal_block):
        inside.append(parent[start])
        parent.remove(parent[start])
    if not inside:
        return
    if kind == "python":
        inside = [boxed(one, classes=("zoo-output",)) if one["language"] == "text" else one for one in inside]
    parent.insert(start, boxed(*inside, classes=(f"zoo-{kind}",)))


def setup(app: Any) -> None:
    """Read pages so."""
    app.connect("doctree-read", unmarked)
