"""Resolves a model's name, folder or hub id to its recipe, without its weights. Imports no mlx.

Also says how to run it, and the facts of its small checkpoint: its training and its accuracy.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.architecture import Architecture, Preset
from zoo.architecture.architecture import TASKS
from zoo.checkpoint.source import find, is_architecture, named_preset
from zoo.config import Config
from zoo.describe.facts.fact import Fact, Sheet
from zoo.describe.facts.ranks import Cluster
from zoo.describe.facts.sheet import facts_of, tokenizer_facts
from zoo.errors import CheckpointError, SourceError, ZooError, warn
from zoo.files.reading import read_object
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry
from zoo.host.resolve import read_recipe, recipe_architecture, recipe_config
from zoo.recipe import Model
from zoo.recipe.policy import CachePolicy

if TYPE_CHECKING:
    from zoo.tokenizer import Tokenizer

NOT_MEASURED = "not measured"


@frozen()
class Described(Frozen):
    """The architecture and recipe of a source. `origin` names the source: "llama:8b", a GGUF file's own name.

    `preset` is None for a folder, a hub id or a recipe. `config` holds its config.json where there is one, `path` where it
    was read from, `source` what a person typed for it.
    """

    architecture: Architecture
    origin: str
    recipe: Model
    preset: Preset | None = None
    config: dict[str, Any] | None = None
    path: Path | None = None
    source: str | None = None

    def tokenizer(self, registry: Registry) -> Tokenizer | None:
        """The `Tokenizer` of a folder, a file or an installed checkpoint; uses no network.

        None for other sources, and where it cannot be read.
        """
        embedded = self.preset is not None and self.preset.embedded
        if self.path is None and not embedded:
            return None
        from zoo.checkpoint.checkpoint import open_checkpoint

        try:
            path = self.path or find(self.origin, registry, weights=False, tokenizer=True).path
            return open_checkpoint(path, registry, self.architecture).tokenizer()
        except ZooError as error:
            warn(f"{self.origin}: no facts of its tokenizer ({error})")
            return None

    def sheet(
        self,
        registry: Registry,
        context: int | None = None,
        quantize: str | None = None,
        tokenizer: Tokenizer | None = None,
        policy: CachePolicy | None = None,
        cluster: Cluster | None = None,
    ) -> Sheet:
        """Its fact sheet, with the facts of `tokenizer`, of a cache's `policy` and of a `cluster` where they are given."""
        more = list(tokenizer_facts(tokenizer))
        if self.preset is not None and self.preset.licence:
            more.append(Fact("licence", "licence", self.preset.licence))
        return facts_of(
            self.recipe,
            context=context,
            quantize=quantize,
            title=self.origin,
            registry=registry,
            quantizes=self.architecture.quantizes,
            policy=policy,
            cluster=cluster,
            more=more,
        )


def _of_preset(name: str, registry: Registry) -> Described:
    """Describe "llama" (its full-size preset) or "llama:pocket".

    SourceError when there is no such preset, or it carries no numbers.
    """
    architecture, wanted = named_preset(name, registry)
    preset = architecture.preset(wanted) if wanted else architecture.full_size or architecture.preset()
    if not architecture.presets:
        raise SourceError(f"{architecture.name} has no numbers of its own: give the folder of a checkpoint")
    if preset is None or preset.config is None:
        has = ", ".join(p.name for p in architecture.presets if p.config) or "none"
        what = f"preset {wanted!r}" if wanted else "preset"
        raise SourceError(f"{name}: {architecture.name} has no {what} with numbers; it has: {has}")
    recipe = architecture.recipe_of(Config(preset.config))
    architecture = architecture.with_causality(preset.config)
    return Described(architecture, f"{architecture.name}:{preset.name}", recipe, preset, dict(preset.config))


def describe(source: str, registry: Registry, revision: str | None = None) -> Described:
    """Describe an architecture (llama), a preset (llama:pocket), a folder, a hub id, or a recipe in a .json file.

    Reads only the config of a hub id, and of a folder what shows which recipe its weights have. ZooError for what cannot be found or read.

    >>> from zoo.describe import describe
    >>> from zoo.host.registry import default_registry
    >>> found = describe("llama:8b", default_registry())
    >>> found.recipe.parameters(found.recipe.dim)
    8030261248
    """
    if source.endswith(".json") and not Path(source).is_dir():
        if not Path(source).is_file():
            raise SourceError(f"{source}: no such file")
        written = read_recipe(Path(source), registry)
        return Described(recipe_architecture(recipe_config(written), registry), source, written)
    if is_architecture(source, registry) or not ("/" in source or Path(source).exists()):
        if revision is not None:
            raise SourceError(f"{source}: has no revision {revision!r}: only a hub id has revisions")
        return _of_preset(source, registry)
    from zoo.checkpoint.checkpoint import open_checkpoint
    from zoo.checkpoint.ties import recipe_of

    checkpoint = open_checkpoint(find(source, registry, revision, weights=False).path, registry)
    recipe, path = recipe_of(checkpoint), checkpoint.path
    origin = checkpoint.name if path.is_file() else source
    return Described(checkpoint.architecture, origin, recipe, None, checkpoint.config, path, source)


def describe_each(sources: Sequence[str], registry: Registry) -> list[Described]:
    """Describe models to stand side by side. Where two files have one name, they are called as they were typed."""
    models = [describe(source, registry) for source in sources]
    counts = Counter(model.origin for model in models if model.source)
    return [
        replace(model, origin=model.source) if model.source and counts[model.origin] > 1 else model
        for model in models
    ]


def base_of(model: Described, registry: Registry) -> tuple[str, Model] | None:
    """The name and recipe of the architecture that this one is a variant of, with the same numbers.

    The base's own numbers where it cannot read this one's config. None where there is no base; warns where no plugin has
    it.
    """
    base = model.architecture.base
    if base is None:
        return None
    if base not in registry:
        warn(f"{model.architecture.name}: its base {base!r} is unknown{registry.suggestion(base)}")
        return None
    if model.config:
        with suppress(ZooError):
            return base, registry.architecture(base).recipe_of(Config(model.config))
    with suppress(ZooError):
        return base, _of_preset(base, registry).recipe
    return None


def command_of(task: str) -> str:
    """The command that runs models of a task: "run", "embed" or "classify"."""
    return {"encode": "embed", "classify": "classify"}.get(task, "run")


def how_to_run(model: Described) -> list[tuple[str, str]]:
    """The command lines that run a described model, each with a remark or ""; [] for none. TEXT stands for a person's text.

    A folder or an installed checkpoint is named itself, a published one by its hub id, and beside that the installed
    checkpoint of its architecture. Where none can be run, `zoo train` is the line for an architecture that has the numbers
    of a small one.
    """
    preset, architecture = model.preset, model.architecture
    # An encoder without a head makes vectors. A plugin's own task or model has no task in its recipe.
    known = architecture.task in TASKS and isinstance(model.recipe, Model)
    own = model.recipe.task if known else architecture.task
    command, installed = command_of(own), architecture.preset()
    if model.path is not None or (preset is not None and preset.embedded):
        return [(f"zoo {command} {shlex.quote(model.source or model.origin)} TEXT", "")]
    lines = []
    if preset is not None and preset.hub:
        lines.append((f"zoo {command} {next(iter(preset.aliases), preset.hub)} TEXT", ""))
    if installed is not None and installed.embedded:
        command = command_of(architecture.task)
        lines.append((f"zoo {command} {architecture.name} TEXT", "the small checkpoint that is installed"))
    if not lines and architecture.task == "classify":  # which nothing trains from the beginning
        lines.append((f"zoo {command} FOLDER TEXT", "a checkpoint of your own"))
    elif not lines and architecture.preset("pocket") is not None:
        lines.append((f"zoo train {architecture.name}", "trains a small one"))
    return lines


def pocket_facts(architecture: Architecture, record: Mapping[str, Any] | None = None) -> tuple[Fact, ...]:
    """The facts of an architecture's embedded checkpoint; none where it has none.

    Training and answers are read beside the checkpoint. `record` has what `tools/measure_pockets.py` measured of it: a value
    of None is one that it cannot have, one that is missing was not measured.
    """
    preset = next((one for one in architecture.presets if one.embedded), None)
    if preset is None or preset.folder is None:
        return ()
    training, accuracy = (
        read_object(preset.folder, name, CheckpointError) for name in ("training.json", "accuracy.json")
    )
    settings = training.get("settings", {})
    return (
        Fact("pocket", "checkpoint", f"{architecture.name}:{preset.name}"),
        Fact("parameters", "parameters", training.get("parameters"), "parameters"),
        Fact("corpus", "trained on", settings.get("corpus")),
        Fact("steps", "training steps", settings.get("steps")),
        *_answers(accuracy.get("scores", [])),
        *_recorded(record or {}),
    )


def _answers(scores: list[dict[str, Any]]) -> Iterator[Fact]:
    """The shares of right answers: to all questions, and to those that were not in the training text."""
    for name, label, right, questions in (
        ("right", "right answers", "right", "questions"),
        ("unseen", "right answers to what it was not trained on", "unseen_right", "unseen"),
    ):
        total, good = (sum(score.get(key, 0) for score in scores) for key in (questions, right))
        words = f"{100 * good / total:.1f} % ({good:,} / {total:,})" if total else NOT_MEASURED
        yield Fact(name, label, good / total if total else None, words=words)


def _recorded(record: Mapping[str, Any]) -> Iterator[Fact]:
    """The figures of a record in which models can be compared.

    Its speeds are not among them: they are medians without intervals.
    """
    for name, label, key, unit, shown in (
        ("bits", "held-out text, bits a byte", "bits_per_byte", "bits", "{:.3f}"),
        ("peak", "peak memory", "peak_memory_bytes", "bytes", ""),
    ):
        if key in record:
            value = record[key]
            yield Fact(name, label, value, unit, words="" if value is None else shown.format(value))
        else:
            yield Fact(name, label, None, words=NOT_MEASURED)
