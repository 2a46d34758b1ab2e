"""The colours of diagrams, figures and traces in furo's three themes: light, dark, and what the browser asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from zoo.describe.diagram.svg import DARK, LIGHT, properties, rules, style


def colours() -> str:
    """The style sheet: custom properties on `body`, and on the diagrams, whose own sheet sets them, too."""

    def rule(selector: str, values: dict[str, str]) -> str:
        return f"{selector},{selector} .zoo-diagram{{{properties(values)}}}"

    return "\n".join(
        (
            rule("body", LIGHT),
            f"@media (prefers-color-scheme:dark){{{rule('body:not([data-theme=light])', DARK)}}}",
            rule("body[data-theme=dark]", DARK),
            rule("body[data-theme=light]", LIGHT),
            rules(),
        )
    )


def write(app: Any, error: Exception | None) -> None:
    """Write it beside the other style sheets."""
    if error is None and app.builder.format == "html":
        Path(app.outdir, "_static", "zoo-colours.css").write_text(colours(), encoding="utf-8")


def write_smaller(app: Any, error: Exception | None) -> None:
    """The theme's colours of code without its comments and spaces."""
    path = Path(app.outdir, "_static", "pygments.css")
    if error is None and path.is_file():
        plain = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        path.write_text(re.sub(r"\s*([{};:,])\s*", r"\1", plain).strip(), encoding="utf-8")


def share_styles(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Take out of diagrams the sheet that each has for itself: the page's own has the same."""
    if "body" in context:
        context["body"] = context["body"].replace(f"<style>{style()}</style>", "")


def setup(app: Any) -> None:
    """Add the style sheets, and the script for what is wider than its place."""
    app.add_css_file("zoo-colours.css")
    app.add_css_file("zoo.css")
    app.add_css_file("home.css")
    app.add_css_file("wide.css")
    app.add_js_file("zoo.js")
    app.connect("html-page-context", share_styles)
    app.connect("build-finished", write)
    app.connect("build-finished", write_smaller, priority=900)  # after the theme has written it
