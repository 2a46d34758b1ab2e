"""The commands that go to a hub, or to what was downloaded from one."""

import json
import os
import pty
import subprocess
import sys
import termios
from contextlib import nullcontext
from types import SimpleNamespace

import click
import mlx.core as mx
import pytest
from click.testing import CliRunner

import zoo
from tests.helpers.loopback_hub import ID, PROMPT, Repository, answers
from zoo.checkpoint import hub_guard
from zoo.cli import cli
from zoo.cli.cache import cache
from zoo.cli.program import ask
from zoo.cli.show import show
from zoo.errors import SourceError


def test_what_a_model_is_made_of_is_told_by_its_config_alone(hub, repository):
    shown = CliRunner().invoke(show, [ID, "--json"])
    assert json.loads(shown.stdout)["facts"]["parameters.total"]["value"] == 1_049_728
    assert hub.asked() == ["config.json"]
    assert "revision" in str(CliRunner().invoke(show, ["llama", "--revision", "v9"]).exception)


@pytest.mark.slow
def test_the_command_downloads_resumes_and_runs(hub, repository, pocket, command, tmp_path):
    # huggingface_hub writes pieces of 10 MB: what is cut after less begins anew.
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "plain.safetensors").write_bytes(pocket["model.safetensors"])
    tensors = mx.load(str(tmp_path / "large" / "plain.safetensors"))
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = mx.zeros((4_000_000,))
    mx.save_safetensors(str(tmp_path / "large" / "model.safetensors"), tensors, {"format": "pt"})
    repository.commit({**pocket, "model.safetensors": (tmp_path / "large/model.safetensors").read_bytes()})
    hub.cut["model.safetensors"] = [15_000_000]
    done = command("run", ID, PROMPT, "--max-tokens", "4", environment=hub.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Beijing")
    assert len(done.stderr.splitlines()) == 1, done.stderr  # the statistics: no bars where no terminal is
    ranges = [h["range"] for how, path, h in hub.requests if how == "GET" and "range" in h]
    assert len(ranges) == 1 and int(ranges[0][6:-1]) >= 10_000_000


@pytest.mark.slow
def test_a_terminal_shows_progress(hub, repository):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    arguments = [sys.executable, "-m", "zoo", "run", ID, PROMPT, "--max-tokens", "4"]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, **hub.environment}
    )
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert process.stdout.read().startswith(b" Beijing") and process.wait() == 0
    assert b"\rmodel.safetensors: " in shown and b"2.10M" in shown


@pytest.mark.slow
def test_the_command_says_in_one_line_what_is_wrong(hub, repository, command):
    repository.gated = True
    hub.repositories["mlx-community/plain"] = Repository()
    for arguments, words in (
        ((ID,), ("gated", "HF_TOKEN")),
        ((ID, "--revision", "v9"), ("v9",)),
        (("mlx-community/nothing",), ("no such model", "spelling")),
    ):
        done = command("run", *arguments, PROMPT, environment=hub.environment)
        assert done.returncode == 1 and done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        for word in (arguments[0], *words):
            assert word in done.stderr


def test_a_large_download_is_asked_about(hub, repository, monkeypatch):
    monkeypatch.setattr(hub_guard, "CONFIRMED_ABOVE", 1_000_000)
    monkeypatch.setattr("sys.argv", ["zoo", "run", ID, "hi"])

    def run(*more):
        return CliRunner().invoke(cli, ["run", ID, PROMPT, "--max-tokens", "4", *more])

    refused = run()
    assert str(refused.exception) == f"{ID}: 0.0 GB to download; type this to do so: zoo run {ID} hi --yes"
    assert refused.exit_code == 1 and "model.safetensors" not in hub.asked()
    assert run("--yes").stdout.startswith(" Beijing") and "model.safetensors" in hub.asked()
    assert run().stdout.startswith(" Beijing"), "what the cache has is no download"


@pytest.mark.parametrize("agrees", [True, False])
def test_a_person_on_a_terminal_is_asked(monkeypatch, agrees):
    def isatty():
        return True

    questions = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=isatty))
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=isatty))
    monkeypatch.setattr(click, "confirm", lambda text, err: questions.append(text) or agrees)
    with (
        hub_guard.confirming_downloads(ask),
        nullcontext() if agrees else pytest.raises(SourceError, match="nothing was"),
    ):
        hub_guard.confirm_download("org/large", 14_500_000_000)
    hub_guard.confirm_download("org/large", 14_500_000_000)  # the library asks nobody
    assert questions == ["org/large: download 14.5 GB?"]


def test_a_command_without_yes_names_one_that_downloads(monkeypatch):
    @click.command()
    def mine():
        ask("org/large", 2_000_000_000)

    error = CliRunner().invoke(mine).exception
    assert str(error) == "org/large: 2.0 GB to download; type this to do so: hf download org/large"


def test_a_small_download_is_not_asked_about(hub, repository):
    assert CliRunner().invoke(cli, ["run", ID, PROMPT, "--max-tokens", "4"]).stdout.startswith(" Beijing")


def test_the_cache_is_listed_and_emptied(hub, repository, pocket):
    def run(*arguments, said=None):
        done = CliRunner().invoke(cache, arguments, input=said)
        return done.exit_code, done.stdout, done.stderr, done.exception

    place = hub.environment["HF_HUB_CACHE"]
    assert run()[:2] == (0, f"no model is in the cache {place}\n")
    folders = [zoo.load(ID).folder]
    repository.commit({**pocket, "generation_config.json": b"{}"})
    folders.insert(0, zoo.load(ID).folder)
    _, listed, _, _ = run()
    assert listed.count(ID) == 2 and all(str(folder) in listed for folder in folders) and "2.2" in listed
    rows = json.loads(run("--json")[1])
    assert [row["path"] for row in rows] == list(map(str, folders))
    assert rows[0]["names"] == ["main"] and rows[0]["bytes"] == sum(
        path.stat().st_size for path in folders[0].iterdir()
    )

    status, _, _, error = run("remove", "mlx-community/pokcet")
    assert status == 1 and f"did you mean {ID}?" in str(error)
    for said in ("n\n", ""):
        status, out, err, _ = run("remove", ID, said=said)
        assert status == 1 and out == "" and "nothing was removed" in err and folders[0].exists()
    assert run("remove", rows[1]["revision"][:8], said="y\n")[0] == 0
    assert not folders[1].exists() and folders[0].exists() and answers(zoo.load(ID))
    assert run("remove", ID, "--yes")[0] == 0
    assert not folders[0].exists() and json.loads(run("--json")[1]) == []
