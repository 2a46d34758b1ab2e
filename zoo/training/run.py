"""Training as one call: corpus, tokenizer, model, loop, and a Hugging Face style folder at the end."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import TRAINED, assemble, check_memory
from zoo.checkpoint.convert import save
from zoo.checkpoint.open import make_recipe
from zoo.checkpoint.parameters import export
from zoo.config import Config
from zoo.errors import ConfigError, ZooError
from zoo.generation import generate
from zoo.host.registry import RECIPE_TYPE, Registry, default_registry
from zoo.host.resolve import recipe_architecture, recipe_config
from zoo.loading import Loaded
from zoo.recipe import EncoderDecoder, Model, learned_context
from zoo.tokenizer import Tokenizer
from zoo.training import run_folder
from zoo.training.corpora import corpus
from zoo.training.data_parallel import rows_per_rank
from zoo.training.loop import Trainer, TrainingCallbacks, initialise
from zoo.training.objective import END, CorpusBatches, fitting_texts, objective_of, token
from zoo.training.record import TrainingRecord, TrainingSettings
from zoo.training.run_folder import RunFolder, State, check_resumed, state_path
from zoo.training.vocabulary import NAMES, given_files, open_tokenizer, tokenizer_files

TOKENIZER_KEYS = ("vocab_size", "bos_token_id", "eos_token_id")  # of a config: they come from the tokenizer
# Of the samples, a model's completions of held-out texts:
TOKENS = 20  # that a model adds
LONGEST = 60  # characters of a text to begin with
SHORTEST = 12
CHOICE = 8  # texts that take turns


def settings_of(
    what: str | Model, given: Mapping[str, Any], registry: Registry | None = None
) -> TrainingSettings:
    """Training settings with the `given` values; steps, batch and rate default to those of the objective.

    `what` is an architecture's name or a recipe. ZooError for an invalid setting.

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
    callbacks: TrainingCallbacks | None = None,
    registry: Registry | None = None,
    **folder: bool,
) -> TrainingRecord:
    """Train a model from nothing and write its folder `out`: weights, config, tokenizer, record, curve.

    `what` is the name of an architecture, or a recipe; None, where `resume`, is what the run trains. `config` are the
    numbers of an architecture's config.json (default: the pocket preset's), `tokenizer` a folder or tokenizer.json to use
    (default: one trained on the corpus); the vocabulary's size becomes the tokenizer's. `folder` are
    `resume`, which goes on with the run in `out`, `overwrite`, which allows a new model in the place of another, and `keep`:
    unless it is False, `out/run` holds the state to resume from after the end, too. ZooError names what cannot be: a
    setting, a folder, a text, a recipe.

    >>> from pathlib import Path
    >>> from zoo.training.run import settings_of, train_folder
    >>> record = train_folder("llama", Path("mine"), settings_of("llama", {"steps": 1, "batch": 1}))
    >>> zoo.load("mine").architecture.name
    'llama'
    """
    callbacks = callbacks or TrainingCallbacks()
    registry = registry or default_registry()
    with RunFolder(out, **folder).claim() as state:
        if state is None:
            target = target_of(what, registry, config)
        elif tokenizer is not None:
            raise ZooError(f"{out}: its run goes on with its own tokenizer; leave the given one out")
        else:
            target = resumed_target(out, state, what, registry, config)
        objective = objective_of(target.architecture, settings.objective, registry)
        # What cannot be is refused before anything is read.
        check_memory(target.recipe(), TRAINED, rows_per_rank(settings.batch) * settings.length)
        callbacks.phase("reading the corpus")
        texts = corpus(settings.corpus or objective.corpus, target.architecture.task, registry)
        settings = replace(settings, corpus=texts.name, packed=texts.user_text is not None)
        if state is not None:
            check_resumed(out, state, settings, texts)
            files: Mapping[str, bytes] = state.files
        elif tokenizer is not None:
            files = given_files(tokenizer)
        else:
            callbacks.phase("training a tokenizer")
            files = tokenizer_files(texts, objective.vocab, texts.names() if objective.names else ())
        own_tokenizer = open_tokenizer(files, registry)
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
            sample=samples(
                loaded, partial(text_prompts, texts.validation(), loaded.architecture.task), record
            ),
            callbacks=callbacks,
        ).run(batches.training(), state)
        finish(out, loaded, record, files)
    return record


def _new_model(target: Target, tokenizer: Tokenizer, settings: TrainingSettings, out: Path) -> Loaded:
    """The model with the weights that a training starts from; ZooError for rows longer than it has positions."""
    recipe = target.recipe()
    for side in (recipe.encoder, recipe.decoder) if isinstance(recipe, EncoderDecoder) else (recipe,):
        context = learned_context(side)
        if context is not None and settings.length > context:
            raise ConfigError(
                f"`length`: {target.name} has {context} positions, fewer than {settings.length}"
            )
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


def samples(
    loaded: Loaded, prompts: Callable[[], Sequence[tuple[str | list[int], str]]], record: TrainingRecord
) -> Callable[[], str | None]:
    """Make a function that completes another held-out prompt at each call.

    `prompts` returns pairs of a prompt, as text or token ids, and the text to display for it.
    """
    prompts = cache(prompts)

    def make() -> str | None:
        choices = prompts()
        return sample(loaded, *choices[len(record.validation) % len(choices)]) if choices else None

    return make


@run_folder.by_first_rank
def finish(out: Path, loaded: Loaded, record: TrainingRecord, files: Mapping[str, bytes]) -> None:
    """Write the model, its tokenizer, record and curve, and put them in the place of `out` in one step."""
    with run_folder.publishing(out, NAMES) as part:
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
        run_folder.write_record(part, record)


@dataclass(frozen=True)
class Target:
    """The model that a run trains: an architecture and a config of it. Records call it `name`.

    The config of a recipe holds it, and nothing else of the model.
    """

    name: str
    architecture: Architecture
    config: dict[str, Any]
    registry: Registry

    def recipe(self) -> Any:
        """The recipe; a ZooError for a config that cannot be."""
        return make_recipe(self.architecture, self.config, registry=self.registry)

    def with_tokenizer(self, tokenizer: Tokenizer, end: int) -> Target:
        """The same for the vocabulary of a tokenizer, whose texts end with the token `end`."""
        size = tokenizer.vocab_size
        sized: dict[str, Any] = {"vocab_size": size}
        if self.name == RECIPE_TYPE:
            sized = {"recipe": self.recipe().with_vocab(size).to_json()}
        return replace(self, config=self.config | sized | {"bos_token_id": end, "eos_token_id": end})


def architecture_of(what: str | Model, registry: Registry) -> Architecture:
    """The architecture of that name, or the one that a recipe is."""
    if isinstance(what, Model):
        return recipe_architecture(recipe_config(what), registry)
    return registry.architecture(what)


def target_of(
    what: str | Model | None, registry: Registry, config: Mapping[str, Any] | None = None
) -> Target:
    """The target of a new run: an architecture by name, with this config or its pocket preset's, or a recipe."""
    if what is None:
        raise ZooError("what to train is an architecture's name or a recipe: only `resume` goes without")
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
    """The target of the run in `out`; ZooError where `what` or `config`, None when not given, ask for another model.

    What comes from the tokenizer does not count: the size of the vocabulary, and the ids of its tokens.
    """
    if "config" not in state.record["settings"]:
        raise ZooError(f"{out}: its run tunes a model; `zoo tune` goes on with it")
    name, saved = state.record["architecture"], dict(state.record["settings"]["config"])
    asked = RECIPE_TYPE if isinstance(what, Model) else name if what is None else what
    if asked != name:
        raise ZooError(f"{out}: its run trains {name}, not {asked}")
    if name != RECIPE_TYPE:
        given = {key: value for key, value in (config or {}).items() if key not in TOKENIZER_KEYS}
        if any(saved.get(key, value) != value for key, value in given.items()):
            raise ZooError(f"{out}: its run has another config; leave the given one out")
        return Target(name, registry.architecture(name), saved, registry)
    if config is not None:
        raise ZooError(f"{out}: its run trains a recipe, which has no other config; leave `config` out")
    target = Target(name, recipe_architecture(saved, registry), saved, registry)
    recipe = target.recipe()
    if isinstance(what, Model) and what.with_vocab(recipe.vocab) != recipe:
        raise ZooError(f"{out}: its run has another recipe; leave the given one out")
    return target


def pocket_config(architecture: Architecture) -> Mapping[str, Any]:
    """The config of the pocket preset; ZooError when the architecture has none."""
    preset = architecture.preset("pocket")
    if preset is None or preset.config is None:
        raise ZooError(f"{architecture.name} has no pocket preset: give the numbers of one in `config`")
    return preset.config


def beginnings(documents: Iterable[Any], task: str) -> list[str]:
    """Prompts of the held-out texts: the first part of a line, or a source."""
    prompts: list[str] = []
    for document in islice(documents, 50):
        if task == "translate":
            prompts.append(document[0])
        elif len(prompts) < CHOICE:
            lines = [line.strip() for line in document[:20_000].split("\n")]
            prompts += [cut(line) for line in lines if len(line) >= SHORTEST]
    return prompts[:CHOICE]


def text_prompts(documents: Iterable[Any], task: str) -> list[tuple[str | list[int], str]]:
    """The `beginnings` of documents, each twice: the prompt, and the text that is shown for it."""
    return [(text, text) for text in beginnings(documents, task)]


def cut(line: str) -> str:
    """About the first half of a line, up to a space where it has one."""
    half = line[: min(len(line) * 2 // 3, LONGEST)]
    before, space, _ = half.rpartition(" ")
    return before if space and len(before) >= len(half) // 2 else half


def sample(loaded: Loaded, prompt: str | list[int], shown: str = "") -> str | None:
    """One line: the end of `shown` (the prompt unless given), and what the model writes after `prompt`; "…" where it is cut.

    That is a continuation, a translation, or the likeliest tokens for a mask. None where the model makes no text, or
    refuses the prompt.
    """
    assert loaded.tokenizer is not None
    try:
        if loaded.architecture.task == "fill-mask":
            mask = loaded.tokenizer.special_tokens.get("mask_token", "[MASK]")
            candidates = generate(loaded, f"{prompt} {mask}").candidates
            text = " or ".join(str(candidate["text"]).strip() for candidate in candidates[:3])
        else:
            answer = generate(loaded, prompt, max_tokens=TOKENS)
            text = answer.text + "…" * (answer.finish_reason == "length")
    except Exception:  # a plugin's strategy may raise anything, and what is only shown must not end a run
        return None
    return f"{ending(one_line(shown or str(prompt)))} → {one_line(text)}"


def ending(line: str) -> str:
    """About the last `LONGEST` characters of a line, from the beginning of a word where it has several."""
    if len(line) <= LONGEST:
        return line
    end = line[-LONGEST:]
    return f"… {end.partition(' ')[2] or end}"


def one_line(text: str) -> str:
    """The text with every run of white space, control and format characters as one space."""
    plain = "".join(" " if unicodedata.category(mark) in ("Cc", "Cf", "Zl", "Zp") else mark for mark in text)
    return " ".join(plain.split())
