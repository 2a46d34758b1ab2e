"""Signatures as a reader of the Python interface needs them: types by their last names."""

from __future__ import annotations

import re
from typing import Any

QUALIFIED = re.compile(r"~?\b(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*)")


def short(app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returns: str) -> Any:
    """The signature without the modules of its types."""

    def named(text: str | None) -> str | None:
        return text and QUALIFIED.sub("", text).replace("<factory>", "…")

    return named(signature), named(returns)


def setup(app: Any) -> None:
    """Shorten each."""
    app.connect("autodoc-process-signature", short)
