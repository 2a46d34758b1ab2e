"""JSON Schema's `format`s, each expressed by keywords that llguidance enforces.

Sources: RFC 3339 (dates and times), OpenAPI's format registry (`byte` to `password`), pydantic (`binary`, `base64`, `path`).
"""

from __future__ import annotations

from typing import Any

from zoo.errors import PromptError

# From year 1, where most libraries begin: a day that each year has, or 29 February of a leap year.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"  # two digits of a multiple of 4 that is not 0
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)-02-29)"
)
_HOUR_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
# A leap second is allowed only at 23:59:60 in UTC, written without an offset.
_TIME = (
    rf"(?:{_HOUR_MINUTE}:[0-5][0-9]{_FRACTION}(?:[Zz]|[+\-]{_HOUR_MINUTE})"
    rf"|23:59:60{_FRACTION}(?:[Zz]|[+\-]00:00))"
)


def _text(pattern: str) -> dict[str, Any]:
    return {"pattern": f"^(?:{pattern})$"}


BASE64 = _text("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
# llguidance's own dates have 29 February in every year.
FORMATS = {
    "date": _text(_DATE),
    "time": _text(_TIME),
    "date-time": _text(f"{_DATE}[Tt]{_TIME}"),
    **dict.fromkeys(("base64", "byte"), BASE64),
    "int32": {"minimum": -(2**31), "maximum": 2**31 - 1},
    # All 64 bits have more digits than can be kept.
    "int64": {"minimum": -(10**15) + 1, "maximum": 10**15 - 1},
    **{name: {"format": name} for name in ("duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")},
    # These constrain nothing.
    **{name: {} for name in ("binary", "double", "float", "password", "path")},
}


def keywords_of(name: object) -> dict[str, Any]:
    """The keywords that enforce a format; PromptError for a format that is unknown or that no grammar can enforce."""
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    raise PromptError(f"`json_schema`: the format {name!r:.60} cannot be enforced")
