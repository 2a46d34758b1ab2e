"""Imports run one way, and only what is needed is imported."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import zoo

PROJECT = Path(__file__).parent.parent
CORE = sorted(Path(zoo.__file__).parent.rglob("*.py"))


def imported(path):
    """The modules that a file may import: `from zoo_new import parts` is zoo_new and zoo_new.parts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def after_running():
    """The modules of a process that has run an embedded model."""
    return modules_after(
        "import zoo\nloaded = zoo.load('llama')\n"
        "assert list(zoo.stream(loaded, 'The capital city of China is', max_tokens=2))"
    )


@pytest.fixture(scope="module")
def after_the_command():
    """The modules of the command `zoo run` after its answer."""
    return modules_after(
        "import sys\nfrom zoo.cli import main\nsys.argv = ['zoo', 'run', 'llama', 'I am', '--max-tokens', '2']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )


def test_a_command_that_answers_imports_no_numpy(after_the_command):
    assert "zoo.generation.chat.conversation" in after_the_command and "numpy" not in after_the_command


@pytest.mark.parametrize(
    "heavy", ["mlx_lm", "transformers", "torch", "rich", "jinja2", "huggingface_hub", "gguf", "numpy"]
)
def test_running_a_pocket_imports_nothing_heavy(after_running, heavy):
    assert "mlx.core" in after_running and heavy not in after_running


@pytest.fixture
def copied(tmp_path):
    """A copy of the sources, and of the configuration that says which floor may import which."""
    shutil.copytree(
        PROJECT / "zoo", tmp_path / "zoo", ignore=lambda _, names: {n for n in names if n == "__pycache__"}
    )
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    return tmp_path


def contracts(folder):
    """What import-linter says of the sources in a folder: its exit status and its report."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, " ".join(done.stdout.split()) + done.stderr


def test_the_sources_keep_the_contracts(copied):
    status, report = contracts(copied)
    assert status == 0 and "2 kept, 0 broken" in report, report


def add(folder, file, code):
    with (folder / "zoo" / file).open("a", encoding="utf-8") as sources:
        sources.write(f"\n\n{code}\n")


def test_an_import_up_the_floors_breaks_them_also_within_a_function(copied):
    add(copied, "errors.py", "from zoo.cli import notice")
    add(copied, "cache/base.py", "def late():\n    from zoo.generation.loop.prompt import encode_prompt")
    status, report = contracts(copied)
    assert status != 0 and "Imports run down the floors BROKEN" in report, report
    assert "zoo.errors -> zoo.cli" in report and "zoo.cache.base -> zoo.generation.loop.prompt" in report


def test_a_circle_within_one_floor_breaks_them(copied):
    add(copied, "recipe/spec.py", "def back():\n    import zoo.weights")  # which import the recipe
    status, report = contracts(copied)
    assert status != 0 and "No circles BROKEN" in report and "floors KEPT" in report, report
    assert "No cycles are allowed in zoo" in report
    assert ".weights -> .recipe" in report or ".recipe -> .weights" in report


@pytest.mark.parametrize(
    ("folder", "module", "other"),
    [("plugins", "zoo_new.command", "zoo_new.parts"), ("tools", "serve_speed", "serve_balance")],
)
def test_no_modules_import_each_other_in_a_circle(folder, module, other):
    folder = PROJECT / folder
    files = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    imports = {name: {n for n in imported(path) if n in files and n != name} for name, path in files.items()}
    assert other in imports[module] or module in imports[other]
    list(TopologicalSorter(imports).static_order())  # CycleError names the circle


def test_the_table_of_floors_is_the_contract():
    contract = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(c["layers"] for c in contract["contracts"] if c["type"] == "layers")
    floors = []
    page = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for floor, rooms in re.findall(r"^\|([^|]*)\|((?: `[\w./]+`,?)+) \|", page, re.MULTILINE):
        if floor.strip():
            floors.append(set())
        floors[-1] |= {room.removesuffix(".py") for room in re.findall(r"`([\w./]+?)/?`", rooms)}
    tops = [{room for room in floor if "/" not in room} for floor in floors]
    assert tops == [set(layer.split(" : ")) - {"__main__"} for layer in layers]
    for room in set().union(*floors):
        assert (PROJECT / "zoo" / room).is_dir() or (PROJECT / "zoo" / f"{room}.py").is_file(), room
