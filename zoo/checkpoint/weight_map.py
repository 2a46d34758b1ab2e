"""Which tensors of a checkpoint each parameter is read from: the weight rules, and the map that they make."""

from __future__ import annotations

import re
from collections import Counter, UserDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zoo.architecture import Architecture
from zoo.errors import RecipeError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry
from zoo.recipe import Model, Spec
from zoo.weights import Rule


@frozen()
class Pair(Frozen):
    """Tensors of a checkpoint and the parameters that they become, numbers of layers and experts as {i}."""

    tensors: tuple[str, ...]
    parameters: tuple[str, ...]


def weight_names(architecture: Architecture, recipe: Model, registry: Registry) -> dict[str, list[Pair]]:
    """The pairs of each published layout, "hf" and "mlx"; one layout where both are the same.

    The rules that save a model of the recipe run on its parameters, which are not evaluated. Of equal layers there are two:
    {i} stands for the numbers of all.
    """
    from mlx.utils import tree_flatten

    from zoo.assemble import assemble

    recipe = _fewer_layers(recipe)
    parameters = dict(tree_flatten(assemble(recipe, registry).parameters()))
    found = {layout: _pairs(rules, parameters, recipe) for layout, rules in architecture.layouts.items()}
    if found["hf"] == found["mlx"]:
        del found["mlx"]
    return found


def _fewer_layers(recipe: Model) -> Model:
    """The recipe with the first two of equal layers in each stack; the whole one where it may not have fewer."""
    changes: dict[str, Any] = {}
    for name, value in recipe.parts():
        if isinstance(value, Model):
            changes[name] = _fewer_layers(value)
        elif name == "layers" and isinstance(value, tuple):
            times = Counter[Spec]()
            kept = []
            for layer in value:
                times[layer] += 1
                if times[layer] <= 2:
                    kept.append(layer)
            changes[name] = tuple(kept)
    try:
        return recipe.change(**changes)
    except RecipeError:  # a plugin's model may ask for so many
        return recipe


@frozen()
class RuleEntry(Frozen):
    """One weight rule: what it is, the pattern of its tensors, and those of the parameters that they become.

    `rule` is the name of its class with the other values that it was given: "Split(transpose=True)". A rule that holds
    others, such as those of one block, stands before the name of each: "OfBlock(spec=GatedDeltaNet): Split".
    """

    rule: str
    source: str
    targets: tuple[str, ...]


def weight_rules(architecture: Architecture) -> dict[str, list[RuleEntry]]:
    """The rules of each layout that the architecture reads, "hf", "mlx" where it differs, and "gguf", in their order.

    Equal rules are listed once.
    """
    layouts = architecture.layouts | architecture.layouts_of("gguf")
    found = {
        layout: list(dict.fromkeys(entry for rule in rules for entry in _entries(rule)))
        for layout, rules in layouts.items()
        if rules
    }
    if found.get("mlx") == found.get("hf"):
        found.pop("mlx", None)
    return found


def _entries(rule: Rule) -> Iterator[RuleEntry]:
    # A plugin's rule without fields need not be a dataclass.
    fields = getattr(rule, "__dataclass_fields__", {})
    shown = [field for field in fields.values() if field.repr]
    values = {field.name: getattr(rule, field.name) for field in shown}
    defaults = {field.name: field.default for field in shown}
    source, target = values.pop("source", ""), values.pop("target", None)
    targets = values.pop("targets", ()) if target is None else (target,)
    held = [one for value in values.values() for one in _rules_in(value)]
    others = (
        f"{name}={value.__name__ if isinstance(value, type) else repr(value)}"
        for name, value in values.items()
        if value != defaults[name] and not _rules_in(value)
    )
    name = type(rule).__name__
    name = f"{name}({given})" if (given := ", ".join(others)) else name
    for one in held:
        for entry in _entries(one):
            yield RuleEntry(f"{name}: {entry.rule}", entry.source, entry.targets)
    if not held:
        yield RuleEntry(name, source, targets)


def _rules_in(value: object) -> list[Rule]:
    return [one for one in value if isinstance(one, Rule)] if isinstance(value, tuple | list) else []


def fused(rules: Sequence[Rule], paths: Iterable[str]) -> list[list[str]]:
    """The groups of parameters that one fused tensor holds, one list a tensor."""
    found: dict[str, list[str]] = {}
    for path in paths:
        names = (rule.holder(path) for rule in rules)
        if (name := next(filter(None, names), None)) is not None:
            found.setdefault(name, []).append(path)
    return list(found.values())


class _LoggedTensors(UserDict[str, Any]):
    """Tensors by name. Each name that is removed ("taken") or set ("given") is added to the log of its kind."""

    def __init__(self, values: dict[str, Any], kind: str, log: list[tuple[str, str]]) -> None:
        self.data = dict(values)
        self.kind, self.log = kind, log

    def __delitem__(self, name: str) -> None:
        if self.kind == "taken":
            self.log.append((self.kind, name))
        super().__delitem__(name)

    def __setitem__(self, name: str, value: object) -> None:
        if self.kind == "given":
            self.log.append((self.kind, name))
        super().__setitem__(name, value)

    def __ior__(self, values: Any) -> _LoggedTensors:  # type: ignore[override, misc]
        self.update(values)
        return self


def _pairs(rules: Iterable[Rule], parameters: dict[str, Any], recipe: Model) -> list[Pair]:
    """The pairs of some rules: what each takes from `parameters` until it takes again after it gave tensors."""
    from zoo.checkpoint.parameters import join

    log: list[tuple[str, str]] = []
    source: Any = _LoggedTensors(parameters, "taken", log)
    target: Any = _LoggedTensors({}, "given", log)
    pairs: dict[Pair, None] = {}
    for rule in rules:
        log.clear()
        rule.backward(source, target, recipe, join)
        taken: list[str] = []
        given: list[str] = []
        for kind, name in (*log, ("taken", "")):  # the last entry ends the last pair
            if kind == "taken" and given and taken:
                pairs[Pair(_patterns(given), _patterns(taken))] = None
                taken, given = [], []
            (taken if kind == "taken" else given).append(name)
    return list(pairs)


def _patterns(names: Iterable[str]) -> tuple[str, ...]:
    """The names with {i} for each number, without repetition."""
    return tuple(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "{i}", name) for name in names))
