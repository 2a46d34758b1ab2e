"""The link to the repository on every page, where the package's metadata names one."""

from __future__ import annotations

from typing import Any

NAME = {"en": "Repository", "zh": "代码仓库"}


def add_link(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page's template the address and its name."""
    if app.config.zoo_repository:
        context["zoo_repository"] = {
            "address": app.config.zoo_repository,
            "name": NAME[app.config.zoo_language],
        }


def setup(app: Any) -> None:
    """Add the setting and the link."""
    app.add_config_value("zoo_repository", "", "html", [str])
    app.connect("html-page-context", add_link)
