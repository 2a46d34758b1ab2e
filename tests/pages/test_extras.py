"""The table of extras on the page about installing."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_extra_has_its_words():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        from building.extras import declared, rows
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert declared() == project["optional-dependencies"]
    for language in ("en", "zh"):
        shown = rows(declared(), language)
        assert {row[0] for row in shown} == {f"<code>{name}</code>" for name in declared()}
        assert ["<code>plots</code>", shown[3][1], "<code>matplotlib</code>"] in shown
    with pytest.raises(ValueError, match="differ in: another"):
        rows(declared() | {"another": []}, "en")
