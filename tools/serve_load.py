"""Load on `zoo serve`: whether answers under load are right, and how fast they are beside other ways.

    python tools/serve_load.py correct llama gemma2 mamba mixtral
    python tools/serve_load.py speed FOLDER

`correct` lets many clients send random requests to a server, and compares each answer with that of the library alone. Clients
close connections, read slowly or not at all, give up and ask again, and ask more than the queue holds. The same seed makes
the same requests. `speed` is described in `tools/serve_speed.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import zoo
from zoo.cli.terminal import table
from zoo.files.writing import write_record
from zoo.generation.loop.prompt import has_chat_template
from zoo.loading import Loaded
from zoo.runtime import versions
from zoo_serve.http import HEARTBEAT_SECONDS

from serve_client import Clock, Process, Reply, post, zoo_serve  # isort: skip
from serve_requests import VERDICTS, Alone, Conversation, Planner, Turn, usage  # isort: skip

SILENCE = HEARTBEAT_SECONDS + 5  # seconds in which a stream must send a byte
WARM = 16  # requests before threads and files are counted
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
FLAT = 8  # MB by which the memory may grow in the last quarter
SIZES = ("clients", "rows", "queue", "prompt_cache", "longest", "stall", "seed")  # that a record has
# What asyncio may start or open late: its threads for work in the background.
POOLS = {"threads": min(32, (os.cpu_count() or 1) + 4), "files": 0}
BUSY = "503, asked again"


class Load:
    """Clients that work through conversations."""

    def __init__(self, server: Process, conversations: list[Conversation]) -> None:
        self.server, self.clock = server, Clock()
        self.left = deque(conversations)
        self.total = sum(len(conversation.turns) for conversation in conversations)
        self.statuses: Counter[str] = Counter()
        self.done = 0
        self.memory: list[int] = []
        self.silence = {"stream": 0.0, "whole": 0.0}

    async def run(self, clients: int) -> float:
        """Let so many clients send all requests; the seconds that it took."""
        ticking = asyncio.ensure_future(self.clock.run())
        try:
            await asyncio.gather(*(self._client() for _ in range(clients)))
        finally:
            ticking.cancel()
        return self.clock.seconds

    async def _client(self) -> None:
        while self.left:
            conversation = self.left.popleft()
            for number, turn in enumerate(conversation.turns):
                turn.body = conversation.body(number)
                await self._ask(conversation.path, turn)
                self.done += 1
                if self.done * 4 // self.total > len(self.memory):
                    self.memory.append(self.server.state()["rss"])

    async def _ask(self, path: str, turn: Turn) -> None:
        """Send a request until it is answered, or its reader leaves."""
        assert turn.body is not None
        while True:
            asked = post(self.server.address, path, turn.body, reader=turn.reader, clock=self.clock)
            try:
                reply = await asyncio.wait_for(asked, turn.patience)
            except TimeoutError:
                self.statuses["gave up, asked again"] += 1
                turn.patience = None
                continue
            if reply.status == 503 and "retry-after" in reply.headers:
                self.statuses[BUSY] += 1
                await asyncio.sleep(int(reply.headers["retry-after"]))
                continue
            turn.reply = reply
            self.statuses[str(reply.status) if reply.whole else "cut off"] += 1
            kind = "stream" if reply.is_stream else "whole"
            self.silence[kind] = max(self.silence[kind], reply.silence)
            return


async def settled(server: Process, before: dict[str, int], seconds: float = 60) -> dict[str, Any]:
    """What a server holds beyond `before` and `POOLS` once it has ended all it did, or after so many seconds."""
    for _ in range(int(seconds)):
        gauges, state = await asyncio.to_thread(server.gauges), server.state()
        counts = {name: gauges[f"zoo_{name}"] for name in ("waiting", "prefilling", "running")}
        counts |= {name: max(state[name] - before[name] - POOLS[name], 0) for name in POOLS}
        if not any(counts.values()):
            break
        await asyncio.sleep(1)
    return counts


async def warmed(server: Process, conversations: list[Conversation]) -> dict[str, int]:
    """The state of a server after some requests at once."""
    asked = [(conversation.path, conversation.body(0) | {"max_tokens": 4}) for conversation in conversations]
    await asyncio.gather(*(post(server.address, *request) for request in asked))
    await asyncio.sleep(1)
    return server.state()


def with_template(loaded: Loaded, folder: Path) -> Path:
    """A copy of a checkpoint without a chat template that has a plain one."""
    copy = folder / loaded.folder.name
    shutil.copytree(loaded.folder, copy)
    (copy / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return copy


def correct(source: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the load on one model, and compare its answers; gives a record."""
    with tempfile.TemporaryDirectory() as folder_of_models:
        loaded = zoo.load(source)
        if not has_chat_template(loaded):
            source = str(with_template(loaded, Path(folder_of_models)))
            loaded = zoo.load(source)
        planner = Planner(loaded, arguments.seed, arguments.stall, arguments.longest)
        conversations = planner.conversations(arguments.requests)
        options = ("--rows", str(arguments.rows), "--queue", str(arguments.queue))
        log = Path(arguments.log or Path(folder_of_models) / "log")
        with zoo_serve(source, log, *options, "--prompt-cache", arguments.prompt_cache) as server:
            warm = Planner(loaded, arguments.seed + 1, 0, 4).conversations(WARM)

            async def measure() -> tuple[Load, float, dict[str, Any]]:
                before = await warmed(server, warm)
                load = Load(server, conversations)
                seconds = await load.run(arguments.clients)
                return load, seconds, await settled(server, before)

            load, seconds, left = asyncio.run(measure())
    verdicts, seen, tokens = Counter[str](), [], Counter[str]()
    alone = Alone(loaded)
    for conversation in conversations:
        for turn, verdict, what in alone.verdicts(conversation):
            verdicts[verdict] += 1
            if verdict == "wrong":
                seen.append(f"{conversation.path}: {what}")
            elif verdict == "tie":
                print(f"{source}: tie: {what}", file=sys.stderr)
            if turn.reply is not None and turn.reply.whole and turn.reply.status == 200:
                tokens += _counted(turn.reply)
    return {
        "requests": load.total,
        **{name: getattr(arguments, name) for name in SIZES},
        "verdicts": dict(verdicts),
        "statuses": dict(load.statuses),
        "seconds": round(seconds, 1),
        "tokens": dict(tokens),
        "longest_silence": {kind: round(value, 2) for kind, value in load.silence.items()},
        "memory_mb": [round(size / 1e6, 1) for size in load.memory],
        "left": left,
        "seen": seen,
    }


def _counted(reply: Reply) -> Counter[str]:
    """The tokens of a reply that was read to its end."""
    counts = usage(reply) or {}
    cached = counts.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    names = {"prompt": counts.get("prompt_tokens", 0), "cached": cached}
    return Counter({**names, "generated": counts.get("completion_tokens", 0)})


def faults(record: dict[str, Any]) -> list[str]:
    """What is wrong in a record of `correct`."""
    problems = [f"{record['verdicts']['wrong']} answers are wrong"] if record["verdicts"].get("wrong") else []
    problems += [f"{name}: {count} more than before" for name, count in record["left"].items() if count]
    if record["longest_silence"]["stream"] > SILENCE:
        problems.append(f"a stream was silent for {record['longest_silence']['stream']} s")
    if (grown := _grown(record)) > FLAT:
        problems.append(f"the memory grew by {grown:.1f} MB in the last quarter")
    return problems + record["seen"]


def _grown(record: Mapping[str, Any]) -> float:
    """The growth of the memory in the last quarter, in MB."""
    *_, before, last = record["memory_mb"]
    return float(last - before)


def summary(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Records of `correct` as a table."""
    head = [
        "",
        "requests",
        *VERDICTS,
        "503",
        "tokens",
        "cached",
        "tokens/s",
        "silence",
        "last quarter",
        "left",
    ]
    rows = []
    for source, record in records.items():
        tokens, verdicts = record["tokens"], record["verdicts"]
        rows.append([
            Path(source).name,
            f"{record['requests']:,}",
            *(f"{verdicts.get(name, 0):,}" for name in VERDICTS),
            f"{record['statuses'].get(BUSY, 0):,}",
            f"{tokens['generated']:,}",
            f"{tokens['cached']:,}",
            f"{tokens['generated'] / record['seconds']:.0f}",
            f"{record['longest_silence']['stream']:.1f} s",
            f"{_grown(record):+.1f} MB",
            f"{sum(record['left'].values()):.0f}",
        ])  # fmt: skip
    return table(rows, head, repeated=1)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Load on zoo serve.")
    modes = parser.add_subparsers(dest="mode", required=True)
    one = modes.add_parser("correct", help="compare answers under load with those of the library alone")
    one.add_argument("sources", nargs="+", metavar="SOURCE")
    one.add_argument("--requests", type=int, default=2000)
    one.add_argument("--clients", type=int, default=64)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--rows", type=int, default=16)
    one.add_argument("--queue", type=int, default=24)
    one.add_argument("--prompt-cache", default="16M")
    one.add_argument(
        "--stall", type=float, default=40, help="seconds for which some readers read nothing (40)"
    )
    one.add_argument("--longest", type=int, default=60, help="tokens of the longest answers (60)")
    one.add_argument("--log", help="file for the server's error stream")
    two = modes.add_parser("speed", help="compare speeds with the library and with mlx-lm's server")
    two.add_argument("sources", nargs=1, metavar="SOURCE")
    two.add_argument("--part", required=True, choices=("throughput", "latency", "turns", "balance"))
    two.add_argument("--rounds", type=int, default=3)
    two.add_argument("--long", type=int, default=4000, help="tokens of the long prompt, about (4000)")
    two.add_argument("--new", type=int, default=48, help="tokens of a chat's answer (48)")
    for each in (one, two):
        each.add_argument("--record", type=Path, metavar="FILE", help="write the figures as JSON")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server outlives this process
    if given.mode == "speed":
        from serve_balance import balance
        from serve_speed import latency, report, throughput, turns

        parts = {part.__name__: part for part in (throughput, latency, turns, balance)}
        with tempfile.TemporaryDirectory() as logs:
            records: dict[str, Any] = {given.part: parts[given.part](given.sources[0], given, Path(logs))}
        problems: list[str] = []
    else:
        report, records = summary, {source: correct(source, given) for source in given.sources}
        problems = [f"{source}: {what}" for source, one in records.items() for what in faults(one)]
    print(report(records))
    for problem in problems:
        print(problem, file=sys.stderr)
    if given.record:
        about = {
            "versions": versions(),
            "date": time.strftime("%Y-%m-%d"),
            "command": [word.rpartition("/")[2] for word in sys.argv[1:]],
        }
        write_record(given.record, {**about, given.mode: records}, overwrite=None, indent=1)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
