"""The digest by which ranks compare their checkpoints."""

import pytest

import zoo
from zoo.checkpoint import digest as module
from zoo.checkpoint.digest import BLOCK, BLOCKS, digest
from zoo.errors import CheckpointError

WHOLE = 2**20


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WHOLE", WHOLE)
    (tmp_path / "config.json").write_text('{"model_type": "x"}')
    (tmp_path / "model.safetensors").write_bytes(b"\0" * (WHOLE + 10))
    (tmp_path / "README.md").write_text("about it")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"model_type": "y"}'),
        ("model.safetensors", b"\1" + b"\0" * (WHOLE + 9)),
        ("model.safetensors", b"\0" * (WHOLE + 11)),
        ("tokenizer.json", b"{}"),
    ],
)
def test_another_config_header_size_or_file_gives_another_digest(folder, name, content):
    before = digest(folder)
    (folder / name).write_bytes(content)
    assert digest(folder) != before


@pytest.mark.parametrize("place", [WHOLE // 2, WHOLE, WHOLE + 5])
def test_another_number_gives_another_digest(folder, place):
    before = digest(folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(place)
        file.write(b"\1")
    assert digest(folder) != before


def test_blocks_throughout_a_long_file_count(folder):
    size = WHOLE + 4 * BLOCKS * BLOCK
    found = set()
    for start in [None, *range(WHOLE, size, (size - WHOLE) // 8)]:
        with (folder / "model.safetensors").open("wb") as file:
            file.truncate(size)
            if start is not None:
                file.seek(start)
                file.write(b"\1" * 4 * BLOCK)
        found.add(digest(folder))
    assert len(found) == 9


def test_what_is_no_part_of_the_model_does_not_count(folder):
    before = digest(folder)
    (folder / "README.md").write_text("more about it")
    assert digest(folder) == before


def test_a_pocket_has_a_digest_and_a_link_out_of_a_folder_has_none(folder, tmp_path):
    assert digest(zoo.load("llama").folder) == digest(zoo.load("llama").folder) != digest(folder)
    (folder / "x.json").symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match="link out of the folder"):
        digest(folder)
