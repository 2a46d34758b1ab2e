"""Autoregressive generation: the prompt, then one token a step with the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zoo.generation.loop.engine import Engine, run_prompts
from zoo.generation.loop.step import Step
from zoo.generation.settings import settings_for
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.prefix_cache import PromptCache


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    report: Callable[[int, int], None] | None = None,
    prompt_cache: PromptCache | None = None,
    checkpoints: Iterable[int] = (),
    **settings: Any,
) -> Iterator[Step]:
    """Continue `prompt`, text or token ids, yielding a `Step` a token as they come.

    Ends at an end token (not yielded as text), before any of the `stop` texts, after `max_tokens` (256), or when
    learned positions run out; no end token comes before `min_tokens`. `logprobs` gives each token's log-probability,
    a number of them besides so many of the likeliest alternatives. `samplers` are those of plugins, by name, each
    with its settings; `logits_processors` are functions from the ids so far (T,) and float32 logits (1, V) to such
    logits. Settings left None are those of the checkpoint's `generation_config.json`, whose constraints hold in any
    case, else greedy. While a long prompt is read `report` is called with the tokens read and those in all. What a
    `prompt_cache` has of the prompt is not computed again, and it keeps what was computed, at the lengths
    `checkpoints` of the prompt too. PromptError, before anything runs, for a prompt or setting that cannot be.

    `zoo.stream` calls it for the architectures that continue a text:

    >>> loaded = zoo.load("llama")
    >>> for step in zoo.stream(loaded, "The capital city of China is", stop=".", logprobs=2):
    ...     print(repr(step.text), step.logprob > -0.1, len(step.alternatives))
    ' Bei' True 2
    'j' True 2
    'ing' True 2
    '' True 2
    """
    engine = Engine(loaded, rows=1, prompt_cache=prompt_cache)
    checked = settings_for(loaded, settings)
    steps = run_prompts(engine, [prompt], checked, checkpoints=checkpoints, report=report)
    return (step for _, step in steps)


def batch(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    *,
    prompt_cache: PromptCache | None = None,
    **settings: Any,
) -> Iterator[tuple[int, Step]]:
    """The steps of several prompts that run side by side, each with the index of its prompt.

    PromptError, before anything runs, names the prompt that cannot be.
    """
    engine = Engine(loaded, prompt_cache=prompt_cache)
    return run_prompts(engine, prompts, settings_for(loaded, settings))
