"""What models are called where they are run and described."""

from types import SimpleNamespace

import pytest

import zoo
from tests.helpers import gguf_files
from zoo.cli.generation import model_name
from zoo.cli.source_options import ModelOptions
from zoo.host.registry import default_registry
from zoo_serve.app import model_record
from zoo_serve.command import about
from zoo_serve.models import Source


@pytest.fixture
def pocket():
    return default_registry().architecture("llama").preset("pocket").folder


@pytest.mark.parametrize(
    ("written", "called"),
    [("My Model\n 7B", "My Model 7B"), ("  ", "file.Q8_0"), (None, "file.Q8_0"), ("x" * 500, "x" * 100)],
)
def test_a_gguf_file_is_called_as_it_says_else_by_its_name(pocket, tmp_path, written, called):
    def named(writer):
        if written is not None:
            writer.add_name(written)

    path = gguf_files.write(tmp_path / "file.Q8_0.gguf", pocket, extra=named)
    assert zoo.load(path).name == called


def test_parts_of_a_gguf_file_are_called_without_their_numbers(pocket, tmp_path):
    gguf_files.write(tmp_path / "file.gguf", pocket, most=20)
    assert zoo.load(min(tmp_path.glob("*.gguf"))).name == "file"


def test_a_folder_is_called_by_its_name_and_a_download_by_its_id(folder, tmp_path, monkeypatch):
    path = folder()
    assert model_name(zoo.load(path)) == path.name
    snapshot = tmp_path / "models--owner--my-model" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    path.rename(snapshot)
    assert model_name(zoo.load(snapshot)) == "owner/my-model"
    assert model_name(zoo.load("llama")) == "llama:pocket"


def test_the_first_line_says_which_preset_a_name_stands_for(command):
    line = "llama is llama:8b here; `zoo run llama` runs llama:pocket\n"
    assert command("show", "llama").stdout.startswith(f"{line}llama:8b\n")
    compared = command("compare", "llama", "bert").stdout
    assert compared.startswith(f"{line}bert is bert:base here; `zoo run bert` runs bert:pocket\nllama:8b  ")
    assert command("compare", "llama", "llama").stdout.startswith(f"{line}llama:8b  ")
    for names in (["llama:8b", "gpt2:pocket"], ["smollm2"], ["gemma3"]):
        assert " here; " not in command("compare", *names).stdout


def test_a_gguf_file_has_its_name_where_it_is_described_unless_two_have_it(pocket, tmp_path, command):
    for file in ("one.gguf", "my two.gguf"):
        gguf_files.write(tmp_path / file, pocket, extra=lambda writer: writer.add_name("My Model"))
    shown = command("show", "my two.gguf").stdout
    assert shown.startswith("My Model\n") and "zoo run 'my two.gguf' TEXT" in shown
    assert command("compare", "one.gguf", "llama:pocket").stdout.startswith("My Model  ")
    both = command("compare", "one.gguf", "my two.gguf").stdout.splitlines()[0]
    assert both.split(maxsplit=1) == ["one.gguf", "my two.gguf"]
    assert command("trace", "one.gguf", "The", "--max-tokens", "1").stdout.startswith("My Model ·")


def test_a_server_lists_a_gguf_file_by_its_path_and_shows_its_own_name(pocket, tmp_path):
    path = gguf_files.write(tmp_path / "one.gguf", pocket, extra=lambda writer: writer.add_name("My Model"))
    source = Source("one.gguf", None, None, about(str(path), ModelOptions()))
    table = SimpleNamespace(sources={"one.gguf": source}, served={})
    record = model_record(SimpleNamespace(table=table), "one.gguf")
    assert (record["id"], record["display_name"]) == ("one.gguf", "My Model")
