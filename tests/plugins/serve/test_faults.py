"""Clients that vanish, send half of something, too much, or nothing, or that do not read."""

import json
import resource
import socket
import struct
import threading
import time
from http.client import HTTPResponse

import pytest

from tests.helpers.serving import LONG, PROMPT, alone, request_bytes, response_of, serving
from tests.helpers.waiting import PATIENCE, in_background, wait_until
from zoo_serve import http, server
from zoo_serve.service import Limits

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected():
    """What the long request is answered with."""
    return alone().text


def vanish(connection):
    """Close a connection without a farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("leave", [vanish, socket.socket.close], ids=["reset", "closed"])
@pytest.mark.parametrize("half", [b"POST /v1/comp", request_bytes(LONG)[:-30]], ids=["head", "body"])
def test_a_client_that_vanishes_before_its_request_is_whole_leaves_nothing(half, leave, expected):
    with serving() as made:
        connection = made.open(half)
        other = in_background(made.text)
        leave(connection)
        assert other() == expected
        made.rest()


@pytest.mark.parametrize("leave", [vanish, socket.socket.close], ids=["reset", "closed"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_while_it_is_answered_frees_its_row_at_the_next_step(stream, leave, expected):
    with serving(limits=Limits(rows=2)) as made:
        made.hold()
        connection = made.send({**LONG, "stream": stream})
        other = in_background(made.text)
        wait_until(lambda: made.service.under_way == 2)
        made.go_on()
        [model] = made.table.served.values()
        wait_until(lambda: model.engine.running == 2)
        made.hold()
        leave(connection)
        wait_until(lambda: made.service.under_way == 1)
        made.go_on()
        assert other() == expected
        made.rest()


def test_a_client_that_vanishes_after_a_pipelined_request_is_seen(expected):
    with serving() as made:
        made.hold()
        connection = made.send(LONG)
        wait_until(lambda: made.service.under_way == 1)
        connection.sendall(request_bytes(LONG)[:40])
        connection.sendall(request_bytes(LONG)[40:])
        time.sleep(0.05)
        connection.close()
        wait_until(lambda: made.service.under_way == 0)
        made.go_on()
        made.rest()
        assert made.text() == expected


def test_a_client_that_vanishes_in_the_queue_leaves_nothing(expected):
    with serving(limits=Limits(rows=1)) as made:
        made.hold()
        others = [in_background(made.text)]
        wait_until(lambda: made.service.under_way == 1)
        connection = made.send(LONG)
        wait_until(lambda: made.service.under_way == 2)
        others.append(in_background(made.text))
        wait_until(lambda: made.service.under_way == 3)
        connection.close()
        wait_until(lambda: made.service.under_way == 2)
        made.go_on()
        assert [other() for other in others] == [expected] * 2
        made.rest()


def test_a_client_that_vanishes_while_its_prompt_is_laid_out_leaves_nothing(monkeypatch, expected):
    from zoo_serve import service

    prepare, entered, free = service.prepare, threading.Event(), threading.Event()

    def slowly(model, request, seconds):
        if request.stream:
            entered.set()
            assert free.wait(PATIENCE)
        return prepare(model, request, seconds)

    monkeypatch.setattr(service, "prepare", slowly)
    with serving() as made:
        connection = made.send({**LONG, "stream": True})
        assert entered.wait(PATIENCE)
        connection.close()
        wait_until(lambda: made.service.under_way == 0)
        assert made.service._work
        assert made.text() == expected
        free.set()
        made.rest()


def test_a_client_that_vanishes_while_its_prompt_is_read_leaves_nothing(expected):
    with serving(settings={"prefill_chunk": 4}) as made:
        made.hold()
        connection = made.send({**LONG, "prompt": PROMPT * 8})
        wait_until(lambda: made.service.under_way == 1)
        [model] = made.table.served.values()
        started, free = threading.Event(), threading.Event()
        step = model.engine.step

        def slowly():
            made_steps = step()
            started.set()
            assert free.wait(PATIENCE)
            return made_steps

        model.engine.step = slowly
        made.go_on()
        assert started.wait(PATIENCE)
        connection.close()
        wait_until(lambda: made.service.under_way == 0)
        free.set()
        made.rest()
        assert made.text() == expected


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
         b"Content-Type: application/json\r\n\r\nZZ\r\n", 400),
        (b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /page/../health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /index.html%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET //etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"PUT /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405),
        (b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
        (b"OPTIONS /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n", 200),
    ],
)  # fmt: skip
def test_a_malformed_request_gets_an_error_and_nothing_else(served, sent, status):
    line, _ = response_of(served.open(sent))
    assert line.split()[1] == str(status)
    assert served.ask(method="GET", path="/health")[0] == 200
    served.rest()


@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"GET /"])
def test_a_head_without_end_closes_its_connection(served, begin):
    connection = served.open(begin)
    with pytest.raises(OSError):
        for _ in range(10_000):
            connection.sendall(b"x" * 2**12)
    served.rest()


@pytest.fixture(scope="module")
def served():
    with serving() as made:
        yield made


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"\xff\xfe", 400),
        (b"[" * 10_000 + b"]" * 10_000, 400),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400),
        (b"[" + b"1," * 5_000_000 + b"1]", 400),
        (b'{"prompt": [' + b"1," * 200_000 + b"1]}", 400),
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"prompt": "a", "temperature": NaN}', 400),
        (b'{"prompt": "a", "temperature": Infinity}', 400),
        (b'{"prompt": "a", "temperature": 1e999}', 400),
        (b'{"prompt": "a", "prompt": "b"}', 400),
        (b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}", 400),
        (b'{"prompt": "a", "max_tokens": ' + b"9" * 21 + b"}", 400),
        (b'{"prompt": "a", "top_k": ' + b"9" * 20 + b', "temperature": 1}', None),
        (b'{"prompt": "a", "logit_bias": {"1": ' + b"9" * 20 + b"}}", None),
        (b'{"prompt": "a", "max_tokens": ' + b"9" * 20 + b"}", 400),
        (b'{"prompt": "a", "seed": ' + b"9" * 20 + b"}", 400),
        (b'{"prompt": [' + b"9" * 20 + b"]}", 400),
        (b'{"prompt": [4294967296]}', 400),
        (b'{"prompt": [99999]}', 400),
        (b'{"prompt": ""}', None),
    ],
    ids=range(24),
)
def test_a_hostile_body_gets_an_error_and_the_server_goes_on(served, body, status, expected):
    found, _, answer = served.ask(body)
    assert found == status or (status is None and found in (200, 400)), answer
    served.rest()
    assert served.text() == expected


def test_a_body_of_another_type_is_refused(served):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert served.ask(LONG, Content_Type=kind)[0] == 415
    assert served.ask(LONG, Content_Type="Application/JSON; charset=utf-8")[0] == 200


def test_a_large_body_is_refused_with_its_reason_also_while_it_is_sent(served, monkeypatch):
    monkeypatch.setattr(http, "MOST_BODY", 2**20)
    monkeypatch.setattr(http, "MOST_BODIES", 2**24)
    body = b" " * (2**21)
    assert served.ask(body)[0] == 413
    pieces = b"".join(b"%x\r\n%s\r\n" % (2**16, body[: 2**16]) for _ in range(32)) + b"0\r\n\r\n"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    line, _ = response_of(served.open(head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces))
    assert line.split()[1] == "413"
    served.rest()


def test_a_chunked_body_is_read(served, expected):
    data = json.dumps(LONG).encode()
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    line, rest = response_of(served.open(head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces))
    assert line.split()[1] == "200"
    assert json.loads(rest.partition("\r\n\r\n")[2])["choices"][0]["text"] == expected


def test_all_bodies_together_are_bounded(served, monkeypatch):
    monkeypatch.setattr(http, "MOST_BODIES", 2**16)
    first = served.open(request_bytes(b" " * 60_000)[:-10])
    wait_until(lambda: served.service.body_bytes > 50_000)
    status, headers, answer = served.ask(b" " * 60_000)
    assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "overloaded", "2")
    first.close()
    served.rest()
    assert served.ask(LONG)[0] == 200


def test_a_body_that_comes_too_slowly_is_refused(served, monkeypatch):
    monkeypatch.setattr(http, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(http, "DISCARD_SECONDS", 0.1)
    line, rest = response_of(served.open(request_bytes(LONG)[:-1]))
    assert line.split()[1] == "408"
    assert "connection: close" in rest.lower()
    served.rest()


@pytest.mark.parametrize("half", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_a_head_that_comes_too_slowly_ends_its_connection(served, monkeypatch, half):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.1)
    assert served.open(half).recv(1) == b""
    served.rest()


def test_half_a_head_after_a_response_ends_the_connection_too(served, monkeypatch):
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.1)
    connection = served.open(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    response = HTTPResponse(connection)
    response.begin()
    assert response.status == 200 and response.read()
    connection.sendall(b"GET")
    assert connection.recv(1) == b""
    served.rest()


def test_a_connection_is_kept_after_an_error_of_a_request_that_was_read(served):
    connection = served.open(request_bytes({"prompt": 1}))
    response = HTTPResponse(connection)
    response.begin()
    assert response.status == 400 and response.read()
    connection.sendall(request_bytes(LONG, Connection="close"))
    assert response_of(connection)[0].split()[1] == "200"


def test_pipelined_requests_are_answered_in_their_order(served, expected):
    connection = served.open(
        request_bytes({"prompt": 1}) + request_bytes(LONG) + request_bytes({"model": "x"}, Connection="close")
    )
    line, rest = response_of(connection)
    assert line.split()[1] == "400"
    assert [part.split()[0] for part in rest.split("HTTP/1.1 ")[1:]] == ["200", "400"]
    assert json.dumps(expected)[1:-1] in rest


def test_who_sends_without_end_before_he_has_his_answer_is_dropped(served):
    served.hold()
    connection = served.send(LONG)
    wait_until(lambda: served.service.under_way == 1)
    with pytest.raises(OSError):
        for _ in range(10_000):
            connection.sendall(b"x" * 2**12)
    served.go_on()
    served.rest()


def test_garbage_after_a_request_ends_its_stream_without_a_traceback(served, capfd):
    served.hold()
    connection = served.send({**LONG, "stream": True})
    wait_until(lambda: served.service.under_way == 1)
    connection.sendall(b"\0\0\0 garbage \r\n\r\n")
    served.go_on()
    response_of(connection)
    served.rest()
    assert "Traceback" not in capfd.readouterr().err


def test_a_reader_that_does_not_read_is_dropped(served, monkeypatch):
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.2)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", served.port))
    for _ in range(40):  # responses to pipelined requests, far more than the buffers of sockets hold
        connection.sendall(request_bytes({**LONG, "stream": True, "logprobs": 20, "n": 16}))
    wait_until(lambda: served.server.server_state.connections)
    served.rest()
    assert served.ask(method="GET", path="/health")[0] == 200


def test_the_bound_of_the_queue_is_exact_and_requests_are_admitted_again(expected):
    with serving(limits=Limits(rows=2, queue=3)) as made:
        made.hold()
        others = [in_background(made.text) for _ in range(5)]
        wait_until(lambda: made.service.under_way == 5)
        status, headers, answer = made.ask(LONG)
        assert (status, answer["error"]["code"], headers["Retry-After"]) == (503, "overloaded", "2")
        made.go_on()
        assert [other() for other in others] == [expected] * 5
        made.rest()
        assert made.text() == expected


def test_silent_connections_lock_nobody_out_and_leave_nothing(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    monkeypatch.setattr(server.Connection, "most", 200)
    try:
        with serving() as made:
            silent = []
            for number in range(min(10_000, hard // 3)):
                silent.append(made.open())
                if number % 500 == 499:
                    assert made.ask(method="GET", path="/health")[0] == 200
                    assert len(made.server.server_state.connections) <= 201
            for connection in silent:
                connection.close()
            made.rest()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
