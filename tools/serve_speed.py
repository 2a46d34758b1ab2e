"""The speed of `zoo serve` beside the library in one process and mlx-lm's server, for `tools/serve_load.py speed`.

Each part is measured in rounds; its processes load the model once, for all rounds. A measurement during which a process was
paused is made again.

- `throughput`: tokens a second of 8 clients that stream 16 chats, of three ways one after the other in each round.
- `latency`: the time to the first token of short prompts and the time between the tokens of 8 running texts, before, while
  and after a long prompt is read; beside the time of reading about 128 tokens.
- `turns`: what the second turn of a conversation reads, and the time to its first token.
- `balance`: described in `tools/serve_balance.py`.

All use the BLAS that the zoo loads, mlx-lm's server too: it is started by a script that imports the zoo first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from serve_client import Process, Reply, post, unpaused, zoo_serve
from serve_requests import CHAT, COMPLETIONS, usage

import zoo
from zoo.cli.terminal import table
from zoo.generation.chat.chat_prompt import chat_prompt
from zoo.generation.loop.engine import SHARED_CHUNK

CLIENTS, CHATS = 8, 16
FIRST = 400  # tokens of a conversation's first message, about
SHORTS = 3  # short prompts before and after the long one; at least as many while it is read
REST = 1.0  # seconds between two short prompts
Ways = Mapping[str, tuple[Callable[[int], float], Sequence[subprocess.Popen[str]]]]  # and their processes
RUNNING = 4000  # tokens of a text that runs as long as a measurement
MLX_LM = """
import sys, zoo, runpy
from zoo.runtime import blas
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
    return {"messages": messages, **greedy(new), **more}


def greedy(new: int) -> dict[str, Any]:
    """The fields of a streaming request for a greedy answer of at most so many tokens."""
    return {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "max_tokens": new}


def first_time(reply: Reply) -> float:
    """When the first part of an answer with text, or its end, came. SystemExit for an answer that failed."""
    for event, seconds in zip(reply.events, reply.times, strict=True):
        for part in event.get("choices", ()):
            if part.get("text") or part.get("delta", {}).get("content") or part["finish_reason"]:
                return seconds
    raise SystemExit(f"an answer has no text: {reply.status} {reply.events}")


def counts_of(reply: Reply) -> dict[str, Any]:
    """The numbers of tokens of an answer. SystemExit for one that failed."""
    counts = usage(reply) if reply.is_stream else None
    if counts is None:
        raise SystemExit(f"status {reply.status}: {reply.body.decode()[:300]} {reply.events[-1:]}")
    return counts


async def chats(address: str, first: int, new: int) -> tuple[float, list[Reply]]:
    """Tokens a second of the clients' chats, whose numbers begin with `first`, and the answers in their order.

    Each client has a key of its own.
    """
    replies: dict[int, Reply] = {}
    left = list(range(first, first + CHATS))

    async def client(key: str) -> None:
        while left:
            number = left.pop(0)
            replies[number] = await post(address, CHAT, body(question(number), new), key=key)

    began = time.perf_counter()
    await asyncio.gather(*(client(f"client-{number}") for number in range(CLIENTS)))
    seconds = time.perf_counter() - began
    ordered = [replies[number] for number in sorted(replies)]
    return sum(counts_of(reply)["completion_tokens"] for reply in ordered) / seconds, ordered


class Library:
    """The library's engine in a process of its own, that runs the same chats."""

    def __init__(self, source: str, new: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, source, str(new)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
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


def serve_library(source: str, new: int) -> None:
    """The process of `Library`: a line with the first number of some chats is answered with their tokens a second."""
    loaded = zoo.load(source)
    print(0, flush=True)
    for line in sys.stdin:
        began, tokens = time.perf_counter(), 0
        engine = zoo.Engine(loaded, rows=CLIENTS)
        for number in range(int(line), int(line) + CHATS):
            engine.add(chat_prompt(loaded, question(number)).ids, max_tokens=new, temperature=0)
        for _, step in engine.run():
            tokens += step.token is not None
        print(tokens / (time.perf_counter() - began), flush=True)


def free_port() -> int:
    """A port of the loopback address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def mlx_lm_server(source: str, log: Path) -> Process:
    """mlx-lm's server of a folder, at a free port."""
    command = [sys.executable, "-c", MLX_LM, "--model", source, "--port", str(free_port())]
    return Process(command, re.compile(r"(?<= at )http://[^/]+(?=/$)"), log)


def answers(address: str) -> None:
    """Wait until a server answers, and let it warm up. SystemExit where it does not."""
    for _ in range(120):
        try:
            counts_of(asyncio.run(post(address, CHAT, body(question(0), 4))))
            return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"no answer from {address}")


def throughput(source: str, given: argparse.Namespace, logs: Path) -> dict[str, Any]:
    """Tokens a second of the three ways."""
    with ExitStack() as stack:
        served = stack.enter_context(zoo_serve(source, logs / "zoo"))
        other = stack.enter_context(mlx_lm_server(source, logs / "mlx-lm"))
        library = stack.enter_context(Library(source, given.new))
        for server in (served, other):
            answers(server.address)
        library.chats(0)
        ways: Ways = {
            "zoo serve": (lambda first: asyncio.run(chats(served.address, first, given.new))[0], [served.process]),
            "zoo.Engine": (library.chats, [library.process]),
            "mlx_lm.server": (lambda first: asyncio.run(chats(other.address, first, given.new))[0], [other.process]),
        }  # fmt: skip
        rounds = rounds_of(ways, given.rounds)
        log = (logs / "mlx-lm").read_text(encoding="utf-8")
    ratios = {
        f"zoo serve / {name}": spread([a / b for a, b in zip(rounds["zoo serve"], rounds[name], strict=True)])
        for name in ("zoo.Engine", "mlx_lm.server")
    }
    started = next(line for line in log.splitlines() if line.startswith("BLAS"))
    speeds = {f"{name}, tokens/s": spread(values) for name, values in rounds.items()}
    return speeds | ratios | {"BLAS of mlx_lm.server": started.split()[1].rstrip(",")}


def rounds_of(ways: Ways, rounds: int) -> dict[str, list[float]]:
    """What each way gives in each round, called with the first number of the round's chats; it has not seen them before.

    Another way is the first in each round.
    """
    rates: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(1, rounds + 1):
        names.append(names.pop(0))
        for name in names:
            run, processes = ways[name]
            began, tries = time.perf_counter(), count(number, rounds)
            value = unpaused(lambda run=run, tries=tries: run(CHATS * next(tries)), processes)  # type: ignore[misc]
            rates[name].append(value)
            seconds = time.perf_counter() - began
            print(f"{name}: {value:.1f} tokens/s in {seconds:.0f} s", file=sys.stderr, flush=True)
    return rates


async def latencies(address: str, number: int, long: int) -> dict[str, list[float]]:
    """Seconds to first tokens and between tokens before, while and after a long prompt is read.

    Before that, the seconds of reading alone: about `SHARED_CHUNK` tokens at the start of a prompt, a long one, and as many
    tokens at the end of one, of which the rest is cached.
    """
    seconds: dict[str, list[float]] = {}
    prompt, rest = text_of(long, 2 * number), " " + text_of(SHARED_CHUNK, 0)
    parts = {"a prompt's start": rest, "the long prompt": prompt, "a prompt's end": prompt + rest}
    for name, text in parts.items():
        reply = await post(address, COMPLETIONS, {"prompt": f"{number}. {text}", **greedy(1)})
        counts = counts_of(reply)
        seconds[f"tokens of {name}"] = [
            counts["prompt_tokens"] - counts["prompt_tokens_details"]["cached_tokens"]
        ]
        seconds[f"reading {name} alone, seconds"] = [first_time(reply)]

    arrivals: list[list[float]] = [[] for _ in range(CLIENTS)]
    running = [
        asyncio.ensure_future(
            post(
                address,
                CHAT,
                body(question(number * 100 + row), RUNNING, min_tokens=RUNNING),
                arrived=times.append,
            )
        )
        for row, times in enumerate(arrivals)
    ]
    while min(map(len, arrivals)) < 4:
        await asyncio.sleep(0.1)
    numbers = count(number * 1000)

    async def phase(name: str, reading: asyncio.Future[Reply] | None = None) -> None:
        began, firsts = time.perf_counter(), list[float]()
        while len(firsts) < SHORTS if reading is None else not reading.done():
            reply = await post(address, CHAT, body(question(next(numbers)), 1))
            firsts.append(first_time(reply))
            await asyncio.sleep(REST)
        seconds[f"to the first token {name}, seconds"] = firsts
        seconds[f"between tokens {name}, seconds"] = between(arrivals, began, time.perf_counter())

    await phase("before")
    sent = asyncio.ensure_future(
        post(address, COMPLETIONS, {"prompt": text_of(long, 2 * number + 1), **greedy(1)})
    )
    await asyncio.sleep(0.1)
    await phase("while reading", sent)
    seconds["reading the long prompt beside others, seconds"] = [first_time(await sent)]
    await phase("after")
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return seconds


def between(arrivals: list[list[float]], start: float, end: float) -> list[float]:
    """Seconds between the events of each text that came from `start` to `end`."""
    return [
        later - one for times in arrivals for one, later in pairwise(times) if start <= one and later <= end
    ]


def latency(source: str, given: argparse.Namespace, logs: Path) -> dict[str, Any]:
    """The figures of `latencies`."""
    seconds: dict[str, list[float]] = {}
    with zoo_serve(source, logs / "zoo") as server:
        answers(server.address)
        numbers = count(1)
        for _ in range(given.rounds):

            def run() -> dict[str, list[float]]:
                return asyncio.run(latencies(server.address, next(numbers), given.long))

            for name, values in unpaused(run, [server.process]).items():
                seconds.setdefault(name, []).extend(values)
    if (number := len(seconds["to the first token while reading, seconds"])) < SHORTS * given.rounds:
        print(f"only {number} short prompts came while the long ones were read", file=sys.stderr)
    return {name: spread(values) for name, values in seconds.items()}


def turns(source: str, given: argparse.Namespace, logs: Path) -> dict[str, Any]:
    """Tokens of two turns of a conversation, those of them that were cached, and seconds to the first token."""
    seconds: dict[str, list[float]] = {}
    with zoo_serve(source, logs / "zoo") as server:
        answers(server.address)
        numbers = count(101)
        for _ in range(given.rounds):
            pair = unpaused(lambda: two_turns(server.address, next(numbers)), [server.process])
            for name, value in pair.items():
                seconds.setdefault(name, []).append(value)
    return {name: spread(values) for name, values in seconds.items()}


def two_turns(address: str, number: int) -> dict[str, float]:
    """The figures of the two turns of a conversation."""
    messages = [{"role": "user", "content": text_of(FIRST, number)}]
    seconds: dict[str, float] = {}
    for turn in ("first", "second"):
        reply = asyncio.run(post(address, CHAT, body(messages, 24)))
        counts = counts_of(reply)
        parts = [part["delta"].get("content") or "" for e in reply.events for part in e["choices"]]
        messages += [
            {"role": "assistant", "content": "".join(parts)},
            {"role": "user", "content": "And in one sentence?"},
        ]
        seconds[f"{turn} turn, prompt tokens"] = counts["prompt_tokens"]
        seconds[f"{turn} turn, cached tokens"] = counts["prompt_tokens_details"]["cached_tokens"]
        seconds[f"{turn} turn, seconds to the first token"] = first_time(reply)
    return seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile, least and most of some values, and their number."""
    if not values:
        return {"number": 0}
    ordered = sorted(values)
    figures = {
        "median": statistics.median(ordered),
        "p95": ordered[round(0.95 * (len(ordered) - 1))],
        "min": ordered[0],
        "max": ordered[-1],
    }
    return {name: round(value, 4) for name, value in figures.items()} | {"number": len(values)}


def report(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures of a part as a table."""
    names = ("median", "p95", "min", "max", "number")
    rows = []
    for record in records.values():
        for what, value in record.items():
            cells = [f"{value[name]:g}" if name in value else "–" for name in names] if isinstance(value, dict) else [str(value)]  # fmt: skip
            rows.append([what, *cells, *[""] * (len(names) - len(cells))])
    return table(rows, ["", *names], repeated=1)


if __name__ == "__main__":
    serve_library(sys.argv[1], int(sys.argv[2]))
