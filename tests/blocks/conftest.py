"""The code of the page about layers."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.page_layers import PageBlocks
from zoo.host.registry import isolated, using

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "layers.md"


@pytest.fixture(scope="module")
def page():
    """The code of the page, as a module."""
    module = sys.modules["layers_page"] = ModuleType("layers_page")
    for code in re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        exec(compile(code, str(PAGE), "exec"), vars(module))
    yield module
    del sys.modules["layers_page"]


@pytest.fixture
def known(page):
    """The zoo's plugins and the page's."""
    with using(isolated(PageBlocks(page))) as found:
        yield found
