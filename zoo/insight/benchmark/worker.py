"""One run of one engine; run as a script it is the process of its own that `benchmark` starts."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from zoo.errors import SourceError
from zoo.insight.apart import answer
from zoo.insight.benchmark.peers import ENGINES, Asked

WARM = 4  # tokens of each kind that are run before the clock
STEPS = 32  # of which the host's time is the median
SHORT = 16  # tokens of each prompt of a batch


def one_run(engine: str, asked: str) -> dict[str, Any]:
    """The figures of the works asked for that the engine does."""
    wanted = json.loads(asked)
    folder, works = Path(wanted["folder"]), set(wanted["works"])
    found: dict[str, Any] = {}
    if "start" in works and (taken := started(engine, folder)):
        found["start_seconds"] = taken
    began = time.perf_counter()
    made = ENGINES[engine](Asked(folder, wanted["dtype"], wanted["architecture"], wanted["unpack"]))
    seconds = time.perf_counter() - began
    if made.refused and works - {"load", "start"}:
        raise SourceError(made.refused)
    draw, new = random.Random(0), wanted["new"]

    def ids(count: int) -> list[int]:
        return [draw.randrange(made.vocab) for _ in range(count)]

    if made.write and works & {"prefill", "decode"}:
        prompt = ids(wanted["prompt"])
        made.write(prompt[:WARM], WARM)
        first, rest = made.write(prompt, new)
        if "prefill" in works:
            found |= {"prefill_rate": len(prompt) / first, "first_token_seconds": first}
        if "decode" in works:
            found["decode_rate"] = (new - 1) / rest
    if "load" in works:
        found |= {"load_seconds": seconds, "peak_bytes": made.peak()}
    if made.write_rows and "batch" in works:
        rows = [ids(SHORT) for _ in range(wanted["rows"])]
        found["batch_rate"] = len(rows) * (new - 1) / made.write_rows(rows, new)
    if made.step and "host" in works:
        found |= host(made.step)
    return found


def started(engine: str, folder: Path) -> float | None:
    """Seconds from the start of the engine's own command to the end of its first token; None where it has none."""
    commands = {
        "zoo": ["zoo", "run", str(folder), "The", "--max-tokens", "1"],
        "mlx-lm": ["mlx_lm", "generate", "--model", str(folder), "--prompt", "The", "--max-tokens", "1"],
    }
    if engine not in commands:
        return None
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *commands[engine]], capture_output=True, check=False)
    return None if done.returncode else time.perf_counter() - began


def host(step: Any) -> dict[str, float]:
    """The time that Python takes to build one step, and the primitives of its graph; nothing is computed meanwhile."""
    import mlx.core as mx

    build, states = step()
    taken: list[float] = []
    primitives = 0
    for number in range(STEPS):
        ids = mx.array([[5]])
        mx.eval(ids)
        began = time.perf_counter()
        found = build(ids)
        taken.append(time.perf_counter() - began)
        if number == 1:  # before the first the prompt was not computed yet
            drawn = io.StringIO()
            mx.export_to_dot(drawn, *found)
            primitives = drawn.getvalue().count("shape=rectangle")
        mx.eval(*states(found))
    return {"host_seconds": median(taken[1:]), "primitives": primitives}


if __name__ == "__main__":
    answer(one_run)
