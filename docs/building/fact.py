"""The role `{fact}`: a fact of a preset, as `zoo show` writes it, such as {fact}`llama:8b cache.token`."""

from __future__ import annotations

from typing import Any

from figures.numbers import sheet

from building.directive import ZooRole
from zoo.describe.language import in_language


class FactRole(ZooRole):
    """`NAME FACT`, or `NAME FACT CONTEXT` for the cache and FLOPs at a number of tokens.

    A fact of the only stack may be named without its role: "heads".
    """

    def said(self) -> str:
        name, fact, *context = self.text.split()
        facts = sheet(name, *map(int, context)).facts
        texts = {one.key: one.text for one in facts} | {one.name: one.text for one in facts}
        return in_language(texts[fact], self.language)


def setup(app: Any) -> None:
    """Add the role."""
    app.add_role("fact", FactRole())
