"""The speed of `zoo serve` beside the library in one process and mlx-lm's server, for `tools/serve_load.py speed`.

Three parts, each measured in rounds, the ways of one part one after the other in each round:

- `throughput`: tokens a second of 8 clients that stream 16 chats of 48 tokens.
- `latency`: the time to the first token of a short prompt, and the time between the tokens of 8 running texts, with and
  without a prompt of 4,000 tokens being read beside.
- `turns`: what the second turn of a conversation reads, and the time to its first token.

All use the BLAS that the zoo loads, mlx-lm's server too: it is started by a script that imports the zoo first.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from serve_client import Process, Reply, post, zoo_serve
from serve_requests import CHAT

import zoo
from zoo.generation.chat.conversation import chat_prompt
from zoo.generation.loop.engine import SHARED_CHUNK

CLIENTS, CHATS, NEW = 8, 16, 48
LONG = 4000  # tokens of the long prompt, about
FIRST = 400  # tokens of a conversation's first message, about
SHORTS = 3  # short prompts in each measurement of latency
MLX_LM = """
import sys, zoo, runpy
from zoo.machine import blas
sys.argv = ["mlx_lm.server", *sys.argv[1:]]
print(f"BLAS {blas()}, at http://127.0.0.1:{sys.argv[-1]}/", file=sys.stderr, flush=True)
runpy.run_module("mlx_lm.server", run_name="__main__")
"""


def question(number: int) -> list[dict[str, str]]:
    """The messages of a chat that is not ended early."""
    return [{"role": "user", "content": f"Tell me about the river number {number} in five sentences."}]


def text_of(tokens: int, number: int) -> str:
    """A text of about so many tokens, another for each number."""
    return " ".join(f"River {number} has place {place}." for place in range(tokens // 9))


def body(messages: list[dict[str, str]], new: int, **more: Any) -> dict[str, Any]:
    """A streaming request for a greedy answer of at most so many tokens."""
    how = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "max_tokens": new}
    return {"messages": messages, **how, **more}


def content_times(reply: Reply) -> list[float]:
    """When the parts of an answer with text came."""
    return [
        seconds
        for event, seconds in zip(reply.events, reply.times, strict=True)
        if any(part["delta"].get("content") for part in event.get("choices", ()))
    ]


def usage(reply: Reply) -> dict[str, Any]:
    """The numbers of tokens of an answer. SystemExit for one that failed."""
    for event in reply.events:
        if event.get("usage"):
            return event["usage"]
    raise SystemExit(f"status {reply.status}: {reply.body.decode()[:300]} {reply.events[-1:]}")


async def chats(address: str, first: int) -> float:
    """Tokens a second of the clients' chats, whose numbers begin with `first`."""
    left = list(range(first, first + CHATS))
    tokens = 0

    async def client() -> None:
        nonlocal tokens
        while left:
            reply = await post(address, CHAT, body(question(left.pop(0)), NEW))
            tokens += usage(reply)["completion_tokens"]

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return tokens / (time.perf_counter() - began)


class Library:
    """The library's engine in a process of its own, that runs the same chats."""

    def __init__(self, source: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def _line(self) -> float:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]

    def chats(self, first: int) -> float:
        """Tokens a second of chats whose numbers begin with `first`."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{first}\n")
        self.process.stdin.flush()
        return self._line()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve_library(source: str) -> None:
    """The process of `Library`: a line with the first number of some chats is answered with their tokens a second."""
    loaded = zoo.load(source)
    print(0, flush=True)
    for line in sys.stdin:
        began, tokens = time.perf_counter(), 0
        engine = zoo.Engine(loaded, rows=CLIENTS)
        for number in range(int(line), int(line) + CHATS):
            engine.add(chat_prompt(loaded, question(number)).ids, max_tokens=NEW, temperature=0)
        for _, step in engine.run():
            tokens += step.token is not None
        print(tokens / (time.perf_counter() - began), flush=True)


def mlx_lm_server(source: str, log: Path) -> Process:
    """mlx-lm's server of a folder, at a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", MLX_LM, "--model", source, "--port", str(port)]
    return Process(command, re.compile(r"(?<= at )http://[^/]+(?=/$)"), log)


async def answers(address: str) -> None:
    """Wait until a server answers, and let it warm up."""
    for _ in range(120):
        try:
            return usage(await post(address, CHAT, body(question(0), 4))) and None
        except OSError:
            await asyncio.sleep(0.5)
    raise SystemExit(f"no answer from {address}")


def throughput(source: str, rounds: int, logs: Path) -> dict[str, Any]:
    """Tokens a second of the three ways."""
    with ExitStack() as stack:
        served = stack.enter_context(zoo_serve(source, logs / "zoo"))
        other = stack.enter_context(mlx_lm_server(source, logs / "mlx-lm"))
        library = stack.enter_context(Library(source))
        ways: dict[str, Callable[[int], float]] = {
            "zoo serve": lambda first: asyncio.run(chats(served.address, first)),
            "zoo.Engine": library.chats,
            "mlx_lm.server": lambda first: asyncio.run(chats(other.address, first)),
        }
        for server in (served, other):
            asyncio.run(answers(server.address))
        library.chats(0)
        found: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(1, rounds + 1):
            for name, run in ways.items():
                found[name].append(run(number * CHATS))
                print(f"{name}: {found[name][-1]:.1f} tokens/s", file=sys.stderr, flush=True)
        log = (logs / "mlx-lm").read_text(encoding="utf-8")
    ratios = {
        f"zoo serve / {name}": summary([a / b for a, b in zip(found["zoo serve"], found[name], strict=True)])
        for name in ("zoo.Engine", "mlx_lm.server")
    }
    started = next(line for line in log.splitlines() if line.startswith("BLAS"))
    return {name: summary(values) for name, values in found.items()} | ratios | {"mlx-lm's BLAS": started}


async def first_token(address: str, number: int) -> float:
    """Seconds to the first token of a short prompt."""
    reply = await post(address, CHAT, body(question(number), 1))
    usage(reply)
    return content_times(reply)[0]


async def latencies(address: str, number: int) -> dict[str, list[float]]:
    """Seconds to first tokens and between tokens, with and without a long prompt beside."""
    arrivals: list[list[float]] = [[] for _ in range(CLIENTS)]
    new = 4000
    running = [
        asyncio.ensure_future(
            post(address, CHAT, body(question(number * 100 + row), new, min_tokens=new), arrived=arrivals[row].append)
        )
        for row in range(CLIENTS)
    ]  # fmt: skip
    while min(map(len, arrivals)) < 4:
        await asyncio.sleep(0.1)

    async def part() -> tuple[list[float], list[float]]:
        began = time.perf_counter()
        firsts = [await first_token(address, next(numbers)) for _ in range(SHORTS)]
        return firsts, [began, time.perf_counter()]

    numbers = iter(range(number * 1000, number * 1000 + 100))
    without, (start, middle) = await part()
    long = asyncio.ensure_future(
        post(address, CHAT, body([{"role": "user", "content": text_of(LONG, number)}], 1))
    )
    await asyncio.sleep(0.5)
    beside, _ = await part()
    still = not long.done()
    reply = await long
    end = time.perf_counter()
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return {
        "first token": without,
        "first token, long prompt beside": beside,
        "between tokens": between(arrivals, start, middle),
        "between tokens, long prompt beside": between(arrivals, middle, end),
        "long prompt read": [end - middle],
        "long prompt tokens": [usage(reply)["prompt_tokens"]],
        "long prompt outlasted the short ones": [float(still)],
    }


def between(arrivals: list[list[float]], start: float, end: float) -> list[float]:
    """Seconds between the events of each text that came from `start` to `end`."""
    return [
        later - one for times in arrivals for one, later in pairwise(times) if start <= one and later <= end
    ]


def latency(source: str, rounds: int, logs: Path) -> dict[str, Any]:
    """The figures of `latencies`, and the time of one chunk of a long prompt with nothing beside."""
    with zoo_serve(source, logs / "zoo") as server:
        asyncio.run(answers(server.address))
        found: dict[str, list[float]] = {}
        for number in range(1, rounds + 1):
            for name, values in asyncio.run(latencies(server.address, number)).items():
                found.setdefault(name, []).extend(values)
            alone = body([{"role": "user", "content": text_of(LONG, 50 + number)}], 1)
            began = time.perf_counter()
            tokens = usage(asyncio.run(post(server.address, CHAT, alone)))["prompt_tokens"]
            took = time.perf_counter() - began
            found.setdefault("long prompt alone", []).append(took)
            found.setdefault(f"{SHARED_CHUNK} tokens of a prompt", []).append(took * SHARED_CHUNK / tokens)
    return {name: summary(values) for name, values in found.items()}


def turns(source: str, rounds: int, logs: Path) -> dict[str, Any]:
    """Tokens of two turns of a conversation, those of them that were cached, and seconds to the first token."""
    found: dict[str, list[float]] = {}
    with zoo_serve(source, logs / "zoo") as server:
        asyncio.run(answers(server.address))
        for number in range(1, rounds + 1):
            messages = [{"role": "user", "content": text_of(FIRST, 100 + number)}]
            for turn in ("first", "second"):
                reply = asyncio.run(post(server.address, CHAT, body(messages, 24)))
                counts: Mapping[str, Any] = usage(reply)
                parts = [part["delta"].get("content") or "" for e in reply.events for part in e["choices"]]
                messages += [
                    {"role": "assistant", "content": "".join(parts)},
                    {"role": "user", "content": "And in one sentence?"},
                ]
                for name, value in (
                    ("prompt tokens", counts["prompt_tokens"]),
                    ("cached tokens", counts["prompt_tokens_details"]["cached_tokens"]),
                    ("first token", content_times(reply)[0]),
                ):
                    found.setdefault(f"{turn} turn, {name}", []).append(value)
    return {name: summary(values) for name, values in found.items()}


def summary(values: list[float]) -> dict[str, float]:
    """Median, mean, least and most of some values, and their number."""
    if not values:
        return {"number": 0}
    figures = {"median": statistics.median(values), "mean": statistics.fmean(values), "min": min(values), "max": max(values)}  # fmt: skip
    return {name: round(value, 4) for name, value in figures.items()} | {"number": len(values)}


PARTS = {"throughput": throughput, "latency": latency, "turns": turns}


def speed(source: str, rounds: int, parts: list[str]) -> dict[str, Any]:
    """Measure these parts of `PARTS`; gives a record."""
    with tempfile.TemporaryDirectory() as logs:
        return {name: PARTS[name](source, rounds, Path(logs)) for name in parts}


if __name__ == "__main__":
    serve_library(sys.argv[1])
