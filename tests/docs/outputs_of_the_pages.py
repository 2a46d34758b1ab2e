"""The outputs that stand in the pages are what their code and commands print.

They take minutes: `make docs` runs them, by the name of this file.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from building.outputs import pages

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "page_outputs.py"


@pytest.mark.parametrize("page", [path.relative_to(ROOT).as_posix() for path in pages()])
def test_its_outputs_are_what_it_prints(page):
    found = subprocess.run([sys.executable, TOOL, "--check", page], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
