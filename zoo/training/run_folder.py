"""The folder of a training run: checked before the first step, its state to resume from, replaced at the end in one step."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten

from zoo import runtime
from zoo.checkpoint.adapter import CONFIG as ADAPTER_CONFIG
from zoo.checkpoint.safetensors import INDEX
from zoo.errors import CheckpointError, ConfigError, SourceError, ZooError, warn
from zoo.files.reading import is_system_name, names_in, parse_json, read_object
from zoo.files.writing import (
    is_temporary_name,
    locked,
    make_folder,
    replacing,
    swap,
    temporary_folder,
    write_text,
)
from zoo.frozen import Frozen, frozen
from zoo.runtime import ranks
from zoo.training.corpora import TextCorpus
from zoo.training.record import TRAINING, TrainingRecord, TrainingSettings, checked_record, settings_in, svg

CURVE = "training.svg"
MODEL_CONFIG = "config.json"  # in a folder that holds a model
STATE = "state.safetensors"  # the state of a run, replaced atomically
FORMAT = "1"
SPARE = 16 << 20  # bytes beside the weights: tokenizer, records, file systems' own

P = ParamSpec("P")


@frozen()
class RunFolder(Frozen):
    """The folder `out` of a run.

    `resume` goes on with the run in it, `overwrite` allows a new model in the place of another. The state to resume from
    stays in `out/run` when the run has ended, unless `keep` is false.
    """

    out: Path
    resume: bool = False
    overwrite: bool = False
    keep: bool = True

    @contextmanager
    def claim(self, config: str = MODEL_CONFIG) -> Iterator[State | None]:
        """Keep other processes out while the run lasts; gives the state to resume, None for a new run.

        Folders that are made for it go again if nothing is in them. Other ranks wait at the end until rank 0 has written
        it. ZooError for a folder that a new run cannot have (`check_new`), or whose run cannot be resumed.
        """
        new_folders = [folder for folder in self.out.parents if not folder.exists()]
        with contextlib.ExitStack() as stack:
            if ranks.rank() == 0:
                stack.callback(remove_empty, *new_folders)
                try:
                    make_folder(self.out.parent)
                    stack.enter_context(locked(Path(os.path.realpath(self.out))))
                except OSError as error:
                    raise SourceError(f"{self.out}: cannot be written ({error.strerror or error})") from error
            if not self.resume:
                check_new(self.out, self.overwrite, config)
            yield open_state(state_path(self.out)) if self.resume else None
            if not self.keep:
                remove_state(self.out)
            ranks.barrier()


def by_first_rank(function: Callable[P, None]) -> Callable[P, None]:
    """The function, called by rank 0 only, which owns the folder of a run."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if ranks.rank() == 0:
            function(*args, **kwargs)

    return call


@by_first_rank
def check_new(out: Path, overwrite: bool, config: str = MODEL_CONFIG) -> None:
    """SourceError for a folder that holds something, unless it has the file `config` or a run and may be overwritten.

    `config` is that of a model or of an adapter. A folder with the other of the two is never overwritten.
    """
    if not out.exists():
        if out.is_symlink():
            raise SourceError(f"{out}: is a link to a folder that does not exist")
        return
    try:
        names = names_in(out)
        if (out / "run").is_dir() and all(map(is_temporary_name, names_in(out / "run"))):
            names = [name for name in names if name != "run"]  # it holds only what a killed run leaves
    except OSError as error:
        raise SourceError(f"{out}: cannot be read ({error.strerror})") from error
    if not names:
        return
    what, other = ("model", ADAPTER_CONFIG) if config == MODEL_CONFIG else ("adapter", MODEL_CONFIG)
    if other in names or (config not in names and not state_path(out).exists()):
        present = other if other in names else names[0]
        raise SourceError(f"{out}: holds {present}, and no {what}; give another folder")
    if not overwrite:
        ways = "`resume` goes on with its run, `overwrite`" if state_path(out).exists() else "`overwrite`"
        raise SourceError(f"{out}: holds {names[0]} already; {ways} trains anew")


@by_first_rank
def check_writable(out: Path, size: int) -> None:
    """SourceError unless files of `size` bytes in all can be written into the folder; it is left as it was."""
    new_folders = [folder for folder in (out, *out.parents) if not folder.exists()]
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
        remove_empty(out / "run", *new_folders)
    if free < size + SPARE:
        needed, left = (size + SPARE) / 1e6, free / 1e6
        raise SourceError(f"{out}: {needed:,.0f} MB will be written, and the disk has {left:,.0f} MB left")


def remove_empty(*folders: Path) -> None:
    """Remove those folders that hold nothing."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


@by_first_rank
def remove_state(out: Path) -> None:
    """Remove the state of the run in `out`: it cannot be resumed."""
    state_path(out).unlink(missing_ok=True)
    remove_empty(state_path(out).parent)


@contextmanager
def publishing(out: Path, stale: Collection[str]) -> Iterator[Path]:
    """A folder to fill with a model, which at the end takes the place of `out` in one step.

    What `out` holds besides a model goes along: the run's state and a person's own files. `stale` are names of an old
    model's files that do not. A file system that cannot swap two folders gets the files one by one instead: the old
    training.json and config go first and the new ones come last, so that what is not whole is no model and can be
    resumed.
    """
    place = Path(os.path.realpath(out))  # `out` may be a link
    try:
        with temporary_folder(place.parent) as part:
            yield part
            new = set(os.listdir(part))
            old = {path.name for path in place.glob("model*.safetensors")}
            old |= {INDEX, "accuracy.json", "generation_config.json", *stale}
            for entry in os.scandir(place):
                if entry.name not in new | old and not is_system_name(entry.name):
                    _link(entry.path, part / entry.name)
            try:
                swap(part, place)
            except OSError:
                _move(part, place, new, old - new)
    except OSError as error:
        raise SourceError(f"{out}: cannot be written ({error.strerror or error})") from error


def write_record(folder: Path, record: TrainingRecord) -> None:
    """Write the record of a run into a folder, and its curve."""
    write_text(folder / TRAINING, json.dumps(asdict(record), indent=1) + "\n")
    (folder / CURVE).write_text(svg(record), encoding="utf-8")


def _link(source: str, target: str | Path) -> None:
    """Make hard links to a file, or to all files of a folder; copies where the file system has no hard links."""
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _move(part: Path, out: Path, new: Collection[str], stale: Collection[str]) -> None:
    """Move the files `new` of `part` into `out`, and remove those that are `stale`."""
    last = [name for name in (MODEL_CONFIG, ADAPTER_CONFIG, TRAINING) if name in new]
    for name in (*reversed(last), *sorted(stale)):
        (out / name).unlink(missing_ok=True)
    for name in (*sorted(set(new).difference(last)), *last):
        os.replace(part / name, out / name)


@dataclass(frozen=True)
class State:
    """A run after `step` steps: its record so far, weights and optimizer by path, the tokenizer's files by name.

    Rank 0 alone has weights and optimizer.
    """

    step: int
    record: dict[str, Any]
    model: list[tuple[str, mx.array]]
    optimizer: list[tuple[str, mx.array]]
    files: dict[str, bytes]


def state_path(folder: Path) -> Path:
    """The path of the state of a run that writes `folder`."""
    return folder / "run" / STATE


@by_first_rank
def save_state(
    path: Path,
    model: nn.Module,
    optimizer: optim.Optimizer,
    record: TrainingRecord,
    step: int,
    files: Mapping[str, bytes],
) -> None:
    """Write the state under a temporary name, then rename it; ZooError when it cannot be written."""
    arrays = {f"model.{name}": array for name, array in tree_flatten(model.trainable_parameters())}
    arrays |= {f"optimizer.{name}": array for name, array in tree_flatten(optimizer.state)}
    arrays |= {f"file.{name}": mx.array(memoryview(data), mx.uint8) for name, data in files.items()}
    metadata = {"zoo_state": FORMAT, "step": str(step), "record": json.dumps(asdict(record))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            mx.save_safetensors(str(part), arrays, metadata=metadata)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path}: cannot be written ({error})") from error


def open_state(path: Path) -> State:
    """The state in a file of rank 0, its arrays read when they are used; ZooError when there is none, or it is damaged."""
    state = _read_state(path) if ranks.rank() == 0 else None
    about = state and [state.step, state.record, {name: data.hex() for name, data in state.files.items()}]
    step, record, files = ranks.shared(about)
    return state or State(step, record, [], [], {name: bytes.fromhex(data) for name, data in files.items()})


def _read_state(path: Path) -> State:
    """The state in a file."""
    if not path.is_file():
        raise ZooError(f"{path.parent.parent}: no run to resume")
    try:
        arrays, metadata = mx.load(str(path), return_metadata=True)
        if metadata.get("zoo_state") != FORMAT:
            raise CheckpointError(f"{path}: holds no state of a run that this zoo reads")
        step, record = int(metadata["step"]), parse_json(metadata["record"])
        parts: dict[str, dict[str, mx.array]] = {"model": {}, "optimizer": {}, "file": {}}
        for name, array in arrays.items():
            where, _, rest = name.partition(".")
            parts[where][rest] = array
        files = {name: bytes(memoryview(array)) for name, array in parts["file"].items()}
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: the state is damaged ({error})") from error
    record = checked_record(record, str(path))
    if not 0 <= step <= record["settings"]["steps"]:
        raise CheckpointError(f"{path}: step {step} is not within the run's {record['settings']['steps']}")
    return State(step, record, list(parts["model"].items()), list(parts["optimizer"].items()), files)


def settings_to_resume(out: Path, given: Mapping[str, Any]) -> TrainingSettings:
    """The settings of the run in `out`, with more steps if `given` says so; ZooError for any other change.

    A corpus may be given by another path: that its texts are the same is checked when it is read.
    """
    state = open_state(state_path(out))
    saved = settings_in(state.record["settings"])
    for key, value in given.items():
        if key not in ("steps", "corpus") and getattr(saved, key) != value:
            raise ZooError(
                f"`{key}`: the run was started with {getattr(saved, key)}, not {value}; only `steps` may change"
            )
    settings = saved.to(given.get("steps", saved.steps), state.step)
    return replace(settings, corpus=given.get("corpus", saved.corpus))


def check_resumed(out: Path, state: State, settings: TrainingSettings, texts: TextCorpus) -> None:
    """ZooError when the run cannot go on with these settings and texts, or has nothing left to do."""
    saved = settings_in(state.record["settings"])
    user_text = texts.user_text
    if user_text is not None and user_text.digest != state.record["settings"].get("corpus_sha256"):
        raise ZooError(f"{texts.name}: is not the text that the run in {out} was started with")
    corpus = (
        saved.corpus if user_text is None else settings.corpus
    )  # the digest says that its text is the same
    if settings != replace(saved.to(settings.steps, state.step), corpus=corpus):
        raise ZooError(f"{out}: its run was made with other settings; only `steps` may change")
    check_unfinished(out, state, settings.steps)


def check_unfinished(out: Path, state: State, steps: int) -> None:
    """ZooError for a run that has done all its steps and written its model or adapter.

    Warns of libraries of other versions: with them the run is not, bit for bit, the one that was not interrupted.
    """
    # A model that is there may be an older one, if the run was killed before it wrote its own.
    if state.step == steps and read_object(out, TRAINING, ConfigError) == state.record:
        raise ZooError(f"{out}: all {steps} steps are done; give more `steps` to go on")
    now, before = runtime.versions(), state.record.get("versions", {})
    changed = [f"{name} {before[name]}" for name in before if now.get(name, before[name]) != before[name]]
    if changed:
        warn(f"{out}: its run was started with {', '.join(changed)}; here it goes on with other versions")
