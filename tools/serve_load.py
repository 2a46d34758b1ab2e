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
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import zoo
from zoo.files.writing import write_record
from zoo.generation.loop.prompt import has_chat_template
from zoo.loading import Loaded
from zoo.runtime import versions
from zoo_serve.http import HEARTBEAT_SECONDS

from serve_client import Clock, Process, post, zoo_serve  # isort: skip
from serve_requests import Alone, Conversation, Planner, Turn, usage  # isort: skip

SILENCE = HEARTBEAT_SECONDS + 5  # seconds in which a stream must send a byte
WARM = 16  # requests before threads and files are counted
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
FLAT = 8e6  # bytes by which the memory may grow in the last quarter


class Load:
    """Clients that work through conversations."""

    def __init__(self, server: Process, conversations: list[Conversation]) -> None:
        self.server, self.clock = server, Clock()
        self.left = deque(conversations)
        self.total = sum(len(one.turns) for one in conversations)
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
                self.statuses["503, asked again"] += 1
                await asyncio.sleep(int(reply.headers["retry-after"]))
                continue
            turn.reply = reply
            self.statuses[str(reply.status) if reply.whole else "cut off"] += 1
            kind = "stream" if reply.is_stream else "whole"
            self.silence[kind] = max(self.silence[kind], reply.silence)
            return


async def settled(server: Process, before: dict[str, int], seconds: float = 60) -> dict[str, Any]:
    """What a server still holds once it has ended all it did, or after so many seconds."""
    for _ in range(int(seconds)):
        gauges, state = await asyncio.to_thread(server.gauges), server.state()
        held = {name: gauges[f"zoo_{name}"] for name in ("waiting", "prefilling", "running")}
        held |= {name: state[name] - before[name] for name in ("threads", "files")}
        if not any(held.values()):
            break
        await asyncio.sleep(1)
    return held


async def warmed(server: Process, path: str, conversation: Conversation) -> dict[str, int]:
    """The state of a server after some requests at once, so that all its threads run."""
    body = conversation.body(0) | {"max_tokens": 4}
    await asyncio.gather(*(post(server.address, path, body) for _ in range(WARM)))
    await asyncio.sleep(1)
    return server.state()


def with_template(loaded: Loaded, folder: Path) -> Path:
    """A copy of a checkpoint without a chat template that has a plain one."""
    made = folder / loaded.folder.name
    shutil.copytree(loaded.folder, made)
    (made / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return made


def correct(source: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the load on one model, and compare its answers; gives a record."""
    with tempfile.TemporaryDirectory() as made:
        loaded = zoo.load(source)
        if not has_chat_template(loaded):
            source = str(with_template(loaded, Path(made)))
            loaded = zoo.load(source)
        planner = Planner(loaded, arguments.seed, arguments.stall)
        conversations = planner.conversations(arguments.requests)
        options = ("--rows", str(arguments.rows), "--queue", str(arguments.queue))
        log = Path(arguments.log or Path(made) / "log")
        with zoo_serve(source, log, *options, "--prompt-cache", arguments.prompt_cache) as server:
            warm = Planner(loaded, arguments.seed + 1, 0).conversations(1)[0]

            async def measure() -> tuple[Load, float, dict[str, Any]]:
                before = await warmed(server, warm.path, warm)
                load = Load(server, conversations)
                seconds = await load.run(arguments.clients)
                return load, seconds, await settled(server, before)

            load, seconds, left = asyncio.run(measure())
    verdicts, seen, tokens, cached = Counter[str](), [], 0, 0
    alone = Alone(loaded)
    for conversation in conversations:
        for turn, verdict, what in alone.verdicts(conversation):
            verdicts[verdict] += 1
            if verdict in ("tie", "wrong"):
                seen.append(f"{verdict}: {conversation.path}: {what}")
            if turn.reply is not None and turn.reply.whole and turn.reply.status == 200:
                counts = usage(turn.reply) or {"completion_tokens": 0, "prompt_tokens_details": {}}
                tokens += counts["completion_tokens"]
                cached += counts["prompt_tokens_details"].get("cached_tokens", 0)
    return {
        "requests": load.total,
        "clients": arguments.clients,
        "verdicts": dict(verdicts),
        "statuses": dict(load.statuses),
        "seconds": round(seconds, 1),
        "tokens": tokens,
        "tokens_per_second": round(tokens / seconds, 1),
        "cached_tokens": cached,
        "longest_silence": {kind: round(value, 2) for kind, value in load.silence.items()},
        "memory": load.memory,
        "left": left,
        "seen": seen,
    }


def faults(record: dict[str, Any]) -> list[str]:
    """What is wrong in a record of `correct`."""
    found = [f"{record['verdicts']['wrong']} answers are wrong"] if record["verdicts"].get("wrong") else []
    found += [f"{name}: {count} more than before" for name, count in record["left"].items() if count]
    if record["longest_silence"]["stream"] > SILENCE:
        found.append(f"a stream was silent for {record['longest_silence']['stream']} s")
    memory = record["memory"]
    if memory[-1] - memory[-2] > FLAT:
        found.append(f"the memory grew by {(memory[-1] - memory[-2]) / 1e6:.1f} MB in the last quarter")
    return found


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
    one.add_argument("--log", help="file for the server's error stream")
    two = modes.add_parser("speed", help="compare speeds with the library and with mlx-lm's server")
    two.add_argument("sources", nargs=1, metavar="SOURCE")
    two.add_argument("--rounds", type=int, default=3)
    two.add_argument("--parts", nargs="+", help="throughput, latency, turns (all)")
    for each in (one, two):
        each.add_argument("--record", type=Path, metavar="FILE", help="write the figures as JSON")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server outlives this process
    if given.mode == "speed":
        from serve_speed import PARTS, speed

        records: dict[str, Any] = speed(given.sources[0], given.rounds, given.parts or list(PARTS))
        problems: list[str] = []
    else:
        records = {source: correct(source, given) for source in given.sources}
        problems = [f"{source}: {what}" for source, one in records.items() for what in faults(one)]
    print(json.dumps(records, ensure_ascii=False, indent=1))
    for problem in problems:
        print(problem, file=sys.stderr)
    if given.record:
        about = {"versions": versions(), "date": time.strftime("%Y-%m-%d"), "command": sys.argv[1:]}
        write_record(given.record, {**about, given.mode: records}, overwrite=None, indent=1)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
