"""The changes of a new architecture to its base: config defaults, recipe fields, and weight rules before the base's.

Imports no mlx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zoo.architecture import Architecture
from zoo.config import Config
from zoo.recipe import JointRMSNorm, LayerNorm, Spec
from zoo.weights import Rule


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
