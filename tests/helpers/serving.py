"""A server in this process, on loopback, with tiny models."""

import http.client
import json
import signal
import socket
import threading
from contextlib import contextmanager
from functools import cache

import zoo
from tests.clients.chat_model import TEMPLATE
from tests.helpers.waiting import PATIENCE, wait_until
from zoo_serve.access import Access
from zoo_serve.app import application
from zoo_serve.metrics import Metrics
from zoo_serve.models import ModelTable, Source
from zoo_serve.server import Server, listen
from zoo_serve.service import Limits, Service
from zoo_serve.worker import Worker

PROMPT = "The capital city of China is"
LONG = {"prompt": PROMPT, "min_tokens": 60, "max_tokens": 60}


@cache
def alone(prompt=PROMPT, model="llama"):
    """What a model writes by itself after a prompt, as `LONG` asks for it."""
    return zoo.generate(zoo.load(model), prompt, min_tokens=60, max_tokens=60)


JSON = {"Content-Type": "application/json"}


def chatting(name="llama"):
    """A pocket checkpoint, loaded, with a chat template."""
    loaded = zoo.load(name)
    loaded.tokenizer.chat_template = TEMPLATE
    return loaded


class Serving:
    """A server with handles on its parts. `hold` and `go_on` stop and resume its worker between two steps."""

    def __init__(
        self, names=("llama",), *, limits=None, access=None, most=1, load=zoo.load, settings=None, **worker
    ):
        sources = [
            Source(name, lambda name=name: load(name), lambda loaded: dict(settings or {}), {})
            for name in names
        ]
        self.moving, self.steps = threading.Event(), 0
        self.moving.set()
        self.table, limits = ModelTable(sources, most), limits or Limits()
        self.worker = Worker(
            self.table, rows=limits.rows, **{"prompt_cache": 0, "after_step": self._after_step, **worker}
        )
        self.service = Service(self.table, self.worker, limits, Metrics())
        app = application(self.service, access or Access())
        self.ready = threading.Event()
        self.server = Server(app, self.service, "127.0.0.1", 0, lambda address: self.ready.set())
        self.worker.on_failure = self.server.worker_failed
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        [self.socket] = listen("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.server.run([self.socket])

    def _after_step(self):
        self.steps += 1
        self.moving.wait()

    def hold(self):
        self.moving.clear()

    def go_on(self):
        self.moving.set()

    def start(self):
        self.worker.start()
        self.thread.start()
        assert self.ready.wait(PATIENCE)

    def stop(self):
        self.go_on()
        if not self.service.stopping:  # a second signal would end this process
            self.server.handle_exit(signal.SIGTERM, None)
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        assert self.worker.stop(PATIENCE)

    def open(self, data=b""):
        """A connection on which these bytes were sent."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        made.sendall(data)
        return made

    def send(self, body, path="/v1/completions", **headers):
        """A connection on which a whole request was sent."""
        return self.open(request_bytes(body, path, **headers))

    def ask(self, body=None, path="/v1/completions", method="POST", **headers):
        """The status, the headers, and the body of a response, parsed where it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        given = {**(JSON if method == "POST" else {}), **{k.replace("_", "-"): v for k, v in headers.items()}}
        data = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
        connection.request(method, path, data, given)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = response.headers.get("content-type") == "application/json" and text
        return response.status, response.headers, json.loads(text) if is_json else text

    def text(self, body=None, path="/v1/completions"):
        """The text of a completion that must succeed."""
        status, _, answer = self.ask(body or LONG, path)
        assert status == 200, answer
        return answer["choices"][0]["text"]

    def at_rest(self):
        """Whether nothing is left of any request."""
        engines = [model.engine for model in self.table.served.values()]
        return (
            self.service.under_way == self.service.body_bytes == 0
            and not any(self.table._users.values())
            and not self.table._waiting
            and not self.worker.runner.jobs
            and not self.worker._waiting
            and all(engine.idle for engine in engines)
            and not self.service._work
        )

    def rest(self):
        """Wait until nothing is left of any request, nor any connection."""
        wait_until(self.at_rest)
        wait_until(lambda: not self.server.server_state.connections)


def request_bytes(body, path="/v1/completions", **headers):
    """A POST request with a JSON body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(data)}", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def response_of(connection):
    """The status line and the rest of what a connection receives until it is closed."""
    data = b""
    while piece := connection.recv(2**16):
        data += piece
    line, _, rest = data.partition(b"\r\n")
    return line.decode(), rest.decode()


@contextmanager
def serving(*arguments, **options):
    """A server that has loaded its first model; it must stop in the end."""
    made = Serving(*arguments, **options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
