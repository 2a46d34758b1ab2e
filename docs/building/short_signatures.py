"""Signatures as a reader of the Python interface needs them: types by their last names."""

from __future__ import annotations

import re
from typing import Any

QUALIFIED = re.compile(r"~?\b(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*)")
LINE = re.compile(r"<dd>(.*)</dd>")
LIST = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*</dd>\n)+)</dl>')


def short(app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returns: str) -> Any:
    """The signature without the modules of its types."""

    def named(text: str | None) -> str | None:
        return text and QUALIFIED.sub("", text).replace("<factory>", "…")

    return named(signature), named(returns)


def listed(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The parameters of a long signature as lines of text: Sphinx writes them as a list of definitions without terms."""
    if "body" in context:
        context["body"] = LIST.sub(
            lambda found: LINE.sub(r'<span class="zoo-parameter">\1</span>', found[1]), context["body"]
        )


def setup(app: Any) -> None:
    """Shorten each, and write its parameters as lines."""
    app.connect("autodoc-process-signature", short)
    app.connect("html-page-context", listed)
