"""The table of extras on the page about installing."""

import tomllib
from pathlib import Path

import pytest
from building.extras import declared, rows

ROOT = Path(__file__).parents[2]


def test_every_extra_has_its_words():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert declared() == project["optional-dependencies"]
    for language in ("en", "zh"):
        shown = rows(declared(), language)
        assert {row[0] for row in shown} == {f"`{name}`" for name in declared()}
        assert ["`plots`", shown[3][1], "`matplotlib`"] in shown
    with pytest.raises(ValueError, match="differ in: another"):
        rows(declared() | {"another": []}, "en")
