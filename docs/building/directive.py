"""HTML inside a page: nodes, and errors that name the page and the line."""

from __future__ import annotations

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class ZooDirective(SphinxDirective):
    """A directive whose failure is one line that names the page, so that a build with `-W` stops there."""

    def made(self) -> list[nodes.Node]:
        """The nodes that the directive stands for."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        try:
            return self.made()
        except Exception as error:
            raise self.error(f"{self.name}: {type(error).__name__}: {error}") from error

    @property
    def language(self) -> str:
        """ "en" or "zh"."""
        return str(self.config.zoo_language)


def html(text: str) -> nodes.raw:
    """HTML as it is."""
    return nodes.raw("", text, format="html")


def literal(text: str, language: str) -> nodes.literal_block:
    """A block of code, highlighted as `language`."""
    node = nodes.literal_block(text, text)
    node["language"] = language
    return node


def boxed(*children: nodes.Node, classes: tuple[str, ...] = ()) -> nodes.container:
    """Nodes in a `<div>`."""
    node = nodes.container("", *children)
    node["classes"] += list(classes)
    return node
