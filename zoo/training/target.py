"""What a run trains: an architecture with the numbers of a config.json, or a recipe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from zoo.architecture import Architecture
from zoo.checkpoint.open import make_recipe
from zoo.errors import ZooError
from zoo.host.recipes import recipe_architecture, recipe_config
from zoo.host.registry import RECIPE_TYPE, Registry
from zoo.recipe import Model
from zoo.tokenizer import Tokenizer
from zoo.training.state import State

TOKENIZER_KEYS = ("vocab_size", "bos_token_id", "eos_token_id")  # of a config: they come from the tokenizer


@dataclass(frozen=True)
class Target(ABC):
    """What a run trains: an architecture and the config of one model of it; `name` is what records call it."""

    name: str
    architecture: Architecture
    config: dict[str, Any]
    registry: Registry

    def recipe(self) -> Any:
        """The recipe; a ZooError for a config that cannot be."""
        return make_recipe(self.architecture, self.config, registry=self.registry)

    def with_tokenizer(self, tokenizer: Tokenizer, end: int) -> Self:
        """The same for the vocabulary of a tokenizer, whose texts end with the token `end`."""
        size = self.size(tokenizer.vocab_size)
        return replace(self, config=self.config | size | {"bos_token_id": end, "eos_token_id": end})

    @abstractmethod
    def size(self, vocab: int) -> dict[str, Any]:
        """The part of the config that says how many tokens there are, for `vocab` of them."""

    @abstractmethod
    def check_resumed(self, out: Path, what: str | Model | None, config: Mapping[str, Any] | None) -> None:
        """ZooError where `what` or `config`, None when not given, ask the run in `out` for another model than this."""


class ArchitectureTarget(Target):
    """An architecture with the numbers of a config."""

    def size(self, vocab: int) -> dict[str, Any]:
        """The `vocab_size` of the config."""
        return {"vocab_size": vocab}

    def check_resumed(self, out: Path, what: str | Model | None, config: Mapping[str, Any] | None) -> None:
        """ZooError for a config with other numbers; those that come from the tokenizer do not count."""
        given = (config or {}).items()
        if any(self.config.get(key, value) != value for key, value in given if key not in TOKENIZER_KEYS):
            raise ZooError(f"{out}: its run has another config; leave the given one out")


class RecipeTarget(Target):
    """A recipe, which its config holds."""

    def size(self, vocab: int) -> dict[str, Any]:
        """The recipe with every vocabulary of that size."""
        return {"recipe": self.recipe().with_vocab(vocab).to_json()}

    def check_resumed(self, out: Path, what: str | Model | None, config: Mapping[str, Any] | None) -> None:
        """ZooError for a config, or another recipe; the size of its vocabulary does not count."""
        if config is not None:
            raise ZooError(f"{out}: its run trains a recipe, which has no other config; leave `config` out")
        recipe = self.recipe()
        if isinstance(what, Model) and what.with_vocab(recipe.vocab) != recipe:
            raise ZooError(f"{out}: its run has another recipe; leave the given one out")


def architecture_of(what: str | Model, registry: Registry) -> Architecture:
    """The architecture of that name, or the one that a recipe is."""
    if isinstance(what, Model):
        return recipe_architecture(recipe_config(what), registry)
    return registry.architecture(what)


def target_of(what: str | Model, registry: Registry, config: Mapping[str, Any] | None = None) -> Target:
    """What to train: an architecture by name, with this config or its pocket preset's, or a recipe."""
    architecture = architecture_of(what, registry)
    if isinstance(what, Model):
        if config is not None:
            raise ZooError("a recipe says everything about its model: leave `config` out")
        return RecipeTarget(architecture.name, architecture, recipe_config(what), registry)
    numbers = dict(pocket_config(architecture) if config is None else config)
    return ArchitectureTarget(what, architecture, numbers, registry)


def resumed_target(
    out: Path, state: State, what: str | Model | None, registry: Registry, config: Mapping[str, Any] | None
) -> Target:
    """What the run in `out` trains; ZooError where something else is asked for. `what` None: whatever it is."""
    name, saved = state.record["architecture"], dict(state.record["settings"]["config"])
    asked = RECIPE_TYPE if isinstance(what, Model) else name if what is None else what
    if asked != name:
        raise ZooError(f"{out}: its run trains {name}, not {asked}")
    target: Target
    if name == RECIPE_TYPE:
        target = RecipeTarget(name, recipe_architecture(saved, registry), saved, registry)
    else:
        target = ArchitectureTarget(name, registry.architecture(name), saved, registry)
    target.check_resumed(out, what, config)
    return target


def pocket_config(architecture: Architecture) -> Mapping[str, Any]:
    """The config of the pocket preset; ZooError when the architecture has none."""
    preset = architecture.preset("pocket")
    if preset is None or preset.config is None:
        raise ZooError(f"{architecture.name} has no pocket preset: give the numbers of one in `config`")
    return preset.config
