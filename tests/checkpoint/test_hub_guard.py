"""A hub that is broken or hostile: what it answers is checked before anything is written."""

import json
import threading
from collections import Counter

import pytest

import zoo
from tests.helpers.loopback_hub import ID, Hub, answers
from zoo.checkpoint import hub as hub_module
from zoo.checkpoint.safetensors import INDEX
from zoo.errors import CheckpointError, SourceError

OUT = "../" * 8 + "X"


def files_under(folder):
    return Counter(path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file())


def refused(*words, call=lambda: zoo.load(ID), error=SourceError):
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and message.isprintable()
    for word in (ID, *words):
        assert word in message, f"{word!r} is not in {message!r}"


@pytest.mark.parametrize("etag", [f'"{OUT}"', f'W/"{OUT}"', '"a/b"', '"\x1b[31m"', '""'])
def test_an_etag_is_hexadecimal(hub, repository, tmp_path, etag):
    hub.headers["config.json"] = {"ETag": etag}
    refused("as etag")
    assert set(files_under(tmp_path)) <= {"home"}
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("header", ["X-Linked-Etag", "X-Repo-Commit"])
def test_no_header_names_a_path(hub, repository, tmp_path, header):
    hub.headers["config.json"] = {header: OUT}
    refused("the hub gives '../")
    assert not list(tmp_path.rglob("config.json"))


def test_a_refusal_names_no_path_either(hub, repository, tmp_path):
    def gone(handler):
        handler.refuse(404, "EntryNotFound")

    hub.headers[""] = {"X-Repo-Commit": OUT}
    hub.status = 404
    refused("as commit")
    assert not list(tmp_path.rglob("X"))


def test_a_list_of_files_of_a_commit_that_is_a_path(hub, repository, pocket):
    def lie(handler):
        told = handler.told(ID, repository.commits["main"], pocket, True)
        handler.send(json.dumps({**told, "sha": OUT}).encode())

    hub.instead[""] = lie
    refused("as commit")
    assert not hub.asked()


@pytest.mark.parametrize("name", ["\x1b[31mx.gguf", "x\u202egguf.exe.gguf", "a\nb.gguf"])
def test_a_name_that_no_terminal_shows_as_it_is(hub, repository, pocket, tmp_path, name):
    repository.commit({**pocket, name: b"GGUF"})
    with pytest.raises(SourceError, match="has no file"):
        hub_module.download_file(ID, name, None, (".gguf",))
    repository.commit({**pocket, INDEX: json.dumps({"weight_map": {"a": name}}).encode()})
    refused(INDEX, error=CheckpointError)
    assert not [path for path in tmp_path.rglob("*") if not path.name.isprintable()]


def test_a_config_that_is_listed_with_a_terabyte(hub, repository, pocket, monkeypatch):
    def large(handler):
        told = handler.told(ID, repository.commits["main"], pocket, True)
        for file in told["siblings"]:
            file["size"] = 10**12 if file["rfilename"] == "config.json" else 1
        handler.send(json.dumps(told).encode())

    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10**15}))
    hub.instead[""] = large
    refused("config.json has 1,000,000,000,000 bytes")
    assert not hub.asked()


@pytest.fixture
def elsewhere():
    """Another host, which keeps the requests it gets."""
    other = Hub()
    thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield other
    other.shutdown()
    other.server_close()


@pytest.mark.parametrize("how", ["Link", "X-Xet-Refresh-Route"])
def test_the_token_goes_to_no_other_host_for_another_storage(hub, repository, elsewhere, monkeypatch, how):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    route = f"{elsewhere.url}/api/xet"
    told = f'<{route}>; rel="xet-auth"' if how == "Link" else route
    hub.headers["model.safetensors"] = {"X-Xet-Hash": "a" * 64, how: told}
    assert answers(zoo.load(ID))
    assert not elsewhere.requests


def test_weights_on_another_host_are_fetched_without_the_token(
    hub, repository, pocket, elsewhere, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    elsewhere.repositories[ID] = repository
    name, data = "model.safetensors", pocket["model.safetensors"]
    at = f"{elsewhere.url}/{ID}/resolve/main/{name}"

    def moved(handler):
        handler.send_response(302)
        for key, value in {
            "Location": at,
            "Content-Length": "0",
            "X-Repo-Commit": repository.commits["main"],
            "X-Linked-Size": str(len(data)),
            "X-Linked-Etag": f'"{"b" * 64}"',
        }.items():
            handler.send_header(key, value)
        handler.end_headers()

    hub.instead[name] = hub.instead[f"HEAD {name}"] = moved
    assert answers(zoo.load(ID))
    assert elsewhere.asked() == [name]
    assert all("authorization" not in headers for _, _, headers in elsewhere.requests)
    assert "authorization" in hub.requests[0][2]


def test_other_uses_of_the_library_are_not_held_to_it(hub, repository, pocket):
    """The checks are in the client that huggingface_hub shares, and concern the zoo's own calls alone."""
    from huggingface_hub import hf_hub_download

    zoo.load(ID)
    repository.commit({**pocket, "config.json": b"[]"})
    hub.headers["config.json"] = {"ETag": '"not-hexadecimal"'}
    with open(hf_hub_download(ID, "config.json"), "rb") as file:
        assert file.read() == b"[]"


def test_the_checks_are_in_a_client_that_a_program_has_made_itself(hub, repository):
    from huggingface_hub import get_session, set_client_factory

    before = get_session()
    options = {"event_hooks": before.event_hooks, "follow_redirects": True}
    set_client_factory(lambda: type(before)(headers={"x-proxy": "mine"}, follow_redirects=True))
    try:
        hub.headers["config.json"] = {"ETag": f'"{OUT}"'}
        refused("as etag")
        assert {headers.get("x-proxy") for _, _, headers in hub.requests} == {"mine"}
    finally:
        set_client_factory(lambda: type(before)(**options))
