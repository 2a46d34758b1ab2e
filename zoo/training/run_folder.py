"""The folder of a training run: checked before the first step, replaced at the end in one step."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo.checkpoint.safetensors import INDEX
from zoo.errors import SourceError
from zoo.files.writing import is_temporary_name, locked, make_folder, swap, temporary_folder
from zoo.training.record import TRAINING
from zoo.training.state import STATE, state_path

CURVE = "training.svg"
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
    return not run.is_dir() or not all(map(is_temporary_name, os.listdir(run)))


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
    (out / "run" / STATE).unlink(missing_ok=True)
    remove_empty(out / "run")


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Keep other processes from training into `out` meanwhile; folders that were made for it go if nothing is in them."""
    made = [folder for folder in out.parents if not folder.exists()]
    with contextlib.ExitStack() as stack:
        stack.callback(remove_empty, *made)
        try:
            make_folder(out.parent)
            stack.enter_context(locked(_place(out)))
        except OSError as error:
            raise SourceError(f"{out}: cannot be written ({error.strerror or error})") from error
        yield


@contextmanager
def publishing(out: Path, stale: Collection[str]) -> Iterator[Path]:
    """A folder to fill with a model, which at the end takes the place of `out` in one step.

    What `out` holds besides a model goes along: the run's state and a person's own files. `stale` are names of an old
    model's files that do not. A file system that cannot swap two folders gets the files one by one instead: the old
    training.json and config.json go first and the new ones come last, so that what is not whole is no model and can be
    resumed.
    """
    place = _place(out)
    try:
        with temporary_folder(place.parent) as part:
            yield part
            new = set(os.listdir(part))
            old = {path.name for path in place.glob("model*.safetensors")}
            old |= {INDEX, "accuracy.json", "generation_config.json", *stale}
            for entry in os.scandir(place):
                if entry.name not in new | old:
                    _link(entry.path, part / entry.name)
            try:
                swap(part, place)
            except OSError:
                _move(part, place, new, old - new)
    except OSError as error:
        raise SourceError(f"{out}: cannot be written ({error.strerror or error})") from error


def _place(out: Path) -> Path:
    """The folder that `out` names, which may be a link."""
    return Path(os.path.realpath(out))


def _link(source: str, target: str | Path) -> None:
    """A second name for a file, or for all files of a folder; a copy where the file system has no second names."""
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _move(part: Path, out: Path, new: Collection[str], stale: Collection[str]) -> None:
    """Move the files `new` of `part` into `out`, and remove those that are `stale`."""
    last = ("config.json", TRAINING)
    for name in (*reversed(last), *sorted(stale)):
        (out / name).unlink(missing_ok=True)
    for name in (*sorted(set(new).difference(last)), *last):
        os.replace(part / name, out / name)
