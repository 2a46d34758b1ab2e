"""The commands that go to a hub, or to what was downloaded from one."""

import errno
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import termios
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import click
import mlx.core as mx
import pexpect
import pytest
from click.testing import CliRunner

import zoo
import zoo_llama
from tests.helpers.loopback_hub import ID, PROMPT, Repository, answers
from tests.helpers.waiting import PATIENCE
from zoo.architecture import Preset, hookimpl
from zoo.checkpoint import hub_guard
from zoo.cli import cli
from zoo.cli.cache import cache
from zoo.cli.program import ask
from zoo.cli.show import show
from zoo.errors import SourceError
from zoo.host.registry import isolated, using


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
    repository.gated = 403
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
    assert str(refused.exception) == f"{ID}: 2.1 MB to download; type this to do so: zoo run {ID} hi --yes"
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
        nullcontext() if agrees else pytest.raises(SourceError, match="not downloaded"),
    ):
        hub_guard.confirm_download("org/large", 14_500_000_000)
    hub_guard.confirm_download("org/large", 14_500_000_000)  # the library asks nobody
    assert questions == ["org/large: download 14.5 GB?"]


def test_a_command_without_yes_names_one_that_downloads(monkeypatch):
    @click.command()
    def mine():
        ask("org/large", 2_000_000_000)

    error = CliRunner().invoke(mine).exception
    assert str(error) == "org/large: 2 GB to download; type this to do so: hf download org/large"


@pytest.fixture
def preset(hub, repository):
    """A preset "real", also called "short", whose checkpoint is on the hub."""

    class Plugin:
        @hookimpl
        def zoo_architectures(self):
            presets = (Preset("real", hub=ID, aliases=("short",)),)
            yield replace(
                next(zoo_llama.zoo_architectures()), name="real-llama", model_types=(), presets=presets
            )

    with using(isolated(Plugin())):
        yield


def run(source, *more, said=None):
    return CliRunner().invoke(cli, ["run", source, PROMPT, "--max-tokens", "4", *more], input=said)


@pytest.mark.parametrize("source", ["short", "real-llama:real", "real-llama"])
def test_a_preset_is_downloaded_after_a_yes_however_small_and_answers(hub, preset, monkeypatch, source):
    questions = []

    def answer(hub_id, nbytes):
        questions.append((hub_id, nbytes))
        if len(questions) == 1:
            raise SourceError(f"{ID}: not downloaded")

    monkeypatch.setattr("zoo.cli.program.ask", answer)
    refused = run(source)
    assert str(refused.exception) == f"{ID}: not downloaded" and "model.safetensors" not in hub.asked()
    assert run(source).stdout.startswith(" Beijing")
    assert questions == [(ID, hub.size(ID, "model.safetensors"))] * 2
    assert run(source).stdout.startswith(" Beijing") and len(questions) == 2, "the cache has it"


@pytest.mark.slow
@pytest.mark.parametrize("said", ["y", "n"])
def test_a_terminal_asks_before_a_preset_is_downloaded(hub, repository, site, said):
    site.add(
        "zoo-short",
        "short_plugin",
        f"""
        from dataclasses import replace
        import zoo_llama
        from zoo.architecture import Preset, hookimpl

        @hookimpl
        def zoo_architectures():
            presets = (Preset("real", hub="{ID}", aliases=("short",)),)
            yield replace(next(zoo_llama.zoo_architectures()), name="other", model_types=(), presets=presets)
        """,
    )
    environment = {**os.environ, **hub.environment, **site.environment, "COLUMNS": "200"}
    arguments = ["-m", "zoo", "run", "short", PROMPT, "--max-tokens", "4"]
    process = pexpect.spawn(sys.executable, arguments, env=environment, encoding="utf-8", timeout=PATIENCE)
    process.expect_exact(f"{ID}: download 2.1 MB? [y/N]: ")
    process.sendline(said)
    process.expect_exact(" Beijing" if said == "y" else f"zoo: error: {ID}: not downloaded")
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == (0 if said == "y" else 1)


def test_without_a_terminal_a_preset_needs_yes(hub, preset, monkeypatch):
    monkeypatch.setattr("sys.argv", ["zoo", "run", "short", "hi"])
    refused = run("short")
    assert str(refused.exception) == f"{ID}: 2.1 MB to download; type this to do so: zoo run short hi --yes"
    assert refused.exit_code == 1 and "model.safetensors" not in hub.asked()
    assert run("short", "--yes").stdout.startswith(" Beijing")


def test_a_preset_that_is_not_in_the_cache_needs_a_network(hub, preset, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in str(run("short", "--yes").exception)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert "cannot be reached" in str(run("short", "--yes").exception)


def test_the_library_asks_nobody(hub, preset):
    assert answers(zoo.load("short"))


def test_presets_are_listed_with_size_memory_and_licence():
    rows = {
        row["name"]: row
        for row in json.loads(CliRunner().invoke(cli, ["list", "--presets", "--json"]).stdout)
    }
    row = rows["smollm2"]
    assert row["aliases"] == ["smollm2", "smollm2:135m"] and row["licence"] == "Apache-2.0"
    assert (row["parameters"], row["download_bytes"]) == (134_515_008, 269_060_552)
    width = 4 if zoo.runtime.compute_dtype() else 2
    cache = 2 * 3 * 64 * 30 * 4096  # keys and values of 3 heads of width 64 in 30 layers
    assert row["memory_bytes"] == (134_515_008 + cache) * width
    assert rows["mistral:7b"]["download_bytes"] is rows["mistral:7b"]["memory_bytes"] is None
    assert list(rows) == sorted(rows, key=lambda name: rows[name]["parameters"])
    shown = CliRunner().invoke(cli, ["list", "--presets"]).stdout
    assert re.search(r"(?m)^smollm2 +answers in English +135 M +269 MB +[0-9.]+ MB +Apache-2.0$", shown)
    assert re.search(r"(?m)^mistral:7b +generate +7.24 B +– +– +Apache-2.0$", shown)
    assert CliRunner().invoke(cli, ["list", "--presets", "--all"]).exit_code == 2


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


@pytest.mark.parametrize("by", [ID, "revision"])
def test_a_repository_with_the_same_commit_is_not_removed(hub, repository, by):
    """As `gpt2` and `openai-community/gpt2`: the hub keeps the commits of a repository that is renamed."""
    others = [f"mlx-community/renamed-{number}" for number in range(4)]
    for name in others:
        hub.repositories[name] = repository
    folders = [zoo.load(name).folder for name in (ID, *others)]
    [revision] = {folder.name for folder in folders}
    done = CliRunner().invoke(cache, ["remove", revision if by == "revision" else ID, "--yes"])
    left = [folder.exists() for folder in folders]
    if by == "revision":
        assert f"{revision}: names several revisions: " in str(done.exception) and all(left)
        assert all(f"{name} ({revision})" in str(done.exception) for name in (ID, *others))
    else:
        assert done.exit_code == 0 and left == [False, True, True, True, True]
        assert answers(zoo.load(others[0]))


def test_a_dataset_with_the_same_commit_is_not_removed(hub, repository):
    folder = zoo.load(ID).folder
    model = folder.parents[1]
    dataset = shutil.copytree(
        model, model.with_name(f"datasets{model.name.removeprefix('models')}"), symlinks=True
    )
    assert CliRunner().invoke(cache, ["remove", folder.name, "--yes"]).exit_code == 0
    assert not model.exists() and dataset.exists()


def test_a_model_that_may_not_be_removed_is_not_said_to_be(hub, repository, monkeypatch, caplog):
    folder = zoo.load(ID).folder

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    done = CliRunner().invoke(cache, ["remove", ID, "--yes"])
    assert str(done.exception) == f"{folder}: cannot be removed (no permission)"
    assert done.exit_code == 1 and "removed" not in done.stderr and not caplog.records
