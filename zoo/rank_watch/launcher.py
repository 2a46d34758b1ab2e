"""What the launcher says of the ranks: how many there are, which one this is, and where rank 0 is. Settings of the watch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.errors import RankError, in_words

# What `mlx.launch` and the launchers of MPI set for each process.
LAUNCHED = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

# Errors that settings of an unexpected form raise when they are read.
UNREADABLE = (KeyError, OSError, ValueError, IndexError, TypeError, AttributeError)
SILENCE = 15.0  # seconds
START = 60.0  # seconds
STALL = 600.0  # seconds


def launched(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started as one of several ranks; for one rank `mlx.launch` gives an empty list of hosts."""
    if not any(name in environ for name in LAUNCHED):
        return False
    try:
        return "MLX_HOSTFILE" not in environ or bool(_json_file(environ["MLX_HOSTFILE"]))
    except (OSError, ValueError):
        return True  # `meeting_point` says what is wrong


def launched_rank(environ: Mapping[str, str] = os.environ) -> int:
    """The number that the launcher gave this process; 0 for one that was started alone."""
    _, number = _launched_number(environ)
    return int(number) if number.isdecimal() else 0  # `meeting_point` says what is wrong


def _launched_number(environ: Mapping[str, str]) -> tuple[str, str]:
    """The name and the value of the variable that holds the number of this rank."""
    return next(((name, environ[name]) for name in LAUNCHED if name in environ), ("", "0"))


def meeting_point(environ: Mapping[str, str] = os.environ) -> tuple[str, int | Path, int] | None:
    """The host and port of rank 0, and the number of ranks. None for a single rank, or where the address is not known.

    For ranks that Open MPI starts on one machine, the port is a file: rank 0 chooses a port and writes its number to the file.
    """
    if not launched(environ):
        return None
    name, number = _launched_number(environ)
    if not number.isdecimal():
        raise RankError(f"{name} is {number!r:.40}, not the number of a rank")
    try:
        if "MLX_RANK" not in environ:
            return _meeting_point_under_mpi(environ)
        if "MLX_JACCL_COORDINATOR" in environ:
            address, size = environ["MLX_JACCL_COORDINATOR"], len(_json_file(environ["MLX_IBV_DEVICES"]))
        elif "NCCL_HOST_IP" in environ:
            address = f"{environ['NCCL_HOST_IP']}:{environ['NCCL_PORT']}"
            size = int(environ["MLX_WORLD_SIZE"])
        else:
            nodes = _json_file(environ["MLX_HOSTFILE"])
            address, size = nodes[0][0], len(nodes)
        if size < 2:
            return None
        if given := _given_address(environ):
            return *given, size
        host, port = _split(address)
        return host, port - 1, size  # MLX listens on the port that the launcher names
    except UNREADABLE as error:
        raise RankError(f"the ranks' addresses cannot be read: {in_words(error)}") from error


def _meeting_point_under_mpi(environ: Mapping[str, str]) -> tuple[str, int | Path, int] | None:
    size = mpi_size(environ)
    if size < 2:
        return None
    if given := _given_address(environ):
        return *given, size
    folder = environ.get("PMIX_SERVER_TMPDIR")  # of this run, which Open MPI removes at its end
    if folder is None or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") != str(size):
        return None
    return "127.0.0.1", Path(folder, "zoo-ranks-port"), size


def mpi_size(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks that a launcher of MPI names, 1 without one."""
    return int(environ.get("OMPI_COMM_WORLD_SIZE") or environ.get("PMI_SIZE") or 1)


def ranks_here(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks on this machine, including this one; 1 where the launcher does not say it."""
    if not launched(environ):
        return 1
    try:
        if "MLX_RANK" not in environ:
            local = environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or environ.get("MPI_LOCALNRANKS") or 1
            return max(1, int(local))
        hosts = [_split(addresses[0])[0] for addresses in _json_file(environ["MLX_HOSTFILE"])]
        return hosts.count(hosts[launched_rank(environ)])
    except UNREADABLE:
        return 1  # `meeting_point` says what is wrong


def _given_address(environ: Mapping[str, str]) -> tuple[str, int] | None:
    address = environ.get("ZOO_RANKS_ADDRESS")
    if not address:
        return None
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise RankError(f"ZOO_RANKS_ADDRESS must be HOST:PORT, got {address!r:.80}")
    return host, int(port)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _json_file(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return json.loads(text) if text.strip() else []


def seconds(name: str, default: float) -> float:
    """The seconds that a variable of the environment sets."""
    text = os.environ.get(name, "")
    try:
        value = float(text or default)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise RankError(f"{name} must be a number of seconds, got {text!r:.60}")
    return value


def start_seconds() -> float:
    """The seconds within which all ranks have to come and be connected."""
    return seconds("ZOO_RANKS_START", START)
