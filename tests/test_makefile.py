"""The Makefile, run with a Python that is too old."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OLD = f"""#!/bin/sh
test "$1" = -c || exit 9
exec "{sys.executable}" -c "import sys; sys.version_info = (3, 9, 6); $2"
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_old_python_is_named_with_ways_to_a_newer_one(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "python3").write_text(OLD)
    (tmp_path / "python3").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    without_make = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["make", "run"], cwd=tmp_path, env={**without_make, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode != 0 and not (tmp_path / ".venv").exists()
    said, _ = done.stderr.splitlines()  # the second is make's
    assert said.startswith(
        "python3 is Python 3.9, the zoo needs 3.11 or later: `brew install python`, or `make PYTHON="
    )
