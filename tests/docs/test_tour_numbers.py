"""What the tour says in words of numbers that its pages compute."""

import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PYTHON = re.compile(r"^```\{python\}\n(?::[a-z-]+:\n)*\n?(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def names(monkeypatch):
    """The names that the first `count` blocks of Python on a page leave, in either language."""
    monkeypatch.syspath_prepend(DOCS)

    def after(page, count):
        found = {"__name__": "page"}
        blocks = PYTHON.findall((DOCS / page).read_text(encoding="utf-8"))
        for code in blocks[:count]:
            exec(compile(code, page, "exec"), found)
        return found

    yield after
    for name in [name for name in sys.modules if name.partition(".")[0] == "figures"]:
        del sys.modules[name]


@pytest.mark.parametrize("page", ["tour/positions.md", "zh/tour/positions.md"])
def test_attention_without_positions_sees_the_order_with_a_causal_mask_only(names, page):
    found = names(page, 2)
    assert found["without_mask"] < 1e-6
    assert found["causal"] > 0.01
