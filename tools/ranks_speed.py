"""How much faster two ranks are than one, each on one core of this machine, beside mlx-lm's sharded models. Linux.

    python tools/ranks_speed.py FOLDER … [--rounds N] [--work tensor data] [--record]

In a round every way reads a prompt and writes tokens once, in a new process each; ratios are of one round. mlx-lm takes part
where it can shard the model; `--work` leaves some of the ways out. Data parallelism is `zoo run --prompts … --parallel data`:
`TEXTS` prompts, of which each rank, with the whole model, answers its share. Two processes that know nothing of each other
write together what these cores can do for two ranks at most. FOLDER is named in the record, docs/records/ranks/speed.json, which
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
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.files.writing import write_record
from zoo.generation.prompts_file import answer_prompts, read_prompts
from zoo.inspect.measure import figures_of
from zoo.inspect.timing import answer
from zoo.machine import THREADS
from zoo.runtime import ranks, versions

RECORD = Path(__file__).parent.parent / "docs" / "records" / "ranks" / "speed.json"
PROMPT, NEW, RUNS = 256, 48, 3
# Prompts that are shared, more than run at once; the tokens of each, and of its answer.
TEXTS, SHORT, ANSWER = 64, 32, 32
SECONDS = 120  # that one way may take
FIGURES = ("prefill_tokens_per_second", "decode_tokens_per_second")
DATA = "data_tokens_per_second"  # that are written in answers to the prompts that are shared


def run(count: int, library: str, folder: str, ranked: bool = True) -> dict[str, float] | None:
    """The figures of so many ranks, each on a core of its own; None where the library cannot divide the model.

    Where they are not `ranked`, they are processes that know nothing of each other, and the figures are sums.
    """
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        hosts.write(json.dumps([[f"127.0.0.1:{port}"] for port in ports]))
        hosts.flush()
        started = []
        for rank in range(count):
            threads = dict.fromkeys(THREADS, "1")
            place = {"MLX_RANK": str(rank), "MLX_HOSTFILE": hosts.name} if count > 1 and ranked else {}
            command = ["taskset", "-c", str(rank), sys.executable, __file__, "worker", library, folder]
            started.append(
                subprocess.Popen(command, env=os.environ | threads | place, stdout=subprocess.PIPE, text=True)
            )
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not any(one.poll() for one in started):
            if all(one.poll() == 0 for one in started):
                break
            time.sleep(0.1)
        else:  # a rank that failed leaves the other waiting
            for one in started:
                one.kill()
            return None
        outputs = [one.communicate()[0] for one in started]
    found: list[dict[str, float]] = [json.loads(output.splitlines()[-1]) for output in outputs]
    return found[0] if ranked else {name: sum(one[name] for one in found) for name in found[0]}


def worker(library: str, folder: str) -> dict[str, float]:
    """The figures of this rank's library: medians of `RUNS` after a warm-up."""
    if library == "zoo":
        loaded = zoo.load(folder, parallel="tensor")
        taken = [figures_of(loaded, PROMPT, NEW) for _ in range(RUNS + 1)][1:]
    elif library == "data":
        taken = [{DATA: answered_per_second(folder)}]
    else:
        model = sharded(folder)
        taken = [read_and_write(model) for _ in range(RUNS + 1)][1:]
    return {name: median(one[name] for one in taken) for name in taken[0]}


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
            tokens = sum(one["generated_tokens"] for one in answers)
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
        **{"zoo, 1 rank": (1, "zoo", True), "zoo, 2 ranks": (2, "zoo", True)},
        **{"mlx-lm, 1 rank": (1, "mlx-lm", True), "mlx-lm, 2 ranks": (2, "mlx-lm", True)},
        "zoo, 2 processes": (2, "zoo", False),
    },
    "data": {
        **{"zoo, data, 1 rank": (1, "data", True), "zoo, data, 2 ranks": (2, "data", True)},
        "zoo, data, 2 processes": (2, "data", False),
    },
}


def compared(folder: str, rounds: int, work: Sequence[str]) -> dict[str, Any]:
    """The figures and ratios of a folder."""
    ways = {name: way for one in work for name, way in WAYS[one].items()}
    taken: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, (count, library, ranked) in ways.items():
            if (found := run(count, library, folder, ranked)) is not None:
                taken.setdefault(name, []).append(found)
    values = {
        f"{name}, {figure}": [one[figure] for one in found]
        for name, found in taken.items()
        for figure in found[0]
    }
    pairs = [
        (f"zoo{what}, 2 {how}", f"zoo{what}, 1 rank")
        for what in ("", ", data")
        for how in ("ranks", "processes")
    ]
    for above, below in (*pairs, ("zoo, 2 ranks", "mlx-lm, 2 ranks")):
        for figure in (*FIGURES, DATA):
            with suppress(KeyError):
                both = zip(values[f"{above}, {figure}"], values[f"{below}, {figure}"], strict=True)
                values[f"{above} / {below}, {figure}"] = [first / second for first, second in both]
    return {name: spread(each) for name, each in values.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median and the ends."""
    return {name: round(of(values), 3) for name, of in (("median", median), ("min", min), ("max", max))}


def main() -> None:
    """Measure and print, and write the record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    found = {Path(folder).name: compared(folder, given.rounds, given.work) for folder in given.folders}
    record = {"versions": versions(), "prompt": PROMPT, "new": NEW, "rounds": given.rounds, "models": found}
    print(json.dumps(record, indent=1))
    if given.record:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        if RECORD.exists():
            known = json.loads(RECORD.read_text())["models"]
            record["models"] = known | {
                name: known.get(name, {}) | figures for name, figures in found.items()
            }
        write_record(RECORD, record, overwrite=None, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        del sys.argv[1]
        answer(worker)
    else:
        main()
