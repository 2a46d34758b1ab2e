"""What the pages call the zoo's own is there, under that name."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def resolved(name):
    """What a dotted name stands for: a module, or an attribute of one."""
    module, rest = name, []
    while True:
        try:
            found = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for attribute in rest:
        found = getattr(found, attribute)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_dotted_names_exist(page):
    names = set(re.findall(r"(?<![\w./-])zoo(?:\.\w+)+", page.read_text(encoding="utf-8")))
    for name in sorted(names):
        resolved(name)


def test_a_name_that_is_not_there_is_noticed():
    with pytest.raises(AttributeError):
        resolved("zoo.loading.nothing")
