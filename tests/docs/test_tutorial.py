"""The tutorial's code, taken from its page: it installs, holds the suite, and is as short as the page says."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_plugin_is_loaded_and_shown(tutorial, command):
    _, site = tutorial
    listed = command("plugins", environment=site.environment).stdout
    (line,) = (line for line in listed.splitlines() if line.startswith("gptj "))
    assert " loaded " in line and "gptj, layer/parallel-gptj" in line
    shown = command("show", "gptj", "--all", environment=site.environment).stdout
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines() if line.startswith("layer"))
    assert rows["layer"] == "parallel-gptj" and rows["layer.mixer.rope.interleaved"] == "yes"
    compared = command("compare", "gptj", "gpt2:small", "--all", environment=site.environment)
    assert compared.returncode == 0 and "layer.norm.eps" in compared.stdout


@pytest.mark.slow
def test_it_holds_the_suite(tutorial, command):
    _, site = tutorial
    done = command("test", "gptj", environment=site.environment)
    assert done.returncode == 0, done.stdout
    assert "importing the plugin imports nothing heavy" in done.stdout


@pytest.mark.slow
def test_its_own_test_passes(tutorial):
    where, site = tutorial
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "zoo_pytest", "-p", "no:cacheprovider", where / "zoo-gptj"],
        capture_output=True,
        text=True,
        env={**os.environ, **site.environment},
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_the_plugin_is_under_sixty_lines(tutorial):
    where, _ = tutorial
    lines = [
        line
        for path in (where / "zoo-gptj" / "zoo_gptj").glob("*.py")
        for line in path.read_text().splitlines()
    ]
    assert len([line for line in lines if line.strip()]) < 60
