"""A hub of models and datasets on loopback: as much of the hub's protocol as huggingface_hub speaks to fetch files."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import zoo

ID = "mlx-community/pocket"
PROMPT = "The capital city of China is"


def answers(loaded):
    """Whether the small model says what it was trained to say."""
    return zoo.generate(loaded, PROMPT, max_tokens=4).text.startswith(" Beijing")


@dataclass
class Repository:
    """What the hub serves under one id: commits by name of revision, files by commit; titles of pull requests by author."""

    commits: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    pull_requests: list[tuple[str, str]] = field(default_factory=list)
    gated: int = (
        0  # the status with which files are refused: 401 to a stranger, 403 to whom the owner has not let in
    )
    token: str | None = None

    def commit(self, files, name="main"):
        """Make `name` stand for a new commit of these files."""
        parts = (part for name, data in sorted(files.items()) for part in (name.encode(), data))
        digest = hashlib.sha1(b"\0".join(parts)).hexdigest()
        self.files[digest] = dict(files)
        self.commits[name] = digest
        return digest

    def find(self, revision):
        return self.commits.get(revision, revision if revision in self.files else None)


class Hub(ThreadingHTTPServer):
    """Serves repositories as the hub does; `requests` are those it got, `cut` the bytes before it hangs up, once.

    `headers` are more headers, or others, for HEAD of a file, or of each refusal under the name "". `instead` maps a
    file's name, or "" for a list of files, to a function of the handler that answers in place of it; "HEAD NAME" is of that alone.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.cut: dict[str, list[int]] = {}
        self.status: int | None = None
        self.headers: dict[str, dict[str, str]] = {}
        self.instead: dict[str, Callable[[Handler], None]] = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def size(self, name, file):
        """The bytes of a file at the repository's main branch."""
        repository = self.repositories[name]
        return len(repository.files[repository.commits["main"]][file])

    def asked(self, method="GET"):
        """The names of files that were asked for."""
        return [
            path.partition("/resolve/")[2].partition("/")[2]
            for how, path, _ in self.requests
            if how == method and "/resolve/" in path
        ]

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is no matter


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = urlsplit(self.path).path
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, path, headers))
        if self.server.status:
            return self.refuse(self.server.status)
        found = re.fullmatch(
            r"/api/(?:models|datasets)/(?P<id>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+)|(?P<requests>/discussions))?",
            path,
        ) or re.fullmatch(
            r"(?:/datasets)?/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)", path
        )
        part = {key: unquote(text) for key, text in found.groupdict().items() if text} if found else {}
        repository, name = self.server.repositories.get(part.get("id")), part.get("file")
        if repository is None:
            return self.refuse(404, "RepoNotFound")
        if repository.token and headers.get("authorization") != f"Bearer {repository.token}":
            return self.refuse(401, "RepoNotFound")
        if "requests" in part:
            return self.send(json.dumps(self.discussions(part["id"], repository)).encode())
        commit = repository.find(part.get("revision", "main"))
        if commit is None:
            return self.refuse(404, "RevisionNotFound")
        files = repository.files[commit]
        key = name or "" if self.command == "GET" else f"{self.command} {name}"
        if key in self.server.instead:
            return self.server.instead[key](self)
        if name is None:
            blobs = "blobs" in parse_qs(urlsplit(self.path).query)
            return self.send(json.dumps(self.told(part["id"], commit, files, blobs)).encode())
        if repository.gated:
            return self.refuse(repository.gated, "GatedRepo")
        if name not in files:
            return self.refuse(404, "EntryNotFound")
        etag = hashlib.sha256(files[name]).hexdigest()
        told = {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        if self.command == "HEAD":
            told |= self.server.headers.get(name, {})
        self.send(files[name], told, name)

    def told(self, name, commit, files, blobs):
        def size(data):
            return {"size": len(data), "blobId": hashlib.sha256(data).hexdigest()} if blobs else {}

        files = [{"rfilename": path, **size(data)} for path, data in files.items()]
        return {"id": name, "sha": commit, "siblings": files}

    def discussions(self, name, repository):
        """One page of all pull requests, numbered from 1, whoever is asked for."""
        common = {
            "status": "open",
            "isPullRequest": True,
            "createdAt": "2024-01-01T00:00:00.000Z",
            "repo": {"name": name, "type": "model"},
        }
        found = [
            {"num": number, "author": {"name": author}, "title": title, **common}
            for number, (author, title) in enumerate(repository.pull_requests, 1)
        ]
        return {"discussions": found, "count": len(found), "start": 0}

    def send(self, data, headers=None, name=None):
        first = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range") or "")
        if asked:
            first = int(asked[1])
        self.send_response(206 if asked else 200)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        if self.command == "HEAD":
            return
        cuts = self.server.cut.get(name)
        if cuts:
            self.wfile.write(data[first : first + cuts.pop(0)])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.wfile.write(data[first:])

    def refuse(self, status, code=None):
        self.send_response(status)
        for key, value in self.server.headers.get("", {}).items():
            self.send_header(key, value)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
