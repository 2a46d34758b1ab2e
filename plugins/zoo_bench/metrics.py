"""What is measured: names, units, which way is better, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured number: its name in records, label, unit, and whether more of it is better.

    `work` is what has to be run to measure it: the name that `--only` takes. `bound` is the limit of the machine that a
    rate comes up against: "reading", of memory, or "products", of matrices; see `limits`.
    """

    name: str
    work: str
    label: str
    unit: str
    more: bool = False
    bound: str | None = None


FIGURES = (
    Figure("load_seconds", "load", "loading", "s"),
    Figure("start_seconds", "start", "shell to first token", "s"),
    Figure("first_text_seconds", "prefill", "first text, a few tokens", "s"),
    Figure("prefill_rate", "prefill", "prefill", "tokens/s", more=True, bound="products"),
    Figure("first_token_seconds", "prefill", "first token after", "s"),
    Figure("decode_rate", "decode", "decode", "tokens/s", more=True, bound="reading"),
    Figure("batch_rate", "batch", "decode, all rows", "tokens/s", more=True, bound="reading"),
    Figure("context_rate", "context", "decode after a long text", "tokens/s", more=True, bound="reading"),
    Figure("repetitive_rate", "draft", "decode of repetitive text", "tokens/s", more=True),
    Figure("drafted_rate", "draft", "the same with look-up drafts", "tokens/s", more=True),
    Figure("turn_seconds", "turn", "first token of a chat", "s"),
    Figure("next_turn_seconds", "turn", "first token of its next turn", "s"),
    Figure("translation_rate", "translate", "translation", "tokens/s", more=True),
    Figure("translations_rate", "translate", "translation, all rows", "tokens/s", more=True),
    Figure("host_seconds", "host", "host time a step", "s"),
    Figure("primitives", "host", "primitives a step", ""),
    Figure("peak_bytes", "load", "peak memory", "bytes"),
)
WORKS = tuple(dict.fromkeys(one.work for one in FIGURES))
ASIDE = ("context", "draft", "turn")  # works that take long, and are done only when they are asked for


def figure(name: str) -> Figure:
    """The figure of that name in a record."""
    return next(one for one in FIGURES if one.name == name)
