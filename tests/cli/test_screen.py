"""What a terminal and a pipe see of text that is made in drafts."""

import os
import pty
import shutil
import subprocess
import sys

import pytest

from tests.helpers.waiting import PATIENCE

PROMPT = "The capital of France is"


@pytest.fixture
def llada(folder, tokenizer_folder):
    path = folder("llada", tokenizer=False, preset="pocket")
    shutil.copytree(tokenizer_folder, path, dirs_exist_ok=True)
    return path


def on_a_terminal(*arguments):
    """All that a command writes to a terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the follower is closed: the command has ended
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    assert process.wait(timeout=PATIENCE) == 0
    return seen.decode("utf-8", "replace")


def test_a_pipe_gets_the_final_text_alone(command, llada):
    done = command("run", llada, PROMPT, "--max-tokens", "8", "--steps", "4", "--block-length", "4")
    assert done.returncode == 0, done.stderr
    assert "░" not in done.stdout and "\x1b" not in done.stdout
    assert done.stdout.endswith("\n") and len(done.stdout.splitlines()) >= 1


def test_a_terminal_sees_the_unmasking_and_keeps_the_text(command, llada):
    arguments = ("run", llada, PROMPT, "--max-tokens", "6", "--steps", "3")
    final = command(*arguments).stdout
    seen = on_a_terminal(*arguments)
    assert seen.count("░") >= 4
    assert seen.replace("\r\n", "\n").rstrip("\x1b[?25hl").endswith(final)


def test_text_without_drafts_is_written_as_it_comes(folder, tokenizer_folder):
    path = folder("llama", tokenizer=False, preset="pocket")
    shutil.copytree(tokenizer_folder, path, dirs_exist_ok=True)
    assert "\x1b" not in on_a_terminal("run", path, PROMPT, "--max-tokens", "4")
