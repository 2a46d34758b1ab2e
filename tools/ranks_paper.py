"""What `zoo show --ranks` predicts for two ranks on slow links, beside what they do. Linux.

    python tools/ranks_paper.py FOLDER … [--links GB/s …] [--parallel tensor|pipeline] [--record]

Each rank is a process on one core, in a network namespace of its own, for which the tool needs root's rights, `ip` and `tc`. The
link between them is a pair of interfaces, each of which sends at the bandwidth that was asked for: the kernel's token bucket
filter sees to it, without a process that would share the ranks' cores. Predictions take what was measured without a model's
division: the latency and bandwidth of sums over the link, between products of matrices, and the overhead of a pass, bytes a
second and operations a second of undivided models, two of which run side by side. The overhead is found by a narrow model of as
many layers. The record is docs/records/ranks/NAME-WAY.json, NAME that of the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
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
from zoo.cpu.blas import THREADS
from zoo.describe import Cluster, Link, describe
from zoo.describe.facts.ranks import ranked
from zoo.errors import ZooError
from zoo.files.writing import write_record
from zoo.host.registry import default_registry
from zoo.inspect.measure import figures_of
from zoo.inspect.timing import answer, evaluation_seconds
from zoo.runtime import ranks
from zoo.testing.subjects import randomise

RECORDS = Path(__file__).parent.parent / "docs" / "records" / "ranks"
RANKS, FORMAT = 2, "float32"
ADDRESSES, PORT = ("10.231.57.1", "10.231.57.2"), 5000  # of the ranks, in namespaces that hold nothing else
LINKS = (0.0125, 0.05, 0.25)  # GB/s
BURST = 1e-4, 2**11  # what an interface may send at once: seconds of its bandwidth, at least so many bytes
SMALL, LARGE = 2**6, 2**18  # numbers in the sums that latency and bandwidth are measured with
# Sums after each other, and the width of the matrices in the products between them.
SUMS, WIDTH = 16, 2**11
PAIRS = 15  # of such chains, with and without sums
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


def _done(*command: str) -> None:
    """Run `ip` or `tc`; ZooError with its message where it fails."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ZooError(f"{' '.join(command)}: {getattr(error, 'stderr', '') or error}".strip()) from error


@contextmanager
def slow_link(bandwidth: float) -> Iterator[list[str]]:
    """Network namespaces for the ranks, whose interfaces send `bandwidth` bytes a second to each other."""
    spaces = [f"zoo-{os.getpid()}-{rank}" for rank in range(RANKS)]
    cards = [f"zoo{os.getpid()}-{rank}" for rank in range(RANKS)]
    try:
        for space in spaces:
            _done("ip", "netns", "add", space)
        peer = ["peer", "name", cards[1], "netns", spaces[1]]
        _done("ip", "link", "add", cards[0], "netns", spaces[0], "type", "veth", *peer)
        limit = [
            "rate",
            f"{8 * bandwidth:.0f}bit",
            "burst",
            f"{max(BURST[0] * bandwidth, BURST[1]):.0f}",
            "latency",
            "10s",
        ]
        for address, space, card in zip(ADDRESSES, spaces, cards, strict=True):
            _done("ip", "-n", space, "address", "add", f"{address}/24", "dev", card)
            _done("ip", "-n", space, "link", "set", card, "up")
            _done("ip", "-n", space, "link", "set", "lo", "up")
            _done("tc", "-n", space, "qdisc", "add", "dev", card, "root", "tbf", *limit)
        yield spaces
    finally:
        for space in spaces:
            with suppress(ZooError):
                _done("ip", "netns", "delete", space)


def together(arguments: Sequence[str], spaces: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The answers of this script's worker on each core at once: ranks in these namespaces, or each process by itself."""
    started = []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        hosts.write(json.dumps([[f"{address}:{PORT}"] for address in ADDRESSES]))
        hosts.flush()
        for rank in range(RANKS):
            place = {} if spaces is None else {"MLX_RANK": str(rank), "MLX_HOSTFILE": hosts.name}
            inside = [] if spaces is None else ["ip", "netns", "exec", spaces[rank]]
            command = [*inside, "taskset", "-c", str(rank), sys.executable, __file__, "worker", *arguments]
            environment = os.environ | dict.fromkeys(THREADS, "1") | place
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        return [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]


def worker(folder: str, parallel: str, prompt: str, new: str, runs: str) -> dict[str, Any]:
    """The speed of a model, or of this rank's part of it, and the latency and bandwidth of the link that it is on."""
    loaded = zoo.load(folder, parallel=parallel if ranks.launched() else None)
    figures_of(loaded, int(prompt), 4)  # a warm-up
    taken = [figures_of(loaded, int(prompt), int(new)) for _ in range(int(runs))]
    speeds: dict[str, Any] = {name: median(run[name] for run in taken) for name in (PREFILL, DECODE)}
    if ranks.launched():
        small, large = (_sum_seconds(count) for count in (SMALL, LARGE))
        sent = 2 * (RANKS - 1) / RANKS * 4 * (LARGE - SMALL)
        speeds |= {"latency": small / (2 * (RANKS - 1)), "bandwidth": sent / max(large - small, 1e-9)}
    return speeds


def _sum_seconds(count: int) -> float:
    """The seconds of a sum of so many numbers that comes after a product, as in a model.

    Products take longer on one rank than on the other, and longer after a rank has waited: a sum has to bear that. It is 0
    where products gain more by the other rank's waiting than the sums take.
    """
    numbers, matrix, vector = mx.ones((count,)), mx.zeros((WIDTH, WIDTH)), mx.ones((WIDTH,))
    mx.eval(numbers, matrix, vector)

    def work(sums: bool) -> mx.array:
        product = vector
        for _ in range(SUMS):
            product = matrix @ product
            if sums:
                product = mx.depends(product, ranks.all_sum(mx.depends(numbers, product)))
        return product

    pairs = (
        [evaluation_seconds(lambda way=way: work(way), 1)[0] for way in (True, False)] for _ in range(PAIRS)
    )
    return max(median(with_sums - without for with_sums, without in pairs), 0.0) / SUMS


def narrowed(folder: str, place: Path) -> Any:
    """Write a narrow model with as many layers as that of `folder`, and random weights. Returns its recipe.

    ZooError where the folder's config names none of the numbers in `NARROW`.
    """
    registry = default_registry()
    description = describe(folder, registry)
    config = description.config or {}
    if not (narrow := {name: value for name, value in NARROW.items() if name in config}):
        raise ZooError(f"{folder}: config.json has none of {', '.join(NARROW)}")
    numbers = config | narrow
    recipe = make_recipe(description.architecture, numbers, registry)
    model = assemble(recipe, registry, copies=1)
    randomise(model)
    save(place, model, description.architecture, recipe, numbers, registry=registry)
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
    nbytes, few = (_decode_bytes(model, prompt) for model in (recipe, narrow))
    token, short = (1 / min(speed[DECODE] for speed in each) for each in (alone, alone_narrow))
    memory = (nbytes - few) / (token - short)
    overhead = max(token - nbytes / memory, 0.0)
    reading = ranked(recipe, Cluster(1, compute=1.0), prompt, FORMAT).prefill()
    assert reading is not None
    passes = -(-prompt // runtime.prefill_chunk())
    seconds = prompt / min(speed[PREFILL] for speed in alone) - passes * overhead
    return overhead, memory, reading.total / seconds


def _decode_bytes(recipe: Any, context: int) -> float:
    """The bytes that a token after `context` others reads."""
    reading = ranked(recipe, Cluster(1, memory=1.0), context, FORMAT).decode()
    assert reading is not None
    return reading.total


def compared(
    folder: str, parallel: str, links: Sequence[float], prompt: int, new: int, runs: int
) -> dict[str, Any]:
    """The record of one model: predictions and measurements on each link."""
    recipe = describe(folder, default_registry()).recipe
    lengths = [str(prompt), str(new), str(runs)]
    compared_links = []
    for asked in links:
        with tempfile.TemporaryDirectory() as place:
            narrow = narrowed(folder, Path(place, "narrow"))
            alone_narrow = together([str(Path(place, "narrow")), parallel, *lengths])
        alone = together([folder, parallel, *lengths])
        with slow_link(asked) as spaces:
            measured = together([folder, parallel, *lengths], spaces)[0]
        overhead, memory, compute = rates(recipe, narrow, prompt, alone, alone_narrow)
        link = Link(measured["bandwidth"], measured["latency"])
        cluster = Cluster(
            RANKS, parallel, link, memory, compute, chunk=runtime.prefill_chunk(), overhead=overhead
        )
        paper = ranked(recipe, cluster, prompt, FORMAT)
        decode, prefill = paper.decode(), paper.prefill()
        assert decode is not None and prefill is not None
        compared_links.append(
            {
                "asked": asked,
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
        print(json.dumps(compared_links[-1]), file=sys.stderr)
    return {
        "what": "ranks on paper",
        "model": f"{recipe.parameters(recipe.dim) / 1e6:.0f} M parameters, width {recipe.dim}",
        "ranks": RANKS,
        "parallel": parallel,
        "prompt": prompt,
        "new": new,
        "runs": runs,
        "links": compared_links,
        "versions": runtime.versions(),
    }


def _beside(predicted: float, measured: float, bound: str) -> dict[str, Any]:
    return {"predicted": predicted, "measured": measured, "ratio": predicted / measured, "bound": bound}


def main() -> None:
    """Measure and print each folder's record, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--links", nargs="+", type=float, default=LINKS, metavar="GB/s")
    parser.add_argument("--parallel", default="tensor", choices=["tensor", "pipeline"])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    links = [1e9 * bandwidth for bandwidth in given.links]
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
