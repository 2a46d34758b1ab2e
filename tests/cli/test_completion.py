"""What the shell completes, and small things that commands say."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys

import pexpect
import pytest
from click.shell_completion import ShellComplete

from tests.helpers.waiting import PATIENCE
from zoo import runtime
from zoo.cli import cli
from zoo.cpu import blas


def completed(typed):
    """What the last word of what was typed can become."""
    _, *arguments, incomplete = typed.split(" ")
    items = ShellComplete(cli, {}, "zoo", "_ZOO_COMPLETE").get_completions(arguments, incomplete)
    return {item.value if item.type == "plain" else item.type for item in items}


def test_commands_options_and_architectures_are_completed():
    assert completed("zoo comp") == {"compare"}
    assert completed("zoo run llama --max-t") == {"--max-tokens", "--max-time"}
    found = {"qwen3", "qwen3-classifier", "qwen3-moe", "qwen3-next", "qwen3.5", "qwen3.5-moe"}
    assert completed("zoo run qwen3") == found
    assert completed("zoo run ./my-mo") == {"file"}
    assert {"qwen3:pocket", "qwen3:0.6b", "qwen3:8b"} < completed("zoo run qwen3:")
    assert completed("zoo run smollm2") == {"smollm2", "smollm2:135m", "smollm2:360m", "smollm2:1.7b"}
    assert completed("zoo run smollm2:3") == {"smollm2:360m"}
    assert completed("zoo chat llama:p") == {"llama:pocket"}
    assert completed("zoo compare llama gpt2-") == {"gpt2-postln"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_answered(shell):
    environment = {
        "_ZOO_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "zoo run lla",
        "COMP_CWORD": "lla" if shell == "fish" else "2",  # fish gives the word itself, zsh its number
    }
    done = subprocess.run(
        [sys.executable, "-m", "zoo"], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0 and "llama" in done.stdout and "llada" in done.stdout, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell):
    environment = {**os.environ, "_ZOO_COMPLETE": f"{shell}_source"}
    done = subprocess.run([sys.executable, "-m", "zoo"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and f"_ZOO_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_itself_completes_commands_options_architectures_and_presets(tmp_path):
    program = tmp_path / "zoo"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zoo "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "dumb", "PS1": ""}
    bash = pexpect.spawn(
        "bash", ["--norc", "--noprofile"], encoding="utf-8", timeout=PATIENCE, cwd=tmp_path, env=environment
    )
    try:
        bash.sendline('eval "$(_ZOO_COMPLETE=bash_source zoo)"; echo rea""dy')
        bash.expect_exact("ready\r\n")
        for typed, completed in (
            ("zoo comp", "zoo compare "),
            ("zoo run llama:po", "zoo run llama:pocket "),
            ("zoo chat llama --max-to", "zoo chat llama --max-tokens "),
        ):
            bash.send(f"{typed}\t")
            bash.expect_exact(completed)
            bash.send("\x15")  # clears the line
    finally:
        bash.close(force=True)


def test_advice_is_a_command_for_this_installation(monkeypatch):
    if sys.platform != "linux" or runtime.on_gpu():
        return
    monkeypatch.setattr(blas, "_blas", "MLX's own")
    (line,) = runtime.speed_advice()
    command = line.split("`")[1].split()
    assert command == [sys.executable, "-m", "pip", "install", "scipy-openblas32"]
    assert subprocess.run([*command[:3], "--version"], capture_output=True).returncode == 0
    # Just what the zoo itself brings on Linux.
    assert any(one.startswith("scipy-openblas32") for one in importlib.metadata.requires("mlx-zoo"))
    monkeypatch.setattr(blas, "find_spec", lambda name: None)
    assert f"`uv pip install -p {sys.executable} scipy-openblas32`" in runtime.speed_advice()[0]


def test_the_languages_of_a_model_without_any_are_told_by_its_name(command):
    done = command("languages", "llama")
    assert done.returncode == 1
    assert done.stderr == "zoo: error: llama: its tokenizer names no languages to choose between\n"


def test_what_list_tells_programs_is_all_of_it(command):
    rows = json.loads(command("list", "--json").stdout)
    llama = next(row for row in rows if row["name"] == "llama")
    assert llama["embedded"] and llama["presets"][:2] == ["pocket", "8b"]
    assert not next(row for row in rows if row["name"] == "mlx-lm::helium")["embedded"]
