"""The README says what is true."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_is_the_registrys(readme):
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "tools" / "readme_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.rewritten(readme) == readme, "run: python tools/readme_table.py"
    assert "| `llama` |" in module.table()


def test_every_command_it_shows_is_one(readme):
    from zoo.cli import COMMANDS

    shown = {line.split()[1] for line in readme.splitlines() if line.startswith("    zoo ")}
    assert shown and shown <= set(COMMANDS)


def test_its_python_runs(readme, capsys):
    code = readme.partition("```python\n")[2].partition("```")[0]
    exec(code.replace("model(tokens)", "model(mx.array([[1, 2, 3]]))"), {"mx": __import__("mlx.core").core})
    assert "北京" in capsys.readouterr().out
