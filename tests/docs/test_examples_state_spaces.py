"""The example plugins with state spaces: they hold the suite and their own tests, and are as short as they should be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "plugins" / "examples"
EXAMPLES = ["zoo-mamba2", "zoo-falcon-h1"]


@pytest.fixture(scope="module")
def examples(make_site, tmp_path_factory):
    """A site where both are installed."""
    site = make_site(tmp_path_factory.mktemp("site"))
    for name in EXAMPLES:
        site.install(FOLDER / name)
    return site


@pytest.mark.slow
def test_their_own_tests_pass(examples):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "zoo_pytest",
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
        ]
        + [str(FOLDER / name / "tests") for name in EXAMPLES],
        capture_output=True,
        text=True,
        cwd=examples.path,
        env={**os.environ, **examples.environment, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0 and "9 passed" in done.stdout, done.stdout + done.stderr


def test_the_zoo_finds_and_shows_them(examples, command):
    listed = command("plugins", environment=examples.environment).stdout
    assert "mamba2, mixer/mamba2" in listed and "falcon-h1, " in listed
    shown = command("show", "falcon-h1", "--all", environment=examples.environment).stdout
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines() if line.startswith("layer"))
    assert rows["layer.mixer"] == "attention" and rows["layer.memory"] == "falcon-h1"
    assert "cache a token" in shown and "state at any length" in shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_they_are_under_160_lines_beside_their_drawing(name):
    files = [path for path in (FOLDER / name).glob("zoo_*/*.py") if path.name != "drawing.py"]
    code = [path.read_text(encoding="utf-8") for path in files]
    assert code and sum(bool(line.strip()) for text in code for line in text.splitlines()) < 160
