"""A hostile page in a browser reaches nothing of a server on this machine."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.helpers.serving import serving
from zoo_serve.access import Access

FLAGS = (
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
    "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
)
TRIES = """async (url) => {
  const body = JSON.stringify({prompt: "a", max_tokens: 2});
  const read = async (options) => {
    try { const response = await fetch(url + "/v1/completions", {method: "POST", body, ...options});
          return [response.type, response.status, await response.text()]; }
    catch (error) { return "refused"; }
  };
  const element = (name, set) => new Promise((done) => {
    const made = document.createElement(name);
    made.onload = () => done("loaded"); made.onerror = () => done("refused");
    set(made); document.body.append(made);
  });
  return {
    json: await read({headers: {"Content-Type": "application/json"}}),
    simple: await read({headers: {"Content-Type": "text/plain"}}),
    opaque: await read({mode: "no-cors", headers: {"Content-Type": "text/plain"}}),
    get: await fetch(url + "/v1/models").then((r) => r.text(), () => "refused"),
    health: await fetch(url + "/health").then((r) => r.text(), () => "refused"),
    image: await element("img", (made) => { made.src = url + "/v1/models"; }),
    script: await element("script", (made) => { made.src = url + "/openapi.json"; }),
    events: await new Promise((done) => {
      const source = new EventSource(url + "/v1/completions");
      source.onopen = () => done("loaded"); source.onerror = () => { source.close(); done("refused"); };
    }),
    form: await new Promise((done) => {
      const frame = document.createElement("iframe"); frame.name = "hidden"; document.body.append(frame);
      const form = document.createElement("form");
      form.method = "POST"; form.action = url + "/v1/completions"; form.target = "hidden"; form.enctype = "text/plain";
      const field = document.createElement("input");
      field.name = '{"prompt": "a", "user": "'; field.value = '"}'; form.append(field); document.body.append(form);
      frame.onload = () => done("sent"); form.submit(); setTimeout(() => done("sent"), 2000);
    }),
  };
}"""


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>page</title><body>")

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def evil(launch):
    """A Chromium that finds this machine at evil.example, and the port of a page that is not the server's."""
    site = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    chromium = launch(*FLAGS)
    yield chromium, site.server_port
    chromium.close()
    site.shutdown()


def admitted(made):
    """Record each request that the service admits."""
    names, own = [], made.service._admitted
    made.service._admitted = lambda name: names.append(name) or own(name)
    return names


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example"])
@pytest.mark.parametrize("target", ["127.0.0.1", "localhost", "evil.example"])
def test_a_page_of_another_site_reaches_nothing(evil, host, target):
    chromium, port = evil
    with serving() as made:
        names = admitted(made)
        page = chromium.new_page()
        page.goto(f"http://{host}:{port}/")
        found = page.evaluate(TRIES, f"http://{target}:{made.port}")
        page.close()
        assert found.pop("opaque") in (["opaque", 0, ""], "refused")
        assert found.pop("form") == "sent"
        assert set(found.values()) == {"refused"}
        assert names == []


def test_a_name_that_comes_to_mean_this_machine_reaches_nothing(evil):
    chromium, _ = evil
    with serving() as made:
        names = admitted(made)
        page = chromium.new_page()
        response = page.goto(f"http://evil.example:{made.port}/")
        assert response.status == 403
        own = page.evaluate("() => fetch('/v1/models').then((r) => r.text())")
        assert "is not this server" in own
        page.close()
        assert names == []


def test_an_allowed_page_reads_the_answers(evil):
    chromium, port = evil
    with serving(access=Access(origins=(f"http://localhost:{port}",))) as made:
        names = admitted(made)
        page = chromium.new_page()
        page.goto(f"http://localhost:{port}/")
        found = page.evaluate(TRIES, f"http://127.0.0.1:{made.port}")
        page.close()
        assert found["json"][1] == 200
        assert "llama" in found["get"]
        assert found["simple"][1] == 415
        assert names == [None]
