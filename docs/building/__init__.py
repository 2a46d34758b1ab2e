"""What these pages have beyond Sphinx: directives that run the zoo when the docs are built, and two languages."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any


def setup(app: Any) -> dict[str, Any]:
    """Add each module of this package that has something to add."""
    for found in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        if hasattr(module, "setup"):
            module.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
