"""The page of quantized folders names every format that is read."""

from pathlib import Path

from zoo.architecture import QuantizedFormat
from zoo.host.registry import default_registry

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"


def test_each_method_has_a_row():
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    missing = [
        name
        for name in default_registry().table(QuantizedFormat)
        if not any(f"`{name}`" in row for row in rows)
    ]
    assert not missing
