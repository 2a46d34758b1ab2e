"""Sources measured here, side by side: each run in a process of its own, in turn, medians of several.

Run as a script this is such a process: one run of one source, timed. Axes: B batch (1), S source or prompt, T target, D width.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.checkpoint.parameters import parameters_of
from zoo.checkpoint.source import find, is_architecture, named_preset
from zoo.config import Config
from zoo.describe import Fact, describe
from zoo.errors import PromptError, SourceError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.generation import stream
from zoo.generation.loop.prompt import mask_id
from zoo.host.registry import Registry, default_registry
from zoo.inspect.timing import alternating, answer, run_in_subprocess, timed_tokens
from zoo.loading import Loaded, evaluate_weights, load, memory_shortage
from zoo.recipe import Model

PROMPT_TOKENS, NEW_TOKENS = 128, 32  # where every model has the context
WARM = 4  # tokens of each kind that are run before the clock
MEASURED = (
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "first_token_seconds",
    "peak_memory_bytes",
)

Report = Callable[[int, int], None]


@frozen()
class Measured(Frozen):
    """Measurements of one source on this machine: medians of `runs` runs, each in a process of its own, after a warm-up.

    `measured` says which model that was, a source's own name or the preset it stands for ("llama:pocket"), `random`
    whether its weights were drawn at random. Prefill is the reading of `prompt_tokens`, decode the writing of
    `new_tokens` one after the other; for a translator the encoding of a source and the decoding of a target, for an
    encoder the encoding alone, for a model that uncovers masks (`task` "denoise") the rate at which tokens are uncovered,
    in "decode". What a model does not do is None. `peak_memory_bytes` is the most that MLX held, weights included.

    >>> from zoo.inspect.measure import measure
    >>> (found,) = measure(["llama"], prompt_tokens=8, new_tokens=2, runs=1)
    >>> found.measured, found.random, found.peak_memory_bytes > found.parameters
    ('llama:pocket', False, True)
    """

    source: str
    measured: str
    architecture: str
    task: str
    parameters: int
    random: bool
    dtype: str
    prompt_tokens: int
    new_tokens: int | None
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    first_token_seconds: float | None
    peak_memory_bytes: int
    runs: tuple[dict[str, float | None], ...]

    def as_json(self) -> dict[str, Any]:
        """The fields; each of `runs` has the figures of one run."""
        return vars(self) | {"runs": list(self.runs)}

    def facts(self) -> tuple[Fact, ...]:
        """The figures as facts, to be shown beside those of other models."""
        return (
            Fact("measured", "measured model", self.measured),
            Fact("random", "random weights", self.random),
            Fact("dtype", "numbers", self.dtype),
            Fact("parameters", "parameters", self.parameters, "parameters"),
            Fact("prefill", "prefill", self.prefill_tokens_per_second, "tokens/s"),
            Fact("decode", "decode", self.decode_tokens_per_second, "tokens/s"),
            Fact("first", "first token after", self.first_token_seconds, "s"),
            Fact("peak", "peak memory", self.peak_memory_bytes, "bytes"),
        )


@dataclass(frozen=True)
class SourceModel:
    """The model that is run for a source: its checkpoint, or `recipe`, if given, with random weights."""

    name: str
    architecture: Architecture | None = None
    recipe: Model | None = None


def measure(
    sources: Sequence[str],
    *,
    prompt_tokens: int | None = None,
    new_tokens: int | None = None,
    runs: int = 3,
    report: Report = lambda done, total: None,
    registry: Registry | None = None,
) -> list[Measured]:
    """Run every source on this machine and give what was measured, in the order of `sources`.

    A source is an architecture (its pocket checkpoint, or a model of the pocket's size), a preset, a folder, a file, a hub
    id, or a recipe in a .json file. A preset that is not part of this installation and a recipe get random weights:
    nothing is downloaded for them. `prompt_tokens` and `new_tokens` default to 128 and 32, fewer where a model has a
    smaller context, the same for all. `report` is called with the runs that are done and those in all. The processes have
    the plugins that are installed; `registry` is asked here.
    SourceError, by name and with the sum, for a model that does not fit in memory; PromptError for numbers that cannot be.

    >>> from zoo.inspect.measure import measure
    >>> llama, mamba = measure(["llama", "mamba"], prompt_tokens=8, new_tokens=2, runs=1)
    >>> llama.decode_tokens_per_second > 0 and mamba.first_token_seconds > 0
    True
    """
    for name, value in (("prompt_tokens", prompt_tokens), ("new_tokens", new_tokens), ("runs", runs)):
        if value is not None and value < 1:
            raise PromptError(f"`{name}` must be at least 1, got {value}")
    if not sources:
        raise ZooError("there is nothing to measure")
    registry = registry or default_registry()
    names = list(dict.fromkeys(sources))
    models = [source_model(name, registry) for name in names]
    for model in models:
        check_memory(model, (prompt_tokens or PROMPT_TOKENS) + (new_tokens or NEW_TOKENS))
    contexts = [context for model in models if (context := _context(model, registry))]
    prompt, new = _lengths(min(contexts, default=None), prompt_tokens, new_tokens)
    done, total = 0, runs * len(names)

    def run(name: str) -> dict[str, Any]:
        nonlocal done
        values = run_in_subprocess("zoo.inspect.measure", [name, str(prompt), str(new)], name)
        done += 1
        report(done, total)
        return values

    report(done, total)
    measured = {name: _medians(name, rows) for name, rows in alternating(names, runs, run).items()}
    return [measured[name] for name in sources]


def source_model(source: str, registry: Registry) -> SourceModel:
    """The model that is run for a source; SourceError where there is none."""
    if source.endswith(".json") and not Path(source).is_dir():
        described = describe(source, registry)
        return SourceModel(source, described.architecture, described.recipe)
    if not is_architecture(source, registry):
        return SourceModel(source)
    architecture, wanted = named_preset(source, registry)
    preset = architecture.preset(wanted)
    if wanted is None and not (preset and preset.embedded):
        small = (architecture.preset(name) for name in ("pocket", "tiny"))
        preset = next((p for p in small if p is not None and p.config is not None), preset)
    if preset is None:
        if not architecture.presets:
            raise SourceError(f"{source}: has no numbers of its own: give a folder, a hub id or a recipe")
        has = ", ".join(p.name for p in architecture.presets)
        raise SourceError(f"{source}: {architecture.name} has no preset {wanted!r}; it has {has}")
    name = f"{architecture.name}:{preset.name}"
    if preset.embedded or preset.config is None:
        return SourceModel(name)
    return SourceModel(name, architecture, architecture.recipe_of(Config(preset.config)))


def check_memory(model: SourceModel, tokens: int) -> None:
    """SourceError, with the sum, when a model of random weights does not fit in this machine's memory."""
    if model.recipe is None:
        return  # loading checks it
    recipe, width = model.recipe, random_dtype().size
    sum_in_words = memory_shortage(recipe.parameters(recipe.dim) * width, recipe, width, tokens)
    if sum_in_words is not None:
        raise SourceError(f"{model.name}: does not fit, with random weights: {sum_in_words}")


def random_dtype() -> mx.Dtype:
    """The dtype of random weights: what this device computes in, on a GPU that of most published checkpoints."""
    return runtime.compute_dtype() or mx.bfloat16


def _context(model: SourceModel, registry: Registry) -> int | None:
    """The most tokens that the model is made for, None where its recipe names no end."""
    if model.recipe is not None:
        return model.recipe.context
    source = find(model.name, registry)  # a hub id's weights are fetched here, where their bar is seen
    checkpoint = open_checkpoint(source.path, registry, source.architecture)
    return checkpoint.architecture.recipe_of(checkpoint.config_of()).context


def _lengths(context: int | None, prompt: int | None, new: int | None) -> tuple[int, int]:
    """The numbers of tokens read and written; PromptError for more than the smallest context has."""
    if context is None or (prompt or PROMPT_TOKENS) + (new or NEW_TOKENS) <= context:
        return prompt or PROMPT_TOKENS, new or NEW_TOKENS
    if (prompt or 1) + (new or 1) > context:
        raise PromptError(
            f"`prompt_tokens` and `new_tokens`: {prompt or 1} and {new or 1} are more than the smallest context, {context}"
        )
    new = new or min(NEW_TOKENS, max(context // 4, 1), context - (prompt or 1))
    return prompt or min(PROMPT_TOKENS, context - new), new


def _medians(source: str, rows: list[dict[str, Any]]) -> Measured:
    """The medians of a source's runs."""

    def middle(name: str) -> Any:
        values = [row[name] for row in rows]
        return None if None in values else median(values)

    figures = {name: middle(name) for name in MEASURED}
    figures["peak_memory_bytes"] = int(figures["peak_memory_bytes"])
    runs = tuple({name: row[name] for name in MEASURED} for row in rows)
    return Measured(**{"source": source, **rows[0], **figures, "runs": runs})


def to_json(measured: Sequence[Measured]) -> str:
    """The record of a measurement: figures, and versions and machine they are of."""
    record = {"measured": [one.as_json() for one in measured], "versions": runtime.versions()}
    return json.dumps(record, ensure_ascii=False)


def measured_run(source: str, prompt_tokens: str, new_tokens: str) -> dict[str, Any]:
    """Measure one run: the fields of `zoo.inspect.measure.Measured` without source and runs."""
    prompt, new = int(prompt_tokens), int(new_tokens)
    registry = default_registry()
    subject = source_model(source, registry)
    random = subject.recipe is not None
    loaded = random_model(subject, registry) if random else load(subject.name, registry=registry)
    figures_of(loaded, min(prompt, WARM), min(new, WARM))
    figures = figures_of(loaded, prompt, new)
    return {
        "measured": subject.name,
        "architecture": loaded.architecture.name,
        "task": loaded.architecture.task,
        "parameters": loaded.recipe.parameters(loaded.recipe.dim),
        "random": random,
        "dtype": _dtype(loaded.model),
        "prompt_tokens": prompt,
        "new_tokens": new if figures.get("decode_tokens_per_second") is not None else None,
        **dict.fromkeys(MEASURED),
        "peak_memory_bytes": runtime.peak_memory(),
        **figures,
    }


def random_model(subject: SourceModel, registry: Registry) -> Loaded:
    """The model of a recipe with random weights, as `zoo.load` would give it, without a tokenizer."""
    assert subject.architecture is not None and subject.recipe is not None
    model = assemble(subject.recipe, registry)
    model.set_dtype(random_dtype())
    evaluate_weights(model)
    runtime.set_up_device()
    return Loaded(
        model, None, subject.architecture, subject.recipe, {}, Path(subject.name), registry=registry
    )


def figures_of(loaded: Loaded, prompt: int, new: int) -> dict[str, float]:
    """The figures of what a model does: an encoder-decoder encodes a source and decodes a target."""
    if loaded.model.translates:
        return read_and_write(loaded, prompt, new) | encode(loaded, prompt)
    if loaded.architecture.task == "denoise":
        return uncover(loaded, prompt, new)
    if loaded.model.decodes and loaded.architecture.causality != "full":
        return read_and_write(loaded, prompt, new)
    return encode(loaded, prompt)


def read_and_write(loaded: Loaded, prompt: int, new: int) -> dict[str, float]:
    """A decoder: `prompt` tokens are read, `new` ones written, the likeliest each time."""
    first, rest = _written(loaded, _ids(loaded, prompt), new)
    return {
        "prefill_tokens_per_second": prompt / first,
        "decode_tokens_per_second": (new - 1) / rest if new > 1 else 1 / first,
        "first_token_seconds": first,
    }


def encode(loaded: Loaded, prompt: int) -> dict[str, float]:
    """An encoder: a text of `prompt` tokens becomes hidden states."""
    tokens = mx.array([_ids(loaded, prompt)])
    began = time.perf_counter()
    mx.eval(loaded.model.encode(tokens))  # (1, S) -> (1, S, D)
    return {"prefill_tokens_per_second": prompt / (time.perf_counter() - began)}


def uncover(loaded: Loaded, prompt: int, new: int) -> dict[str, float]:
    """A model that uncovers masks: `new` of them after a prompt, by its own strategy; the first token is the first shown."""
    try:
        mask = mask_id(loaded)
    except PromptError:  # a recipe says nothing of tokens
        mask = loaded.recipe.embedding.vocab - 1
    first, rest = _written(loaded, _ids(loaded, prompt, but=mask), new, mask_token_id=mask)
    return {"decode_tokens_per_second": new / (first + rest), "first_token_seconds": first}


def _written(loaded: Loaded, ids: list[int], new: int, **config: int) -> tuple[float, float]:
    """Seconds to the first of `new` tokens and those of the others, as `zoo.stream` gives them.

    Without a tokenizer, and with no settings but `config`, there is no end token: no text is shorter.
    """
    endless = replace(loaded, tokenizer=None, config=config, generation_config={})
    tokens: list[int] = []

    def written() -> Iterator[int]:
        for step in stream(endless, ids, max_tokens=new):
            if step.token is not None:
                tokens.append(step.token)
                yield step.token

    seconds = timed_tokens(written())
    if len(tokens) != new:
        raise PromptError(f"{loaded.architecture.name}: wrote {len(tokens)} tokens, and not {new}")
    return seconds


def _ids(loaded: Loaded, count: int, but: int | None = None) -> list[int]:
    """Random ids of the vocabulary, the same in every run."""
    ids: list[int] = mx.random.randint(
        0, loaded.recipe.embedding.vocab, (count,), key=mx.random.key(0)
    ).tolist()
    return [0 if id == but else id for id in ids]


def _dtype(model: nn.Module) -> str:
    """The dtype of most floating-point numbers of the weights, "packed" beside it where some are quantized."""
    sizes: Counter[mx.Dtype] = Counter()
    for array in parameters_of(model).values():
        sizes[array.dtype] += array.size
    floats = [dtype for dtype in sizes if mx.issubdtype(dtype, mx.floating)]
    most = str(max(floats, key=sizes.__getitem__, default="none")).removeprefix("mlx.core.")
    return f"{most}, packed" if mx.uint32 in sizes else most


if __name__ == "__main__":
    answer(measured_run)
