"""`zoo.trace`: a run of a model whose every value is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.errors import NothingToPredict, PromptError
from zoo.generation import check_loaded, stream
from zoo.generation.loop.prompt import encode_prompt
from zoo.generation.loop.step import Step
from zoo.generation.sampling.stages import observed
from zoo.inspect.tracing.choices import ChoiceRecorder
from zoo.inspect.tracing.hooks import hooked
from zoo.inspect.tracing.recorder import Recorder
from zoo.inspect.tracing.result import Trace
from zoo.loading import Loaded

TOKENS = 8  # generated, when nothing is said


def trace(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    max_tokens: int | None = None,
    only: str | Sequence[str] = (),
    **settings: Any,
) -> Trace:
    """Run `loaded` on `prompt` as `zoo.stream` does, and keep the values that it computes, by address.

    At most `max_tokens` (8) are generated; `settings` are those of `zoo.stream`. `only` keeps the values whose addresses
    match one of its patterns (`"layers.3.*"`), which a long text of a large model needs; how tokens were chosen is kept
    in any case. The model computes what it computes without a trace; `zoo.intervene` can be in force around it. A beam
    search keeps one beam unless `beams` asks for more: then values are those of the first row, and choices none. A
    prompt in which an encoder has nothing to predict is read in one pass, and has no steps. PromptError as from
    `zoo.stream`.

    >>> loaded = zoo.load("llama")
    >>> trace = zoo.trace(loaded, "The capital city of China is", max_tokens=2)
    >>> trace["layers.3.mixer.pattern"].shape  # (H, T, S)
    (4, 7, 7)
    """
    check_loaded(loaded, "trace")
    patterns = (only,) if isinstance(only, str) else tuple(only)
    recorder = Recorder(patterns)
    takes = loaded.registry.strategy(
        loaded.architecture.task, settings, name=settings.get("strategy"), architecture=loaded.architecture
    ).setting_names
    if "max_tokens" in takes:
        settings["max_tokens"] = TOKENS if max_tokens is None else max_tokens
    elif max_tokens is not None:
        raise PromptError(f"`max_tokens`: {loaded.architecture.task} has no such setting")
    if "beams" in takes:
        settings.setdefault("beams", 1)
    steps: list[Step] = []
    chosen = ChoiceRecorder()
    with hooked(loaded.model, recorder, loaded.registry), observed(chosen):
        try:
            for step in stream(loaded, prompt, **settings):
                steps.append(step)
                recorder.evaluate()
        except NothingToPredict:
            _read(loaded, prompt, settings.get("special_tokens", True))
            recorder.evaluate()
    if patterns and not recorder.about:
        raise PromptError(f"`only`: no value has an address like {', '.join(patterns)}")
    read = next((p.tokens for p in recorder.passes), [])
    return Trace(loaded, read, recorder.passes, recorder.about, steps, chosen)


def _read(loaded: Loaded, prompt: str | Sequence[int], special_tokens: bool) -> None:
    """One pass of an encoder over the prompt."""
    with runtime.eager():
        loaded.model(mx.array([encode_prompt(loaded, prompt, special_tokens)]))
