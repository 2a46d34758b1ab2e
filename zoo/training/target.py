"""The model that a run trains: an architecture with the numbers of a config.json, or a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
class Target:
    """The model that a run trains: an architecture and a config of it. Records call it `name`.

    The config of a recipe holds it, and nothing else of the model.
    """

    name: str
    architecture: Architecture
    config: dict[str, Any]
    registry: Registry

    @property
    def is_recipe(self) -> bool:
        """Whether a recipe is trained, and not an architecture with the numbers of a config."""
        return self.name == RECIPE_TYPE

    def recipe(self) -> Any:
        """The recipe; a ZooError for a config that cannot be."""
        return make_recipe(self.architecture, self.config, registry=self.registry)

    def with_tokenizer(self, tokenizer: Tokenizer, end: int) -> Target:
        """The same for the vocabulary of a tokenizer, whose texts end with the token `end`."""
        size = tokenizer.vocab_size
        sized: dict[str, Any] = {"vocab_size": size}
        if self.is_recipe:
            sized = {"recipe": self.recipe().with_vocab(size).to_json()}
        return replace(self, config=self.config | sized | {"bos_token_id": end, "eos_token_id": end})

    def check_resumed(self, out: Path, what: str | Model | None, config: Mapping[str, Any] | None) -> None:
        """ZooError where `what` or `config`, None when not given, ask the run in `out` for another model than this.

        What comes from the tokenizer does not count: the size of the vocabulary, and the ids of its tokens.
        """
        if not self.is_recipe:
            given = {key: value for key, value in (config or {}).items() if key not in TOKENIZER_KEYS}
            if any(self.config.get(key, value) != value for key, value in given.items()):
                raise ZooError(f"{out}: its run has another config; leave the given one out")
            return
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
    """The target of a new run: an architecture by name, with this config or its pocket preset's, or a recipe."""
    architecture = architecture_of(what, registry)
    if isinstance(what, Model):
        if config is not None:
            raise ZooError("a recipe says everything about its model: leave `config` out")
        return Target(architecture.name, architecture, recipe_config(what), registry)
    numbers = dict(pocket_config(architecture) if config is None else config)
    return Target(what, architecture, numbers, registry)


def resumed_target(
    out: Path, state: State, what: str | Model | None, registry: Registry, config: Mapping[str, Any] | None
) -> Target:
    """The target of the run in `out`; ZooError where `what`, unless None, or `config` is another."""
    name, saved = state.record["architecture"], dict(state.record["settings"]["config"])
    asked = RECIPE_TYPE if isinstance(what, Model) else name if what is None else what
    if asked != name:
        raise ZooError(f"{out}: its run trains {name}, not {asked}")
    of_recipe = name == RECIPE_TYPE
    architecture = recipe_architecture(saved, registry) if of_recipe else registry.architecture(name)
    target = Target(name, architecture, saved, registry)
    target.check_resumed(out, what, config)
    return target


def pocket_config(architecture: Architecture) -> Mapping[str, Any]:
    """The config of the pocket preset; ZooError when the architecture has none."""
    preset = architecture.preset("pocket")
    if preset is None or preset.config is None:
        raise ZooError(f"{architecture.name} has no pocket preset: give the numbers of one in `config`")
    return preset.config
