"""Training as one call: corpus, tokenizer, model, loop, and a Hugging Face style folder at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.open import make_recipe
from zoo.checkpoint.parameters import export
from zoo.checkpoint.save import save
from zoo.config import Config
from zoo.errors import ConfigError, ZooError
from zoo.generation.prompt import learned_context
from zoo.host.registry import default_registry
from zoo.loading import Loaded
from zoo.recipe import EncoderDecoder
from zoo.tokenizer import Tokenizer
from zoo.training import place, run_tokenizer
from zoo.training.corpora import Texts, corpus
from zoo.training.curve import svg
from zoo.training.data import IGNORED
from zoo.training.loop import Batch, Watch, initialise, train
from zoo.training.objective import END, Method, objective_of, token
from zoo.training.record import Record, Settings
from zoo.training.resuming import check_resumed, numbers_to_resume
from zoo.training.sample import beginnings, sample
from zoo.training.state import open_state, state_path

MEASURED = 50  # batches of a person's own held-out text that a measurement takes at most


def settings_of(name: str, given: Mapping[str, Any]) -> Settings:
    """The settings given, the others as suits the architecture `name`; ZooError for one that cannot be."""
    objective = objective_of(default_registry().architecture(name), given.get("objective"))
    return Settings(**{"steps": objective.steps, "batch": objective.batch, "rate": objective.rate, **given})


def train_folder(
    name: str,
    out: Path,
    settings: Settings,
    *,
    numbers: Mapping[str, Any] | None = None,
    tokenizer: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    keep: bool = True,
    watch: Watch | None = None,
) -> Record:
    """Train the architecture `name` and write its folder `out`: weights, config, tokenizer, record, curve.

    `numbers` are those of a config.json (default: the pocket preset's), `tokenizer` a folder or tokenizer.json to use
    (default: one trained on the corpus). `out/run` holds the state that `resume` starts from, after the end too unless
    `keep` is false. A folder that holds something is refused unless `overwrite` allows a new model in its place.
    """
    architecture, watch = default_registry().architecture(name), watch or Watch()
    method = objective_of(architecture, settings.objective)
    state = open_state(state_path(out)) if resume else None
    if state is None:
        place.check_new(out, overwrite)
        numbers = dict(numbers or pocket_numbers(architecture))
    else:
        if tokenizer is not None:
            raise ZooError(f"{out}: its run goes on with its own tokenizer; leave the given one out")
        numbers = numbers_to_resume(out, name, state, numbers)
    make_recipe(architecture, numbers, default_registry())  # refuses what cannot be, before anything is read
    watch.phase("reading the corpus")
    texts = corpus(settings.corpus or method.corpus, architecture.task)
    settings = replace(settings, corpus=texts.name, packed=texts.own is not None)
    if state is not None:
        check_resumed(out, state, settings, texts)
    names = texts.names() if method.names else ()
    told = {"names": names, "answers": texts.answers()} if method.names else {}
    alone = texts.sentences if method.sentences else None
    trained = tokenizer is None
    with tempfile.TemporaryDirectory() as scratch:
        if state is not None:
            files = state.files
        elif tokenizer is not None:
            files = run_tokenizer.files_of(tokenizer)
        else:
            watch.phase("training a tokenizer")
            files = run_tokenizer.trained_on(texts, Path(scratch), method.vocab, names)
        words = run_tokenizer.opened(files, Path(scratch))
    end = token(words, END)
    numbers |= {"vocab_size": words.vocab_size, "bos_token_id": end, "eos_token_id": end}
    watch.phase("making the model")
    recipe = make_recipe(architecture, numbers, default_registry())
    check_length(architecture, recipe, settings)
    texts = prepared(texts, words, settings, method)
    model = assemble(recipe, default_registry())
    initialise(model, settings.seed, len(recipe.layers), Config(numbers).number("initializer_range", 0.02))
    export(model, architecture, recipe)  # that its weights have names is known now, not after the last step
    record = Record(
        architecture=name,
        parameters=recipe.parameters(recipe.dim),
        settings=vars(settings)
        | {"config": numbers}
        | ({"corpus_sha256": texts.own.digest} if texts.own else {}),
        documents="sentences" if alone else "documents",
        tokenizer={"vocab": words.vocab_size, "names": len(names) if trained else 0},
        versions=runtime.versions(),
    )
    # Weights and two moments in float32, the state before beside the new one, and the model in 16 bits.
    place.check_writable(out, record.parameters * (2 * 3 * 4 + 2))
    if state is None:
        place.forget_run(out)
    loaded = Loaded(model, words, architecture, recipe, numbers, out)
    train(
        model,
        method.training((alone or texts.training)(settings.seed), words, settings, **told),
        method.loss,
        settings,
        record,
        state=state_path(out),
        files=files,
        validate=validation(model, method, texts, words, settings, told, watch.stop),
        sample=samples(loaded, texts, record),
        resume=state,
        watch=watch,
    )
    finish(out, loaded, record, files)
    if not keep:
        place.forget_run(out)
    return record


def check_length(architecture: Architecture, recipe: Any, settings: Settings) -> None:
    """ZooError for rows longer than the model has positions."""
    sides = (recipe.encoder, recipe.decoder) if isinstance(recipe, EncoderDecoder) else (recipe,)
    for side in sides:
        context = learned_context(side)
        if context is not None and settings.length > context:
            raise ConfigError(
                f"length: {architecture.name} has {context} positions, fewer than {settings.length}"
            )


def prepared(texts: Texts, words: Tokenizer, settings: Settings, method: Method) -> Texts:
    """The texts as the method takes them; ZooError where a person's own are too short for a row, or too long."""
    if texts.own is None:
        return texts
    if texts.parallel:
        return texts.only(lambda pair: fits_a_row(pair, words, settings.length))
    if not method.running:
        return texts.in_pieces(
            lambda text: len(text) <= 16 * settings.length and len(words.encode(text)) < settings.length
        )
    for what, documents in (("train on", texts.own.trained), ("hold out", texts.own.held_out)):
        count = 0
        for text in documents:
            count += len(words.encode(text)) + 1
            if count > settings.length:
                break
        else:
            raise ZooError(
                f"{texts.name}: too short: {count} tokens to {what}, and a row takes {settings.length + 1}: "
                "give more text, or a smaller length"
            )
    return texts


def fits_a_row(pair: tuple[str, str], words: Tokenizer, length: int) -> bool:
    """Whether a source, and its translation with an end token, have at most `length` tokens."""
    source, target = (len(words.encode(text)) for text in pair)
    return source <= length and target < length


def validation(
    model: Any,
    method: Method,
    texts: Texts,
    words: Tokenizer,
    settings: Settings,
    told: Mapping[str, Any],
    stop: Callable[[], bool],
) -> Callable[[], float | None]:
    """What measures the loss on the held-out texts, a mean over their tokens; None when it is stopped.

    `told` is what the method's batches take besides.
    """
    whole = settings.packed and method.running
    make = method.training if whole else method.validation

    def batches() -> Iterator[Batch]:
        return islice(
            make(texts.validation(), words, settings, **told), MEASURED if texts.own is not None else None
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


def samples(loaded: Loaded, texts: Texts, record: Record) -> Callable[[], str | None]:
    """What shows how the model does, on another text each time."""
    prompts: list[str] = []

    def make() -> str | None:
        if not prompts:
            prompts.extend(beginnings(texts.validation(), loaded.architecture.task))
        return sample(loaded, prompts[len(record.validation) % len(prompts)]) if prompts else None

    return make


def finish(out: Path, loaded: Loaded, record: Record, files: Mapping[str, bytes]) -> None:
    """Write the model, its tokenizer, record and curve beside their place, then move them there."""
    part = state_path(out).parent / "model"
    shutil.rmtree(part, ignore_errors=True)
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
    record.save(part / place.TRAINING)
    (part / place.CURVE).write_text(svg(record), encoding="utf-8")
    place.publish(part, out, run_tokenizer.NAMES)
    place.remove_empty(part)


def pocket_numbers(architecture: Architecture) -> Mapping[str, Any]:
    """The numbers of the pocket preset; ZooError when the architecture has none."""
    preset = architecture.preset("pocket")
    if preset is None or preset.config is None:
        raise ZooError(f"{architecture.name} has no pocket preset: give a config.json with --config")
    return preset.config
