"""Reads a person's own text files and JSON lines; each error names the file and the line. Imports no mlx."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.files.reading import MAX_JSON_BYTES, parse_json

_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON
_KEY = re.compile(r'"(\w+)": ')

Line = tuple[str, dict[str, Any]]
"""A JSON object and its origin, which errors begin with: "data.jsonl, line 3"."""


def read_text(file: Path) -> str:
    """The text of a file, its lines ended by "\\n", without a byte order mark.

    ZooError for a file that cannot be read, is not UTF-8, has a zero byte, or holds nothing but white space.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ZooError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        # A mark at the file's beginning is not among the bytes that the error counts.
        line_number, byte = error.object[: error.start].count(b"\n") + 1, error.object[error.start]
        raise ZooError(f"{file}, line {line_number}: not UTF-8 (byte 0x{byte:02x})") from None
    before, zero, _ = text.partition("\0")
    if zero:
        raise ZooError(f"{file}, line {before.count(chr(10)) + 1}: has a zero byte, as binary files have")
    if not text.strip():
        raise ZooError(f"{file}: is empty")
    return text


def json_lines(file: Path) -> Iterator[Line]:
    """The objects of a file, one a line; blank lines are skipped. A `.json` file may be an array: "data.json, item 3".

    ZooError for what is no JSON object.
    """
    text = read_text(file)
    if file.suffix.lower() == ".json" and text.lstrip().startswith("["):
        for number, item in enumerate(parsed(str(file), text), 1):
            yield _object(f"{file}, item {number}", item)
        return
    # Not splitlines: JSON leaves U+2028 and its like in a line.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            origin = f"{file}, line {number}"
            yield _object(origin, parsed(origin, line))


def parsed(origin: str, text: str) -> Any:
    """Parse a JSON text. ZooError if it is malformed, too large, or holds a lone surrogate."""
    if len(text) > MAX_JSON_BYTES:
        raise ZooError(f"{origin}: longer than {MAX_JSON_BYTES:,} characters")
    try:
        value = parse_json(text, standard=True)
    except UnicodeEncodeError as error:
        keys = _KEY.findall(error.object[: error.start])
        where = f'"{keys[-1]}"' if keys else "the line"
        raise ZooError(f"{origin}: {where} holds half a character (a lone surrogate)") from None
    except ValueError as error:
        raise ZooError(f"{origin}: not JSON ({getattr(error, 'msg', error)})") from None
    if _ZERO.search(text):
        raise ZooError(f"{origin}: holds a zero character (\\u0000)")
    return value


def _object(origin: str, value: object) -> Line:
    if not isinstance(value, dict):
        raise ZooError(f"{origin}: no JSON object")
    return origin, value


def text_at(origin: str, record: Mapping[str, Any], key: str) -> str:
    """The text at a key of a record; ZooError where there is none."""
    if key not in record:
        raise ZooError(f'{origin}: has no "{key}"')
    value = record[key]
    if not isinstance(value, str):
        raise ZooError(f'{origin}: "{key}" is not a text')
    return value
