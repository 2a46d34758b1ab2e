"""Which tensors of a checkpoint each parameter is read from: the weight rules, and the map that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zoo.architecture import Architecture
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry
from zoo.weights import Rule


@frozen()
class Pair(Frozen):
    """Tensors of a checkpoint and the parameters that they become, numbers of layers and experts as {i}."""

    tensors: tuple[str, ...]
    parameters: tuple[str, ...]


def weight_names(architecture: Architecture, recipe: Any, registry: Registry) -> dict[str, list[Pair]]:
    """The pairs of each published layout, "hf" and "mlx"; one layout where both are the same.

    The model is made, unevaluated, and the rules that save it are watched.
    """
    from mlx.utils import tree_flatten

    from zoo.assemble import assemble

    parameters = dict(tree_flatten(assemble(recipe, registry).parameters()))
    found = {layout: _watched(rules, parameters, recipe) for layout, rules in architecture.layouts.items()}
    if found["hf"] == found["mlx"]:
        del found["mlx"]
    return found


@frozen()
class RuleEntry(Frozen):
    """One weight rule: what it is, the pattern of its tensors, and those of the parameters that they become.

    `rule` is the name of its class with the other values that it was given: "Split(transpose=True)".
    """

    rule: str
    source: str
    targets: tuple[str, ...]


def weight_rules(architecture: Architecture) -> dict[str, list[RuleEntry]]:
    """The rules of each layout that the architecture reads, "hf", "mlx" where it differs, and "gguf", in their order.

    Equal rules are listed once.
    """
    layouts = architecture.layouts | architecture.layouts_of("gguf")
    found = {layout: list(dict.fromkeys(map(_entry, rules))) for layout, rules in layouts.items() if rules}
    if found.get("mlx") == found.get("hf"):
        found.pop("mlx", None)
    return found


def _entry(rule: Rule) -> RuleEntry:
    # A plugin's rule without fields need not be a dataclass.
    fields = getattr(rule, "__dataclass_fields__", {})
    shown = [field for field in fields.values() if field.repr]
    values = {field.name: getattr(rule, field.name) for field in shown}
    defaults = {field.name: field.default for field in shown}
    source, target = values.pop("source", ""), values.pop("target", None)
    targets = values.pop("targets", ()) if target is None else (target,)
    others = (f"{name}={value!r}" for name, value in values.items() if value != defaults[name])
    name = type(rule).__name__
    return RuleEntry(f"{name}({given})" if (given := ", ".join(others)) else name, source, targets)


class _Events(dict[str, Any]):
    """A dict that notes in a list which names are taken out of it, or put into it."""

    def __init__(self, values: dict[str, Any], kind: str, events: list[tuple[str, str]]) -> None:
        super().__init__(values)
        self._kind, self._events = kind, events

    def pop(self, name: str, *default: Any) -> Any:
        if self._kind == "taken" and name in self:
            self._events.append((self._kind, name))
        return super().pop(name, *default)

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def update(self, values: Mapping[str, Any]) -> None:  # type: ignore[override]
        for name, value in values.items():
            self[name] = value

    def __ior__(self, values: Mapping[str, Any]) -> _Events:  # type: ignore[override, misc]
        self.update(values)
        return self

    def __setitem__(self, name: str, value: Any) -> None:
        if self._kind == "given":
            self._events.append((self._kind, name))
        super().__setitem__(name, value)


def _watched(rules: Iterable[Any], parameters: dict[str, Any], recipe: Any) -> list[Pair]:
    from zoo.checkpoint.parameters import join

    events: list[tuple[str, str]] = []
    source, target = _Events(parameters, "taken", events), _Events({}, "given", events)
    pairs: dict[Pair, None] = {}
    for rule in rules:
        events.clear()
        rule.backward(source, target, recipe, join)
        taken: list[str] = []
        given: list[str] = []
        for kind, name in events:
            if kind == "taken" and given and taken:
                pairs[_pair(given, taken)] = None
                taken, given = [], []
            (taken if kind == "taken" else given).append(name)
        if given and taken:
            pairs[_pair(given, taken)] = None
    return list(pairs)


def _pair(tensors: list[str], parameters: list[str]) -> Pair:
    plain = (
        tuple(dict.fromkeys(_without_numbers(name) for name in names)) for names in (tensors, parameters)
    )
    return Pair(*plain)


def _without_numbers(name: str) -> str:
    return ".".join("{i}" if step.isdigit() else step for step in name.split("."))
