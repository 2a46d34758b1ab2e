"""What Finder and drives of other systems add to a folder is no file of a model, and no reason to refuse an output."""

import pytest

import zoo
from tests.helpers.gguf_files import random_folder, write
from zoo.checkpoint.convert import convert
from zoo.files.reading import is_system_name, names_in
from zoo.files.writing import new_folder

ADDED = (".DS_Store", "._config.json", "._model.safetensors", "Icon\r")
PROMPT = "The capital city of China is"


def visit(folder, *names):
    """Add to a folder what Finder and a foreign drive add."""
    for name in (*ADDED, *names):
        (folder / name).write_bytes(b"\x00\x05\x16\x07")
    return folder


@pytest.fixture
def llama(tmp_path):
    convert("llama", tmp_path / "llama", layout="hf")
    return tmp_path / "llama"


def test_names_that_a_system_adds_are_known():
    assert all(map(is_system_name, [*ADDED, "__MACOSX", "Thumbs.db"]))
    assert not any(map(is_system_name, ["config.json", ".gitattributes", "Icon", "_._.gguf"]))


def test_weights_of_another_name_are_read_beside_an_added_copy_of_the_name(llama):
    (llama / "model.safetensors").rename(llama / "weights.safetensors")
    visit(llama, "._weights.safetensors")
    assert zoo.generate(zoo.load(llama), PROMPT, max_tokens=3).text.startswith(" Bei")


def test_a_gguf_file_is_read_beside_an_added_copy_of_its_name(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "model.gguf", random_folder(tmp_path / "random", "llama"))
    assert zoo.load(visit(tmp_path / "in", "._model.gguf")).architecture.name == "llama"


def test_a_converted_folder_holds_nothing_that_a_system_added(llama, tmp_path):
    convert(str(visit(llama)), tmp_path / "copy", layout="hf")
    assert not any(map(is_system_name, [path.name for path in (tmp_path / "copy").iterdir()]))


def test_an_output_folder_in_which_finder_has_been_is_empty(tmp_path):
    (tmp_path / "out").mkdir()
    assert names_in(visit(tmp_path / "out")) == []
    with new_folder(tmp_path / "out") as part:
        (part / "config.json").write_text("{}")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]
