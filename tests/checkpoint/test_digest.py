"""The digest by which ranks compare their checkpoints."""

import pytest

import zoo
from zoo.checkpoint.digest import START, digest
from zoo.errors import CheckpointError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "x"}')
    (tmp_path / "model.safetensors").write_bytes(b"\0" * (START + 10))
    (tmp_path / "README.md").write_text("about it")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"model_type": "y"}'),
        ("model.safetensors", b"\1" + b"\0" * (START + 9)),
        ("model.safetensors", b"\0" * (START + 11)),
        ("tokenizer.json", b"{}"),
    ],
)
def test_another_config_header_size_or_file_gives_another_digest(folder, name, content):
    before = digest(folder)
    (folder / name).write_bytes(content)
    assert digest(folder) != before


def test_what_is_no_part_of_the_model_does_not_count(folder):
    before = digest(folder)
    (folder / "README.md").write_text("more about it")
    assert digest(folder) == before


def test_a_pocket_has_a_digest_and_a_link_out_of_a_folder_has_none(folder, tmp_path):
    assert digest(zoo.load("llama").folder) == digest(zoo.load("llama").folder) != digest(folder)
    (folder / "x.json").symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match="link out of the folder"):
        digest(folder)
