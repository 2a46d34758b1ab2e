"""Where rank 0 is, by the settings of the launcher, and the time limits of the watch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from zoo.errors import RankError, in_words
from zoo.machine import UNREADABLE, launched, mpi_size, rank_variable, read_json

SILENCE = 15.0  # seconds
START = 60.0  # seconds


def meeting_point(environ: Mapping[str, str] = os.environ) -> tuple[str, int | Path, int] | None:
    """The host and port of rank 0, and the number of ranks. None for a single rank, or where the address is not known.

    For ranks that Open MPI starts on one machine, the port is a file: rank 0 chooses a port and writes its number to the file.
    """
    if not launched(environ):
        return None
    name, number = rank_variable(environ)
    if not number.isdecimal():
        raise RankError(f"{name} is {number!r:.40}, not the number of a rank")
    try:
        if "MLX_RANK" not in environ:
            return _meeting_point_under_mpi(environ)
        if "MLX_JACCL_COORDINATOR" in environ:
            address, size = environ["MLX_JACCL_COORDINATOR"], len(read_json(environ["MLX_IBV_DEVICES"]))
        elif "NCCL_HOST_IP" in environ:
            address = f"{environ['NCCL_HOST_IP']}:{environ['NCCL_PORT']}"
            size = int(environ["MLX_WORLD_SIZE"])
        else:
            nodes = read_json(environ["MLX_HOSTFILE"])
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
