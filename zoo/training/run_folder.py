"""The folder of a training run: checked before the first step, filled at the end by atomic replacement."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from zoo.checkpoint.safetensors import INDEX, SINGLE
from zoo.errors import SourceError
from zoo.training.state import STATE, state_path

TRAINING, CURVE = "training.json", "training.svg"
LEFT = f"part-{STATE}"  # of a run that was killed while it saved
SPARE = 16 << 20  # bytes beside the weights: tokenizer, records, file systems' own


def check_new(out: Path, overwrite: bool) -> None:
    """SourceError for a folder that holds something, unless it is a model's and may be overwritten."""
    if not out.exists():
        return
    try:
        names = sorted(name for name in os.listdir(out) if name != "run" or _has_more(out / name))
    except OSError as error:
        raise SourceError(f"{out}: cannot be read ({error.strerror})") from error
    if not names:
        return
    if not (out / "config.json").is_file() and not state_path(out).exists():
        raise SourceError(f"{out}: holds {names[0]}, and no model; give another folder")
    if not overwrite:
        ways = "`resume` goes on with its run, `overwrite`" if state_path(out).exists() else "`overwrite`"
        raise SourceError(f"{out}: holds {names[0]} already; {ways} trains anew")


def _has_more(run: Path) -> bool:
    """Whether a run's folder holds more than what a killed run leaves."""
    return not run.is_dir() or any(name != LEFT for name in os.listdir(run))


def check_writable(out: Path, size: int) -> None:
    """SourceError unless files of `size` bytes in all can be written into the folder; it is left as it was."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
        (out / "run").mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=out / "run"):
            pass
        free = shutil.disk_usage(out).free
    except OSError as error:
        raise SourceError(f"{out}: cannot be written ({error.strerror or error})") from error
    finally:
        remove_empty(out / "run", *made)
    if free < size + SPARE:
        needed, left = (size + SPARE) / 1e6, free / 1e6
        raise SourceError(f"{out}: {needed:,.0f} MB will be written, and the disk has {left:,.0f} MB left")


def remove_empty(*folders: Path) -> None:
    """Remove those folders that hold nothing."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def forget_run(out: Path) -> None:
    """Remove a run's state, its directory too when nothing else is in it."""
    for name in (STATE, LEFT):
        (out / "run" / name).unlink(missing_ok=True)
    remove_empty(out / "run")


def publish(part: Path, out: Path, stale: Iterable[str]) -> None:
    """Move the finished files of `part` into `out`, so that at any moment `out` is the old model, the new one, or none.

    Where config and tokenizer stay as they are, the one file of weights is exchanged. Else the old config.json goes
    first and the new one comes last: what has none is no model. `stale` are names of the old model's files to remove.
    """
    new = {path.name for path in part.iterdir()}
    kept = all(_same(part / name, out / name) for name in new - {SINGLE, TRAINING, CURVE})
    if not (kept and SINGLE in new and not (out / INDEX).exists()):
        (out / "config.json").unlink(missing_ok=True)
    old = {path.name for path in out.glob("model*.safetensors")}
    for name in sorted((old | {INDEX, "accuracy.json", "generation_config.json", *stale}) - new):
        (out / name).unlink(missing_ok=True)
    for name in sorted(new - {"config.json"}):
        os.replace(part / name, out / name)
    os.replace(part / "config.json", out / "config.json")


def _same(first: Path, second: Path) -> bool:
    return second.is_file() and first.read_bytes() == second.read_bytes()
