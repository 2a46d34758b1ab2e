"""A server with the HTTP interface of `zoo serve` and fixed answers, for tests of its page without a model."""

import json
import math
import mimetypes
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from zoo.describe.pages.template import asset, theme

PAGE = Path(__file__).parents[2] / "plugins" / "zoo_serve" / "page"
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
KEY = "right key"
ALTERNATIVES = 5

ANSWERS = {
    "small": ["The", " capital", " of", " France", " is", " Paris", ",", " on", " the", " Seine", "."],
    "large": ["The", " capital", " of", " France", " is", " called", " Paris", "."],
    "tale": [" upon", " a", " time"],
    "story": [" there", " was", " a", " fox", "."],
    "french": ["Le", " renard", "."],
}


def model(name, task="generate", chat=True):
    zoo = dict(
        task=task, architecture="llama", parameters=134_515_008, context=8192, chat=chat, state="loaded"
    )
    return {"id": name, "object": "model", "created": 0, "owned_by": "zoo", "zoo": zoo}


UNLOADED = {"large": model("large"), "tale": model("tale", chat=False)}
MODELS = [
    model("small"),
    # Nothing else is known of these until they are loaded.
    *({**one, "zoo": {"state": "available"}} for one in UNLOADED.values()),
    model("story", chat=False),
    model("french", task="translate", chat=False),
    model("vectors", task="encode", chat=False),
]


def optional(kind, **more):
    """A property as pydantic describes a field that may be null."""
    return {"anyOf": [{"type": kind, **more}, {"type": "null"}], "default": None}


SETTINGS = {
    "seed": optional("integer", minimum=0),
    "repetition_penalty": {
        **optional("number", minimum=0.001),
        "description": "Penalty on tokens that the text already has.",
        "x-group": "Penalties and bans",
    },
    "temperature": {
        "anyOf": [{"anyOf": [{"type": "number", "minimum": 1e-30}, {"enum": [0]}]}, {"type": "null"}],
        "description": "Sampling temperature; 0 is greedy decoding.",
    },
    "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "top_k": optional("integer", minimum=0),
    "early_stopping": {
        "anyOf": [{"anyOf": [{"type": "boolean"}, {"enum": ["never"]}]}, {"type": "null"}],
        "x-strategy": "beam",
    },
    "min_p": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
    "max_tokens": {**optional("integer", minimum=1), "description": "Maximum number of tokens to generate."},
    "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    "logit_bias": {**optional("object"), "description": "Numbers to add to logits by token id."},
    "ignore_eos": {"type": "boolean", "default": False, "x-group": "Length and stops"},
    "reasoning_effort": {"$ref": "#/components/schemas/Effort"},
    "user": {"type": "string", "deprecated": True},
    "store": {"type": "boolean", "enum": [False]},
    "stream": {"type": "boolean"},
    "n": {"type": "integer"},
}


def described():
    def body(name):
        return {
            "post": {
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
                }
            }
        }

    chat = {"model": {"type": "string"}, "messages": {"type": "array"}, **SETTINGS}
    text = {"model": {"type": "string"}, "prompt": {"type": "string"}, **SETTINGS}
    del text["reasoning_effort"]
    schemas = {
        "Chat": {"type": "object", "properties": chat},
        "Text": {"type": "object", "properties": text},
        "Effort": {"enum": ["low", "high"], "type": "string", "description": "How long a model thinks."},
    }
    paths = {"/v1/chat/completions": body("Chat"), "/v1/completions": body("Text")}
    return {"openapi": "3.1.0", "paths": paths, "components": {"schemas": schemas}}


def logprobs(token):
    """A token of probability 0.6 and four others; one that would be likelier for " called"."""
    shares = {
        token: 0.3 if token == " called" else 0.6,
        " Paris" if token == " called" else " Lyon": 0.35,
        "\n": 0.03,
        "é": 0.01,
        "<": 0.005,
    }
    return {name: math.log(share) for name, share in shares.items()}


def entry(token, logprob):
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def reply(self, content, kind="application/json", status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": len(body),
            "Content-Security-Policy": POLICY,
            **headers,
        }
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def fail(self, message, status=400, **headers):
        self.reply(
            {"error": {"message": message, "type": "invalid_request_error", "code": None}},
            status=status,
            **headers,
        )

    def refused(self):
        if self.server.locked and self.headers["Authorization"] != f"Bearer {KEY}":
            self.fail("this server needs an API key", 401)
            return True
        return False

    def do_GET(self):
        name = self.path.lstrip("/") or "index.html"
        made = {"base.css": lambda: theme() + asset("page.css"), "theme.js": lambda: asset("page.js")}
        if name in ("v1/models", "openapi.json"):
            if not self.refused():
                self.reply(
                    {"object": "list", "data": self.server.models} if name == "v1/models" else described()
                )
        elif name in made:
            self.reply(made[name]().encode(), mimetypes.guess_type(name)[0])
        elif (PAGE / name).is_file():
            self.reply((PAGE / name).read_bytes(), mimetypes.guess_type(name)[0])
        else:
            self.fail("no such page", 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        name = body["model"]
        self.server.models = [
            UNLOADED.get(name, one) if one["id"] == name else one for one in self.server.models
        ]
        asked = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        if self.refused():
            return
        if asked == "busy" and not self.server.bodies[:-1]:
            self.fail("the queue is full", 503, Retry_After=7)
        elif name == "tale" and "messages" in body:
            self.fail("tale has no chat template")
        elif asked == "wrong":
            self.fail("`top_p` must be a number of more than 0")
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.stream(body, asked)

    def event(self, **values):
        self.wfile.write(f"data: {json.dumps(values)}\n\n".encode())
        self.wfile.flush()

    def piece(self, body, token="", finish=None, field="content", **delta):
        if token:
            delta[field] = token
        found = None
        if "prompt" in body:
            if body.get("logprobs") and token:
                found = {
                    "tokens": [token],
                    "token_logprobs": [logprobs(token)[token]],
                    "top_logprobs": [logprobs(token)],
                    "text_offset": [0],
                }
            choice = {"text": token}
        else:
            if body.get("logprobs") and token:
                top = [entry(*pair) for pair in logprobs(token).items()]
                found = {"content": [{**top[0], "top_logprobs": top[: body["top_logprobs"]]}]}
            choice = {"delta": delta}
        self.event(choices=[{"index": 0, **choice, "logprobs": found, "finish_reason": finish}], usage=None)

    def stream(self, body, asked):
        tokens, finish = ANSWERS[body["model"]], "stop"
        if asked == "think":
            for token in ("Hm", ", ", "France."):
                self.piece(body, token, field="reasoning_content")
        elif asked.startswith("say "):
            tokens = asked.removeprefix("say ").splitlines(keepends=True)
        elif asked == "tool":
            tokens, finish = (), "tool_calls"
            call = {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": ""},
            }
            self.piece(body, tool_calls=[call])
            for part in ('{"city": ', '"Paris"}'):
                self.piece(body, tool_calls=[{"index": 0, "function": {"arguments": part}}])
        elif asked == "slow":
            self.never_end(body)
            return
        for token in tokens:
            self.piece(body, token)
            if asked == "break" and token == " of":
                self.event(
                    error={"message": "the model ran out of memory", "type": "server_error", "code": None}
                )
                return
            if asked == "cut" and token == " of":
                return
        self.piece(body, finish=finish)
        usage = {"prompt_tokens": 24, "completion_tokens": len(tokens), "total_tokens": 24 + len(tokens)}
        self.event(choices=[], usage={**usage, "prompt_tokens_details": {"cached_tokens": 16}})
        self.wfile.write(b"data: [DONE]\n\n")

    def never_end(self, body):
        try:
            while not self.server.closing.is_set():
                self.piece(body, "again ")
                time.sleep(0.02)
        except (BrokenPipeError, ConnectionResetError):
            self.server.cancelled.set()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies, self.models, self.locked = [], MODELS, False
        self.cancelled, self.closing = threading.Event(), threading.Event()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running():
    """A server of this kind on a free port of this machine."""
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
