"""Commands that a page runs when the docs are built."""

import contextlib
import socket
import tomllib
from pathlib import Path

import pytest
from building import build_cache
from building import shell as shell_module
from figures import server

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def shell(monkeypatch, tmp_path):
    """The module behind `{console}`, with a cache of its own."""
    monkeypatch.setattr(build_cache, "FOLDER", tmp_path / "kept")
    return shell_module


def test_a_command_that_failed_is_run_again(shell, tmp_path):
    line = f"python -c \"import pathlib; print(pathlib.Path('{tmp_path}/there').read_text())\""
    with pytest.raises(ValueError, match=r"ended with 1, not 0: (?s:.)*FileNotFoundError"):
        shell.Shell().run(line, 0)
    (tmp_path / "there").write_text("found")
    assert shell.Shell().run(line, 0)["out"] == "found\n"
    (tmp_path / "there").write_text("another")
    assert shell.Shell().run(line, 0)["out"] == "found\n"
    with pytest.raises(ValueError, match="ended with 0, not 1"):
        shell.Shell().run(line, 1)


@pytest.mark.slow
def test_a_page_asks_its_own_server_whoever_has_the_address_that_it_shows(shell):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # another program has it
            other.bind(("127.0.0.1", 8080))
        server.start("llama")
        try:
            asked = "import urllib.request as r; a = 'http://127.0.0.1:8080/v1/models'; print(a, r.urlopen(a).read())"
            printed = shell.Shell().run(f'python -c "{asked}"', 0)["out"]
        finally:
            server.stop()
    assert printed.startswith("http://127.0.0.1:8080/v1/models") and '"id":"llama"' in printed, printed


def test_the_docs_install_what_their_server_needs():
    extras = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert {"mlx-zoo[serve]"} & set(extras["docs"]) or set(extras["serve"]) <= set(extras["docs"])
