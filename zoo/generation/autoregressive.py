"""Autoregressive generation: the prompt, then one token a step with the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from zoo.errors import PromptError
from zoo.generation.checkpoint_settings import stop_strings, token_limit
from zoo.generation.choosing.forced import constraints_of
from zoo.generation.choosing.sampling import sampler
from zoo.generation.decoding import decode
from zoo.generation.prompt import encode_prompt, end_ids, sampling_of, settings_of
from zoo.generation.reader import TextReader
from zoo.generation.step import Step
from zoo.generation.text import TextStream
from zoo.loading import Loaded


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] = (),
    logprobs: bool | int = False,
    special_tokens: bool = True,
    prefill_chunk: int | None = None,
    samplers: Mapping[str, Mapping[str, Any]] | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Iterator[Step]:
    """Continue `prompt`, text or token ids, yielding a `Step` a token as they come.

    Ends at an end token (not yielded as text), before any of the `stop` texts, after `max_tokens` (256), or when
    learned positions run out; no end token comes before `min_tokens`. `logprobs` gives each token's log-probability, a
    number of them besides so many of the likeliest alternatives. `samplers` are those of plugins, by name, each with
    its settings. Settings left None are those of the checkpoint's `generation_config.json`, whose constraints hold in
    any case, else greedy. While a long prompt is read `report` is called with the tokens read and those in all.
    PromptError, before anything runs, for a prompt or setting that cannot be.

    `zoo.stream` calls it for the architectures that continue a text:

    >>> loaded = zoo.load("llama")
    >>> for step in zoo.stream(loaded, "The capital city of China is", stop=".", logprobs=2):
    ...     print(repr(step.text), step.logprob > -0.1, len(step.alternatives))
    ' Bei' True 2
    'j' True 2
    'ing' True 2
    '' True 2
    """
    sampling = sampling_of(
        loaded, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, samplers=samplers
    )
    ids = encode_prompt(loaded, prompt, special_tokens)
    limit = token_limit(loaded, len(ids), max_tokens, min_tokens)
    vocab = loaded.recipe.embedding.vocab
    if logprobs > vocab:
        raise PromptError(f"`logprobs` must be at most {vocab}, the vocabulary, got {logprobs}")
    constraints = constraints_of(
        settings_of(loaded),
        loaded.recipe.head.vocab or vocab,
        ends=end_ids(loaded),
        given=ids,
        last=limit,
        least=min_tokens,
    )
    reader = TextReader(
        loaded.model,
        ids,
        limit,
        prefix=loaded.architecture.causality == "prefix",
        chunk=prefill_chunk,
        report=report,
    )
    tokens = decode(reader, limit, sampler(sampling, seed), constraints=constraints, logprobs=logprobs)
    stops = [stop] if isinstance(stop, str) else stop or stop_strings(loaded)
    return TextStream(loaded, limit, stops).steps(tokens)
