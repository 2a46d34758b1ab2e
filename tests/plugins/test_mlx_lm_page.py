"""The page about mlx-lm says what is so: its code runs, and its numbers are those of the tests."""

import re
from pathlib import Path

import mlx.core as mx
import pytest

from zoo_mlx_lm.tools import TOOLS

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "mlx-lm.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_its_code_runs(interpreted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(
        r"^<!-- run python[^\n]*-->\n```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
    ):
        exec(block, names)
    assert "Beijing" in names["text"] and names["batch"].texts[0].strip() == "Paris."
    assert issubclass(names["Provider"], names["server"].ModelProvider)
    assert "layers.3.mixer.query.lora_a" in mx.load(str(tmp_path / "adapters.safetensors"))


def test_its_commands_are_those_that_there_are():
    assert set(re.findall(r"zoo_mlx_lm\.tools (\w+) --", PAGE)) <= set(TOOLS)
    assert all(f"`{tool}`" in PAGE or f"tools {tool} " in PAGE for tool in TOOLS)
