"""Tuning as one call: a checkpoint, examples, the trainer's loop, and an adapter folder at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from zoo import runtime
from zoo.checkpoint.adapter import CONFIG
from zoo.checkpoint.digest import digest
from zoo.errors import ZooError, warn
from zoo.loading import Loaded, load
from zoo.recipe import Model, learned_context
from zoo.tokenizer.chat_messages import text_of
from zoo.training import run_folder
from zoo.training.adapters import AdapterSettings, adapter_files, add_adapters, write_adapter
from zoo.training.answers import TokenRow, left_out, target_messages
from zoo.training.corpora import UserText, user_corpus
from zoo.training.data import Data, read_examples
from zoo.training.data_parallel import rows_per_rank
from zoo.training.example_lines import keys_of
from zoo.training.example_objective import ExampleBatches, ExampleObjective, Row
from zoo.training.examples import (
    Completion,
    Conversation,
    Example,
    TextExample,
    TranslationPair,
    named_errors,
)
from zoo.training.loop import STEPS_SAVED, Trainer, TrainingCallbacks
from zoo.training.memory import check_step
from zoo.training.objective import CorpusBatches, example_objective, fitting_texts, objective_of
from zoo.training.record import TrainingRecord, TrainingSettings, settings_in
from zoo.training.run import CHOICE, samples, text_prompts
from zoo.training.run_folder import RunFolder, State, state_path

ROUNDS = 3  # of the examples, where no number of steps is asked for
LENGTH = 2048  # tokens of an example at most, unless another length is asked for
BATCH = 4
Batches = ExampleBatches | CorpusBatches
MEASURED = 4  # times at least that the held-out loss is measured, after the first
RATES = {"lora": 1e-4, "dora": 1e-4, "full": 1e-5}  # peak learning rates


@dataclass(frozen=True)
class TuneSettings:
    """The settings of a run: which parameters, how they are trained, and by which objective with which options.

    Numbers that are None are chosen by the data and the kind of adapter.
    """

    adapter: AdapterSettings = field(default_factory=AdapterSettings)
    objective: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)  # of `TrainingSettings`

    def with_rows(self, rows: int) -> TrainingSettings:
        """The hyperparameters for so many rows to train on."""
        batch = self.training.get("batch", BATCH) * self.training.get("accumulate", 1)
        default: dict[str, Any] = {
            "steps": ROUNDS * -(-rows // batch),
            "batch": BATCH,
            "length": LENGTH,
            "rate": RATES[self.adapter.kind],
            "decay": 0.0,
            "objective": self.objective,
        }
        return TrainingSettings(**default | dict(self.training))


def tune_folder(
    source: str | Path,
    out: Path,
    data: str | Path,
    settings: TuneSettings,
    *,
    resume: bool = False,
    overwrite: bool = False,
    keep: bool = True,
    callbacks: TrainingCallbacks | None = None,
    **how: Any,
) -> TrainingRecord:
    """Tune `source` on the examples in `data` and write the adapter folder `out`, with its record and curve.

    `how` are options of `zoo.load`. `out/run` holds the state that `resume` starts from, after the end too unless `keep`
    is false. A folder that holds something is refused unless `overwrite` allows a new adapter in its place. ZooError names
    what cannot be: a setting, a line of the data, a model that the objective does not train.
    """
    callbacks = callbacks or TrainingCallbacks()
    with RunFolder(out, resume, overwrite, keep).claim(CONFIG) as state:
        callbacks.phase("reading the data")
        examples = read_examples(data)
        if state is not None:
            settings = resumed(out, state, settings, examples)
        callbacks.phase("loading the model")
        loaded = load(source, **how)
        about = {"source": str(source), "source_sha256": digest(loaded.folder)}
        if state is not None and state.record["settings"].get("source_sha256") != about["source_sha256"]:
            raise ZooError(f"{source}: is not the model that the run in {out} was started with")
        callbacks.phase("encoding the data")
        batches, training = batches_of(loaded, examples, settings, callbacks)
        chosen = add_adapters(loaded.model, settings.adapter, training.seed)
        rows_of_rank = rows_per_rank(training.batch)
        if isinstance(batches, ExampleBatches):
            rows = batches.longest()
            check_step(loaded, min(len(rows), rows_of_rank), max(row.length for row in rows), training)
        record = _new_record(about, loaded, examples, settings, training)
        run_folder.check_writable(out, record.parameters * (2 * 3 + 1) * 4)
        Trainer(
            loaded.model,
            batches.objective.loss,
            training,
            record,
            state_path(out),
            weight=batches.objective.weight,
            examples_in=batches.objective.examples_in,
            validate=partial(batches.held_out_loss, loaded.model, stop=callbacks.stop),
            sample=samples(loaded, partial(prompts_of, loaded, examples, batches, training.length), record),
            callbacks=callbacks,
            every=max(min(training.steps // MEASURED, STEPS_SAVED), 1),
            before=True,
        ).run(batches.training(), state)
        finish(out, loaded, settings.adapter, chosen, record)
    return record


def batches_of(
    loaded: Loaded,
    data: Data,
    settings: TuneSettings,
    callbacks: TrainingCallbacks,
) -> tuple[Batches, TrainingSettings]:
    """The batches that the objective makes of the data, and the settings for so many of them."""
    if loaded.tokenizer is None:
        raise ZooError(f"{loaded.folder}: has no tokenizer to read examples with")
    of_examples = example_objective(loaded, settings.objective, settings.options)
    if of_examples is not None:
        return example_batches(of_examples, loaded, data, settings, callbacks)
    objective = objective_of(loaded.architecture, settings.objective, loaded.registry)
    parallel = loaded.architecture.task == "translate"
    wanted = TranslationPair if parallel else TextExample
    if data.kind is not wanted:
        raise ZooError(f"{data.path}: has {keys_of(data.kind)}; this objective takes {keys_of(wanted)}")
    trained, held_out = (tuple(map(document, part)) for part in (data.train, data.valid))
    training = settings.with_rows(len(data.train))
    texts = user_corpus(UserText(Path(data.path), trained, held_out, parallel, data.digest))
    training = replace(training, length=min(training.length, loaded.recipe.context or training.length))
    texts = fitting_texts(texts, loaded.tokenizer, training, objective)
    return CorpusBatches(objective, texts, loaded.tokenizer, training), training


def document(example: Any) -> Any:
    """An example as a document of a corpus: a text, or a source and its target."""
    return example.text if isinstance(example, TextExample) else (example.source, example.target)


def example_batches(
    objective: ExampleObjective,
    loaded: Loaded,
    data: Data,
    settings: TuneSettings,
    callbacks: TrainingCallbacks,
) -> tuple[ExampleBatches, TrainingSettings]:
    """The batches of the encoded examples, and the settings for so many rows; warns of what was cut off."""
    if data.kind not in objective.takes:
        wanted = " or ".join(keys_of(kind) for kind in objective.takes)
        raise ZooError(f"{data.path}: has {keys_of(data.kind)}; this objective takes {wanted}")
    length = settings.with_rows(1).length
    context = learned_context(loaded.recipe) if isinstance(loaded.recipe, Model) else None
    length = min(length, context or length)
    trained, held_out = (rows_of(objective, loaded, part, length) for part in (data.train, data.valid))
    if not trained:
        raise ZooError(f"{data.path}: holds no example to train on")
    if (cut := left_out((*trained, *held_out), length)) is not None:
        warn(f"{data.path}: {cut}")
    if objective.prepare is not None:
        callbacks.phase("running the untouched model on the data")
        trained, held_out = (
            list(objective.prepare(loaded, part, callbacks.stop)) for part in (trained, held_out)
        )
    training = replace(settings.with_rows(len(trained)), length=length)
    return ExampleBatches(objective, loaded, trained, held_out, training.batch, training.seed), training


def rows_of(
    objective: ExampleObjective, loaded: Loaded, examples: Sequence[Example], length: int
) -> list[Row]:
    """The rows of examples; ZooError names the line of one that cannot be used."""
    rows: list[Row] = []
    for example in examples:
        with named_errors(example):
            rows += objective.encode(example, loaded, length)
    return rows


def prompts_of(
    loaded: Loaded, data: Data, batches: Batches, length: int
) -> list[tuple[str | list[int], str]]:
    """The prompts of held-out examples, or beginnings of their texts, each with the text that is shown for it."""
    prompts: list[tuple[str | list[int], str]] = []
    if data.kind in (TextExample, TranslationPair):
        return text_prompts(map(document, data.valid), loaded.architecture.task)
    if data.kind in (Completion, Conversation) and isinstance(batches, ExampleBatches):
        for example in data.valid[:CHOICE]:
            row = batches.objective.encode(example, loaded, length)[0]
            if isinstance(row, TokenRow) and (start := row.prompt_length) > 1:
                prompts.append((list(row.ids[:start]), question(example)))
    return prompts


def question(example: Any) -> str:
    """What the first target of an example answers: the prompt, or the message before it."""
    if isinstance(example, Completion):
        return example.prompt
    return text_of(example.messages[target_messages(example.messages)[0] - 1])


def resumed(out: Path, state: State, settings: TuneSettings, data: Data) -> TuneSettings:
    """The settings of the run in `out`, with more steps if these are asked for; ZooError for any other change."""
    saved = state.record["settings"]
    if "adapter" not in saved:
        raise ZooError(f"{out}: its run trains a new model; `zoo train` goes on with it")
    if saved.get("data_sha256") != data.digest:
        raise ZooError(f"{data.path}: is not the data that the run in {out} was started with")
    before = settings_in(saved)
    goes_on = before.to(settings.training.get("steps", before.steps), state.step)
    asked = {**settings.training, "steps": before.steps, **asdict(settings.adapter), **_choices(settings)}
    for name, value in json.loads(json.dumps(asked)).items():
        if value != {**saved, **saved["adapter"]}.get(name):
            name = {"kind": "type"}.get(name, name)
            raise ZooError(f"{out}: its run was made with another `{name}`; only `steps` may change")
    run_folder.check_unfinished(out, state, goes_on.steps)
    return replace(settings, training=vars(goes_on))


def _choices(settings: TuneSettings) -> dict[str, Any]:
    return {"objective": settings.objective, "options": dict(settings.options)}


def _new_record(
    source: Mapping[str, Any],
    loaded: Loaded,
    data: Data,
    settings: TuneSettings,
    training: TrainingSettings,
) -> TrainingRecord:
    """The record of a run before its first step; `source` says which model it tunes."""
    trained = sum(array.size for _, array in tree_flatten(loaded.model.trainable_parameters()))
    about = {
        **source,
        "adapter": asdict(settings.adapter),
        "data": data.path,
        "data_sha256": data.digest,
        **_choices(settings),
    }
    return TrainingRecord(
        architecture=loaded.architecture.name,
        parameters=trained,
        settings=vars(training) | about,
        documents="examples",
        versions=runtime.versions(),
    )


@run_folder.by_first_rank
def finish(
    out: Path, loaded: Loaded, settings: AdapterSettings, chosen: list[str], record: TrainingRecord
) -> None:
    """Write the adapter, its record and curve, and put them in the place of `out` in one step."""
    tensors, config = adapter_files(loaded.model, settings, chosen, loaded.architecture, loaded.recipe)
    with run_folder.publishing(out, ()) as part:
        write_adapter(part, tensors, {"model": record.settings["source"], **config})
        run_folder.write_record(part, record)
