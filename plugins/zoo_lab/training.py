"""Trains a small model for an arm of an experiment, by the zoo's own loop, objectives and corpora.

All arms of an experiment share one small tokenizer, and runs of one seed see the same batches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from zoo.assemble import TRAINED, assemble
from zoo.checkpoint.open import make_recipe
from zoo.errors import ZooError
from zoo.host.registry import default_registry
from zoo.host.resolve import recipe_architecture, recipe_config
from zoo.loading import Loaded
from zoo.recipe import Model
from zoo.tokenizer import Tokenizer
from zoo.training.corpora import corpus
from zoo.training.loop import Trainer, TrainingCallbacks, initialise
from zoo.training.objective import CorpusBatches, TrainingObjective, objective_of
from zoo.training.record import TrainingRecord, TrainingSettings
from zoo.training.vocabulary import open_tokenizer, tokenizer_files
from zoo_lab.plan import Trial
from zoo_lab.run import Failed

VOCAB = 512  # softmax over few tokens: on a CPU its exponentials are most of a small model's training
CORPUS = "atlas"
MEASURED = 128  # held-out documents in each measurement of a curve
DOCUMENTS = 800  # in the last one: of the atlas about half, 16,000 tokens


@dataclass(frozen=True)
class Trained:
    """A trained model: `loss` of held-out text in nats a token, `curve` of a smaller part of it as [step, loss]."""

    loaded: Loaded
    loss: float
    curve: list[list[float]]
    seconds: float


@cache
def small_tokenizer(name: str) -> Tokenizer:
    """A byte-level tokenizer of `VOCAB` tokens, trained on a corpus; made once a process."""
    files = tokenizer_files(corpus(name, "generate"), VOCAB)
    return open_tokenizer(files, default_registry())


def recipe_of(name: str, numbers: Mapping[str, Any]) -> Model:
    """The recipe of an architecture with its pocket preset's numbers, and those of a config.json in their place."""
    registry = default_registry()
    architecture = registry.architecture(name)
    preset = architecture.preset("pocket")
    config = dict(preset.config or {}) if preset else {}
    return make_recipe(architecture, config | dict(numbers), registry=registry)


def trained(
    recipe: Model,
    settings: TrainingSettings,
    trial: Trial,
    *,
    objective: TrainingObjective | None = None,
    points: int = 10,
    documents: int = DOCUMENTS,
    depth_scaled: bool = True,
    observe: Callable[[Loaded, int], None] | None = None,
) -> Trained:
    """Train a recipe from nothing on the corpus that `settings` names (default: the atlas).

    The trial's seed decides the weights and the order of the batches. Matrices start with GPT-2's standard deviation,
    0.02 at width 768, in proportion to 1/√width; `depth_scaled` divides those that end a residual branch by
    √(2 layers). `objective` replaces the architecture's own. The curve is measured at `points` steps, at each of which
    `observe(loaded, step)` is called. The final loss is that of the first `documents` held-out ones. `Failed` when the
    loss is not a number.
    """
    registry, name = default_registry(), settings.corpus or CORPUS
    settings, tokenizer = replace(settings, seed=trial.seed, corpus=name), small_tokenizer(name)
    recipe = recipe.with_vocab(tokenizer.vocab_size)
    model = assemble(recipe, registry, copies=TRAINED)
    initialise(
        model, trial.seed, len(recipe.layers) if depth_scaled else 0.5, 0.02 * (768 / recipe.dim) ** 0.5
    )
    config = recipe_config(recipe)
    architecture = recipe_architecture(config, registry)
    loaded = Loaded(model, tokenizer, architecture, recipe, config, Path(), registry=registry)
    objective = objective or objective_of(architecture, settings.objective, registry)
    texts = corpus(name, architecture.task, registry)
    batches = CorpusBatches(objective, texts, tokenizer, settings)
    record = TrainingRecord(architecture.name, recipe.parameters(recipe.dim), vars(settings))
    done = 0

    def step(number: int, loss: float, rate: float) -> None:
        nonlocal done
        done = number
        trial.report(number, settings.steps)

    def validate() -> float | None:
        if observe is not None:
            observe(loaded, done)
        return batches.held_out_loss(model, min(MEASURED, documents))

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            objective.loss,
            settings,
            record,
            Path(folder) / "state.safetensors",
            validate=validate,
            callbacks=TrainingCallbacks(step=step),
            every=max(settings.steps // points, 1),
        )
        try:
            trainer.run(batches.training())
        except ZooError as error:
            if type(error) is not ZooError:  # a disk that is full, say
                raise
            raise Failed(str(error)) from error
    loss = batches.held_out_loss(model, documents)
    assert loss is not None
    return Trained(loaded, loss, record.validation, record.seconds)
