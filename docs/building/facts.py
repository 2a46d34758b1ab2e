"""The role `{fact}`: a fact of a preset, as `zoo show` writes it, such as {fact}`llama:8b cache.token`."""

from __future__ import annotations

from functools import cache
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole


@cache
def texts(name: str, context: int | None = None, quantize: str | None = None) -> dict[str, str]:
    """The texts of a model's facts by their names; those of its only stack also without its role."""
    from zoo.facts import describe
    from zoo.host.registry import default_registry

    registry = default_registry()
    sheet = describe(name, registry).sheet(registry, context, quantize)
    return {fact.key: fact.text for fact in sheet.facts} | {fact.name: fact.text for fact in sheet.facts}


class FactRole(SphinxRole):
    """`NAME FACT`, or `NAME FACT CONTEXT` for the cache and FLOPs at a number of tokens."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        from zoo.insight.language import in_language

        try:
            name, fact, *context = self.text.split()
            text = texts(name, *map(int, context))[fact]
        except Exception as error:
            problem = self.inliner.reporter.error(f"fact: {self.text}: {error!r}", line=self.lineno)
            return [], [problem]
        return [nodes.Text(in_language(text, self.config.zoo_language))], []


def setup(app: Any) -> None:
    """Add the role."""
    app.add_role("fact", FactRole())
