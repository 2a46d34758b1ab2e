"""Perplexity, how well a model predicts a text, and the divergence of two checkpoints' predictions.

Axes: B windows side by side, T length, D width, V vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.architecture import Architecture
from zoo.blocks.model import Model
from zoo.cache import CachePolicy, evaluate_caches
from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.checkpoint.open import Report
from zoo.checkpoint.source import find, is_architecture, named_preset
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.loop.prompt import split_special_ids
from zoo.generation.sampling.logits import check_numbers, logprobs, logsumexp
from zoo.generation.settings import check_policy
from zoo.host.registry import Registry, default_registry
from zoo.inspect.tokenization import byte_counts
from zoo.loading import Loaded, load
from zoo.recipe import learned_context
from zoo.tokenizer import Tokenizer

MOST_CONTEXT = 4096  # tokens of a window by default
SAMPLE = (
    "A library is a room in which the dead go on talking. The price of bread rose by 12 percent in 1847, and nobody "
    "in the town spoke of anything else.\n\ndef area(radius):\n    return 3.14159 * radius**2\n\n"
    "春天来了，河边的树都绿了。孩子们放学以后在那里放风筝。"
)


@frozen()
class Perplexity(Frozen):
    """How well a model predicts a text: `nats` is the sum of −ln p over its `tokens`, which stand for `bytes` of UTF-8.

    `context` and `stride` are those of the window, None if the whole text was read at once. `seconds` is the time of the
    passes, which read `read` tokens; tokens that windows share count several times. `unknown` tokens stand for text that
    the vocabulary lacks: with any of them, the figures are too good. `sees` says what a token is predicted from.

    >>> from zoo.inspect.perplexity import Perplexity
    >>> found = Perplexity(
    ...     nats=20.0, tokens=10, bytes=40, read=10, seconds=0.5, context=None, stride=None, unknown=0, sees="all"
    ... )
    >>> found.nats_per_token, round(found.perplexity, 3), round(found.bits_per_byte, 3), found.tokens_per_second
    (2.0, 7.389, 0.721, 20.0)
    """

    nats: float
    tokens: int
    bytes: int
    read: int
    seconds: float
    context: int | None
    stride: int | None
    unknown: int
    sees: str

    @property
    def bits_per_byte(self) -> float:
        """nats / ln 2 / bytes; comparable between tokenizers."""
        return self.nats / math.log(2) / self.bytes if self.bytes else math.inf

    @property
    def nats_per_token(self) -> float:
        """The mean cross-entropy."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(nats a token); comparable between models of one tokenizer. Infinite if no float is so large."""
        try:
            return math.exp(self.nats_per_token)
        except OverflowError:
            return math.inf

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the text by the time of the passes."""
        return self.tokens / self.seconds

    def as_json(self) -> dict[str, Any]:
        """The figures, with their units in the keys."""
        return {
            "bits_per_byte": self.bits_per_byte,
            "perplexity_per_token": self.perplexity if math.isfinite(self.perplexity) else None,
            "nats_per_token": self.nats_per_token,
            "nats": self.nats,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "unknown_tokens": self.unknown,
            "context_tokens": self.context,
            "stride_tokens": self.stride,
            "sees": self.sees,
            "read_tokens": self.read,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
        }


def perplexity(
    loaded: Loaded,
    text: str,
    *,
    context: int | None = None,
    stride: int | None = None,
    limit: int | None = None,
    batch: int = 1,
    report: Report | None = None,
    policy: CachePolicy | None = None,
) -> Perplexity:
    """The perplexity of a text, by a window of `context` tokens that moves by `stride`.

    Each token is predicted once, from at least `context` − `stride` tokens before it. With a `stride` of `context` no
    window sees another. Tokens that the tokenizer puts before a text are read and not scored; where there are none, the
    text's first token is not scored, and its bytes are not counted.

    `context` defaults to the model's own, at most 4,096, and `stride` to half of it. A recurrent model without a given
    `context` reads the whole text at once. At most `limit` tokens are scored. `batch` windows are read side by side, which
    does not change the result. `report` is called with the tokens scored so far and those to score. The caches follow
    `policy`. A prefix language model is measured without a prefix. PromptError for a model that gives no probability of a
    next token, for an empty text and for an invalid setting.

    >>> from zoo.inspect.perplexity import perplexity
    >>> loaded = zoo.load("llama")
    >>> right = perplexity(loaded, "The capital city of China is Beijing.")
    >>> wrong = perplexity(loaded, "The capital city of China is Paris.")
    >>> right.perplexity < wrong.perplexity
    True
    """
    policy = policy or CachePolicy()
    tokenizer = _checked(loaded, policy, limit=limit, batch=batch)
    before, own = _ids(loaded, tokenizer, text)
    first = len(before) or 1
    ids = [*before, *own][: None if limit is None else first + limit]
    if len(ids) <= first:
        raise PromptError("the text has too few tokens: there is none with another before it")
    context, stride = _window(loaded, context, stride)
    spans = list(windows(first, len(ids), context or len(ids), stride or len(ids)))
    scored = ids[first:]
    nats, done = 0.0, 0
    began = time.perf_counter()
    for count, part in _scores(loaded, mx.array(ids), spans, batch, policy):
        nats, done = nats + part, done + count
        if report is not None:
            report(done, len(scored))
    seconds = time.perf_counter() - began
    check_numbers(nats, "the text")
    prefix = loaded.architecture.causality == "prefix"
    return Perplexity(
        nats=nats,
        tokens=len(scored),
        bytes=_bytes(tokenizer, text, own, first - len(before), len(scored)),
        read=sum(end - start for start, end, _ in spans),
        seconds=seconds,
        context=context,
        stride=stride,
        unknown=_unknown(tokenizer, text, scored),
        sees="all tokens before, no prefix" if prefix else "all tokens before",
    )


def _checked(loaded: Loaded, policy: CachePolicy, **counts: int | None) -> Tokenizer:
    """The tokenizer of a model that predicts the next token of a text; PromptError for any other, and for bad settings."""
    model, name = loaded.model, loaded.architecture.name
    check_architecture(loaded.architecture)
    if model.translates or not model.decodes:
        raise PromptError(f"no perplexity: {name} does not predict the next token of a text")
    if loaded.tokenizer is None:
        raise PromptError(f"no perplexity: {loaded.folder.name or name} has no tokenizer to read a text with")
    check_policy(model, policy)
    runtime.check_not_forked()
    for setting, count in counts.items():
        if count is not None and count < 1:
            raise PromptError(f"`{setting}` must be at least 1, got {count}")
    return loaded.tokenizer


def check_source(source: str, *, architecture: str | None = None, revision: str | None = None) -> None:
    """PromptError for a source whose architecture does not predict a next token, before its weights are fetched."""
    check_architecture(architecture_of(source, architecture, revision))


def architecture_of(
    source: str, architecture: str | None = None, revision: str | None = None
) -> Architecture:
    """The architecture of a source, whose weights are not fetched; the arguments are those of `zoo.load`."""
    registry = default_registry()
    if architecture is not None:
        return registry.architecture(architecture)
    if is_architecture(source, registry):
        return named_preset(source, registry)[0]
    return open_checkpoint(find(source, registry, revision, weights=False).path, registry).architecture


def check_architecture(architecture: Architecture) -> None:
    """PromptError for an architecture that gives no probability of a text's next token."""
    if architecture.task == "translate":
        reason = "translates: it predicts a target from a source, and gives a text by itself no probability"
    elif architecture.task == "denoise":
        reason = "fills masked tokens in any order: it gives only a bound of a text's probability, which is not measured"
    elif architecture.causality == "full":
        reason = "sees the tokens on both sides; its so-called pseudo-perplexity is another measure"
    else:
        return
    raise PromptError(f"no perplexity: {architecture.name} {reason}")


def windows(first: int, total: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """The windows over `total` tokens as (start, end, scored), of which `first` is the first to be scored.

    A window reads the tokens `start` … `end` − 1, and predicts the tokens `scored` … `end` from them.
    """
    start = 0
    while True:
        end = min(start + context, total - 1)
        if end >= first:
            yield start, end, first
            first = end + 1
        if end == total - 1:
            return
        start += stride


def _scores(
    loaded: Loaded, tokens: mx.array, spans: Sequence[tuple[int, int, int]], batch: int, policy: CachePolicy
) -> Iterator[tuple[int, float]]:
    """How many tokens each pass scores, and their nats; at most `batch` windows of one shape are read side by side."""
    for _, alike in groupby(spans, key=lambda window: (window[1] - window[0], window[2] - window[0])):
        while rows := list(islice(alike, batch)):
            yield from _batch_scores(loaded, tokens, rows, policy)


def _batch_scores(
    loaded: Loaded, tokens: mx.array, rows: Sequence[tuple[int, int, int]], policy: CachePolicy
) -> Iterator[tuple[int, float]]:
    """The same for one batch, read in chunks."""
    start, end, scored = rows[0]
    length = end - start
    skipped = scored - start - 1  # of the read positions, those that predict nothing new
    inputs = mx.stack([tokens[row : row + length] for row, _, _ in rows])  # (B, T)
    for at, hidden in hidden_chunks(loaded.model, inputs, policy):  # (B, C, D)
        until = at + hidden.shape[1]
        if until <= skipped:
            continue
        begin = max(at, skipped)
        logits = loaded.model.head(hidden[:, begin - at :]).astype(mx.float32)  # (B, T, V)
        targets = mx.stack([tokens[row + begin + 1 : row + until + 1] for row, _, _ in rows])  # (B, T)
        chosen = mx.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]  # (B, T)
        nats = logsumexp(logits)[..., 0] - chosen  # (B, T)
        yield nats.size, nats.sum().item()


def hidden_chunks(
    model: Model, inputs: mx.array, policy: CachePolicy | None = None
) -> Iterator[tuple[int, mx.array]]:
    """Where each chunk of some rows (B, T) begins, and its hidden states (B, C, D), for a model that predicts next tokens."""
    length, chunk = inputs.shape[1], runtime.prefill_chunk()
    cache = model.make_cache(replace(policy or CachePolicy(), reserve=length))
    for start in range(0, length, chunk):
        with runtime.eager():
            hidden = model.backbone(inputs[:, start : start + chunk], cache)
        evaluate_caches(cache, hidden.shape[1])
        yield start, hidden


def _ids(loaded: Loaded, tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """The ids that the tokenizer puts before a text, and the text's own."""
    if not text:
        raise PromptError("the text is empty")
    before, own, _ = split_special_ids(tokenizer, text)
    vocab = loaded.recipe.embedding.vocab
    outside = next((id for id in (*before, *own) if not 0 <= id < vocab), None)
    if outside is not None:
        raise PromptError(f"token id {outside} lies outside the vocabulary of {vocab}")
    return before, own


def _window(loaded: Loaded, context: int | None, stride: int | None) -> tuple[int | None, int | None]:
    """The tokens of a window and its step, or None for the whole text at once; PromptError for what cannot be."""
    recipe = loaded.recipe
    if context is None and not recipe.kv_cache_size(recipe.dim):  # states, which do not grow with the text
        return None, None
    own = recipe.context or MOST_CONTEXT
    asked = min(own, MOST_CONTEXT) if context is None else context
    learned = learned_context(recipe)
    if asked < 1:
        raise PromptError(f"`context` must be at least 1, got {asked}")
    if learned is not None and asked > learned:
        raise PromptError(f"`context` {asked} is more than the {learned} learned positions")
    step = max(asked // 2, 1) if stride is None else stride
    if not 1 <= step <= asked:
        raise PromptError(f"`stride` must be from 1 to the context of {asked}, got {step}")
    return asked, step


def _unknown(tokenizer: Tokenizer, text: str, scored: Sequence[int]) -> int:
    """How many of the scored ids stand for text that the vocabulary lacks."""
    name = tokenizer.special_tokens.get("unk_token")
    if name is None or name in text:
        return 0
    unknown = tokenizer.id(name)
    return sum(id == unknown for id in scored)


def _bytes(tokenizer: Tokenizer, text: str, own: Sequence[int], skipped: int, scored: int) -> int:
    """The UTF-8 bytes that `scored` of the text's own ids stand for, those after the first `skipped`."""
    counts, end = byte_counts(tokenizer, text, own), skipped + scored
    if counts is not None:
        return sum(counts[skipped:end])
    read = text if scored == len(own) else tokenizer.decode(list(own[skipped:end]))
    return len(read.encode("utf-8"))


@frozen()
class Divergence(Frozen):
    """The mean and the largest KL(source ‖ converted) of next-token distributions over `tokens` positions, in nats."""

    mean: float
    worst: float
    tokens: int


def divergence(
    source: str | Path,
    other: str | Path,
    *,
    architecture: str | None = None,
    revision: str | None = None,
    report: Report | None = None,
    registry: Registry | None = None,
) -> Divergence:
    """The divergence of `other`'s predictions from `source`'s on sample text, both in float32.

    Each is loaded by itself. Without a tokenizer the text is a row of ids. `report` is called as by `zoo.load`.
    """
    how: dict[str, Any] = dict(architecture=architecture, report=report, registry=registry)
    wanted = _log_probabilities(source, revision=revision, **how)
    other_log_probabilities = _log_probabilities(other, **how)
    each = kl_divergence(wanted, other_log_probabilities)  # (T,)
    return Divergence(each.mean().item(), each.max().item(), each.size)


def kl_divergence(wanted: mx.array, found: mx.array) -> mx.array:  # (…, V), (…, V) -> (…)
    """KL(wanted ‖ found) of log-probabilities, in nats."""
    return (mx.exp(wanted) * (wanted - found)).sum(axis=-1)


def _log_probabilities(source: str | Path, report: Report | None = None, **how: Any) -> mx.array:  # (T, V)
    loaded = load(source, dtype="float32", report=report, **how)
    if loaded.tokenizer is None:
        ids = [7 * index % loaded.recipe.embedding.vocab for index in range(64)]
    else:
        ids = loaded.tokenizer.encode(SAMPLE)
    tokens = mx.array([ids[: loaded.recipe.context or len(ids)]])
    inputs = (tokens, tokens) if loaded.architecture.task == "translate" else (tokens,)
    if loaded.architecture.task == "generate" and loaded.architecture.causality == "causal":
        cache = loaded.model.make_cache()
        predicted = logprobs(loaded.model(tokens, cache)[0])
        evaluate_caches(cache, tokens.size, report and (lambda done: report(done, tokens.size)))
    else:
        predicted = logprobs(loaded.model(*inputs)[0])
    mx.eval(predicted)
    return predicted
