"""Formulas as MathML, made when the docs are built: browsers draw it and screen readers read it, without a script."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def inline(writer: Any, node: nodes.math) -> None:
    """A formula in a line."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    """A formula of its own, in a box that scrolls where it is wider than the page."""
    formula = convert(node.astext(), display="block")
    writer.body.append(f'<div class="zoo-formula">{formula}</div>\n')
    raise nodes.SkipNode


def add_font(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page with formulas the font whose brackets grow with what they hold."""
    if "<math" in context.get("body", ""):
        app.add_css_file("math.css")


def setup(app: Any) -> None:
    """Make this the way that formulas are written."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(display, None))
    app.connect("html-page-context", add_font)
