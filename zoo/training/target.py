"""What a run trains: an architecture with the numbers of a config.json, or a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture
from zoo.checkpoint.open import make_recipe
from zoo.errors import ZooError
from zoo.host.recipes import MODEL_TYPE, recipe_architecture, recipe_config, recipe_from_json
from zoo.host.registry import Registry
from zoo.recipe import Model
from zoo.tokenizer import Tokenizer
from zoo.training.state import State

TOKENIZER_KEYS = ("vocab_size", "bos_token_id", "eos_token_id")  # of a config: they come from the tokenizer


@dataclass(frozen=True)
class Target:
    """An architecture and the config of one model of it; `name` is what records call it."""

    name: str
    architecture: Architecture
    config: dict[str, Any]
    registry: Registry

    def recipe(self) -> Any:
        """The recipe; a ZooError for a config that cannot be."""
        return make_recipe(self.architecture, self.config, registry=self.registry)

    def with_tokenizer(self, tokenizer: Tokenizer, end: int) -> Target:
        """The same for the vocabulary of a tokenizer, whose texts end with the token `end`."""
        vocab = tokenizer.vocab_size
        size: dict[str, Any] = {"vocab_size": vocab}
        if self.architecture.name == MODEL_TYPE:
            size = {"recipe": self.recipe().with_vocab(vocab).to_json()}
        return replace(self, config=self.config | size | {"bos_token_id": end, "eos_token_id": end})


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
        return Target(MODEL_TYPE, architecture, recipe_config(what), registry)
    return Target(
        what, architecture, dict(pocket_config(architecture) if config is None else config), registry
    )


def resumed_target(
    out: Path, state: State, what: str | Model | None, registry: Registry, config: Mapping[str, Any] | None
) -> Target:
    """What the run in `out` trains; ZooError where something else is asked for. `what` None: whatever it is."""
    name, saved = state.record["architecture"], dict(state.record["settings"]["config"])
    asked = MODEL_TYPE if isinstance(what, Model) else name if what is None else what
    if asked != name:
        raise ZooError(f"{out}: its run trains {name}, not {asked}")
    if name != MODEL_TYPE:
        if config is not None and any(
            saved.get(key, value) != value for key, value in config.items() if key not in TOKENIZER_KEYS
        ):
            raise ZooError(f"{out}: its run has another config; leave the given one out")
        return Target(name, registry.architecture(name), saved, registry)
    if config is not None:
        raise ZooError(f"{out}: its run trains a recipe, which has no other config; leave `config` out")
    recipe = recipe_from_json(saved["recipe"], registry)
    if isinstance(what, Model) and what.with_vocab(recipe.vocab) != recipe:
        raise ZooError(f"{out}: its run has another recipe; leave the given one out")
    return Target(name, recipe_architecture(saved, registry), saved, registry)


def pocket_config(architecture: Architecture) -> Mapping[str, Any]:
    """The config of the pocket preset; ZooError when the architecture has none."""
    preset = architecture.preset("pocket")
    if preset is None or preset.config is None:
        raise ZooError(f"{architecture.name} has no pocket preset: give the numbers of one in `config`")
    return preset.config
