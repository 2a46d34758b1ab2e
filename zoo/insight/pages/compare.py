"""The page that compares models: diagrams, facts that follow a context and a format, differences. Imports no mlx."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from zoo.checkpoint.packings import AFFINE_BITS, FLOAT_MODES, ROUTER_BITS, ROUTER_GROUP
from zoo.facts import Described, Row, Sheet
from zoo.facts import compare as compared
from zoo.facts.flops import decode_flops, prefill_flops
from zoo.facts.memory import STATE_BYTES
from zoo.facts.sheet import format_label
from zoo.facts.stacks import is_opaque
from zoo.facts.weights import FLOATS, format_of
from zoo.facts.words import differences
from zoo.insight.diagram import Diagram
from zoo.insight.diagram.svg import to_svgs
from zoo.insight.pages.page import page

LONGEST = 2**20  # tokens that the slider reaches where a model has no bound
FAR = 2**31  # a text beyond every window
CONTEXT_LINES = 2  # lines of a recipe around a difference

# The facts that a box is about, by its role; "norm" is also that of the layers' boxes.
ABOUT = {
    "input": ("context",),
    "embedding": ("vocabulary", "width", "positions", "tied"),
    "attention": (
        *("mixer", "heads", "kv_heads", "head_width", "window", "latent", "state", "positions", "causality"),
        *("cache.token", "cache.context", "cache.state"),
    ),
    "cross": ("heads", "kv_heads", "head_width"),
    "feedforward": ("feedforward", "hidden", "experts", "experts_used", "expert_width", "shared_width"),
    "norm": ("norm", "placement"),
    "frame": ("layers",),
    "head": ("tied", "vocabulary"),
}


def compare_page(found: Sequence[Described], sheets: Sequence[Sheet], diagrams: Sequence[Diagram]) -> str:
    """One HTML file that compares models: what each is, its sheet, and its diagram, with differences marked."""
    titles = [sheet.title for sheet in sheets]
    numbers = [sheet.numbers for sheet in sheets]
    rows = [row for row in compared(sheets) if not (row.detail or row.empty or row.name == "fits")]
    pictures = [
        {"title": diagram.name, "svg": svg, "stacks": len(diagram.stacks)}
        for diagram, svg in zip(diagrams, to_svgs(diagrams, ident="diagram"), strict=True)
    ]
    longest = max([one.recipe.context or LONGEST for one in found], default=LONGEST)
    context, quantize = (numbers[0]["context"], numbers[0]["quantize"]) if numbers else (4096, "bfloat16")
    words = [
        {"title": title, "sentences": differences(found[0].recipe, one.recipe)}
        for title, one in zip(titles[1:], found[1:], strict=True)
    ]
    changes = [
        {"title": title, "lines": recipe_lines(found[0].recipe, one.recipe, titles[0], title)}
        for title, one in zip(titles[1:], found[1:], strict=True)
    ]
    formats = [*FLOATS, *map(str, reversed(AFFINE_BITS[1:])), *FLOAT_MODES]
    data = {
        "models": [
            {**own, "flops": flops_points(one.recipe)} for own, one in zip(numbers, found, strict=True)
        ],
        "formats": {name: _format(name) for name in formats},
        "router": {"bits": ROUTER_BITS, "group": ROUTER_GROUP, "scale_bytes": 4},
        "state_bytes": STATE_BYTES,
        "about": ABOUT,
        "longest": longest,
    }
    return page(
        "compare.html",
        ("page.js", "compare.js"),
        ("page.css",),
        data=data,
        title=" and ".join(titles),
        titles=titles,
        pictures=pictures,
        rows=[_row(row) for row in rows],
        words=words,
        changes=changes,
        formats=[(name, format_label(name)) for name in formats],
        policies=list(numbers[0]["cache_bytes"]) if numbers else [],
        context=context,
        quantize=quantize,
        steps=max(longest - 1, 1).bit_length(),
    )


def _format(name: str) -> dict[str, Any]:
    chosen = format_of(name)
    return {"bits": chosen.bits, "group": chosen.group, "scale_bytes": chosen.scale_bytes}


def _row(row: Row) -> dict[str, Any]:
    role, _, key = row.name.partition(".")
    return {
        "name": row.name,
        "key": key if role in ("decoder", "encoder") else row.name,
        "role": role if role in ("decoder", "encoder") else "",
        "label": row.label,
        "texts": row.texts,
        "differs": row.differs,
    }


def flops_points(recipe: Any) -> dict[str, Any]:
    """The numbers from which a page computes FLOPs a token for any number of tokens.

    `decode` and `prefill` are points (tokens seen, FLOPs) between which the count is linear: at 1, at every window, and
    far beyond. `decode` is None where no text is written, both are None where they are not known. `sums`: a text is read with
    each token seeing those before it, so that the average over them is asked for; `head` is then left out of all but the
    last.
    """
    if is_opaque(recipe):
        return {"decode": None, "prefill": None, "head": 0, "sums": False}
    windows = {part.attention_window for _, part in recipe.walk()} - {None}
    tokens = sorted({1, *windows, FAR})
    decode = None if decode_flops(recipe, 1) is None else [[n, decode_flops(recipe, n)] for n in tokens]
    prefill, head = None, 0
    if prefill_flops(recipe, 1) is not None:
        prefill = [[n, recipe.flops(recipe.dim, n, True)] for n in tokens]
        if recipe.task == "generate":
            head = recipe.head.flops(recipe.dim, 1, True)
    sums = recipe.task == "generate" and recipe.causality == "causal"
    return {"decode": decode, "prefill": prefill, "head": head, "sums": sums}


def recipe_lines(base: Any, other: Any, base_name: str, name: str) -> list[tuple[str, str]]:
    """The lines of two recipes in JSON that differ, with some around them: pairs of "+", "-", "@" or " " and a line."""
    before, after = (
        json.dumps(one.to_json(), ensure_ascii=False, indent=1).splitlines() for one in (base, other)
    )
    found = difflib.unified_diff(before, after, base_name, name, n=CONTEXT_LINES, lineterm="")
    return [("@" if line.startswith("@@") else line[0], line) for line in list(found)[2:]]
