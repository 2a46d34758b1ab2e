"""The shared loop: prefill the prompt, then one token a step with the KV cache.

Axes: B batch (1), T length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.model import protocol_of
from zoo.cache import CachePolicy, settle
from zoo.errors import PromptError
from zoo.generation.prompt import encode_prompt, end_ids, learned_context, sampling_of
from zoo.generation.sampling import Sampling, check_numbers, sampler
from zoo.generation.sampling import logprobs as log_probabilities
from zoo.generation.step import Step
from zoo.generation.stop import StopText
from zoo.loading import Loaded

MAX_TOKENS = 256
MOST_RESERVED = 4096  # tokens to make room for at once
LONG = 64  # tokens whose pass is evaluated layer by layer, so that it can be interrupted and followed


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    max_tokens: int | None = None,
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

    Ends at an end token (not yielded as text), before any of the `stop` texts, after `max_tokens` (256), or
    when learned positions run out. `logprobs` gives each token's log-probability, a number of them besides so many of
    the likeliest alternatives. `samplers` are those of plugins, by name, each with its settings. Settings left None are
    the checkpoint's `generation_config.json`, else greedy. While a long prompt is read `report` is called with the
    tokens read and those in all. PromptError, before anything runs, for a prompt or setting that cannot be.
    """
    sampling = sampling_of(
        loaded, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, samplers=samplers
    )
    ids = encode_prompt(loaded, prompt, special_tokens)
    limit = MAX_TOKENS if max_tokens is None else max_tokens
    if limit < 1:
        raise PromptError(f"max-tokens must be at least 1, got {limit}")
    vocab = loaded.recipe.embedding.vocab
    if logprobs > vocab:
        raise PromptError(f"logprobs must be at most {vocab}, the vocabulary, got {logprobs}")
    context = learned_context(loaded.recipe)
    if context is not None:
        limit = min(limit, context - len(ids) + 1)  # the last token chosen needs no position of its own
    stops = [stop] if isinstance(stop, str) else list(stop)
    return _steps(loaded, ids, limit, sampling, seed, stops, logprobs, prefill_chunk, report)


def _steps(
    loaded: Loaded,
    ids: list[int],
    limit: int,
    sampling: Sampling,
    seed: int | None,
    stops: list[str],
    logprobs: bool | int,
    prefill_chunk: int | None,
    report: Callable[[int, int], None] | None,
) -> Iterator[Step]:
    ends = end_ids(loaded)
    detokenizer = loaded.tokenizer.detokenizer() if loaded.tokenizer else None
    text = StopText(stops)
    steps = decode(
        loaded.model,
        ids,
        limit,
        sampling=sampling,
        seed=seed,
        logprobs=logprobs,
        prefill_chunk=prefill_chunk,
        report=report,
        prefix=len(ids) if loaded.architecture.causality == "prefix" else None,
    )
    for count, (token, logprob, alternatives) in enumerate(steps, 1):
        ended = token in ends
        last = ended or count == limit
        piece = ""
        if detokenizer is not None:
            piece = "" if ended else detokenizer.add(token)
            piece = text.add(piece + (detokenizer.finish() if last else ""), last)
        if text.found:
            last = ended = True
        reason = ("stop" if ended else "length") if last else None
        yield Step(token, piece, logprob, reason, alternatives=alternatives)
        if last:
            return


def decode(
    model: Any,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    sampling: Sampling,
    seed: int | None = None,
    logprobs: bool | int = False,
    prefill_chunk: int | None = None,
    prefix: int | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[int, float | None, dict[int, float] | None]]:
    """Yield (id, log-probability or None, alternatives or None), at most `max_tokens` times.

    The caller stops at an end token. ZooError when the model's logits are no numbers.
    `prefix`: how many tokens of the prompt see each other both ways; the prompt is then read in one piece.
    n tokens cost n forward passes, the prompt's included. The pass for the next token is dispatched before
    the last one is read, so that the device never waits for Python; stopping early wastes that one pass.
    """
    choose = sampler(sampling, seed)
    wanted = 0 if isinstance(logprobs, bool) else logprobs
    # Room for all that may come, within reason: few texts are as long as they may be.
    cache = model.make_cache(CachePolicy(reserve=len(prompt) + min(max_tokens, MOST_RESERVED)))
    rest = mx.array([prompt])  # (1, T)
    prefill_chunk = prefill_chunk or runtime.prefill_chunk()
    last = protocol_of(model).last_chunk or prefill_chunk

    def read(tokens: int) -> None:
        before = len(prompt) - rest.shape[1]
        settle(cache, tokens, report and (lambda done: report(before + done, len(prompt))))

    while prefix is None and rest.shape[1] > last:
        piece = min(prefill_chunk, rest.shape[1] - 1)
        model.backbone(rest[:, :piece], cache)
        read(piece)
        rest = rest[:, piece:]

    def step(tokens: mx.array, **inputs: Any) -> list[mx.array]:  # (1, T) -> (1,), (1,), (1,), (1, V) …
        hidden = model.backbone(tokens, cache, **inputs)[:, -1:]  # (1, 1, D): the head works on the last only
        if tokens.shape[1] >= LONG:
            read(tokens.shape[1])
        logits = model.head(hidden)[:, -1]  # (1, V)
        token = choose(logits)
        found = [token, logits.max(axis=-1)]
        if logprobs:
            each = log_probabilities(logits)
            found.append(mx.take_along_axis(each, token[:, None], axis=-1)[:, 0])
            if wanted:
                best = mx.argsort(-each, axis=-1)[:, :wanted]
                found += [best, mx.take_along_axis(each, best, axis=-1)]
        mx.async_eval(*found)
        return found

    upcoming = step(rest) if prefix is None else step(rest, prefix=prefix)
    for count in range(1, max_tokens + 1):
        token, highest, *more = upcoming
        if count < max_tokens:
            upcoming = step(token[:, None])
        check_numbers(highest.item(), f"token {count}")
        alternatives = dict(zip(*(array[0].tolist() for array in more[1:]), strict=True)) if wanted else None
        yield int(token.item()), float(more[0].item()) if more else None, alternatives
