"""The example plugins of the documentation, imported from their folders."""

import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "docs" / "plugins" / "examples"


def example(name):
    """The module of the example package `name` ("zoo-gpt-neox"), as if it were installed."""
    folder = str(FOLDER / name)
    if folder not in sys.path:
        sys.path.append(folder)
    return import_module(name.replace("-", "_"))
