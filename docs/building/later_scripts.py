"""Scripts run after a page is drawn: none of them draws what a reader sees first."""

from __future__ import annotations

from typing import Any


def defer(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let each script file of a page wait for the page; their order stays."""
    for script in context.get("script_files", ()):
        if getattr(script, "filename", None) and "async" not in script.attributes:
            script.attributes["defer"] = "defer"


def setup(app: Any) -> None:
    """Do so once all parts have added theirs."""
    app.connect("html-page-context", defer, priority=950)
