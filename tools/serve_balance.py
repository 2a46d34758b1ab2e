"""Servers behind a balancer beside one server, for `tools/serve_load.py speed --part balance`.

In each round, 8 clients stream 16 chats from one server with one thread, from one with two, and from two with one thread
each behind nginx, which keeps a client on one server by its key, as in docs/guides/servers.md. Each answer is compared with
that of the library alone.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from serve_client import Reader, zoo_serve
from serve_requests import CHAT, Alone, Conversation, Turn
from serve_speed import Ways, answers, body, chats, free_port, question, rounds_of, spread

import zoo

NGINX = """
daemon off; pid pid; error_log errors; events {{}}
http {{
    log_format servers "$upstream_addr"; access_log access servers;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    upstream zoo {{ hash $http_authorization$remote_addr consistent; server {left}; server {right}; }}
    server {{ listen 127.0.0.1:{port}; location / {{
        proxy_pass http://zoo; proxy_http_version 1.1; proxy_set_header Host $host; proxy_set_header Connection "";
        proxy_buffering off; proxy_read_timeout 600s;
    }} }}
}}
"""


def balance(source: str, given: argparse.Namespace, logs: Path) -> dict[str, Any]:
    """Tokens a second of each way, how requests were spread, and how many answers were right. SystemExit without nginx."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        raise SystemExit("nginx is not installed")
    asked: list[Conversation] = []

    def ask(address: str, first: int) -> float:
        speed, replies = asyncio.run(chats(address, first, given.new))
        for number, reply in enumerate(replies, first):
            sent = body(question(number), given.new)
            asked.append(Conversation(CHAT, [Turn("", {}, Reader(), None, sent, reply)]))
        return speed

    with ExitStack() as stack:
        threads = {"one": 1, "two": 2, "left": 1, "right": 1}
        servers = {n: stack.enter_context(zoo_serve(source, logs / n, threads=t)) for n, t in threads.items()}
        one, two, *both = servers.values()
        left, right = (server.address.removeprefix("http://") for server in both)
        config = NGINX.format(left=left, right=right, port=(port := free_port()))
        (logs / "conf").write_text(config, encoding="utf-8")
        proxy = subprocess.Popen([nginx, "-p", logs, "-e", "errors", "-c", "conf"], text=True)
        stack.callback(proxy.wait)
        stack.callback(proxy.terminate)
        behind = f"http://127.0.0.1:{port}"
        for address in (behind, *(server.address for server in servers.values())):
            answers(address)
        ways: Ways = {
            "one server, 1 thread": (lambda first: ask(one.address, first), [one.process]),
            "one server, 2 threads": (lambda first: ask(two.address, first), [two.process]),
            "two servers, 1 thread each": (lambda first: ask(behind, first), [proxy, *(s.process for s in both)]),
        }  # fmt: skip
        rounds = rounds_of(ways, given.rounds)
    counted = Counter((logs / "access").read_text(encoding="utf-8").split())  # with the one that warms up
    alone = Alone(zoo.load(source))
    verdicts = Counter(verdict for chat in asked for _, verdict, _ in alone.verdicts(chat))
    return {
        **{f"{name}, tokens/s": spread(values) for name, values in rounds.items()},
        "requests of each of the two": ", ".join(map(str, counted.values())),
        "answers beside the library's": ", ".join(f"{number} {name}" for name, number in verdicts.items()),
    }
