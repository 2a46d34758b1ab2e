"""Files that the docs name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("", "zoo/", "plugins/", "docs/")
PATH = re.compile(r"`([\w./-]+\.(?:py|md|toml|yml|yaml)|[\w./-]+/)`")


@pytest.mark.parametrize("page", ["docs/security.md", "CONTRIBUTING.md"])
def test_each_file_that_a_page_names_exists(page):
    named = set(PATH.findall((ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 10
    assert sorted(name for name in named if not any((ROOT / place / name).exists() for place in PLACES)) == []
