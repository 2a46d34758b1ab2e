"""Who may ask: names of this machine, origins of pages, keys."""

import json

import pytest

from tests.helpers.serving import LONG, response_of, serving
from zoo_serve.access import Access

PAGE = "http://page.example"
ACCESS = Access("sésame", ("box.example",), (PAGE, "https://page.example:8443"))
KEY = {"Authorization": "Bearer sésame".encode()}


@pytest.fixture(scope="module")
def open_server():
    with serving(access=Access()) as made:
        yield made


@pytest.fixture(scope="module")
def locked():
    with serving(access=ACCESS) as made:
        yield made


def head(made, **headers):
    """The status and headers of a GET of a path that needs the key."""
    status, found, _ = made.ask(method="GET", path="/v1/models", **headers)
    return status, found


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "localhost.", "localhost.:80", "127.0.0.1", "[::1]:8080", "192.168.1.7:80"],
)
def test_a_request_by_a_name_of_this_machine_is_answered(open_server, host):
    assert head(open_server, Host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "localhost/x",
     "user@localhost", "localhost:x", "127.0.0.1:", ".", "box.example"],
)  # fmt: skip
def test_a_request_by_another_name_is_refused(open_server, host):
    status, _, answer = open_server.ask(method="GET", path="/health", Host=host)
    assert (status, answer["error"]["code"]) == (403, "host")


def test_a_name_that_was_allowed_is_answered(locked):
    assert head(locked, Host="Box.Example:99", **KEY)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "*"},
        {"Origin": "https://localhost"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_a_page_of_another_site_is_refused_and_gets_no_headers(open_server, headers):
    for method in ("GET", "OPTIONS", "POST"):
        status, found, answer = open_server.ask(LONG, "/v1/models", method, Host="localhost", **headers)
        assert (status, answer["error"]["code"]) == (403, "origin")
        assert not [name for name in found if name.lower().startswith("access-control")]


def test_the_page_of_the_server_itself_is_answered(open_server):
    assert head(open_server, Host="localhost:7", Origin="http://localhost:7")[0] == 200
    assert head(open_server, **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert open_server.ask(method="GET", path="/", **link)[0] == 200


def allowed(headers):
    return {
        name.lower(): value for name, value in headers.items() if name.lower().startswith("access-control")
    }


def test_an_allowed_origin_gets_its_headers_on_answers_streams_and_errors(locked):
    page = {"Origin": PAGE}
    for body, headers, status in (
        (LONG, KEY, 200),
        ({**LONG, "stream": True}, KEY, 200),
        ({}, KEY, 400),
        (LONG, {}, 401),
        (LONG, {**KEY, "Host": "evil.example"}, 403),
    ):
        found, answered, _ = locked.ask(body, **headers, **page)
        assert (found, allowed(answered)) == (status, {"access-control-allow-origin": PAGE})
        assert answered["vary"] == "Origin"
    assert locked.ask(LONG, Origin="http://page.example:8443", **KEY)[0] == 403


def test_a_preflight_of_an_allowed_origin_needs_no_key(locked):
    asked = {"Origin": PAGE, "Access-Control-Request-Headers": "authorization,content-type"}
    status, headers, _ = locked.ask(None, "/v1/chat/completions", "OPTIONS", **asked)
    assert status == 204
    assert allowed(headers) == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "600",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer sésame".encode()},
        {"Authorization": "bearer   sésame ".encode()},
        {"X-API-Key": "sésame".encode()},
        {"Authorization": "Bearer none", "X-API-Key": "sésame".encode()},
    ],
)
def test_the_key_opens(locked, headers):
    assert head(locked, **headers)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer sesame"},
        {"Authorization": "Bearer sésame".encode("latin-1")},
        {"Authorization": "sésame".encode()},
        {"Authorization": "Basic sésame".encode()},
        {"Authorization": "Bearer sésame sésame".encode()},
        {"X-API-Key": ""},
        {"X-API-Key": "ÿ".encode("latin-1")},
    ],
)
def test_any_other_key_is_refused_and_never_repeated(locked, headers):
    status, _, answer = locked.ask(method="GET", path="/v1/models", **headers)
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert "same" not in json.dumps(answer)


def test_only_the_page_and_the_state_are_open_without_the_key(locked):
    for path in ("/", "/health"):
        assert locked.ask(method="GET", path=path)[0] == 200
    for path in (
        "/v1/models",
        "/metrics",
        "/openapi.json",
        "/health/",
        "//health",
        "/none",
        "/v1/chat/completions",
    ):
        assert locked.ask(method="GET", path=path)[0] == 401


def test_an_empty_key_is_refused_by_the_command(command):
    done = command("serve", "llama", "--api-key", "")
    assert done.returncode != 0
    assert "the key is empty" in done.stderr


@pytest.mark.parametrize("path", ["/v1/models/llama", "/v1/models", "/health", "/"])
def test_a_path_with_a_line_break_is_no_path(open_server, path):
    assert open_server.ask(method="GET", path=path)[0] == 200
    assert open_server.ask(method="GET", path=f"{path}%0A")[0] == 404


@pytest.mark.parametrize(
    "path", ["/v1/models/", "http://localhost/v1/models", "http://127.0.0.1:80/health/", "http://localhost"]
)
def test_a_slash_at_the_end_and_a_whole_url_are_the_same_path(open_server, path):
    connection = open_server.open(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert response_of(connection)[0].endswith("200 OK")
