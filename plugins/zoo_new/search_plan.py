"""Searches the changes that make an architecture fit a checkpoint; each change must improve the fit.

A change is of config defaults, of recipe fields, or weight rules before the base's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from difflib import SequenceMatcher
from operator import attrgetter
from typing import Any

from zoo.architecture import Architecture
from zoo.config import Config
from zoo.errors import ConfigError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry
from zoo.recipe import JointRMSNorm, LayerNorm, RMSNorm, Spec
from zoo.weights import Rule
from zoo_new.checkpoint_fit import Fit, SourceCheckpoint, certain_rules, fit, kinds, prefix_rules
from zoo_new.parts import ScaffoldError

MOST = 40  # changes of one plan
REPAIRED = 6  # families, the nearest ones, that are changed to fit


@frozen()
class Expression(Frozen):
    """A value of the new plugin: its `code`, and `compute`, which gives the same of a config and the base's recipe.

    The code has whole numbers of the checkpoint, and keys that are ASCII identifiers, in quotes; nothing else of a
    checkpoint gets into it.
    """

    code: str
    compute: Callable[[Config, Any], Any]


def constant(value: bool | int) -> Expression:
    """The code of a flag or a number."""
    return Expression(repr(value), lambda config, recipe: value)


def config_value(getter: str, key: str, *default: bool) -> Expression:
    """What a getter of the config gives for a key: `config.count("width")`."""
    arguments = ", ".join((f'"{key}"', *map(repr, default)))
    return Expression(
        f"config.{getter}({arguments})", lambda config, recipe: getattr(config, getter)(key, *default)
    )


def of_layer(path: str) -> Expression:
    """A field of the first layer of the base's recipe: `layer.mixer_norm.eps`."""
    return Expression(f"layer.{path}", lambda config, recipe: attrgetter(path)(recipe.layers[0]))


def norm_of(spec: type[Spec], **fields: Expression) -> Expression:
    """A norm with these fields: `LayerNorm(eps=layer.mixer_norm.eps)`."""
    arguments = ", ".join(f"{name}={field.code}" for name, field in fields.items())
    return Expression(
        f"{spec.__name__}({arguments})",
        lambda config, recipe: spec(
            **{name: field.compute(config, recipe) for name, field in fields.items()}
        ),
    )


@frozen()
class ChangePlan(Frozen):
    """Changes to the family `base`: its config's defaults, its recipe's fields, and rules before its own.

    The base does not see the keys that it `refused`, "rope_parameters.factor" for one in an object. `fields` are of every
    layer where their path begins with "layers": "layers.mixer.query_norm".
    """

    base: Architecture
    defaults: Mapping[str, Expression] = field(default_factory=dict)
    fields: Mapping[str, Expression] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    refused: tuple[str, ...] = ()

    def applied(self) -> Architecture:
        """The base with these changes."""

        def recipe(config: Config) -> Any:
            for key in self.refused:
                config = without(config, key)
            if self.defaults:
                defaults = {key: value.compute(config, None) for key, value in self.defaults.items()}
                config = config.with_defaults(**defaults)
            base = self.base.recipe_of(config)
            values = {path: value.compute(config, base) for path, value in self.fields.items()}
            layers = nested(values, of_layers=True)
            changed = base.change_layers(**layers) if layers else base
            return changed.change(**nested(values, of_layers=False))

        return replace(self.base, recipe=recipe, weights=(*self.rules, *self.base.weights))


def without(config: Config, key: str) -> Config:
    """The config without a key, or without a key of an object in it."""
    outer, _, inner = key.partition(".")
    held = config.get(outer) if inner else None
    left = {name: value for name, value in held.items() if name != inner} if held else None
    return config.replaced(**{outer: left})


Trial = Callable[[ChangePlan], Fit | None]  # a plan's fit, None when the family's code fails on the config


def nested(values: Mapping[str, Any], of_layers: bool) -> dict[str, Any]:
    """Values by dotted path as dicts in dicts, {"mixer.bias": True} -> {"mixer": {"bias": True}}: of layers, or the others."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        if path.startswith("layers.") == of_layers:
            *steps, last = path.removeprefix("layers.").split(".")
            inner = found
            for step in steps:
                inner = inner.setdefault(step, {})
            inner[last] = value
    return found


def nearest(
    source: SourceCheckpoint, registry: Registry, base: str | None = None
) -> list[tuple[ChangePlan, Fit]]:
    """The families that can read the config, each with the plan by which it fits best, the nearest first.

    `base` names the only family that is tried. ZooError when none can read the config.
    """

    def tried(plan: ChangePlan) -> Fit | None:
        """The fit of the plan; None when the family's code fails on the config."""
        try:
            return fit(plan.applied(), source, registry)
        except Exception:
            return None

    if base is not None:
        architecture = registry.architecture(base)
        if architecture not in families(registry):
            raise ScaffoldError(f'`base="{base}"`: it has no pocket or tiny preset, or is another library\'s')
        plain = _plan_of(architecture, source)
        return [improved(*_renamed(plain, fit(plain.applied(), source, registry), tried), tried)]
    plans = (_plan_of(family, source) for family in families(registry))
    readable = [(plan, best) for plan in plans if (best := tried(plan)) is not None]
    if not readable:
        raise ScaffoldError(
            f"{source.folder}: no family of the zoo can read its config.json; `base` says why one cannot"
        )
    found = sorted((_renamed(*pair, tried) for pair in readable), key=_rank)
    return sorted((improved(*pair, tried) for pair in found[:REPAIRED]), key=_rank)


def _plan_of(family: Architecture, source: SourceCheckpoint) -> ChangePlan:
    """The plan without changes. It leaves out keys whose values the family refuses, if it can read the rest of the config."""
    plan = ChangePlan(family)
    for _ in range(MOST):
        try:
            plan.applied().recipe_of(Config(source.values, tensors=source.tensors.arrays))
        except ConfigError as error:
            steps = error.key.split(".")
            if error.key in plan.refused or len(steps) > 2 or not all(map(is_identifier, steps)):
                break
            plan = replace(plan, refused=(*plan.refused, error.key))
        except Exception:  # the family's code fails on the config
            break
        else:
            return plan
    return ChangePlan(family)


def _rank(pair: tuple[ChangePlan, Fit]) -> tuple[float, ...]:
    """Sort key of plans and their fits, the nearest first."""
    plan, best = pair
    odd = (
        len(plan.refused)
        + len(best.config.unread())
        + len(plan.defaults)
        + len(plan.fields)
        + len(plan.rules)
    )
    return -best.share, len(kinds(best.ignored)), odd, len(best.config.defaults())


def families(registry: Registry) -> list[Architecture]:
    """The architectures that a plugin can be written from: those with a preset of a small model, and no head of labels."""
    return [
        architecture
        for architecture in registry.architectures.values()
        if architecture.task != "classify" and (architecture.preset("pocket") or architecture.preset("tiny"))
    ]


def _renamed(plan: ChangePlan, plain: Fit, tried: Trial) -> tuple[ChangePlan, Fit]:
    """The fit with rules for tensors whose names differ from the family's only in a prefix, if that is better."""
    renaming = replace(plan, rules=prefix_rules(plain))
    better = tried(renaming) if renaming.rules else None
    return (renaming, better) if better is not None and better.distance < plain.distance else (plan, plain)


def improved(plan: ChangePlan, best: Fit, tried: Trial) -> tuple[ChangePlan, Fit]:
    """The plan with every change that improves the fit, and the resulting fit."""
    for _ in range(MOST):
        for candidate in candidates(plan, best):
            trial = tried(candidate)
            if trial is not None and trial.distance < best.distance:
                plan, best = candidate, trial
                break
        else:
            break
    return plan, best


def candidates(plan: ChangePlan, best: Fit) -> Iterator[ChangePlan]:
    """The plan with one more change, for each change that may improve the fit."""
    for key, value in _defaults(best):
        if key not in plan.defaults:
            yield replace(plan, defaults={**plan.defaults, key: value})
    for fields in _fields(best):
        if not fields.keys() <= plan.fields.keys():
            yield replace(plan, fields={**plan.fields, **fields})
    if rules := certain_rules(best):
        yield replace(plan, rules=(*plan.rules, *rules))


def _defaults(best: Fit) -> Iterator[tuple[str, Expression]]:
    """Keys that the config lacks and whose default gives a parameter the wrong size, each with the right value."""
    for key, default in best.config.defaults().items():
        if isinstance(default, bool) or not isinstance(default, int) or not is_identifier(key):
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
                if type(value) is int and value == size and is_identifier(name)
            ]
            keys.sort(key=lambda name: -SequenceMatcher(None, name, key).ratio())
            yield key, config_value("count", keys[0]) if keys else constant(size)


def _fields(best: Fit) -> Iterator[dict[str, Expression]]:
    """Changes of recipe fields that may fit: flags turned, norms added, norms of another kind."""
    flags, added, joint, biased = (dict[str, Expression]() for _ in range(4))
    keys = (key for key in best.config if is_identifier(key) and key.endswith(("eps", "epsilon")))
    epsilon = next((config_value("number", key) for key in keys), of_layer("mixer_norm.eps"))
    for side, paths in (("surplus", best.surplus), ("missing", best.missing), ("wrong", best.wrong)):
        for path in (names[0] for names in kinds(paths).values()):
            where, spec, rest = locate(best.recipe, path)
            for item in dataclasses.fields(spec) if side != "wrong" else ():
                if item.init and getattr(spec, item.name) is (side == "missing"):
                    flags[_joined(where, item.name)] = _flag(best, side == "surplus")
            step = _joined(where, rest.partition(".")[0])
            if side == "surplus" and getattr(spec, rest.partition(".")[0], "") is None:
                added[step] = of_layer("mixer_norm")
                joint[step] = _joint(step)
            if side == "surplus" and isinstance(spec, RMSNorm) and rest == "bias":
                biased[where] = norm_of(LayerNorm, eps=epsilon)
            if side == "wrong" and isinstance(spec, RMSNorm) and where.startswith("layers.mixer."):
                joint[where] = _joint(where)
    yield from filter(None, (added, joint, biased))
    yield from ({path: value} for path, value in flags.items())


def locate(recipe: Spec, path: str) -> tuple[str, Spec, str]:
    """The innermost spec on a parameter's path: its own path, without layers' numbers, itself, and the rest."""
    parts = dict(recipe.walk())
    whole = max((part for part in parts if f"{path}.".startswith(f"{part}." if part else "")), key=len)
    where = ".".join(step for step in whole.split(".") if not step.isdecimal())
    where = re.sub(r"^(en|de)coder\.(?=layers\.)", "", where)  # layers of both sides are changed alike
    return where, parts[whole], path.removeprefix(whole).removeprefix(".")


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _flag(best: Fit, value: bool) -> Expression:
    """A flag's value: from an unread key of the config about biases that has this value, else a constant."""
    keys = (key for key in best.config.unread() if "bias" in key and best.values[key] is value)
    key = next(filter(is_identifier, keys), None)
    return config_value("flag", key, False) if key and value else constant(value)


def _joint(path: str) -> Expression:
    """An RMSNorm over all heads, or over all key/value heads."""
    heads = "kv_heads" if path.endswith("key_norm") else "heads"
    return norm_of(JointRMSNorm, heads=of_layer(f"mixer.{heads}"), eps=of_layer("mixer_norm.eps"))


def is_identifier(key: str) -> bool:
    """Whether a key of a config is an ASCII identifier, which an expression may have in quotes."""
    return key.isidentifier() and key.isascii()
