"""A hub that is broken or hostile: what it answers is checked before anything is written, and it holds nobody up."""

import json
import threading
from collections import Counter

import pytest

import zoo
from tests.helpers.loopback_hub import ID, Hub, answers
from zoo.checkpoint import hub as hub_module
from zoo.checkpoint import hub_guard
from zoo.checkpoint.safetensors import INDEX
from zoo.errors import CheckpointError, SourceError

OUT = "../" * 8 + "X"
MANY = 200 * 2**20  # bytes: more than anything but weights may have


def files_under(folder):
    return Counter(path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file())


def refused(*words, call=lambda: zoo.load(ID), error=SourceError):
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and message.isprintable()
    for word in (ID, *words):
        assert word in message, f"{word!r} is not in {message!r}"


def endless(handler, *, first=b"", status=200):
    """ExpectedResponse with a body that does not end, in chunks of a mebibyte."""
    handler.send_response(status)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    data = first + b" " * 2**20
    try:
        for _ in range(MANY // 2**20):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    except OSError:
        pass  # whoever asked has hung up
    handler.close_connection = True


def trickle(handler, data, pause=0.05):
    """Write bytes one by one."""
    try:
        for byte in data:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            if handler.server.stopping.wait(pause):
                break
    except OSError:
        pass
    handler.close_connection = True


@pytest.fixture
def slow(hub, monkeypatch):
    """A short patience, and an end of the hub's threads with the test."""
    hub.stopping = threading.Event()
    monkeypatch.setattr(hub_guard, "STALL", 0.4)
    yield
    hub.stopping.set()


@pytest.mark.parametrize("etag", [f'"{OUT}"', f'W/"{OUT}"', '"a/b"', '"\x1b[31m"', '""'])
def test_an_etag_is_hexadecimal(hub, repository, tmp_path, etag):
    hub.headers["config.json"] = {"ETag": etag}
    refused("etag of config.json")
    assert set(files_under(tmp_path)) <= {"home"}
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("header", ["X-Linked-Etag", "X-Repo-Commit"])
def test_no_header_names_a_path(hub, repository, tmp_path, header):
    hub.headers["config.json"] = {header: OUT}
    refused("config.json", "that is none", "../")
    assert not list(tmp_path.rglob("config.json"))


def test_a_refusal_names_no_path_either(hub, repository, tmp_path):
    def gone(handler):
        handler.refuse(404, "EntryNotFound")

    hub.headers[""] = {"X-Repo-Commit": OUT}
    hub.status = 404
    refused("commit", "that is none")
    assert not list(tmp_path.rglob("X"))


def test_another_commit_than_was_listed(hub, repository):
    hub.headers["config.json"] = {"X-Repo-Commit": "0" * 40}
    refused("config.json", "another commit, 00000000")


@pytest.mark.parametrize("key", ["sha", "blobId", "size"])
def test_a_list_of_files_that_lies(hub, repository, pocket, key):
    def lie(handler):
        told = handler.told(ID, repository.commits["main"], pocket, True)
        if key == "sha":
            told["sha"] = OUT
        else:
            told["siblings"][0][key] = OUT if key == "blobId" else -5
        handler.send(json.dumps(told).encode())

    hub.instead[""] = lie
    refused("that is none")
    assert not hub.asked()


@pytest.mark.parametrize("name", ["\x1b[31mx.gguf", "x\u202egguf.exe.gguf", "a\nb.gguf"])
def test_a_name_that_no_terminal_shows_as_it_is(hub, repository, pocket, tmp_path, name):
    repository.commit({**pocket, name: b"GGUF"})
    with pytest.raises(SourceError, match="has no file"):
        hub_module.download_file(ID, name, None, (".gguf",))
    repository.commit({**pocket, INDEX: json.dumps({"weight_map": {"a": name}}).encode()})
    refused(INDEX, error=CheckpointError)
    assert not [path for path in tmp_path.rglob("*") if not path.name.isprintable()]


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_body_without_end(hub, repository, monkeypatch, tmp_path, name):
    hub.instead[name] = lambda handler: endless(handler, first=b"{")
    refused("sends more of", name)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 2**20


def test_an_error_page_without_end(hub, repository):
    hub.instead["config.json"] = lambda handler: endless(handler, status=500)
    refused("sends more of config.json than the 1,048,576 bytes")


def test_a_file_that_always_starts_over(hub, repository, pocket, monkeypatch):
    monkeypatch.setattr(hub_guard, "ERROR_PAGE", 0)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)

    def most(handler):
        data = pocket["model.safetensors"]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:-1])
        handler.close_connection = True

    hub.instead["model.safetensors"] = most
    refused("never comes to the end of model.safetensors")


def test_a_body_that_was_compressed_unasked(hub, repository, pocket):
    hub.instead["config.json"] = lambda handler: handler.send(b"\x1f\x8b", {"Content-Encoding": "gzip"})
    refused("compresses config.json")
    assert {headers["accept-encoding"] for _, _, headers in hub.requests} == {"identity"}


@pytest.mark.parametrize("size", [10, 10**15])
def test_another_size_than_was_listed(hub, repository, pocket, size):
    hub.headers["model.safetensors"] = {"Content-Length": str(size)}
    refused("model.safetensors", f"{len(pocket['model.safetensors']):,}", f"{size:,}")
    assert "model.safetensors" not in hub.asked()


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "config.json"])
@pytest.mark.parametrize(
    "part", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n"]
)
def test_a_byte_now_and_then(hub, repository, slow, name, part):
    def now_and_then(handler):
        handler.wfile.write(part)
        trickle(handler, b" " * 200)

    hub.instead[name] = now_and_then
    refused("came from the hub in 0 seconds", name)


@pytest.mark.slow
def test_a_length_larger_than_what_comes(hub, repository, slow, pocket):
    def less(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(pocket["config.json"])))
        handler.end_headers()
        handler.wfile.write(pocket["config.json"][:-1])
        handler.wfile.flush()
        handler.server.stopping.wait(5)

    hub.instead["config.json"] = less
    refused("came from the hub", "config.json")


@pytest.mark.slow
def test_a_wait_of_a_day(hub, repository, slow, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: hub.stopping.wait(min(seconds, 60)))

    def later(handler):
        handler.send_response(429)
        handler.send_header("Retry-After", "86400")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    hub.instead["config.json"] = later
    refused("nothing of config.json came")


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
        refused("etag of config.json")
        assert {headers.get("x-proxy") for _, _, headers in hub.requests} == {"mine"}
    finally:
        set_client_factory(lambda: type(before)(**options))
