"""A diagram with its texts in another language. Imports no mlx."""

from __future__ import annotations

import dataclasses
from typing import Any

from zoo.describe.diagram.model import Diagram, Note
from zoo.describe.language import in_language

TEXTS = ("title", "text", "label", "summary")  # the fields that are translated


def diagram_in(diagram: Diagram, language: str) -> Diagram:
    """The same diagram with its titles, notes and parts in a language. Its name stays; lay it out afterwards.

    Call `marked` first: a note without a key of its own keeps its English text as the key. ZooError for an unknown
    language.
    """
    found: Diagram = _translated(diagram, language)
    return dataclasses.replace(found, language=language)


def _translated(item: Any, language: str) -> Any:
    if isinstance(item, tuple):
        return tuple(_translated(one, language) for one in item)
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        return item
    values = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    changed = {
        name: in_language(value, language) if name in TEXTS else _translated(value, language)
        for name, value in values.items()
    }
    if isinstance(item, Note):
        changed["key"] = item.name
    return dataclasses.replace(item, **changed)
