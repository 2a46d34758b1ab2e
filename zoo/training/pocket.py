"""Training as one call: corpus, tokenizer, model, loop, and a Hugging Face style folder at the end."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.save import save
from zoo.config import Config
from zoo.errors import ZooError
from zoo.loading import make_recipe
from zoo.registry import registry
from zoo.tokenizer import load_tokenizer
from zoo.training.corpora import corpus
from zoo.training.data import IGNORED
from zoo.training.loop import Record, Settings, initialise, train
from zoo.training.objective import END, objective_of


def settings_of(name: str, given: Mapping[str, Any]) -> Settings:
    """The settings given, the others as suits the architecture `name`; ZooError for one that cannot be."""
    objective = objective_of(registry().architecture(name))
    return Settings(**{"steps": objective.steps, "batch": objective.batch, "rate": objective.rate, **given})


def train_folder(
    name: str,
    out: Path,
    settings: Settings,
    *,
    numbers: Mapping[str, Any] | None = None,
    tokenizer: Path | None = None,
    resume: bool = False,
    report: Callable[[int, float, float], None] = lambda step, loss, rate: None,
) -> Record:
    """Train the architecture `name` and write its folder `out`: weights, config, tokenizer, training record.

    `numbers` are those of a config.json (default: the pocket preset's), `tokenizer` a folder whose tokenizer to
    use (default: one trained on the corpus). While it runs, `out/run` holds what a resumed run starts from.
    """
    architecture = registry().architecture(name)
    numbers = dict(numbers or pocket_numbers(architecture))
    objective = objective_of(architecture)
    settings = replace(settings, corpus=settings.corpus or objective.corpus)
    texts = corpus(settings.corpus or "")
    if texts.parallel != (architecture.task == "translate"):
        wanted = "translations" if architecture.task == "translate" else "texts in one language"
        raise ZooError(
            f"{architecture.name} is trained on {wanted}, which the corpus {texts.name} does not have"
        )
    names = texts.names() if objective.names else ()
    told = {"names": names, "answers": texts.answers()} if objective.names else {}
    alone = texts.sentences if objective.sentences else None
    make_recipe(architecture, numbers)  # refuses what cannot be, before anything is written
    run = out / "run"
    if not resume and run.exists():
        shutil.rmtree(run)
    run.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(tokenizer / file, run / file)
    elif not (run / "tokenizer.json").exists():
        from zoo.training.vocabulary import save_tokenizer, train_tokenizer

        save_tokenizer(train_tokenizer(texts.sample(), objective.vocab, names), run)
    words = load_tokenizer(run)
    if words is None or words.id(END) is None:
        raise ZooError(f"{tokenizer or run}: its tokenizer has no {END} to end a text with")
    end = words.id(END)
    numbers |= {"vocab_size": words.vocab_size, "bos_token_id": end, "eos_token_id": end}
    recipe = make_recipe(architecture, numbers)
    model = assemble(recipe)
    initialise(model, settings.seed, len(recipe.layers), Config(numbers).number("initializer_range", 0.02))
    record = Record(
        architecture=name,
        parameters=recipe.parameters(recipe.dim),
        settings=vars(settings) | {"config": numbers},
        documents="sentences" if alone else "documents",
        tokenizer={"vocab": words.vocab_size, "names": len(names) if tokenizer is None else 0},
        versions=versions(),
    )

    def validate() -> float:
        total = count = 0.0
        for batch in objective.validation(texts.validation(), words, settings, **told):
            tokens = (batch[1] != IGNORED).sum().item()
            total += objective.loss(model, *batch).item() * tokens
            count += tokens
        return total / max(count, 1)

    train(
        model,
        objective.training((alone or texts.training)(settings.seed), words, settings, **told),
        objective.loss,
        settings,
        record,
        folder=run,
        validate=validate,
        resume=resume,
        report=report,
        every=max(200, settings.steps // 20),  # measuring takes as long as some tens of small steps
    )
    save(out, model, architecture, recipe, numbers, mx.float16)
    record.save(out / "training.json")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        os.replace(run / file, out / file)
    shutil.rmtree(run)
    return record


def pocket_numbers(architecture: Architecture) -> Mapping[str, Any]:
    """The numbers of the embedded preset; ZooError when the architecture has none."""
    preset = architecture.preset("pocket")
    if preset is None or preset.config is None:
        raise ZooError(f"{architecture.name} has no pocket preset: give a config.json with --config")
    return preset.config


def versions() -> dict[str, str]:
    """What a record must say of where it was measured."""
    return {
        "mlx-zoo": version("mlx-zoo"),
        "mlx": version("mlx"),
        "backend": runtime.backend(),
        "blas": runtime.blas(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
