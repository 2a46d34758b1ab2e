"""The public names: those that the page of the Python interface lists."""

import re
from importlib import import_module
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
LISTED = re.findall(r"^\.\. auto(\w+):: (zoo[\w.]+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def named(name):
    """What a dotted name stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)
