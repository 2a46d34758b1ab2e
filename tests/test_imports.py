"""Imports run one way, and only what is needed is imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import zoo

CORE = sorted(Path(zoo.__file__).parent.rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_no_core_module_imports_a_plugin():
    guilty = [
        f"{path}: {name}" for path in CORE for name in imported(path) if name.split(".")[0].startswith("zoo_")
    ]
    assert CORE and not guilty


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_every_plugin_leaves_mlx_alone():
    found = modules_after(
        "from zoo.host.registry import default_registry; assert default_registry().architectures"
    )
    assert "zoo_llama" in found
    assert not {
        name for name in found if name.split(".")[0] in ("mlx", "torch", "transformers", "mlx_lm", "rich")
    }


@pytest.mark.parametrize(
    "heavy",
    [
        "mlx_lm",
        "transformers",
        "torch",
        "rich",
        "jinja2",
        "huggingface_hub",
        "gguf",
        "zoo.checkpoint.gguf",
        "numpy",
    ],
)
def test_running_a_pocket_imports_nothing_heavy(heavy):
    code = (
        "import zoo\nloaded = zoo.load('llama')\n"
        "assert list(zoo.stream(loaded, 'The capital city of China is', max_tokens=2))"
    )
    assert heavy not in modules_after(code)
