"""Scripts run after a page is drawn: none of them draws what a reader sees first. No page waits for styles that it does not use."""

from __future__ import annotations

from typing import Any

EXTENSIONS = "furo-extensions.css"  # of Sphinx extensions that these pages do not use


def defer(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let each script file of a page wait for the page, in their order, and leave out the theme's styles for extensions."""
    for script in context.get("script_files", ()):
        if getattr(script, "filename", None) and "async" not in script.attributes:
            script.attributes["defer"] = "defer"
    if "css_files" in context:
        context["css_files"] = [one for one in context["css_files"] if EXTENSIONS not in str(one.filename)]


def setup(app: Any) -> None:
    """Do so once all parts have added theirs."""
    app.connect("html-page-context", defer, priority=950)
