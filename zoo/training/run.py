"""Training as one call: corpus, tokenizer, model, loop, and a Hugging Face style folder at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.assemble import TRAINED, assemble, check_memory
from zoo.checkpoint.parameters import export
from zoo.checkpoint.save import save
from zoo.config import Config
from zoo.errors import ConfigError, ZooError
from zoo.host.registry import Registry, default_registry
from zoo.loading import Loaded
from zoo.recipe import EncoderDecoder, Model, learned_context
from zoo.tokenizer import Tokenizer
from zoo.training import run_folder, run_tokenizer
from zoo.training.corpora import TextCorpus, corpus
from zoo.training.corpus_batches import CorpusBatches, fitting_texts
from zoo.training.curve import svg
from zoo.training.loop import Trainer, TrainingCallbacks, initialise
from zoo.training.objective import END, objective_of, token
from zoo.training.record import TRAINING, TrainingRecord, TrainingSettings
from zoo.training.resuming import check_resumed
from zoo.training.sample import beginnings, sample
from zoo.training.state import open_state, state_path
from zoo.training.target import Target, architecture_of, resumed_target, target_of


def settings_of(
    what: str | Model, given: Mapping[str, Any], registry: Registry | None = None
) -> TrainingSettings:
    """The settings given, the others as suits what is trained; ZooError for one that cannot be.

    `what` is an architecture's name or a recipe.

    >>> from zoo.training.run import settings_of
    >>> settings = settings_of("llama", {"steps": 20})
    >>> settings.steps, settings.corpus
    (20, None)
    """
    registry = registry or default_registry()
    objective = objective_of(architecture_of(what, registry), given.get("objective"), registry)
    return TrainingSettings(
        **{"steps": objective.steps, "batch": objective.batch, "rate": objective.rate, **given}
    )


def train_folder(
    what: str | Model | None,
    out: Path,
    settings: TrainingSettings,
    *,
    config: Mapping[str, Any] | None = None,
    tokenizer: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    keep: bool = True,
    callbacks: TrainingCallbacks | None = None,
    registry: Registry | None = None,
) -> TrainingRecord:
    """Train a model from nothing and write its folder `out`: weights, config, tokenizer, record, curve.

    `what` is the name of an architecture, or a recipe; None, where `resume`, is what the run trains. `config` are the
    numbers of an architecture's config.json (default: the pocket preset's), `tokenizer` a folder or tokenizer.json to use
    (default: one trained on the corpus); the vocabulary's size becomes the tokenizer's. `out/run` holds the state that
    `resume` starts from, after the end too unless `keep` is false. A folder that holds something is refused unless
    `overwrite` allows a new model in its place. ZooError names what cannot be: a setting, a folder, a text, a recipe.
    The parameters are the options of `zoo train`.

    >>> from pathlib import Path
    >>> from zoo.training.run import settings_of, train_folder
    >>> record = train_folder("llama", Path("mine"), settings_of("llama", {"steps": 1, "batch": 1}))
    >>> zoo.load("mine").architecture.name
    'llama'
    """
    callbacks = callbacks or TrainingCallbacks()
    registry = registry or default_registry()
    with run_folder.claimed(out):
        state = open_state(state_path(out)) if resume else None
        if state is None:
            target = _new_target(what, out, config, overwrite, registry)
        elif tokenizer is not None:
            raise ZooError(f"{out}: its run goes on with its own tokenizer; leave the given one out")
        else:
            target = resumed_target(out, state, what, registry, config)
        objective = objective_of(target.architecture, settings.objective, registry)
        # What cannot be is refused before anything is read.
        check_memory(target.recipe(), TRAINED, settings.batch * settings.length)
        callbacks.phase("reading the corpus")
        texts = corpus(settings.corpus or objective.corpus, target.architecture.task, registry)
        settings = replace(settings, corpus=texts.name, packed=texts.user_text is not None)
        if state is not None:
            check_resumed(out, state, settings, texts)
            files: Mapping[str, bytes] = state.files
        elif tokenizer is not None:
            files = run_tokenizer.files_of(tokenizer)
        else:
            callbacks.phase("training a tokenizer")
            files = run_tokenizer.trained_on(texts, objective.vocab, texts.names() if objective.names else ())
        own_tokenizer = run_tokenizer.opened(files, registry)
        callbacks.phase("making the model")
        target = target.with_tokenizer(own_tokenizer, token(own_tokenizer, END))
        loaded = _new_model(target, own_tokenizer, settings, out)
        texts = fitting_texts(texts, own_tokenizer, settings, objective)
        batches = CorpusBatches(objective, texts, own_tokenizer, settings)
        record = _new_record(target, batches, own_names=tokenizer is None)
        # Weights and two moments in float32, the state before beside the new one, and the model in 16 bits.
        run_folder.check_writable(out, record.parameters * (2 * 3 * 4 + 2))
        Trainer(
            loaded.model,
            objective.loss,
            settings,
            record,
            state_path(out),
            files,
            validate=partial(batches.held_out_loss, loaded.model, stop=callbacks.stop),
            sample=samples(loaded, texts, record),
            callbacks=callbacks,
        ).run(batches.training(), state)
        finish(out, loaded, record, files)
        if not keep:
            run_folder.forget_run(out)
    return record


def _new_target(
    what: str | Model | None,
    out: Path,
    config: Mapping[str, Any] | None,
    overwrite: bool,
    registry: Registry,
) -> Target:
    """The target of a new run. ZooError where there is none, SourceError for a folder that is not free."""
    if what is None:
        raise ZooError("what to train is an architecture's name or a recipe: only `resume` goes without")
    target = target_of(what, registry, config)
    run_folder.check_new(out, overwrite)
    return target


def _new_model(target: Target, tokenizer: Tokenizer, settings: TrainingSettings, out: Path) -> Loaded:
    """The model with the weights that a training starts from."""
    recipe = target.recipe()
    check_length(target.name, recipe, settings)
    model = assemble(recipe, target.registry, copies=TRAINED)
    init_std = Config(target.config).number("initializer_range", 0.02)
    initialise(model, settings.seed, len(recipe.layers), init_std)
    export(model, target.architecture, recipe)  # that its weights have names is known now, not at the end
    return Loaded(model, tokenizer, target.architecture, recipe, target.config, out, registry=target.registry)


def _new_record(target: Target, batches: CorpusBatches, own_names: bool) -> TrainingRecord:
    """The record of a run before its first step; `own_names`: its tokenizer has the corpus's names as tokens."""
    recipe, objective, texts = target.recipe(), batches.objective, batches.texts
    digest = {"corpus_sha256": texts.user_text.digest} if texts.user_text else {}
    names = len(texts.names()) if objective.names and own_names else 0
    return TrainingRecord(
        architecture=target.name,
        parameters=recipe.parameters(recipe.dim),
        settings=vars(batches.settings) | {"config": target.config} | digest,
        documents="sentences" if objective.sentences and texts.sentences else "documents",
        tokenizer={"vocab": batches.tokenizer.vocab_size, "names": names},
        versions=runtime.versions(),
    )


def check_length(name: str, recipe: Model, settings: TrainingSettings) -> None:
    """ZooError for rows longer than the model has positions."""
    sides = (recipe.encoder, recipe.decoder) if isinstance(recipe, EncoderDecoder) else (recipe,)
    for side in sides:
        context = learned_context(side)
        if context is not None and settings.length > context:
            raise ConfigError(f"`length`: {name} has {context} positions, fewer than {settings.length}")


def samples(loaded: Loaded, texts: TextCorpus, record: TrainingRecord) -> Callable[[], str | None]:
    """A function that completes another held-out text at each call."""
    prompts: list[str] = []

    def make() -> str | None:
        if not prompts:
            prompts.extend(beginnings(texts.validation(), loaded.architecture.task))
        return sample(loaded, prompts[len(record.validation) % len(prompts)]) if prompts else None

    return make


def finish(out: Path, loaded: Loaded, record: TrainingRecord, files: Mapping[str, bytes]) -> None:
    """Write the model, its tokenizer, record and curve, and put them in the place of `out` in one step."""
    with run_folder.publishing(out, run_tokenizer.NAMES) as part:
        save(
            part,
            loaded.model,
            loaded.architecture,
            loaded.recipe,
            loaded.config,
            mx.float16,
            registry=loaded.registry,
        )
        for name, data in files.items():
            (part / Path(name).name).write_bytes(data)
        record.save(part / TRAINING)
        (part / run_folder.CURVE).write_text(svg(record), encoding="utf-8")
