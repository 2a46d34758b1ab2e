"""What of a checkpoint's folder is opened at all, and which JSON is read."""

import errno
import json
import os
import shutil
import socket

import pytest

import zoo
from zoo.checkpoint.sentence_vectors import pooling_of
from zoo.errors import CheckpointError, ConfigError, ZooError
from zoo.files.reading import MAX_JSON_DEPTH, file_in_folder, parse_json, read_bytes, read_json, read_object

COMMIT, HASH = "c" * 40, "b" * 64


def refused(call, *words, error=CheckpointError):
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert str(word) in message, f"{word!r} is not in {message!r}"


@pytest.fixture
def repository(tmp_path):
    """A repository in a hub's cache: a snapshot whose file is a link to a blob."""
    place = tmp_path / "hub" / "models--owner--name"
    (place / "blobs").mkdir(parents=True)
    (place / "snapshots" / COMMIT / "1_Pooling").mkdir(parents=True)
    (place / "blobs" / HASH).write_text('{"a": 1}')
    link(place, "config.json", f"../../blobs/{HASH}")
    link(place, "1_Pooling/config.json", f"../../../blobs/{HASH}")
    return place


def link(repository, name, target):
    path = repository / "snapshots" / COMMIT / name
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    return path


def opened(repository, name="config.json"):
    return file_in_folder(repository / "snapshots" / COMMIT, name)


def test_files_and_links_within_the_folder_are_opened(tmp_path):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a").write_text("a")
    (folder / "b").symlink_to("sub/a")
    for name in ("sub/a", "b"):
        assert file_in_folder(folder, name) == folder / name
    assert file_in_folder(folder, "c") is None
    (tmp_path / "link").symlink_to(folder)
    assert read_bytes(tmp_path / "link", "b", ConfigError) == b"a"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "/etc/no-such-file", "../model-2/a"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path, target):
    folder = tmp_path / "model"
    for name in ("model", "model-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("a")
    (tmp_path / "outside").write_text("secret")
    (folder / "config.json").symlink_to(target)
    where = os.path.realpath(folder / target)
    refused(
        lambda: file_in_folder(folder, "config.json"), folder / "config.json", "link out of the folder", where
    )


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "sub/../../outside"])
def test_a_name_that_leads_out_is_not_followed(tmp_path, name):
    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret")
    refused(lambda: file_in_folder(tmp_path / "model", name), "outside of the folder")


def test_a_folder_that_is_a_link_out_is_not_entered(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    (tmp_path / "model" / "1_Pooling").symlink_to("../other")
    refused(lambda: file_in_folder(tmp_path / "model", "1_Pooling/config.json"), "outside of the folder")


def test_a_snapshot_is_made_of_links_to_its_own_blobs(repository, tmp_path):
    assert opened(repository) and opened(repository, "1_Pooling/config.json")
    (tmp_path / "link").symlink_to(repository / "snapshots" / COMMIT)
    assert read_json(tmp_path / "link", "config.json", ConfigError) == {"a": 1}


def test_the_blobs_of_another_repository_are_not_its_own(repository):
    other = repository.parent / "models--owner--other"
    shutil.copytree(repository, other, symlinks=True)
    link(repository, "config.json", f"../../../models--owner--other/blobs/{HASH}")
    refused(lambda: opened(repository), "link out of the folder")
    link(repository, "config.json", f"../../../models--owner--other/snapshots/{COMMIT}/config.json")
    refused(lambda: opened(repository), "link out of the folder")


def test_blobs_that_are_a_link_themselves_hide_nothing(repository, tmp_path):
    shutil.rmtree(repository / "blobs")
    (tmp_path / "secrets" / "ab").mkdir(parents=True)
    for name in (HASH, "ab/" + "ab" * 32):
        (tmp_path / "secrets" / name).write_text("secret")
    (repository / "blobs").symlink_to(tmp_path / "secrets")
    refused(lambda: opened(repository), "link out of the folder", tmp_path / "secrets")


def test_a_blob_may_lie_in_the_store_that_the_cache_s_repositories_share(repository):
    name = "ab" * 32
    store = repository.parent / "blobs" / "ab"
    store.mkdir(parents=True)
    (store / name).write_text('{"shared": 1}')
    (repository / "blobs" / HASH).unlink()
    (repository / "blobs" / HASH).symlink_to(f"../../blobs/ab/{name}")
    folder = repository / "snapshots" / COMMIT
    assert read_json(folder, "config.json", ConfigError) == {"shared": 1}
    assert read_json(folder, "1_Pooling/config.json", ConfigError) == {"shared": 1}

    (store / "x").write_text("no blob")
    (repository / "blobs" / HASH).unlink()
    (repository / "blobs" / HASH).symlink_to("../../blobs/ab/x")
    refused(lambda: opened(repository), "link out of the folder")
    link(repository, "config.json", f"../../../blobs/ab/{name}")  # not by way of its own blobs
    refused(lambda: opened(repository), "link out of the folder")


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "dangling").symlink_to("nothing")
    assert file_in_folder(tmp_path, "dangling") is None
    (tmp_path / "round").symlink_to("about")
    (tmp_path / "about").symlink_to("round")
    refused(lambda: file_in_folder(tmp_path, "round"), "round")


def test_what_is_no_file_is_not_opened(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    for name in ("folder", "pipe", "socket"):
        refused(lambda name=name: file_in_folder(tmp_path, name), f"is a {name}, not a file")
    server.close()


def test_what_may_not_be_read_says_so(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")

    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:  # the tests may run as one whom nothing is denied
        patch.setattr("pathlib.Path.open", denied)
        read = lambda: read_json(tmp_path, "config.json", ConfigError)  # noqa: E731
        refused(read, tmp_path / "config.json", "Permission denied", error=ConfigError)
    monkeypatch.setattr("os.lstat", denied)
    refused(lambda: file_in_folder(tmp_path, "config.json"), tmp_path / "config.json", "Permission denied")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have(tmp_path, name):
    refused(lambda: file_in_folder(tmp_path, name), repr(name))


FILES = [
    *(
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ),
    *("special_tokens_map.json", "chat_template.jinja", "chat_template.json", "model.safetensors.index.json"),
]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "link") for name in FILES),
        *((name, "pipe") for name in ("config.json", "tokenizer.json", "model.safetensors")),
        *((name, "folder") for name in ("config.json", "chat_template.jinja", "model.safetensors")),
    ],
)
def test_no_file_of_a_model_is_opened_elsewhere(folder, tmp_path, name, how):
    path = folder() / name
    if path.exists():
        path.rename(tmp_path / name)
    else:
        (tmp_path / name).write_text("{}")
    if how == "link":
        path.symlink_to(tmp_path / name)
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    # Special tokens have a file of their own in older folders alone.
    if name == "special_tokens_map.json":
        (path.parent / "tokenizer_config.json").write_text("{}")
    refused(lambda: zoo.load(path.parent), path, how if how != "link" else tmp_path / name, error=ZooError)


def test_nor_the_files_of_sentence_vectors(tmp_path):
    (tmp_path / "outside").write_text("{}")
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        folder = tmp_path / name.replace("/", "-")
        (folder / "1_Pooling").mkdir(parents=True)
        modules = '[{"type": "Pooling", "path": "1_Pooling"}]'
        (folder / "modules.json").write_text(modules)
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
        assert pooling_of(folder).mode == "first"
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(tmp_path / "outside")
        refused(lambda folder=folder: pooling_of(folder), folder / name, "link out of the folder")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(10**10)
    refused(lambda: read_json(tmp_path, "config.json", ConfigError), "larger than 64 MiB", error=ConfigError)


def test_json_is_read_as_it_is():
    value = {"a": [1, -2.5e3, None, True, "é\n", {"b": {}}], "c": 10**30, "d": []}
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps("\U0001f600")) == "\U0001f600"  # written as two halves
    assert parse_json('{"a": 1, "a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "line 1"),
        ("{", "line 1"),
        ('{"a": 1, "a": 2}', "'a' has two values"),
        ('{"x": [{"a": 1, "a": 2}]}', "'a' has two values"),
        ("[" * 100_000, "deep"),
        ('{"a":' * 100_000, "deep"),
        ("[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1), "deep"),
        ('{"a":' * (MAX_JSON_DEPTH + 1) + "1" + "}" * (MAX_JSON_DEPTH + 1), "deep"),
        ("[" + "[]," * 6_000_000 + "[]]", "values"),
        ("[" + "0," * 11_000_000 + "0]", "values"),
        ("9" * 5000, "digits"),
        (r'"\ud800"', "surrogates"),
        (r'{"\udfff": 1}', "surrogates"),
    ],
    ids=range(13),
)
def test_json_that_is_malformed_ambiguous_or_a_bomb(text, word):
    with pytest.raises(ValueError, match=word):
        parse_json(text)


def test_an_object_is_asked_for(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    refused(lambda: read_object(tmp_path, "a.json", ConfigError), "JSON object", "list", error=ConfigError)
    (tmp_path / "a.json").write_text("null")
    refused(lambda: read_object(tmp_path, "a.json", ConfigError), "JSON object", error=ConfigError)
    assert read_object(tmp_path, "b.json", ConfigError) == {}
    missing = lambda: read_object(tmp_path, "b.json", ConfigError, required=True)  # noqa: E731
    refused(missing, tmp_path / "b.json", "missing", error=ConfigError)
