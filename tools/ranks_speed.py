"""How much faster two ranks are than one, each on one core of this machine, beside mlx-lm's sharded models. Linux.

    python tools/ranks_speed.py FOLDER … [--rounds N] [--work tensor mpi data] [--record]

In a round every way reads a prompt and writes tokens once, in a new process each; ratios are of one round. Ranks are connected
by MLX's ring or, with `mpi`, by MPI, whose ranks on one machine share memory; where `libmpi.so` is not its library's name,
MLX_MPI_LIBNAME says it. mlx-lm takes part where it can shard the model; `--work` leaves some of the ways out. Data parallelism is
`zoo run --prompts … --parallel data`: `TEXTS` prompts, of which each rank, with the whole model, answers its share. Two processes
that know nothing of each other write together what these cores can do for two ranks at most. The seconds of one sum are those of
a chain of sums, of one vector of the model and of a prompt's. FOLDER is named in the record, docs/records/ranks/speed.json, which
keeps its other models and ways.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.cpu.blas import THREADS
from zoo.files.writing import write_record
from zoo.generation.prompts_file import answer_prompts, read_prompts
from zoo.inspect.measure import figures_of
from zoo.inspect.timing import answer, evaluation_seconds
from zoo.runtime import ranks, versions

RECORD = Path(__file__).parent.parent / "docs" / "records" / "ranks" / "speed.json"
PROMPT, NEW, RUNS = 256, 48, 3
SUMS = 32  # in a chain
# Prompts that are shared, more than run at once; the tokens of each, and of its answer.
TEXTS, SHORT, ANSWER = 256, 32, 32
SECONDS = 120  # that one way may take
FIGURES = ("prefill_tokens_per_second", "decode_tokens_per_second")
DATA = "data_tokens_per_second"  # that are written in answers to the prompts that are shared


@dataclass(frozen=True)
class Way:
    """So many processes of a library, each on a core of its own.

    `backend` is the one of MLX that connects them; None where they know nothing of each other, and their figures are added.
    """

    library: str
    count: int = 1
    backend: str | None = "ring"


def run(way: Way, folder: str) -> dict[str, float] | None:
    """The figures of a way; None where the library cannot divide the model."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        hosts.write(json.dumps([[f"127.0.0.1:{port}"] for port in free_ports(way.count)]))
        hosts.flush()
        started = processes(way, folder, hosts.name)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not any(process.poll() for process in started):
            if all(process.poll() == 0 for process in started):
                break
            time.sleep(0.1)
        else:  # a rank that failed leaves the other waiting
            for process in started:
                process.kill()
            return None
        outputs = [process.communicate()[0] for process in started]
    # What ranks of `mpirun` print may be on one line.
    decode = json.JSONDecoder().raw_decode
    figures: list[dict[str, float]] = [decode(output[output.index("{") :])[0] for output in outputs]
    return figures[0] if way.backend else {name: sum(part[name] for part in figures) for name in figures[0]}


def free_ports(count: int) -> list[int]:
    """So many ports that nothing listens on."""
    with ExitStack() as open_servers:
        servers = [open_servers.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def processes(way: Way, folder: str, hosts: str) -> list[subprocess.Popen[str]]:
    """The processes of a way, started: its ranks, or `mpirun`, which starts them."""
    worker = [sys.executable, __file__, "worker", way.library, folder]
    commands = [["taskset", "-c", str(rank), *worker] for rank in range(way.count)]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    if way.backend == "mpi":
        ranks_of_mpirun = [["-n", "1", *command] for command in commands]
        joined = [part for command in ranks_of_mpirun for part in (":", *command)][1:]
        commands = [["mpirun", "--bind-to", "none", *joined]]
        # A rank that waits lets its own threads go first, as `mpirun` has it where there are more ranks than cores.
        environment["OMPI_MCA_mpi_yield_when_idle"] = "1"
    elif way.backend == "ring" and way.count > 1:
        environment["MLX_HOSTFILE"] = hosts
    started = []
    for rank, command in enumerate(commands):
        place = {"MLX_RANK": str(rank)} if "MLX_HOSTFILE" in environment else {}
        started.append(subprocess.Popen(command, env=environment | place, stdout=subprocess.PIPE, text=True))
    return started


def worker(library: str, folder: str) -> dict[str, float]:
    """The figures of this rank's library: medians of `RUNS` after a warm-up."""
    if library == "zoo":
        loaded = zoo.load(folder, parallel="tensor")
        sums = sum_seconds(loaded.recipe.dim) if ranks.launched() else {}
        taken = [sums | figures_of(loaded, PROMPT, NEW) for _ in range(RUNS + 1)][1:]
    elif library == "data":
        taken = [{DATA: answered_per_second(folder)}]
    else:
        model = sharded(folder)
        taken = [read_and_write(model) for _ in range(RUNS + 1)][1:]
    return {name: median(run[name] for run in taken) for name in taken[0]}


def sum_seconds(width: int) -> dict[str, float]:
    """The seconds of one sum of a vector, and of a prompt's vectors, in a chain of sums."""
    seconds = {}
    for name, count in (
        (f"sum of {width} numbers, seconds", width),
        (f"sum of {PROMPT} × {width} numbers, seconds", PROMPT * width),
    ):
        numbers = mx.ones((count,))

        def chain(numbers: mx.array = numbers) -> mx.array:
            for _ in range(SUMS):
                numbers = ranks.all_sum(numbers)
            return numbers

        seconds[name] = median(evaluation_seconds(chain, RUNS)) / SUMS
    return seconds


def answered_per_second(folder: str) -> float:
    """Tokens a second in the answers to prompts that the ranks share, after a warm-up with the first of them."""
    loaded = zoo.load(folder)
    texts = [
        [(97 * row + 31 * place) % loaded.recipe.vocab for place in range(SHORT)] for row in range(TEXTS)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "prompts.jsonl")
        path.write_text("".join(json.dumps({"prompt": ids}) + "\n" for ids in texts))
        lines = read_prompts(loaded, path, {})
        for some in (lines[: ranks.size()], lines):
            began = time.perf_counter()
            answers = answer_prompts(
                loaded, some, io.StringIO(), divided=ranks.launched(), min_tokens=ANSWER, max_tokens=ANSWER
            )
            tokens = sum(line["generated_tokens"] for line in answers)
            rate = tokens / (time.perf_counter() - began)
    return rate


def sharded(folder: str) -> Any:
    """This rank's part of mlx-lm's model."""
    from mlx_lm.utils import load_model

    model = load_model(Path(folder))[0]
    if ranks.launched():
        model.shard(mx.distributed.init())
        mx.eval(model.parameters())
    return model


def read_and_write(model: Any) -> dict[str, float]:
    """As `figures_of` does: a prompt is read, and the likeliest token written each time."""
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    began = time.perf_counter()
    token = mx.argmax(model(mx.arange(PROMPT)[None], cache=cache)[:, -1], -1)
    mx.eval(token)
    first = time.perf_counter()
    for _ in range(NEW - 1):
        following = mx.argmax(model(token[None], cache=cache)[:, -1], -1)
        mx.async_eval(following)  # begun before the last token is read, as mlx-lm's own loop does
        token.item()
        token = following
    token.item()
    return dict(
        zip(FIGURES, (PROMPT / (first - began), (NEW - 1) / (time.perf_counter() - first)), strict=True)
    )


WAYS = {
    "tensor": {
        **{"zoo, 1 rank": Way("zoo"), "zoo, 2 ranks": Way("zoo", 2)},
        **{"mlx-lm, 1 rank": Way("mlx-lm"), "mlx-lm, 2 ranks": Way("mlx-lm", 2)},
        "zoo, 2 processes": Way("zoo", 2, None),
    },
    "mpi": {
        "zoo, 1 rank": Way("zoo"),
        "zoo, 2 ranks by MPI": Way("zoo", 2, "mpi"),
        "mlx-lm, 2 ranks by MPI": Way("mlx-lm", 2, "mpi"),
    },
    "data": {
        **{"zoo, data, 1 rank": Way("data"), "zoo, data, 2 ranks": Way("data", 2)},
        "zoo, data, 2 ranks by MPI": Way("data", 2, "mpi"),
        "zoo, data, 2 processes": Way("data", 2, None),
    },
}


def compared(folder: str, rounds: int, work: Sequence[str]) -> dict[str, Any]:
    """The figures and ratios of a folder."""
    ways = {name: way for one in work for name, way in WAYS[one].items()}
    taken: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            if (found := run(way, folder)) is not None:
                taken.setdefault(name, []).append(found)
    values = {
        f"{name}, {figure}": [one[figure] for one in found]
        for name, found in taken.items()
        for figure in found[0]
    }
    pairs = [
        (name, f"zoo{', data' * (', data' in name)}, 1 rank")
        for name in ways
        if name.startswith("zoo") and ", 2 " in name
    ]
    pairs += [(name, name.replace("zoo", "mlx-lm")) for name in ("zoo, 2 ranks", "zoo, 2 ranks by MPI")]
    for above, below in pairs:
        for figure in (*FIGURES, DATA):
            with suppress(KeyError):
                pair = zip(values[f"{above}, {figure}"], values[f"{below}, {figure}"], strict=True)
                values[f"{above} / {below}, {figure}"] = [first / second for first, second in pair]
    return {name: spread(each) for name, each in values.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median and the ends."""
    return {name: float(f"{of(values):.4g}") for name, of in (("median", median), ("min", min), ("max", max))}


def main() -> None:
    """Measure and print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    models = {Path(folder).name: compared(folder, given.rounds, given.work) for folder in given.folders}
    record = {"versions": versions(), "prompt": PROMPT, "new": NEW, "rounds": given.rounds, "models": models}
    print(json.dumps(record, indent=1))
    if given.record:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        if RECORD.exists():
            known = json.loads(RECORD.read_text())["models"]
            record["models"] = known | {
                name: known.get(name, {}) | figures for name, figures in models.items()
            }
        write_record(RECORD, record, overwrite=None, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        del sys.argv[1]
        answer(worker)
    else:
        main()
