"""JSON Schema's `format`s, each expressed by keywords that enforce it.

Sources: RFC 3339 (dates and times), RFC 1123 and 5891 (host names), RFC 4291 (IPv6), RFC 3986 and 3987 (URI, IRI), RFC 6570
(URI templates), RFC 6901 (JSON pointers), OpenAPI's format registry (`int32` to `password`).
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

_ALNUM, _INNER = "[A-Za-z0-9]", r"[A-Za-z0-9\-]"
# At most 63 characters. "--" as the third and fourth marks an encoded international label, which is not allowed.
_LABEL = (
    rf"{_ALNUM}(?:{_INNER}{{0,2}}{_ALNUM}|{_INNER}(?:{_ALNUM}{_INNER}|-{_ALNUM}){_INNER}{{0,58}}{_ALNUM})?"
)

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]"
_GROUP = f"{_HEX}{{1,4}}"
_LAST = rf"(?:{_GROUP}:{_GROUP}|(?:{_BYTE}\.){{3}}{_BYTE})"  # the last 32 bits
_IPV6 = "|".join(
    [
        f"(?:{_GROUP}:){{6}}{_LAST}",
        f"::(?:{_GROUP}:){{5}}{_LAST}",
        *(f"(?:(?:{_GROUP}:){{0,{n}}}{_GROUP})?::(?:{_GROUP}:){{{4 - n}}}{_LAST}" for n in range(5)),
        f"(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}",
        f"(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::",
    ]
)

_UNRESERVED = r"A-Za-z0-9._~\-"
_DELIMITERS = "!$&'()*+,;="
_PERCENT = f"%{_HEX}{{2}}"
_INTERNATIONAL = r"\x{a0}-\x{d7ff}\x{f900}-\x{fdcf}\x{fdf0}-\x{ffef}" + "".join(
    rf"\x{{{plane:x}0000}}-\x{{{plane:x}fffd}}" for plane in range(1, 15)
)


def _reference(beyond_ascii: str = "", *, relative: bool = False) -> str:
    """A URI, or a reference that may be relative; with characters `beyond_ascii` an IRI."""

    def of(characters: str) -> str:
        return f"(?:[{characters}{beyond_ascii}]|{_PERCENT})"

    name = _UNRESERVED + _DELIMITERS
    segment = of(name + ":@")
    host = rf"(?:\[(?:{_IPV6}|v{_HEX}+\.[{name}:]+)\]|{of(name)}*)"
    authority = f"//(?:{of(name + ':')}*@)?{host}(?::[0-9]*)?(?:/{segment}*)*"
    absolute = f"/(?:{segment}+(?:/{segment}*)*)?"
    end = rf"(?:\?{of(name + ':@/?')}*)?(?:#{of(name + ':@/?')}*)?"
    uri = rf"[A-Za-z][A-Za-z0-9+.\-]*:(?:{authority}|{absolute}|{segment}+(?:/{segment}*)*)?"
    if not relative:
        return uri + end
    return f"(?:{uri}|(?:{authority}|{absolute}|{of(name + '@')}+(?:/{segment}*)*)?){end}"


_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_NAME = f"(?:[A-Za-z0-9_]|{_PERCENT})"
_VARIABLE = rf"{_NAME}(?:\.?{_NAME})*(?::[1-9][0-9]{{0,3}}|\*)?"
_TEMPLATE = (
    rf"(?:[!#$&(-;=?-\[\]_a-z~{_INTERNATIONAL}]|{_PERCENT}|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)
BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"


def _text(pattern: str, **more: Any) -> dict[str, Any]:
    return {"pattern": f"^(?:{pattern})$", **more}


FORMATS = {
    "date": _text(_DATE),
    "time": _text(_TIME),
    "date-time": _text(f"{_DATE}[Tt]{_TIME}"),
    "hostname": _text(rf"{_LABEL}(?:\.{_LABEL})*", maxLength=253),
    "ipv6": _text(_IPV6),
    "uri": _text(_reference()),
    "uri-reference": _text(_reference(relative=True)),
    "iri": _text(_reference(_INTERNATIONAL)),
    "iri-reference": _text(_reference(_INTERNATIONAL, relative=True)),
    "uri-template": _text(_TEMPLATE),
    "json-pointer": _text(_POINTER),
    "relative-json-pointer": _text(f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
    "byte": _text(BASE64),
    "int32": {"minimum": -(2**31), "maximum": 2**31 - 1},
    "int64": {
        "minimum": -(10**15) + 1,
        "maximum": 10**15 - 1,
    },  # all 64 bits have more digits than can be kept
    **{name: {"format": name} for name in ("duration", "email", "ipv4", "uuid")},  # llguidance has these
    **{name: {} for name in ("float", "double", "password")},  # these constrain nothing
}


def keywords_of(name: Any) -> dict[str, Any]:
    """The keywords that enforce a format; PromptError for a format that is unknown or that no grammar can enforce."""
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    raise PromptError(f"`json_schema`: the format {name!r:.60} cannot be held to")
