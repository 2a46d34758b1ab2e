"""Writes files and folders, whole or not at all. Imports no mlx.

A file or folder is written under a random temporary name beside its target and then renamed. The name is created
exclusively, so that no link and no other file of that name is ever opened. The writer holds a lock on it that ends with
its process. The next writer in the folder removes the temporary files of processes that were killed.

`output_file` is for a path from the user: a device or a pipe is written into, a link is refused, and a file is replaced
only if the zoo wrote it or the user allowed it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from zoo.errors import SourceError
from zoo.files.reading import is_system_name, names_in
from zoo.machine import launched_rank

GENERATOR = "generator: mlx-zoo"  # marks a file that the zoo wrote and may replace
_MARK = re.compile(rb"generator\W{1,4}mlx-zoo\b")
_ENDS = 4096  # bytes at a file's start and at its end where the mark may stand

_TEMPORARY = re.compile(r"\.part-[0-9a-f]{16}(\.\w{1,20})?")
_STREAMS = (stat.S_ISFIFO, stat.S_ISCHR, stat.S_ISBLK, stat.S_ISSOCK)
_TRIES = 100  # attempts to create and lock a file, which another writer may remove in between
# What file systems without locks answer. The second and the third differ on a Mac.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF)


def has_mark(path: Path) -> bool:
    """Whether a file has the zoo's mark."""
    with path.open("rb") as file:
        start = file.read(_ENDS)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ENDS))
        return _MARK.search(start) is not None or _MARK.search(file.read(_ENDS)) is not None


def is_stream(path: Path) -> bool:
    """Whether a path is a pipe, a device or an open file of this process (/dev/stdout), which is never replaced."""
    if Path(os.path.abspath(path)).parent in map(Path, ("/dev", "/dev/fd", "/proc/self/fd")):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return any(kind(mode) for kind in _STREAMS)


def check_output(path: Path, overwrite: bool | None = False, own: Callable[[Path], bool] = has_mark) -> None:
    """Check before long work that a file can be written at `path`. SourceError when it cannot.

    An existing file that is not empty must pass `own`, which tells files that the zoo wrote. `overwrite` allows any
    file; None is for callers without such a setting.
    """
    if is_stream(path) or launched_rank():
        return
    if path.is_symlink():
        raise SourceError(f"{path}: is a link; give the path of the file itself")
    if path.is_dir():
        raise SourceError(f"{path}: is a folder, not a file")
    if not path.parent.is_dir():
        raise SourceError(f"{path}: cannot be written, there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise SourceError(f"{path}: cannot be written (no permission to write into {path.parent})")
    try:
        if path.exists() and path.stat().st_size and not overwrite and not own(path):
            way = "give another name" if overwrite is None else "`overwrite` replaces it"
            raise SourceError(f"{path}: exists and is not a file of this kind that the zoo wrote; {way}")
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def check_outputs(paths: Iterable[Path | None], overwrite: bool = False) -> None:
    """Check several output paths, which must differ. Ignores None."""
    given = [path for path in paths if path is not None]
    for path in given:
        check_output(path, overwrite)
    places = [os.path.realpath(path) for path in given if not is_stream(path)]  # one file may have two names
    if double := next((place for place in places if places.count(place) > 1), None):
        raise SourceError(f"{double}: is given for two files")


@contextmanager
def output_file(
    path: Path, overwrite: bool | None = False, own: Callable[[Path], bool] = has_mark
) -> Iterator[Path]:
    """A temporary file to fill. It becomes the user's `path`, or is copied into it if that is a device or a pipe.

    Of the ranks that `mlx.launch` starts, rank 0 writes; what the others fill is removed. SourceError as for `check_output`, and when the file cannot be written.
    """
    check_output(path, overwrite, own)
    try:
        if launched_rank() or is_stream(path):
            with tempfile.TemporaryDirectory() as folder:
                part = Path(folder) / f"output{path.suffix}"
                yield part
                if launched_rank():
                    return
                with part.open("rb") as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target)
        else:
            with replacing(path) as part:
                yield part
    except OSError as error:
        raise SourceError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_output(path: Path, data: bytes, overwrite: bool | None = False) -> None:
    """Write the user's file with `output_file`. SourceError when it cannot be written."""
    with output_file(path, overwrite) as part:
        part.write_bytes(data)


def write_markup(path: Path, text: str, overwrite: bool = False) -> None:
    """Write the user's SVG or HTML file with the zoo's mark."""
    # A path that is no UTF-8 may be named in it.
    write_output(path, f"{text.rstrip()}\n<!-- {GENERATOR} -->\n".encode(errors="replace"), overwrite)


def write_record(path: Path, values: Mapping[str, Any], overwrite: bool | None = False, **how: Any) -> None:
    """Write the user's JSON file with the zoo's mark; `how` are arguments of `json.dumps`."""
    name, _, value = GENERATOR.partition(": ")
    text = json.dumps({name: value, **values}, ensure_ascii=False, **how)
    write_output(path, f"{text}\n".encode(), overwrite)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` with its suffix. It replaces `path` at the end and is removed after an error.

    For files in the zoo's own folders. Use `output_file` for a path from the user.
    """
    part, lock = _temporary(path.parent, path.suffix, lambda part: part.touch(exist_ok=False))
    try:
        yield part
        with suppress(FileNotFoundError):
            os.chmod(part, stat.S_IMODE(path.stat().st_mode))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
        os.close(lock)


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent` with a temporary name. It is removed at the end unless it was renamed."""
    part, lock = _temporary(parent, "", Path.mkdir)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(lock)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents. OSError when that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill. It is renamed to `path` at the end and removed after an error.

    SourceError when `path` is not empty, when another process is writing it, and when it cannot be written.
    """
    if path.is_symlink():
        raise SourceError(f"{path}: is a link; give the path of the folder itself")
    try:
        make_folder(path.parent)
        with locked(path), temporary_folder(path.parent) as part:
            if path.exists() and (not path.is_dir() or names_in(path)):
                raise SourceError(f"{path}: exists already")
            yield part
            for name in os.listdir(path) if path.is_dir() else ():
                if is_system_name(name):
                    (path / name).unlink()  # a folder in which Finder has been
            os.rename(part, path)  # takes the place of an empty folder and of nothing else
    except OSError as error:
        raise SourceError(f"{path}: cannot be written ({error.strerror or error})") from error


def is_temporary_name(name: str) -> bool:
    """Whether a name is a temporary one of this module."""
    return _TEMPORARY.fullmatch(name) is not None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock `path` against other writers. SourceError when another process is writing it.

    The lock is an empty file beside `path`; the operating system releases it when the process ends.
    """
    from hashlib import blake2b  # loads OpenSSL, which no command's start should wait for

    name = blake2b(os.fsencode(path.name), digest_size=8).hexdigest()
    file = Path(os.path.realpath(path.parent)) / f".lock-{name}"
    for _ in range(_TRIES):
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        if not _lock(lock):
            os.close(lock)
            raise SourceError(f"{path}: another process is writing it")
        if _is_at(lock, file):
            break
        os.close(lock)  # its owner removed it in between
    else:
        raise _no_lock(file)
    try:
        yield
    finally:
        try:
            if os.fstat(lock).st_size == 0:
                file.unlink(missing_ok=True)
        finally:
            os.close(lock)


def swap(first: Path, second: Path) -> None:
    """Swap two files or folders atomically. OSError when the system does not support it."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    swap, here = 2, -100  # RENAME_EXCHANGE and RENAME_SWAP; AT_FDCWD
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(here, names[0], here, names[1], swap)
    elif hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(*names, swap)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(first), None, str(second))


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file of the zoo's own, whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object to a file of the zoo's own, whole or not at all."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def _temporary(parent: Path, suffix: str, create: Callable[[Path], None]) -> tuple[Path, int]:
    """Make a file or folder with a random name, and lock it. Removes those of dead processes first."""
    _remove_abandoned(parent)
    suffix = suffix if is_temporary_name(f".part-{'0' * 16}{suffix}") else ""
    error: OSError
    for _ in range(_TRIES):
        part = parent / f".part-{os.urandom(8).hex()}{suffix}"
        try:
            create(part)
            lock = os.open(part, os.O_RDONLY | os.O_NOFOLLOW)
        except (FileExistsError, FileNotFoundError) as caught:
            error = (
                caught  # the name was taken, another writer removed the file, or the folder takes no files
            )
            continue
        if _lock(lock) and _is_at(lock, part):
            return part, lock
        os.close(lock)
        error = _no_lock(part)
    _remove_abandoned(parent)
    raise error


def _remove_abandoned(parent: Path) -> None:
    """Remove the temporary files and folders in `parent` whose processes have ended."""
    with os.scandir(parent) as entries:
        found = [entry for entry in entries if is_temporary_name(entry.name) and not entry.is_symlink()]
    for entry in found:
        with suppress(OSError):
            lock = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
            finally:
                os.close(lock)


def _lock(descriptor: int) -> bool:
    """Lock an open file; False when another process has the lock. Always true on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _no_lock(path: Path) -> OSError:
    """The error for a file that none of the attempts could lock."""
    return OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path))


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
