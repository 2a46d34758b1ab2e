"""The example plugins of the documentation: they install, are short, pass their own tests and are on their page."""

import os
import subprocess
import sys
import tomllib

import pytest

from tests.helpers.example_plugins import FOLDER
from zoo.host.plugins import load_plugins
from zoo.host.registry import Registry
from zoo.host.resolve import resolve

EXAMPLES = sorted(FOLDER.glob("zoo-*"))
NAMES = [folder.name for folder in EXAMPLES]


def code_of(folder):
    return [path for path in sorted(folder.rglob("*.py")) if "tests" not in path.relative_to(folder).parts]


@pytest.fixture
def installed(site):
    for folder in EXAMPLES:
        site.install(folder)
    return site


def test_they_are_loaded_without_a_fault(installed):
    known = Registry(load_plugins({"ZOO_STRICT": "1"}))
    for folder in EXAMPLES:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        plugin = known.plugin(project["name"])
        assert plugin.state == "loaded" and plugin.name in project["entry-points"]["zoo"]
        given = plugin.records["zoo_architectures"]
        for architecture in given:
            assert known.architecture(architecture.name) is architecture
            assert resolve(known, {"model_type": architecture.model_types[0]}) is architecture


@pytest.mark.slow
def test_they_pass_their_own_tests(installed):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "zoo_pytest", "-p", "no:cacheprovider", "-rA", *EXAMPLES],
        capture_output=True,
        text=True,
        env={**os.environ, **installed.environment},
    )
    assert done.returncode == 0, done.stdout[-4000:]
    for folder in EXAMPLES:
        assert f"{folder.name}/tests/" in done.stdout


@pytest.mark.parametrize("folder", EXAMPLES, ids=NAMES)
def test_each_is_short_enough_to_be_read(folder):
    lines = [line for path in code_of(folder) for line in path.read_text(encoding="utf-8").splitlines()]
    assert 0 < len([line for line in lines if line.strip()]) < 200


def test_the_page_shows_each_of_them():
    page = (FOLDER.parent / "examples.md").read_text(encoding="utf-8")
    for folder in EXAMPLES:
        for path in code_of(folder):
            assert f"<!-- source: docs/plugins/{path.relative_to(FOLDER.parent).as_posix()} -->" in page, path
