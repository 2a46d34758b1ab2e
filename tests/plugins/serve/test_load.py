"""Many clients at once: each answer is that of the library alone, and the server holds nothing afterwards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "serve_load.py"


@pytest.mark.slow
def test_answers_under_load_are_those_of_the_library_alone(tmp_path):
    record = tmp_path / "record.json"
    load = ("--requests", "60", "--clients", "8", "--rows", "4", "--queue", "2", "--stall", "2")
    done = subprocess.run(
        [sys.executable, TOOL, "correct", "llama", *load, "--record", record],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(record.read_text(encoding="utf-8"))["correct"]["llama"]
    assert found["seen"] == [] and not any(found["left"].values()), done.stderr
    assert sum(found["verdicts"].values()) == 60
    assert found["verdicts"]["equal"] > 30 and found["verdicts"]["cancelled"] > 0
    assert found["statuses"]["503, asked again"] > 0
    assert found["tokens"]["cached"] > 0
