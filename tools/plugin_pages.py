"""The pages of docs/plugins that are made from the code: hooks.md and parts.md.

python tools/plugin_pages.py        write them anew
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zoo import hookspecs, weights
from zoo.architecture import Block, Preset
from zoo.collecting import HOOKS, RECORDS
from zoo.config import Config
from zoo.registry import core, registry

FOLDER = Path(__file__).parent.parent / "docs" / "plugins"

HOOKS_HEAD = """# Hooks

A plugin implements any of these functions in the module that its entry point names, each marked with
`zoo.architecture.hookimpl`. They return or yield records, frozen dataclasses, which are checked when they are made.
"""

RECORDS_HEAD = """## Records

All of them come from `zoo.architecture`. Give their fields by name: others may join them.
"""

PARTS_HEAD = """# Parts

What recipes, weight rules and configs are made of. Specs come from `zoo.recipe`, everything else from
`zoo.architecture`.

## Specs

A spec is a frozen dataclass; `change(field=value)` gives a copy with some fields changed, and
`change(field=dict(inner=value))` one with a part's fields changed. `Decoder` has `change_layers` besides.
"""

RULES_HEAD = """## Weight rules

A rule moves tensors from the names of a checkpoint to the paths of parameters, and back when a model is saved. In a
pattern `{i}` stands for one dotted step of a name, `*` for the rest of it, and `[model.]` for a prefix that some
checkpoints leave out. Each tensor is taken by the first rule that fits it.
"""

CONFIG_HEAD = """## Config

What a recipe function is given: the values of a `config.json`, asked for by type. Null means absent. Every error names
the key.
"""


def hooks_page() -> str:
    """Every hook with its text, its example and who uses it, and the records that they give."""
    parts = [HOOKS_HEAD]
    for hook in HOOKS:
        function = getattr(hookspecs, hook)
        text, example = told(function)
        users = [p.name for p in registry().plugins if p.ours and p.records.get(hook)]
        parts += [f"## {hook}\n", f"`{hook}{signature(function)}`\n", text, f"```pycon\n{example}\n```\n"]
        parts.append(f"In the zoo itself: {', '.join(users)}.\n")
    parts.append(RECORDS_HEAD)
    for record in (*(kind for kind, _ in RECORDS.values()), Preset):
        parts += [f"### {record.__name__}\n", told(record)[0], fields(record)]
    return "\n".join(parts)


def parts_page() -> str:
    """Every spec, weight rule and getter of the config."""
    parts = [PARTS_HEAD]
    kinds: dict[str, list[Block]] = {}
    for block in core().records["zoo_blocks"]:
        kinds.setdefault(block.spec.kind, []).append(block)
    for kind, blocks in sorted(kinds.items()):
        parts.append(f"### {kind}\n")
        for block in blocks:
            parts += [
                f"`{block.spec.__name__}`: `{block.spec.block()}`\n",
                told(block.spec)[0],
                fields(block.spec),
            ]
    parts.append(RULES_HEAD)
    rules = [rule for rule in vars(weights).values() if is_rule(rule)]
    for rule in rules:
        parts += [f"### {rule.__name__}\n", told(rule)[0], fields(rule)]
    parts.append(CONFIG_HEAD)
    for name, method in vars(Config).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            parts += [f"`config.{name}{signature(method)}`\n", told(method)[0]]
    return "\n".join(parts)


def is_rule(thing: Any) -> bool:
    """Whether this is a weight rule that an author may use."""
    return isinstance(thing, type) and issubclass(thing, weights.Rule) and thing is not weights.Rule


def told(thing: Any) -> tuple[str, str]:
    """The docstring in two: its text, and its examples."""
    text, mark, example = (inspect.getdoc(thing) or "").partition(">>> ")
    return text.rstrip() + "\n", (mark + example).rstrip()


def signature(function: Any) -> str:
    """The arguments and result of a function, as they are written, without `self`."""
    plain = re.sub(
        r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function))
    )  # annotations are kept as text
    return (
        re.sub(r"<object object at \w+>", "REQUIRED", plain).replace("(self, ", "(").replace("(self)", "()")
    )


def fields(record: type) -> str:
    """The fields of a dataclass as a table."""
    rows = [[f"`{f.name}`", f"`{type_of(f)}`", default(f)] for f in dataclasses.fields(record)]
    return table(["Field", "Type", "Default"], rows) if rows else ""


def type_of(field: dataclasses.Field[Any]) -> str:
    """A field's type as it is written."""
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def default(field: dataclasses.Field[Any]) -> str:
    """A field's default, or nothing when it must be given."""
    return "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    # "\\|" is a bar within a cell, also within code, where an entity would be shown as it is written.
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


PAGES = {"hooks.md": hooks_page, "parts.md": parts_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
