"""Seconds of tokens that are written and of arrays that are evaluated; timed work in a process of its own.

In a process of its own no earlier work has warmed a cache or holds memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zoo.errors import SourceError, ZooError, in_words

ERROR = "error"  # the key of an answer that is one


def timed_tokens(tokens: Iterator[Any]) -> tuple[float, float]:
    """The seconds until the first token, and those from there to the last."""
    began = time.perf_counter()
    next(tokens, None)
    first = time.perf_counter() - began
    for _ in tokens:
        pass
    return first, time.perf_counter() - began - first


def evaluation_seconds(work: Callable[[], Any], runs: int) -> list[float]:
    """The seconds of evaluating what `work` gives, in each of `runs` runs after one that is not counted."""
    import mlx.core as mx

    mx.eval(work())
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        mx.eval(work())
        taken.append(time.perf_counter() - began)
    return taken


def run_in_subprocess(module: str, arguments: Sequence[str], name: str) -> dict[str, Any]:
    """Run `python -m module arguments…` and give its answer; SourceError, beginning with `name`, when it fails.

    The module calls `answer`.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    try:
        values = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        values = None
    if not isinstance(values, dict):  # the module printed no answer
        values = {}
    if done.returncode == 0 and values and ERROR not in values:
        return values
    if ERROR in values:
        reason = str(values[ERROR])
    elif done.returncode < 0:
        reason = f"its process was ended by signal {-done.returncode}{' (no memory left?)' * (done.returncode == -9)}"
    else:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"its process failed with status {done.returncode}"
    raise SourceError(reason if reason.startswith(f"{name}:") else f"{name}: {reason}")


def answer(work: Callable[..., dict[str, Any]]) -> None:
    """Run `work` on the command's arguments and print what it gives as the last line: the process of `run_in_subprocess`."""
    try:
        print(json.dumps(work(*sys.argv[1:])))
    except ZooError as error:
        print(json.dumps({ERROR: in_words(error)}))
        sys.exit(1)


def alternating(
    names: Sequence[str],
    runs: int,
    run: Callable[[str], dict[str, Any]],
    warm_up: int = 0,
    seconds: float | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Call `run` on each name `runs` times, the names in turn, so that a busy moment of the machine meets all.

    The first `warm_up` rounds are not kept. After one that is, no round begins that is likely to end after `seconds`.
    """
    began, rounds = time.perf_counter(), []
    for number in range(warm_up + runs):
        taken = time.perf_counter() - began
        if seconds is not None and number > warm_up and taken * (number + 1) / number > seconds:
            break
        rounds.append({name: run(name) for name in names})
    return {name: [values[name] for values in rounds[warm_up:]] for name in names}
