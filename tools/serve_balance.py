"""Two servers behind a balancer beside one server, for `tools/serve_load.py speed --part balance`.

Two `zoo serve` with one thread each behind nginx, which keeps a client on one server by its key as in
docs/guides/servers.md; one server with one thread; one with two. In each round, 8 clients stream 16 chats from one of the
three after the other. Each answer is compared with that of the library alone.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from serve_client import Process, Reader, Reply, zoo_serve
from serve_requests import CHAT, Alone, Conversation, Turn

import zoo

NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/errors; worker_processes 1; events {{}}
http {{
    log_format servers "$upstream_addr"; access_log {folder}/access servers;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream zoo {{ hash $http_authorization$remote_addr consistent; {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://zoo; proxy_http_version 1.1; proxy_set_header Host $host;
            proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 600s;
        }}
    }}
}}
"""


def balance(source: str, given: argparse.Namespace, logs: Path) -> dict[str, Any]:
    """Tokens a second of each way, how requests were spread, and how many answers were right. SystemExit without nginx."""
    from serve_speed import answers, chats, free_port, question, rounds_of, spread

    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        raise SystemExit("nginx is not installed")
    conversations: list[Conversation] = []
    fields = {"temperature": 0, "max_tokens": given.new}

    def ask(address: str, first: int) -> float:
        speed, replies = asyncio.run(chats(address, first, given.new))
        conversations.extend(
            _asked(question(first + place), fields, reply) for place, reply in enumerate(replies)
        )
        return speed

    with ExitStack() as stack:
        threads = {"one": 1, "two": 2, "left": 1, "right": 1}
        servers: dict[str, Process] = {
            name: stack.enter_context(zoo_serve(source, logs / name, threads=number))
            for name, number in threads.items()
        }
        port = free_port()
        lines = " ".join(f"server {servers[name].address[7:]};" for name in ("left", "right"))
        config = logs / "nginx.conf"
        config.write_text(NGINX.format(folder=logs, servers=lines, port=port), encoding="utf-8")
        proxy = subprocess.Popen([nginx, "-e", logs / "errors", "-c", config], text=True)
        stack.callback(proxy.wait)
        stack.callback(proxy.terminate)
        behind = f"http://127.0.0.1:{port}"
        for address in (behind, *(server.address for server in servers.values())):
            answers(address)
        (logs / "access").write_text("", encoding="utf-8")
        found = rounds_of(
            {
                "one server, one thread": (lambda first: ask(servers["one"].address, first), [servers["one"].process]),
                "one server, two threads": (lambda first: ask(servers["two"].address, first), [servers["two"].process]),
                "two servers behind nginx, one thread each": (
                    lambda first: ask(behind, first), [servers["left"].process, servers["right"].process, proxy]
                ),
            },
            given.rounds,
        )  # fmt: skip
        time.sleep(1)  # until the log is written
        asked = Counter((logs / "access").read_text(encoding="utf-8").split())
    alone = Alone(zoo.load(source))
    verdicts = Counter(verdict for one in conversations for _, verdict, _ in alone.verdicts(one))
    return {
        **{f"{name}, tokens/s": spread(values) for name, values in found.items()},
        "requests of each server": ", ".join(str(number) for number in asked.values()),
        "answers beside the library's": ", ".join(f"{number} {name}" for name, number in verdicts.items()),
    }


def _asked(messages: list[dict[str, str]], fields: dict[str, Any], reply: Reply) -> Conversation:
    """A chat that was answered, to be compared."""
    made = {**fields, "messages": messages}
    return Conversation(CHAT, [Turn(messages[0]["content"], fields, Reader(), None, made, reply)])
