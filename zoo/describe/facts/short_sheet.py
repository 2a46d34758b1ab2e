"""Joins the facts of a model into some fifteen rows. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator

from zoo.describe.facts.compare import FactRow, aligned
from zoo.describe.facts.fact import Sheet
from zoo.describe.facts.sheet import format_label
from zoo.describe.language import Message
from zoo.frozen import Frozen, frozen

# The label of each row that several facts share, and for each fact how its text stands in the row.
TOGETHER: dict[str, dict[str, str]] = {
    "parameters": {"parameters.total": "{}", "parameters.active": "{} used for a token"},
    "model": {"model": "{}", "causality": "a token sees {}"},
    "layers": {
        "layers": "{}",
        "encoder.layers": "{} in the encoder",
        "decoder.layers": "{} in the decoder",
        "width": "width {}",
    },
    "vocabulary": {"vocabulary": "{}", "tied": ""},
    "heads": {
        "heads": "{}",
        "kv_heads": "{} key/value",
        "head_width": "width {}",
        "head_norm": "{} on each query and key",
    },
    "feed-forward": {"feedforward": "{}", "hidden": "width {}"},
    "experts": {
        "experts": "{}",
        "experts_used": "{} used for a token",
        "expert_width": "width {}",
        "shared_width": "a shared one of width {}",
    },
    "norm": {"norm": "{}", "placement": "{}"},
    "cache": {
        "cache.token": "{} a token",
        "cache.context": "{} at {context} tokens",
        "cache.state": "{} of state at any length",
    },
    "weights": {"weights.chosen": "{} in {quantize}"},
    "FLOPs a token": {
        "flops.decode": "{} after {context} tokens",
        "flops.prefill": "{} reading {context} tokens",
    },
    "tokenizer": {
        "tokenizer.kind": "{}",
        "tokenizer.size": "{} tokens",
        "tokenizer.bytes": "",
    },
}
FLAGS = {  # the texts of yes and no
    "tied": ("head tied to embedding", "head not tied"),
    "tokenizer.bytes": ("any byte has tokens", "unknown characters are lost"),
}
# Implied by "encoder-decoder": the encoder sees all tokens, the decoder those before.
UNDERSTOOD = {"encoder.causality": "all tokens", "decoder.causality": "earlier tokens"}


@frozen()
class SheetLine(Frozen):
    """One row of the short sheet: its label, its text, and the names of the facts in it."""

    label: str
    text: str
    names: tuple[str, ...]


def short(sheet: Sheet) -> list[SheetLine]:
    """The short sheet of a model, in the order of its facts. A fact without a shared row has a row of its own."""
    rows = [row for row in aligned([sheet.facts]) if not (row.detail or row.empty)]
    by_name = {row.name: row for row in rows}
    words = {
        "context": f"{sheet.numbers['context']:,}",
        "quantize": format_label(sheet.numbers["quantize"]),
    }
    found: list[SheetLine] = []
    done = {name for name, text in UNDERSTOOD.items() if name in by_name and by_name[name].texts[0] == text}
    for row in rows:
        if row.name in done:
            continue
        label, members = _group(row.name, by_name, done)
        done |= members.keys()
        text = _joined(list(_texts(members, by_name, words))) if label else row.texts[0]
        found.append(SheetLine(label or row.label, text, tuple(members) or (row.name,)))
    return found


def _group(name: str, rows: dict[str, FactRow], done: set[str]) -> tuple[str, dict[str, str]]:
    """The label of a fact's shared row, and the names of the facts in it with their texts; ("", {}) for none.

    Where the encoder's facts differ from the decoder's, each stack has a row of its own.
    """
    for label, members in TOGETHER.items():
        if name in members:
            return label, {key: text for key, text in members.items() if key in rows and key not in done}
    role, _, key = name.partition(".")
    for label, members in TOGETHER.items():
        if role in ("encoder", "decoder") and key in members:
            own = {f"{role}.{key}": text for key, text in members.items()}
            return f"{role} {label}", {key: text for key, text in own.items() if key in rows}
    return "", {}


def _texts(
    members: dict[str, str], rows: dict[str, FactRow], words: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """The text of each fact, and the layers that it holds for where they are not all."""
    values = {name.rpartition(".")[2]: rows[name].values[0] for name in members}
    for name, text in members.items():
        value, shown = rows[name].values[0], rows[name].texts[0]
        place = ""
        if isinstance(shown, Message) and shown.template.startswith("{value} in "):
            whole, shown = shown, str(shown.values["value"])
            place = whole.removeprefix(f"{shown} ")
        if name in FLAGS:
            yield FLAGS[name][not value], ""
        elif not (name.endswith("kv_heads") and value == values.get("heads")):
            yield text.format(shown, **words), place


def _joined(texts: list[tuple[str, str]]) -> str:
    """Texts in one row. Layers that all of them share are named once."""
    places = {place for _, place in texts}
    if len(places) == 1:
        return "; ".join(part for part in (", ".join(text for text, _ in texts), *places) if part)
    return ", ".join(f"{text} {place}".rstrip() for text, place in texts)
