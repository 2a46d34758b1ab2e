"""Streams of requests that wait: comments keep their connections open, whatever they wait for."""

import json
import threading

import pytest

import zoo
from tests.helpers.serving import LONG, alone, response_of, serving
from tests.helpers.waiting import PATIENCE, in_background, wait_until
from zoo.cache import CachePolicy
from zoo.errors import PromptError
from zoo_serve import http, service, worker
from zoo_serve.service import Limits

pytestmark = pytest.mark.slow

STREAM = {**LONG, "stream": True}


@pytest.fixture(autouse=True)
def short_silence(monkeypatch):
    monkeypatch.setattr(http, "HEARTBEAT_SECONDS", 0.05)


@pytest.fixture
def slow_prepare(monkeypatch):
    """Prompts are prepared once this is set; one of "bad" then fails."""
    prepare, free = service.prepare, threading.Event()

    def slowly(model, request, seconds):
        assert free.wait(PATIENCE)
        if request.prompts == ("bad",):
            raise PromptError("`prompt` is bad")
        return prepare(model, request, seconds)

    monkeypatch.setattr(service, "prepare", slowly)
    return free


def heartbeats(connection):
    """Read the head of a stream and two comments, before anything else has come."""
    data = b""
    while data.count(http.HEARTBEAT) < 2:
        piece = connection.recv(2**10)
        assert piece, data
        data += piece
    assert data.startswith(b"HTTP/1.1 200")
    assert b"content-type: text/event-stream" in data and b"data:" not in data


def text_of(connection):
    """The text of the rest of a stream that is closed after it."""
    lines = [
        line[6:] for line in "\n".join(response_of(connection)).splitlines() if line.startswith("data: ")
    ]
    assert lines[-1] == "[DONE]", lines
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1])


def test_a_stream_whose_prompt_waits_for_a_thread_is_kept_open(slow_prepare):
    with serving() as made:
        connections = [made.send(STREAM, Connection="close") for _ in range(service.THREADS + 2)]
        for connection in connections:
            heartbeats(connection)
        slow_prepare.set()
        assert [text_of(connection) for connection in connections] == [alone().text] * len(connections)
        made.rest()


def test_a_stream_that_waits_for_its_model_is_kept_open():
    free = threading.Event()

    def load(name):
        assert name == "llama" or free.wait(PATIENCE)
        return zoo.load("llama")

    with serving(["llama", "other"], load=load) as made:
        connection = made.send({**STREAM, "model": "other"}, Connection="close")
        heartbeats(connection)
        free.set()
        assert text_of(connection) == alone().text
        made.rest()


def test_a_stream_that_waits_for_memory_is_kept_open(monkeypatch):
    with serving() as made:
        [model] = made.table.served.values()
        room = model.cache_bytes(7 + 60, CachePolicy())
        monkeypatch.setattr(worker, "memory_for_caches", lambda models: room)
        made.hold()
        first = in_background(made.text)
        wait_until(lambda: made.service.under_way == 1)
        connection = made.send(STREAM, Connection="close")
        heartbeats(connection)
        made.go_on()
        assert first() == text_of(connection) == alone().text
        made.rest()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_an_error_after_heartbeats_is_an_event_in_the_form_of_its_interface(monkeypatch, path):
    prompt = (
        {"prompt": "bad"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "x"}]}
    )
    body = {"input": "x"} if path == "/v1/responses" else prompt
    free = threading.Event()

    def fail(model, request, seconds):
        assert free.wait(PATIENCE)
        raise PromptError("`prompt` is bad")

    monkeypatch.setattr(service, "prepare", fail)
    with serving() as made:
        connection = made.send({**body, "max_tokens": 3, "stream": True}, path, Connection="close")
        heartbeats(connection)
        free.set()
        _, rest = response_of(connection)
        [data] = [line[6:] for line in rest.splitlines() if line.startswith("data: ")]
        assert "`prompt` is bad" in data
        json.loads(data)
        assert rest.endswith("\n\n0\r\n\r\n") or rest.endswith("\n\n\r\n0\r\n\r\n")
        made.rest()


def test_an_error_before_a_heartbeat_has_its_status(monkeypatch, slow_prepare):
    monkeypatch.setattr(http, "HEARTBEAT_SECONDS", 60)
    slow_prepare.set()
    with serving() as made:
        status, headers, answer = made.ask({**STREAM, "prompt": "bad"})
        assert (status, answer["error"]["message"]) == (400, "`prompt` is bad")
        assert headers["content-type"] == "application/json"
        made.rest()


def test_a_client_that_vanishes_after_heartbeats_leaves_nothing(slow_prepare):
    with serving(limits=Limits(rows=1)) as made:
        connection = made.send(STREAM)
        heartbeats(connection)
        connection.close()
        wait_until(lambda: made.service.under_way == 0)
        slow_prepare.set()
        made.rest()
        assert made.text() == alone().text


def test_a_stream_that_waits_too_long_ends_with_an_error(slow_prepare):
    with serving(limits=Limits(seconds=0.3)) as made:
        connection = made.send(STREAM, Connection="close")
        heartbeats(connection)
        assert '"code":"timeout"' in response_of(connection)[1]
        wait_until(lambda: made.service.under_way == 0)
        slow_prepare.set()
        made.rest()
