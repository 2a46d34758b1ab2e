"""What is measured: names, units, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured number: its name in records, label, unit, and whether more of it is better.

    `work` is what has to be run to measure it: the name that `--only` takes.
    """

    name: str
    work: str
    label: str
    unit: str
    more: bool = False


FIGURES = (
    Figure("load_seconds", "load", "loading", "s"),
    Figure("start_seconds", "start", "shell to first token", "s"),
    Figure("prefill_rate", "prefill", "prefill", "tokens/s", more=True),
    Figure("first_token_seconds", "prefill", "first token after", "s"),
    Figure("decode_rate", "decode", "decode", "tokens/s", more=True),
    Figure("batch_rate", "batch", "decode, all rows", "tokens/s", more=True),
    Figure("host_seconds", "host", "host time a step", "s"),
    Figure("primitives", "host", "primitives a step", ""),
    Figure("peak_bytes", "load", "peak memory", "bytes"),
)
WORKS = tuple(dict.fromkeys(one.work for one in FIGURES))


def figure(name: str) -> Figure:
    """The figure of that name in a record."""
    return next(one for one in FIGURES if one.name == name)
