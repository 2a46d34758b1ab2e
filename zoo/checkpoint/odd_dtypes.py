"""Read tensors of F64 and F8_E5M2, dtypes that `mx.load` refuses: as integers of the same width, then converted to floats."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

# The dtype to show MLX instead, which has the same width. The text in the header keeps its length.
SHOWN_AS = {"F64": b'"I64"', "F8_E5M2": b'"U8"     '}


class _ShownFile(io.RawIOBase):
    """A safetensors file whose header shows MLX the dtypes of `SHOWN_AS`. MLX reads a tensor when it is evaluated."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        length = int.from_bytes(self._file.read(8), "little")
        header = self._file.read(length)
        for dtype, shown in SHOWN_AS.items():
            named = rb'("dtype"\s*:\s*)"' + dtype.encode() + b'"'
            header = re.sub(named, lambda match, shown=shown: match[1] + shown, header)  # type: ignore[misc]
        self._header = length.to_bytes(8, "little") + header
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = self._file.seek(offset, whence)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._position)
        count = self._file.readinto(buffer)
        part = self._header[self._position : self._position + count]
        memoryview(buffer)[: len(part)] = part
        self._position += count
        return count


def load_odd(path: Path, dtypes: Mapping[str, str]) -> dict[str, mx.array]:
    """Return the lazy tensors of a file by name. Those of F64 become float32, those of F8_E5M2 float16."""
    arrays = dict(mx.load(_ShownFile(path), format="safetensors"))
    for name, dtype in dtypes.items():
        if dtype == "F64":  # which a GPU does not know
            wide = mx.view(arrays[name], mx.float64, stream=mx.cpu)
            arrays[name] = wide.astype(mx.float32, stream=mx.cpu)
        elif dtype == "F8_E5M2":  # the upper half of a float16
            arrays[name] = (arrays[name].astype(mx.uint16) << 8).view(mx.float16)
    return arrays
