"""What `zoo show --ranks` predicts for two ranks on slow links, beside what they do. Linux.

    python tools/ranks_paper.py FOLDER … [--links GB/s,µs …] [--parallel tensor|pipeline] [--record]

Each rank is a process on one core, and the link a relay between their sockets, which hands on each piece after the latency and
at the bandwidth that were asked for. Predictions take what was measured without a model's division: the latency and bandwidth
of sums through the relay, between products of matrices, and the overhead of a pass, bytes a second and operations a second of
undivided models, two of which run side by side. The overhead is found by a narrow model of as many layers. The record is
docs/records/ranks/NAME-WAY.json, NAME that of the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo import runtime
from zoo.assemble import assemble
from zoo.checkpoint.convert import save
from zoo.checkpoint.open import make_recipe
from zoo.describe import Cluster, Link, describe
from zoo.describe.facts.ranks import ranked
from zoo.errors import ZooError
from zoo.files.writing import write_record
from zoo.host.registry import default_registry
from zoo.inspect.measure import figures_of
from zoo.inspect.timing import answer, evaluation_seconds
from zoo.machine import THREADS
from zoo.runtime import ranks
from zoo.testing.subjects import randomise

RECORDS = Path(__file__).parent.parent / "docs" / "records" / "ranks"
RANKS, FORMAT = 2, "float32"
LINKS = ("1,200", "1,1000", "1,5000")
SMALL, LARGE = 2**10, 2**18  # numbers in the sums that latency and bandwidth are measured with
# Sums after each other, and the width of the matrices in the products between them.
SUMS, WIDTH = 16, 2**11
PAIRS = 15  # of such chains, with and without sums
PIECE = 2**16  # bytes that the relay hands on at once
# What the config of a narrow model has in the place of a model's own numbers, where it names them.
NARROW = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 1024,
}
PREFILL, DECODE = "prefill_tokens_per_second", "decode_tokens_per_second"


class Relay:
    """Ports that lead to other ports over a link of some bandwidth and latency, as far as sleeping is exact."""

    def __init__(self, link: Link, targets: Sequence[int]) -> None:
        self.link = link
        self.ports = [self._listen(target) for target in targets]

    def _listen(self, target: int) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, args=(server, target), daemon=True).start()
        return int(server.getsockname()[1])

    def _accept(self, server: socket.socket, target: int) -> None:
        near, _ = server.accept()
        far = _connected(target)
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((near, far), (far, near)):
            pieces: queue.Queue[tuple[float, bytes]] = queue.Queue()
            threading.Thread(target=self._read, args=(source, pieces), daemon=True).start()
            threading.Thread(target=self._write, args=(sink, pieces), daemon=True).start()

    def _read(self, source: socket.socket, pieces: queue.Queue[tuple[float, bytes]]) -> None:
        _before_others()
        sent = 0.0  # when the last piece has left
        while True:
            try:
                piece = source.recv(PIECE)
            except OSError:  # a rank has ended
                piece = b""
            sent = max(sent, time.perf_counter()) + len(piece) / self.link.bandwidth
            pieces.put((sent + self.link.latency, piece))
            if not piece:
                return

    def _write(self, sink: socket.socket, pieces: queue.Queue[tuple[float, bytes]]) -> None:
        _before_others()
        while True:
            due, piece = pieces.get()
            time.sleep(max(0.0, due - time.perf_counter()))
            try:
                sink.sendall(piece)
                if not piece:
                    sink.shutdown(socket.SHUT_WR)
                    return
            except OSError:  # a rank has ended
                return


def _before_others() -> None:
    """Let this thread run before those of the ranks, whose cores it has to share, where the system allows that."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _connected(port: int) -> socket.socket:
    """A connection to a rank that may not listen yet."""
    for _ in range(1000):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def hostfiles(link: Link) -> Iterator[list[Path]]:
    """For each rank a list of addresses as MLX's ring reads it: its own, and the relay's to the others."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(RANKS)]
    own = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    relay = Relay(link, own)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for rank in range(RANKS):
            ports = [own[other] if other == rank else relay.ports[other] for other in range(RANKS)]
            files.append(Path(folder) / f"{rank}.json")
            files[-1].write_text(json.dumps([[f"127.0.0.1:{port}"] for port in ports]))
        yield files


def together(arguments: Sequence[str], files: Sequence[Path] | None = None) -> list[dict[str, Any]]:
    """The answers of this script's worker on each core at once: ranks with these host files, or each by itself."""
    started = []
    with socket.create_server(("127.0.0.1", 0)) as free:  # where the ranks' watch meets, beside the relay
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    for rank in range(RANKS):
        given = {"MLX_RANK": str(rank), "ZOO_RANKS_ADDRESS": meeting}
        given = {} if files is None else given | {"MLX_HOSTFILE": str(files[rank])}
        environment = os.environ | dict.fromkeys(THREADS, "1") | given
        command = ["taskset", "-c", str(rank), sys.executable, __file__, "worker", *arguments]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    return [json.loads(one.communicate()[0].splitlines()[-1]) for one in started]


def worker(folder: str, parallel: str, prompt: str, new: str, runs: str) -> dict[str, Any]:
    """The speed of a model, or of this rank's part of it, and the latency and bandwidth of the link that it is on."""
    loaded = zoo.load(folder, parallel=parallel if ranks.launched() else None)
    figures_of(loaded, int(prompt), 4)  # a warm-up
    taken = [figures_of(loaded, int(prompt), int(new)) for _ in range(int(runs))]
    found: dict[str, Any] = {name: median(one[name] for one in taken) for name in (PREFILL, DECODE)}
    if ranks.launched():
        small, large = (_sum_seconds(count) for count in (SMALL, LARGE))
        sent = 2 * (RANKS - 1) / RANKS * 4 * (LARGE - SMALL)
        found |= {"latency": small / (2 * (RANKS - 1)), "bandwidth": sent / max(large - small, 1e-9)}
    return found


def _sum_seconds(count: int) -> float:
    """The seconds of a sum of so many numbers that comes after a product, as in a model.

    Products take longer on one rank than on the other, and longer after a rank has waited: a sum has to bear that. It is 0
    where products gain more by the other rank's waiting than the sums take.
    """
    numbers, matrix, vector = mx.ones((count,)), mx.zeros((WIDTH, WIDTH)), mx.ones((WIDTH,))
    mx.eval(numbers, matrix, vector)

    def work(sums: bool) -> mx.array:
        found = vector
        for _ in range(SUMS):
            found = matrix @ found
            if sums:
                found = mx.depends(found, ranks.all_sum(mx.depends(numbers, found)))
        return found

    pairs = (
        [evaluation_seconds(lambda way=way: work(way), 1)[0] for way in (True, False)] for _ in range(PAIRS)
    )
    return max(median(with_sums - without for with_sums, without in pairs), 0.0) / SUMS


def narrowed(folder: str, place: Path) -> Any:
    """Write a narrow model with as many layers as that of `folder`, and random weights. Returns its recipe.

    ZooError where the folder's config names none of the numbers in `NARROW`.
    """
    registry = default_registry()
    found = describe(folder, registry)
    config = found.config or {}
    if not (narrow := {name: value for name, value in NARROW.items() if name in config}):
        raise ZooError(f"{folder}: config.json has none of {', '.join(NARROW)}")
    numbers = config | narrow
    recipe = make_recipe(found.architecture, numbers, registry)
    model = assemble(recipe, registry, copies=1)
    randomise(model)
    save(place, model, found.architecture, recipe, numbers, registry=registry)
    return recipe


def rates(
    recipe: Any,
    narrow: Any,
    prompt: int,
    alone: Sequence[dict[str, Any]],
    alone_narrow: Sequence[dict[str, Any]],
) -> tuple[float, float, float]:
    """The overhead of a pass in seconds, and the bytes and operations a second beside it, by two models of equal depth.

    `alone` and `alone_narrow` are the speeds of the undivided models. The slower process of each pair counts.
    """
    nbytes, few = (_decode_bytes(one, prompt) for one in (recipe, narrow))
    token, short = (1 / min(one[DECODE] for one in each) for each in (alone, alone_narrow))
    memory = (nbytes - few) / (token - short)
    overhead = max(token - nbytes / memory, 0.0)
    reading = ranked(recipe, Cluster(1, compute=1.0), prompt, FORMAT).prefill()
    assert reading is not None
    passes = -(-prompt // runtime.prefill_chunk())
    seconds = prompt / min(one[PREFILL] for one in alone) - passes * overhead
    return overhead, memory, reading.total / seconds


def _decode_bytes(recipe: Any, context: int) -> float:
    """The bytes that a token after `context` others reads."""
    found = ranked(recipe, Cluster(1, memory=1.0), context, FORMAT).decode()
    assert found is not None
    return found.total


def compared(
    folder: str, parallel: str, links: Sequence[Link], prompt: int, new: int, runs: int
) -> dict[str, Any]:
    """The record of one model: predictions and measurements on each link."""
    recipe = describe(folder, default_registry()).recipe
    lengths = [str(prompt), str(new), str(runs)]
    found = []
    for asked in links:
        with tempfile.TemporaryDirectory() as place:
            narrow = narrowed(folder, Path(place, "narrow"))
            alone_narrow = together([str(Path(place, "narrow")), parallel, *lengths])
        alone = together([folder, parallel, *lengths])
        with hostfiles(asked) as files:
            measured = together([folder, parallel, *lengths], files)[0]
        overhead, memory, compute = rates(recipe, narrow, prompt, alone, alone_narrow)
        link = Link(measured["bandwidth"], measured["latency"])
        cluster = Cluster(
            RANKS, parallel, link, memory, compute, chunk=runtime.prefill_chunk(), overhead=overhead
        )
        paper = ranked(recipe, cluster, prompt, FORMAT)
        decode, prefill = paper.decode(), paper.prefill()
        assert decode is not None and prefill is not None
        found.append(
            {
                "asked": vars(asked),
                "link": vars(link),
                "alone": alone,
                "alone_narrow": alone_narrow,
                "overhead": overhead,
                "memory": memory,
                "compute": compute,
                "decode": _beside(1 / decode.total, measured[DECODE], decode.bound),
                "prefill": _beside(prompt / prefill.total, measured[PREFILL], prefill.bound),
            }
        )
        print(json.dumps(found[-1]), file=sys.stderr)
    return {
        "what": "ranks on paper",
        "model": f"{recipe.parameters(recipe.dim) / 1e6:.0f} M parameters, width {recipe.dim}",
        "ranks": RANKS,
        "parallel": parallel,
        "prompt": prompt,
        "new": new,
        "runs": runs,
        "links": found,
        "versions": runtime.versions(),
    }


def _beside(predicted: float, measured: float, bound: str) -> dict[str, Any]:
    return {"predicted": predicted, "measured": measured, "ratio": predicted / measured, "bound": bound}


def main() -> None:
    """Measure and print each folder's record, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--links", nargs="+", default=LINKS, metavar="GB/s,µs")
    parser.add_argument("--parallel", default="tensor", choices=["tensor", "pipeline"])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    pairs = (tuple(map(float, text.split(","))) for text in given.links)
    links = [Link(bandwidth * 1e9, latency * 1e-6) for bandwidth, latency in pairs]
    for folder in given.folders:
        record = compared(folder, given.parallel, links, given.prompt, given.new, given.runs)
        print(json.dumps(record, indent=1))
        if given.record:
            RECORDS.mkdir(parents=True, exist_ok=True)
            name = f"{Path(folder).name}-{given.parallel}.json"
            write_record(RECORDS / name, record, overwrite=None, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        del sys.argv[1]
        answer(worker)
    else:
        main()
