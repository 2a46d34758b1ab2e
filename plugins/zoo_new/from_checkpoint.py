"""`zoo new NAME --from FOLDER`: a plugin for a checkpoint, written from the family of the zoo that is nearest to it.

What the checkpoint's files say goes into the code as literals only, so that none of it can become code.
"""

from __future__ import annotations

import keyword
import math
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.config import Config, harmless_keys
from zoo.errors import ZooError
from zoo.host.registry import Registry, default_registry
from zoo.host.resolve import resolve
from zoo.weights import Split
from zoo_new.checkpoint_fit import Fit, SourceCheckpoint, fit, guess, kinds, read_source
from zoo_new.parts import KINDS, BaseParts, Names, ScaffoldError, named, parts_of, refuse_taken
from zoo_new.search_plan import ChangePlan, is_identifier, nearest, nested, without
from zoo_new.write_plugin import free_folder, imports, literal, registered, shown, template_values, write

NEAR = 0.5  # share of parameters and tensors that fit, from which a family is near
# In the names of keys without effect on the logits.
TRAINING = ("dropout", "pdrop", "layerdrop", "init", "loss", "coef", "jitter", "gradient")
SMALL = 3_000_000  # parameters of a model for tests


def create_from(
    name: str,
    folder: Path,
    *,
    base: str | None = None,
    where: Path = Path("."),
    registry: Registry | None = None,
) -> str:
    """Write the plugin `name` for the checkpoint in `folder`, into `where`/`name`; returns a report with what is left to do.

    `base` is the family to write it from, else the nearest. Nothing is written after an error: ScaffoldError for a name or
    a folder that cannot be, ConfigError or CheckpointError for a checkpoint that cannot be read, or by no family.
    """
    registry = registry or default_registry()
    names = named(name)
    target = free_folder(where / name)
    refuse_taken(names, "architecture", registry)
    source = read_source(folder)
    if base is None:
        refuse_known(source, registry)
    found = nearest(source, registry, base)
    plan, best = found[0]
    parts = parts_of(best.architecture.name, registry, None)
    values = values_for(names, parts, source, plan, best)
    files = (
        KINDS["common"] | KINDS["files"]["architecture"] | {"architecture/from.py.jinja": "{m}/__init__.py"}
    )
    write(target, names, files, values, parts)
    with registered(target, names, parts) as new:
        # The base refuses a key: the plugin refuses the checkpoint until its author has handled that key.
        made = best if plan.refused else fit(new.architecture(names.name), source, new)
    return "\n".join(report(target, names, source, made, found, values))


def refuse_known(source: SourceCheckpoint, registry: Registry) -> None:
    """ScaffoldError when an installed architecture can already load the checkpoint."""
    model_type = source.values.get("model_type")
    if not isinstance(model_type, str) or model_type not in registry.model_types:
        return
    try:
        known = resolve(registry, source.values)
        reads = fit(known, source, registry).distance == 0
    except ZooError:
        return
    if reads:
        raise ScaffoldError(
            f"{source.folder}: {known.name} reads it as it is: `zoo run {source.folder}`; "
            f'`base="{known.name}"` writes a variant'
        )


def values_for(
    names: Names, parts: BaseParts, source: SourceCheckpoint, plan: ChangePlan, best: Fit
) -> dict[str, Any]:
    """The values that the templates are rendered with."""
    base = best.architecture.name
    summary = f"{base}, changed to read {printable(source.values.get('model_type'), names.name)}"
    layers = code_of(nested(plan.fields, of_layers=True))
    model = code_of(nested(plan.fields, of_layers=False))
    code = layers + model
    unread = [(key, source.values[key]) for key in best.config.unread()]
    ignored = [pair for pair in unread if any(word in pair[0] for word in TRAINING)]
    off = [pair for pair in unread if not pair[1] and pair not in ignored]
    unknown = [pair for pair in unread if pair not in ignored and pair not in off]
    refused = [(key, _value(source.values, key)) for key in plan.refused]
    todo = list(todo_lines(best))
    used = {type(rule).__name__ for rule in plan.rules} | {"Architecture", "Preset", "hookimpl"}
    specs = [spec for spec in ("JointRMSNorm", "LayerNorm") if f"{spec}(" in code]
    return template_values(names, "architecture", base, parts, None) | {
        "source": source.folder.name,
        "summary": summary,
        "description": summary[0].upper() + summary[1:],
        "model_type": str(source.values.get("model_type") or names.name),
        "records": ", ".join(sorted(used, key=lambda record: (record[0].islower(), record))),
        "specs": imports(specs) if specs else "",
        "ignored": ignored,
        "off": off,
        "unknown": unknown,
        "refused": refused,
        "refused_lines": [line for key, value in refused for line in refused_lines(key, value)],
        "defaults": {key: value.code for key, value in plan.defaults.items()},
        "layer_fields": layers,
        "model_fields": model,
        "uses_layer": "layer." in code,
        "rules": sorted(set(map(rule_code, plan.rules))),
        "todo": todo,
        "todo_lines": wrapped((f"TODO: {line}" for line in todo), 100),
        "unknown_lines": wrapped(unknown_lines(unknown), 95),
        "numbers": tiny_numbers(source, plan, parts),
    }


def printable(value: object, default: str) -> str:
    """`value` if it is a short name that is safe in a docstring, else `default`."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,40}", value, re.ASCII) else default


def rule_code(rule: Any) -> str:
    """A rule as Python code; one rule for the weight and the bias of a matrix."""
    source, target = rule.source, getattr(rule, "target", None)
    for end in (".weight", ".bias"):
        if target and source.endswith(end) and target.endswith(end) and "{e}" not in source:
            source, target = f"{source.removesuffix(end)}.*", f"{target.removesuffix(end)}.*"
    if isinstance(rule, Split):
        parts = ", ".join(map(literal, rule.targets))
        sizes = f", sizes={literal(rule.sizes)}" if rule.sizes else ""
        return f"Split({literal(source)}, ({parts}){sizes})"
    arguments = (source,) if target is None else (source, target)
    return f"{type(rule).__name__}({', '.join(map(literal, arguments))})"


def todo_lines(best: Fit) -> Iterator[str]:
    """One line for each kind of tensor or parameter that does not fit."""
    guessed: set[str] = set()
    for kind, all_names in sorted(kinds(best.left).items()):
        shape, like = best.left[all_names[0]], guess(best, kind)
        guessed.update(like.targets if isinstance(like, Split) else [getattr(like, "target", "")])
        if like is None:
            yield f"{literal(kind)} {shape} has no place in {best.architecture.name}"
        else:
            yield f"a guess by its shape, {shape}: {rule_code(like)}"
    for kind, all_names in sorted(kinds(best.ignored).items()):
        yield (
            f"{literal(kind)} {best.ignored[all_names[0]]} is ignored by {best.architecture.name}; right if it is computed"
        )
    for kind, paths in sorted(kinds(best.missing).items()):
        if kind not in guessed:
            yield f"no tensor fills {literal(kind)} {best.missing[paths[0]]}"
    for kind, paths in sorted(kinds(best.surplus).items()):
        yield f"a tensor is made to {literal(kind)} {best.surplus[paths[0]]}, which the recipe lacks"
    for kind, paths in sorted(kinds(best.wrong).items()):
        wanted, found = best.wrong[paths[0]]
        yield f"the recipe has {literal(kind)} in the shape {wanted}, the checkpoint in {found}"


def key_meanings() -> dict[str, str]:
    """What keys of published configs mean, and the field of the recipe that has it."""
    return tomllib.loads((Path(__file__).parent / "config_keys.toml").read_text("utf-8"))


def unknown_lines(pairs: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """One line for each key that the base does not read, with its value and its meaning where that is known."""
    meanings = key_meanings()
    for key, value in pairs:
        meaning = f", {meanings[key]}" if key in meanings else ""
        yield f"{shown(key)}: {shown(value)}{meaning}"


def refused_lines(key: str, value: object) -> Iterator[str]:
    """A key that the base refuses, with its value, and the line that leaves it out of what the base reads."""
    yield from wrapped(unknown_lines([(key, value)]), 95)
    outer, _, inner = key.partition(".")
    rest = f"dict(config[{literal(outer)}], {inner}=None)" if inner else "None"
    yield f"config = config.replaced({outer}={rest})"


def _value(values: Mapping[str, Any], key: str) -> Any:
    for step in key.split("."):
        values = values[step]
    return values


def wrapped(lines: Iterable[str], width: int) -> list[str]:
    """Lines wrapped at `width`, continuation lines indented."""
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ")]


def code_of(values: Mapping[str, Any], indent: int = 8) -> str:
    """Nested fields as the arguments of `change`, one a line."""
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines.append(f"{' ' * indent}{key}=dict(\n{code_of(value, indent + 4)}\n{' ' * indent}),")
        else:
            lines.append(f"{' ' * indent}{key}={value.code},")
    return "\n".join(lines)


def tiny_numbers(source: SourceCheckpoint, plan: ChangePlan, parts: BaseParts) -> dict[str, Any]:
    """The numbers of a small model: the checkpoint's where it is small, else with sizes of the base's small model."""
    config, architecture = Config(source.values, tensors=source.tensors.arrays), plan.applied()
    for key in plan.refused:
        config = without(config, key)
    architecture.recipe_of(config)
    own = {
        key: value
        for key, value in config.items()
        if is_identifier(key)
        and not keyword.iskeyword(key)
        and is_plain(value)
        and (key not in harmless_keys() or config.was_read(key))
    }
    sized = {
        key: parts.numbers[key] if type(value) is int and type(parts.numbers.get(key)) is int else value
        for key, value in own.items()
    }
    for numbers in (own, sized, {**parts.numbers, **sized}, {**sized, **parts.numbers}, dict(parts.numbers)):
        try:
            recipe = architecture.recipe_of(Config(numbers))
            if recipe.parameters(recipe.dim) <= SMALL:
                return numbers
        except ZooError:
            continue
    raise ScaffoldError(
        f"{source.folder}: no small model can be made of its config.json and the base's numbers"
    )


def is_plain(value: object) -> bool:
    """Whether a JSON value is not null and has the same form in Python code."""
    if isinstance(value, dict | list):
        return all(map(is_plain, value.values() if isinstance(value, dict) else value))
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def report(
    target: Path,
    names: Names,
    source: SourceCheckpoint,
    made: Fit,
    found: list[tuple[ChangePlan, Fit]],
    values: Mapping[str, Any],
) -> Iterator[str]:
    """What was written and what is left to do."""
    family = values["base"]
    fitting = len(kinds(made.wanted)) - len(kinds(made.wrong)) - len(kinds(made.missing))
    tensors = f"{fitting} of {len(kinds(made.wanted))} kinds of parameters have their tensors"
    others = [other.architecture.name for _, other in found[1:3]]
    near = f"; next {', '.join(others)}" if others else ""
    yield f"{target}: written, from the family {family}: {tensors}{near}"
    if made.share < NEAR:
        yield f"  No family of the zoo is near {source.folder}: most of the recipe is yours to write."
    code = target / names.module / "__init__.py"
    left = len(values["todo"]) + len(values["unknown"]) + len(values["refused"])
    if left:
        yield f"  Left to do, marked TODO in {code}:"
        yield from (f"    {line}" for line in values["todo"])
        for line in unknown_lines(values["unknown"]):
            yield f"    {family} does not read {line}"
        for line in unknown_lines(values["refused"]):
            yield f"    {family} refuses {line}"
    else:
        yield f"  Every tensor has its parameter and every key is read. Look at {code}:"
        yield "    names and shapes do not tell everything that a model computes."
    yield f"  Then: pip install -e {target} && zoo test {names.name}"
    yield f"  Compare the logits with another implementation's: zoo test {source.folder} --reference reference.npz"
