"""JSON Schema's `format`s, each expressed by keywords that llguidance enforces.

Sources: OpenAPI's format registry (`byte` to `password`), pydantic (`binary`, `base64`, `path`).
"""

from __future__ import annotations

from typing import Any

from zoo.errors import PromptError

BASE64 = {"pattern": "^(?:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$"}
FORMATS: dict[str, dict[str, Any]] = {
    **{
        name: {"format": name}  # as llguidance knows it; its February has 29 days
        for name in (
            *("date", "time", "date-time", "duration", "email"),
            *("hostname", "ipv4", "ipv6", "uri", "uuid"),
        )
    },
    **dict.fromkeys(("base64", "byte"), BASE64),
    "int32": {"minimum": -(2**31), "maximum": 2**31 - 1},
    # All 64 bits have more digits than can be kept.
    "int64": {"minimum": -(10**15) + 1, "maximum": 10**15 - 1},
    # These constrain nothing.
    **{name: {} for name in ("binary", "double", "float", "password", "path")},
}


def keywords_of(name: Any) -> dict[str, Any]:
    """The keywords that enforce a format; PromptError for a format that is unknown or that no grammar can enforce."""
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    raise PromptError(f"`json_schema`: the format {name!r:.60} cannot be held to")
