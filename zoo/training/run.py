"""Training as one call: corpus, tokenizer, model, loop, and a Hugging Face style folder at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
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
from zoo.training.curve import svg
from zoo.training.data import IGNORED
from zoo.training.loop import Batch, TrainingCallbacks, initialise, train
from zoo.training.objective import END, TrainingObjective, objective_of, token
from zoo.training.record import TRAINING, TrainingRecord, TrainingSettings
from zoo.training.resuming import check_resumed
from zoo.training.sample import beginnings, sample
from zoo.training.state import open_state, state_path
from zoo.training.target import architecture_of, resumed_target, target_of

MEASURED = 50  # batches of a person's own held-out text that a measurement takes at most


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
    watch: TrainingCallbacks | None = None,
    registry: Registry | None = None,
) -> TrainingRecord:
    """Train a model from nothing and write its folder `out`: weights, config, tokenizer, record, curve.

    `what` is the name of an architecture, or a recipe; None, where `resume`, is what the run trains. `config` are the
    numbers of an architecture's config.json (default: the pocket preset's), `tokenizer` a folder or tokenizer.json to use
    (default: one trained on the corpus); the vocabulary's size becomes the tokenizer's. `out/run` holds the state that
    `resume` starts from, after the end too unless `keep` is false. A folder that holds something is refused unless
    `overwrite` allows a new model in its place. ZooError names what cannot be: a setting, a folder, a text, a recipe.

    >>> from pathlib import Path
    >>> from zoo.training.run import settings_of, train_folder
    >>> record = train_folder("llama", Path("mine"), settings_of("llama", {"steps": 1, "batch": 1}))
    >>> zoo.load("mine").architecture.name
    'llama'
    """
    with run_folder.claimed(out):
        given = (config, tokenizer, resume, overwrite, keep)
        return _train_folder(
            what, out, settings, *given, watch or TrainingCallbacks(), registry or default_registry()
        )


def _train_folder(
    what: str | Any | None,
    out: Path,
    settings: TrainingSettings,
    config: Mapping[str, Any] | None,
    tokenizer: Path | None,
    resume: bool,
    overwrite: bool,
    keep: bool,
    watch: TrainingCallbacks,
    registry: Registry,
) -> TrainingRecord:
    """`train_folder`, once no other process writes the folder."""
    state = open_state(state_path(out)) if resume else None
    if state is not None:
        target = resumed_target(out, state, what, registry, config)
        if tokenizer is not None:
            raise ZooError(f"{out}: its run goes on with its own tokenizer; leave the given one out")
    elif what is None:
        raise ZooError("what to train is an architecture's name or a recipe: only `resume` goes without")
    else:
        target = target_of(what, registry, config)
        run_folder.check_new(out, overwrite)
    architecture = target.architecture
    method = objective_of(architecture, settings.objective, registry)
    # What cannot be is refused before anything is read.
    check_memory(target.recipe(), TRAINED, settings.batch * settings.length)
    watch.phase("reading the corpus")
    texts = corpus(settings.corpus or method.corpus, architecture.task, registry)
    settings = replace(settings, corpus=texts.name, packed=texts.user_text is not None)
    if state is not None:
        check_resumed(out, state, settings, texts)
    names = texts.names() if method.names else ()
    batch_arguments = {"names": names, "answers": texts.answers()} if method.names else {}
    sentences = texts.sentences if method.sentences else None
    with tempfile.TemporaryDirectory() as scratch:
        if state is not None:
            files = state.files
        elif tokenizer is not None:
            files = run_tokenizer.files_of(tokenizer)
        else:
            watch.phase("training a tokenizer")
            files = run_tokenizer.trained_on(texts, Path(scratch), method.vocab, names)
        own_tokenizer = run_tokenizer.opened(files, Path(scratch), registry)
    target = target.with_tokenizer(own_tokenizer, token(own_tokenizer, END))
    watch.phase("making the model")
    recipe = target.recipe()
    check_length(target.name, recipe, settings)
    texts = prepared(texts, own_tokenizer, settings, method)
    model = assemble(recipe, registry, copies=TRAINED)
    spread = Config(target.config).number("initializer_range", 0.02)
    initialise(model, settings.seed, len(recipe.layers), spread)
    export(model, architecture, recipe)  # that its weights have names is known now, not after the last step
    record = TrainingRecord(
        architecture=target.name,
        parameters=recipe.parameters(recipe.dim),
        settings=vars(settings)
        | {"config": target.config}
        | ({"corpus_sha256": texts.user_text.digest} if texts.user_text else {}),
        documents="sentences" if sentences else "documents",
        tokenizer={"vocab": own_tokenizer.vocab_size, "names": len(names) if tokenizer is None else 0},
        versions=runtime.versions(),
    )
    # Weights and two moments in float32, the state before beside the new one, and the model in 16 bits.
    run_folder.check_writable(out, record.parameters * (2 * 3 * 4 + 2))
    loaded = Loaded(model, own_tokenizer, architecture, recipe, target.config, out, registry=registry)
    train(
        model,
        method.training(
            (sentences or texts.training)(settings.seed), own_tokenizer, settings, **batch_arguments
        ),
        method.loss,
        settings,
        record,
        state=state_path(out),
        files=files,
        validate=validation(model, method, texts, own_tokenizer, settings, batch_arguments, watch.stop),
        sample=samples(loaded, texts, record),
        resume=state,
        watch=watch,
    )
    finish(out, loaded, record, files)
    if not keep:
        run_folder.forget_run(out)
    return record


def check_length(name: str, recipe: Any, settings: TrainingSettings) -> None:
    """ZooError for rows longer than the model has positions."""
    sides = (recipe.encoder, recipe.decoder) if isinstance(recipe, EncoderDecoder) else (recipe,)
    for side in sides:
        context = learned_context(side)
        if context is not None and settings.length > context:
            raise ConfigError(f"`length`: {name} has {context} positions, fewer than {settings.length}")


def prepared(
    texts: TextCorpus, tokenizer: Tokenizer, settings: TrainingSettings, method: TrainingObjective
) -> TextCorpus:
    """The texts as the method takes them; ZooError where a person's own are too short for a row, or too long."""
    if texts.user_text is None:
        return texts
    if texts.parallel:
        return texts.only(lambda pair: fits_a_row(pair, tokenizer, settings.length))
    if not method.running:
        return texts.in_pieces(
            lambda text: len(text) <= 16 * settings.length and len(tokenizer.encode(text)) < settings.length
        )
    for what, documents in (("train on", texts.user_text.trained), ("hold out", texts.user_text.held_out)):
        count = 0
        for text in documents:
            count += len(tokenizer.encode(text)) + 1
            if count > settings.length:
                break
        else:
            raise ZooError(
                f"{texts.name}: too short: {count} tokens to {what}, and a row takes {settings.length + 1}: "
                "give more text, or a smaller `length`"
            )
    return texts


def fits_a_row(pair: tuple[str, str], tokenizer: Tokenizer, length: int) -> bool:
    """Whether a source, and its translation with an end token, have at most `length` tokens."""
    source, target = (len(tokenizer.encode(text)) for text in pair)
    return source <= length and target < length


def validation(
    model: Any,
    method: TrainingObjective,
    texts: TextCorpus,
    tokenizer: Tokenizer,
    settings: TrainingSettings,
    batch_arguments: Mapping[str, Any],
    stop: Callable[[], bool],
) -> Callable[[], float | None]:
    """A function that measures the mean loss of the held-out tokens; it gives None when it is stopped.

    `batch_arguments` is what the method's batches take besides.
    """
    whole = settings.packed and method.running
    make = method.training if whole else method.validation

    def batches() -> Iterator[Batch]:
        return islice(
            make(texts.validation(), tokenizer, settings, **batch_arguments),
            MEASURED if texts.user_text is not None else None,
        )

    def measure() -> float | None:
        total = count = 0.0
        for batch in batches():
            if stop():
                return None
            tokens = (batch[1] != IGNORED).sum().item()
            total += method.loss(model, *batch).item() * tokens
            count += tokens
        return total / max(count, 1)

    return measure


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
