"""The table of the guide: what the server does with each field of requests, read from the tables that check them."""

from __future__ import annotations

from collections.abc import Iterable

from zoo_serve.endpoint import Endpoint
from zoo_serve.fields import Field


def treatment(name: str, field: Field) -> str:
    """What is done with a field, in words; "" for one that is obeyed under its own name, and needs none."""
    parts = []
    if field.setting not in (None, name):
        parts.append(f"the setting `{field.setting}`")
    if field.variable is not None:
        parts.append(f"the variable `{field.variable}` of the chat template")
    if field.only:
        parts.append(
            "only " + " or ".join(f"`{_json(value)}`" for value in field.only) + "; others are refused"
        )
    if field.schema == {"type": "null"}:
        parts.append("only `null`; others are refused")
    if field.ignored:
        parts.append(f"changes nothing: {field.ignored}")
    for given, other in field.instead:
        if isinstance(given, int):
            parts.append(f"`{given}` is " + ("none given" if other is None else f"`{other}`"))
    return "; ".join(parts)


def markdown_table(endpoints: Iterable[Endpoint]) -> str:
    """The fields that are not simply obeyed under their own names, with the paths that have them."""
    paths: dict[tuple[str, str], list[str]] = {}
    for endpoint in endpoints:
        for name, field in endpoint.fields.own.items():
            if what := treatment(name, field):
                paths.setdefault((name, what), []).append(endpoint.path.removeprefix("/v1"))
    lines = ["| Field | What it is | Paths |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {what} | {', '.join(of)} |" for (name, what), of in sorted(paths.items())]
    return "\n".join(lines)


def _json(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )
