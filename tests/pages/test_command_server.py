"""Commands on pages that run without starting Python anew give what they give otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from building import command_server

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = (
    ["run", "llama", "The capital city of China is", "--max-tokens", "4"],
    ["run", "lama", "no such model"],
    ["tokenize", "llama", "中国"],
)


pytestmark = pytest.mark.skipif(not command_server.AVAILABLE, reason="no forks here")


def environment(folder):
    python = os.pathsep.join(map(str, (DOCS.parent, DOCS.parent / "plugins")))
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONPATH": python,
    }


def test_it_gives_what_a_process_of_its_own_gives(tmp_path):
    server, given = command_server.CommandServer(120), environment(tmp_path)
    for words in COMMANDS:
        alone = subprocess.run(
            [sys.executable, "-m", "zoo", *words],
            cwd=tmp_path, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8",
        )  # fmt: skip
        found = server.run(words, tmp_path, given)
        assert (found.stdout, found.returncode) == (alone.stdout, alone.returncode)
        assert (found.stderr == alone.stderr) or (words[0] == "run" and alone.returncode == 0)  # its speed


def test_a_command_has_its_own_folder_and_environment(tmp_path):
    server, given = command_server.CommandServer(120), environment(tmp_path)
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "in.jsonl").write_text('"One"\n')
        found = server.run(["run", "llama", "--prompts", "in.jsonl", "--output", "out.jsonl"], folder, given)
        assert found.returncode == 0, found.stderr
        assert (folder / "out.jsonl").is_file()
    blocked = server.run(["plugins"], tmp_path, given | {"ZOO_BLOCK": "mamba"})
    assert "blocked" in blocked.stdout and "blocked" not in server.run(["plugins"], tmp_path, given).stdout


def test_a_command_that_takes_too_long_is_an_error(tmp_path):
    server = command_server.CommandServer(0.001)
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(["list"], tmp_path, environment(tmp_path))
