"""Searches the changes that make an architecture fit a checkpoint; each change must improve the fit.

A change is of config defaults, of recipe fields, or weight rules before the base's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from zoo.architecture import Architecture
from zoo.config import Config
from zoo.host.registry import Registry
from zoo.recipe import JointRMSNorm, LayerNorm, RMSNorm, Spec
from zoo.weights import Rule
from zoo_new.checkpoint_fit import Fit, SourceCheckpoint, certain_rules, fit, kinds, prefix_rules
from zoo_new.plugin_names import ScaffoldError


@dataclass(frozen=True)
class CodeValue:
    """A value as Python code, and the function that computes it from the config and the base's recipe."""

    code: str
    of: Callable[[Config, Any], Any]

    @staticmethod
    def literal(value: Any) -> CodeValue:
        """A constant."""
        return CodeValue(repr(value), lambda config, recipe: value)

    @staticmethod
    def count(key: str) -> CodeValue:
        """A whole number of the config."""
        return CodeValue(f'config.count("{key}")', lambda config, recipe: config.count(key))

    @staticmethod
    def flag(key: str) -> CodeValue:
        """A flag of the config."""
        return CodeValue(f'config.flag("{key}", False)', lambda config, recipe: config.flag(key, False))

    @staticmethod
    def same_norm() -> CodeValue:
        """The norm that the base has before its mixer."""
        return CodeValue("layer.mixer_norm", lambda config, recipe: recipe.layers[0].mixer_norm)

    @staticmethod
    def joint_norm(heads: str) -> CodeValue:
        """An RMSNorm over all heads; `heads` is the field of attention that counts them."""

        def of(config: Config, recipe: Any) -> Spec:
            layer = recipe.layers[0]
            return JointRMSNorm(heads=getattr(layer.mixer, heads), eps=layer.mixer_norm.eps)

        return CodeValue(f"JointRMSNorm(heads=layer.mixer.{heads}, eps=layer.mixer_norm.eps)", of)

    @staticmethod
    def layer_norm(key: str | None) -> CodeValue:
        """A LayerNorm, whose epsilon is the config's `key`, else the base's."""
        if key is None:
            eps = CodeValue("layer.mixer_norm.eps", lambda config, recipe: recipe.layers[0].mixer_norm.eps)
        else:
            eps = CodeValue(f'config.number("{key}")', lambda config, recipe: config.number(key))
        return CodeValue(f"LayerNorm(eps={eps.code})", lambda *given: LayerNorm(eps=eps.of(*given)))


@dataclass(frozen=True)
class ChangePlan:
    """The changes. `fields` are of every layer where their path begins with "layers": "layers.mixer.query_norm"."""

    defaults: Mapping[str, CodeValue] = field(default_factory=dict)
    fields: Mapping[str, CodeValue] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    @property
    def size(self) -> int:
        """How many changes it has."""
        return len(self.defaults) + len(self.fields) + len(self.rules)

    def extended(
        self,
        defaults: Mapping[str, CodeValue] | None = None,
        fields: Mapping[str, CodeValue] | None = None,
        rules: tuple[Rule, ...] = (),
    ) -> ChangePlan:
        """A copy with more changes."""
        return ChangePlan(
            {**self.defaults, **(defaults or {})}, {**self.fields, **(fields or {})}, (*self.rules, *rules)
        )

    def applied(self, base: Architecture) -> Architecture:
        """The base with these changes."""

        def recipe(config: Config) -> Any:
            if self.defaults:
                given = {key: value.of(config, None) for key, value in self.defaults.items()}
                config = config.with_defaults(**given)
            made = base.recipe_of(config)
            values = {path: value.of(config, made) for path, value in self.fields.items()}
            layers = values_of(values, of_layers=True)
            made = made.change_layers(**nested(layers)) if layers else made
            return made.change(**nested(values_of(values, of_layers=False)))

        return replace(base, recipe=recipe, weights=(*self.rules, *base.weights))


def values_of(values: Mapping[str, Any], of_layers: bool) -> dict[str, Any]:
    """The values of fields of layers, by the path in a layer, or the others."""
    return {
        path.removeprefix("layers."): value
        for path, value in values.items()
        if path.startswith("layers.") == of_layers
    }


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted path as dicts in dicts: {"mixer.bias": True} -> {"mixer": {"bias": True}}."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        *steps, last = path.split(".")
        inner = found
        for step in steps:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return found


MOST = 40  # changes of one plan
REPAIRED = 4  # families, the nearest ones, that are changed to fit


def nearest(
    source: SourceCheckpoint, registry: Registry, base: str | None = None
) -> list[tuple[ChangePlan, Fit]]:
    """The families that can read the config, each with the plan by which it fits best, the nearest first.

    `base` names the only family that is tried. ZooError when none can read the config.
    """
    if base is not None:
        architecture = registry.architecture(base)
        if architecture not in families(registry):
            raise ScaffoldError(f'`base="{base}"`: it has no pocket or tiny preset, or is another library\'s')
        plan, best = _renamed(architecture, fit(architecture, source, registry), source, registry)
        return [improved(architecture, plan, best, source, registry)]
    found = []
    for architecture in families(registry):
        plain = _tried(architecture, ChangePlan(), source, registry)
        if plain is not None:
            found.append((architecture, *_renamed(architecture, plain, source, registry)))
    if not found:
        raise ScaffoldError(
            f"{source.folder}: no family of the zoo can read its config.json; `base` says why one cannot"
        )
    found.sort(key=lambda item: item[2].rank_after(item[1].size))
    better = [
        improved(architecture, plan, best, source, registry) for architecture, plan, best in found[:REPAIRED]
    ]
    return sorted(better, key=lambda pair: pair[1].rank_after(pair[0].size))


def families(registry: Registry) -> list[Architecture]:
    """The architectures that a plugin can be written from: those with a preset of a small model."""
    return [
        architecture
        for architecture in registry.architectures.values()
        if architecture.preset("pocket") or architecture.preset("tiny")
    ]


def _renamed(
    architecture: Architecture, plain: Fit, source: SourceCheckpoint, registry: Registry
) -> tuple[ChangePlan, Fit]:
    """The fit with rules for tensors whose names differ from the family's only in a prefix, if that is better."""
    plan = ChangePlan(rules=prefix_rules(plain))
    better = _tried(architecture, plan, source, registry) if plan.rules else None
    return (
        (plan, better) if better is not None and better.distance < plain.distance else (ChangePlan(), plain)
    )


def improved(
    base: Architecture, plan: ChangePlan, best: Fit, source: SourceCheckpoint, registry: Registry
) -> tuple[ChangePlan, Fit]:
    """The plan with every change that improves the fit, and the resulting fit."""
    for _ in range(MOST):
        for candidate in candidates(plan, best):
            trial = _tried(base, candidate, source, registry)
            if trial is not None and trial.distance < best.distance:
                plan, best = candidate, trial
                break
        else:
            break
    return plan, best


def _tried(base: Architecture, plan: ChangePlan, source: SourceCheckpoint, registry: Registry) -> Fit | None:
    """The fit of the plan; None when the family's code fails on the config."""
    try:
        return fit(plan.applied(base), source, registry)
    except Exception:
        return None


def candidates(plan: ChangePlan, best: Fit) -> Iterator[ChangePlan]:
    """The plan with one more change, for each change that may improve the fit."""
    for key, value in _defaults(best):
        if key not in plan.defaults:
            yield plan.extended(defaults={key: value})
    for fields in _fields(best):
        if not fields.keys() <= plan.fields.keys():
            yield plan.extended(fields=fields)
    if rules := certain_rules(best):
        yield plan.extended(rules=rules)


def _defaults(best: Fit) -> Iterator[tuple[str, CodeValue]]:
    """Keys that the config lacks and whose default gives a parameter the wrong size, each with the right value."""
    for key, default in best.config.defaults().items():
        if isinstance(default, bool) or not isinstance(default, int) or not key.isidentifier():
            continue
        sizes = {
            found
            for wanted, shape in best.wrong.values()
            for side, found in zip(wanted, shape, strict=False)
            if side == default != found
        }
        for size in sorted(sizes):
            keys = [
                name
                for name, value in best.values.items()
                if type(value) is int and value == size and name.isidentifier()
            ]
            keys.sort(key=lambda name: -SequenceMatcher(None, name, key).ratio())
            yield key, CodeValue.count(keys[0]) if keys else CodeValue.literal(size)


def _fields(best: Fit) -> Iterator[dict[str, CodeValue]]:
    """Changes of recipe fields that may fit: flags turned, norms added, norms of another kind."""
    flags: dict[str, CodeValue] = {}
    added: dict[str, CodeValue] = {}
    joint: dict[str, CodeValue] = {}
    biased: dict[str, CodeValue] = {}
    for side, paths in (("surplus", best.surplus), ("missing", best.missing), ("wrong", best.wrong)):
        for path in (names[0] for names in kinds(paths).values()):
            where, spec, rest = locate(best.recipe, path)
            for name in _flags(spec, turned=side == "surplus") if side != "wrong" else ():
                flags[_joined(where, name)] = _flag(best, side == "surplus")
            step = _joined(where, rest.partition(".")[0])
            if side == "surplus" and getattr(spec, rest.partition(".")[0], "") is None:
                added[step] = CodeValue.same_norm()
                joint[step] = _joint(step)
            if side == "surplus" and isinstance(spec, RMSNorm) and rest == "bias":
                biased[where] = CodeValue.layer_norm(_epsilon(best))
            if side == "wrong" and isinstance(spec, RMSNorm) and where.startswith("layers.mixer."):
                joint[where] = _joint(where)
    yield from filter(None, (added, joint, biased))
    yield from ({path: value} for path, value in flags.items())


def locate(recipe: Any, path: str) -> tuple[str, Any, str]:
    """The innermost spec on a parameter's path: its own path, without layers' numbers, itself, and the rest."""
    steps, here, passed = path.split("."), recipe, []
    spec, where, rest = recipe, "", path
    for index, step in enumerate(steps):
        here = here[int(step)] if isinstance(here, tuple) else getattr(here, step, None)
        if not step.isdecimal():
            passed.append(step)
        if not isinstance(here, Spec | tuple):
            break
        if isinstance(here, Spec):
            spec, where, rest = here, ".".join(passed), ".".join(steps[index + 1 :])
    for side in ("encoder.", "decoder."):  # layers of both sides are changed alike
        where = where.removeprefix(side) if where.startswith(f"{side}layers.") else where
    return where, spec, rest


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _flags(spec: Any, turned: bool) -> Iterator[str]:
    """The flags of a spec that are off, when `turned` on is wanted, or on."""
    for item in dataclasses.fields(spec):
        if item.init and getattr(spec, item.name) is (not turned):
            yield item.name


def _flag(best: Fit, value: bool) -> CodeValue:
    """A flag's value: from an unread key of the config about biases that has this value, else a constant."""
    keys = (key for key in best.config.unread() if "bias" in key and best.values[key] is value)
    key = next((key for key in keys if key.isidentifier()), None)
    return CodeValue.flag(key) if key and value else CodeValue.literal(value)


def _joint(path: str) -> CodeValue:
    return CodeValue.joint_norm("kv_heads" if path.endswith("key_norm") else "heads")


def _epsilon(best: Fit) -> str | None:
    """The config's key of the norm's epsilon."""
    keys = [key for key in best.config if key.isidentifier() and key.endswith(("eps", "epsilon"))]
    return keys[0] if keys else None
