"""Other names for the functions of a loaded library, which libraries that are loaded later find. Linux; imports no mlx.

The dynamic linker takes a function from the first library that was loaded globally and has its name. A library that keeps
prefixes its functions' names, as numpy's builds of OpenBLAS do, is not found by the standard names. `define` loads a library
without code whose symbols have these names, and as values the addresses of functions that are already in memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from itertools import accumulate, count
from struct import Struct

# ELF-64 of System V's ABI, little-endian: https://gabi.xinuos.com
FILE, SEGMENT, SYMBOL, ENTRY = (
    Struct("<16sHHIQQQIHHHHHH"),
    Struct("<IIQQQQQQ"),
    Struct("<IBBHQQ"),
    Struct("<qQ"),
)
MACHINES = {"x86_64": 62, "aarch64": 183}
SHARED, LOAD, DYNAMIC, STACK = 3, 1, 2, 0x6474E551
READ_WRITE, PAGE = 6, 2**16
GLOBAL_FUNCTION, ABSOLUTE = 0x12, 0xFFF1
HASH, STRINGS, SYMBOLS, STRINGS_SIZE, SYMBOL_SIZE = 4, 5, 6, 10, 11
_paths = count(1)


def library(addresses: Mapping[str, int], machine: str) -> bytes:
    """A shared library that has these names, each with an absolute address. KeyError for an unknown machine.

    >>> library({"f": 0x1234}, "x86_64")[:4]
    b'\\x7fELF'
    """
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in addresses)
    starts = accumulate((len(name.encode()) + 1 for name in addresses), initial=1)
    symbols = SYMBOL.pack(0, 0, 0, 0, 0, 0) + b"".join(
        SYMBOL.pack(start, GLOBAL_FUNCTION, 0, ABSOLUTE, address, 0)
        for start, address in zip(starts, addresses.values(), strict=False)
    )
    # A hash table with one bucket: a look-up compares the name with each symbol. The first symbol has no name and is left out.
    number = len(addresses) + 1
    table = Struct(f"<{number + 3}I").pack(1, number, 1, 0, *range(2, number), 0)
    dynamic_at = FILE.size + 3 * SEGMENT.size
    symbols_at = dynamic_at + 6 * ENTRY.size
    table_at = symbols_at + len(symbols)
    strings_at = table_at + len(table)
    entries = {
        HASH: table_at, SYMBOLS: symbols_at, SYMBOL_SIZE: SYMBOL.size, STRINGS: strings_at, STRINGS_SIZE: len(strings)
    }  # fmt: skip
    dynamic = b"".join(ENTRY.pack(*entry) for entry in (*entries.items(), (0, 0)))
    size = strings_at + len(strings)
    head = FILE.pack(
        b"\x7fELF\2\1\1", SHARED, MACHINES[machine], 1, 0, FILE.size, 0, 0, FILE.size, SEGMENT.size, 3, 0, 0, 0
    )  # fmt: skip
    segments = (
        SEGMENT.pack(LOAD, READ_WRITE, 0, 0, 0, size, size, PAGE),
        SEGMENT.pack(DYNAMIC, READ_WRITE, *[dynamic_at] * 3, *[len(dynamic)] * 2, 8),
        SEGMENT.pack(STACK, READ_WRITE, 0, 0, 0, 0, 0, 16),
    )
    return head + b"".join(segments) + dynamic + symbols + table + strings


def address(functions: ctypes.CDLL, name: str) -> int:
    """The address of a library's function. AttributeError if it has none of this name."""
    return ctypes.cast(functions[name], ctypes.c_void_p).value or 0


def define(addresses: Mapping[str, int]) -> None:
    """Define each name as a symbol at its address. OSError if the system does not allow it.

    Libraries that are loaded later find the functions at these addresses by their names.
    """
    try:
        content = library(addresses, os.uname().machine)
    except KeyError:
        raise OSError(f"no shared libraries are made for {os.uname().machine}") from None
    with os.fdopen(os.memfd_create("zoo-symbols"), "wb") as file:
        file.write(content)
        file.flush()
        # Each library needs a path of its own: the dynamic linker loads a path once, and file descriptors are reused.
        path = f"/proc/{os.getpid()}/{next(_paths) * './'}fd/{file.fileno()}"
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
