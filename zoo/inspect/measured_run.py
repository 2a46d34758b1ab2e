"""One run of one source, timed; run as a script it is the process of its own that `zoo.inspect.measure` starts.

Axes: B batch (1), S source or prompt, T target, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.assemble import assemble
from zoo.checkpoint.parameters import parameters_of
from zoo.errors import PromptError
from zoo.generation import stream
from zoo.generation.loop.prompt import mask_id
from zoo.host.registry import Registry, default_registry
from zoo.inspect.measure import SourceModel, random_dtype, source_model
from zoo.inspect.subprocess_run import answer
from zoo.inspect.timing import timed_tokens
from zoo.loading import Loaded, evaluate_weights, load

WARM = 4  # tokens of each kind that are run before the clock


def measured_run(source: str, prompt_tokens: str, new_tokens: str) -> dict[str, Any]:
    """Measure one run: the fields of `zoo.inspect.measure.Measured` without source and runs."""
    prompt, new = int(prompt_tokens), int(new_tokens)
    registry = default_registry()
    subject = source_model(source, registry)
    loaded = (
        load(subject.name, registry=registry) if subject.recipe is None else random_model(subject, registry)
    )
    work = _work(loaded)
    work(loaded, min(prompt, WARM), min(new, WARM))
    figures = work(loaded, prompt, new)
    task = loaded.architecture.task
    return {
        "measured": subject.name,
        "architecture": loaded.architecture.name,
        "task": task,
        "parameters": loaded.recipe.parameters(loaded.recipe.dim),
        "random": subject.recipe is not None,
        "dtype": _dtype(loaded.model),
        "prompt_tokens": prompt,
        "new_tokens": new if figures.get("decode_tokens_per_second") is not None else None,
        "prefill_tokens_per_second": None,
        "decode_tokens_per_second": None,
        "first_token_seconds": None,
        "peak_memory_bytes": runtime.peak_memory(),
        **figures,
    }


def random_model(subject: SourceModel, registry: Registry) -> Loaded:
    """The model of a recipe with random weights, as `zoo.load` would give it, without a tokenizer."""
    assert subject.architecture is not None
    model = assemble(subject.recipe, registry)
    model.set_dtype(random_dtype())
    evaluate_weights(model)
    runtime.set_up_device()
    return Loaded(
        model, None, subject.architecture, subject.recipe, {}, Path(subject.name), registry=registry
    )


def read_and_write(loaded: Loaded, prompt: int, new: int) -> dict[str, float]:
    """A decoder: `prompt` tokens are read, `new` ones written, the likeliest each time."""
    first, rest = _written(loaded, _ids(loaded, prompt), new)
    return {
        "prefill_tokens_per_second": prompt / first,
        "decode_tokens_per_second": (new - 1) / rest if new > 1 else 1 / first,
        "first_token_seconds": first,
    }


def translate(loaded: Loaded, prompt: int, new: int) -> dict[str, float]:
    """An encoder-decoder: a source of `prompt` tokens is encoded, a target of `new` tokens decoded."""
    return read_and_write(loaded, prompt, new) | encode(loaded, prompt, new)


def encode(loaded: Loaded, prompt: int, new: int) -> dict[str, float]:
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


def _work(loaded: Loaded) -> Callable[[Loaded, int, int], dict[str, float]]:
    if loaded.model.translates:
        return translate
    if loaded.architecture.task == "denoise":
        return uncover
    return read_and_write if loaded.model.decodes and loaded.architecture.causality != "full" else encode


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
    found: list[int] = mx.random.randint(
        0, loaded.recipe.embedding.vocab, (count,), key=mx.random.key(0)
    ).tolist()
    return [0 if id == but else id for id in found]


def _dtype(model: nn.Module) -> str:
    """The dtype of most floating-point numbers of the weights, "packed" beside it where some are quantized."""
    sizes: dict[str, int] = {}
    arrays = parameters_of(model).values()
    for array in arrays:
        if mx.issubdtype(array.dtype, mx.floating):
            name = str(array.dtype).removeprefix("mlx.core.")
            sizes[name] = sizes.get(name, 0) + array.size
    packed = any(array.dtype == mx.uint32 for array in arrays)
    most = max(sizes, key=lambda name: sizes[name], default="none")
    return f"{most}, packed" if packed else most


if __name__ == "__main__":
    answer(measured_run)
