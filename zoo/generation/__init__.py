"""Text from a model: `stream` yields steps as they come, `generate` collects them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.errors import PromptError
from zoo.generation.autoregressive import PREFILL_CHUNK, decode
from zoo.generation.stop import StopText
from zoo.loading import Loaded
from zoo.sampling import Sampling

MAX_TOKENS = 256


@dataclass(frozen=True)
class Step:
    """One generated token. `text` is what became certain with it: empty while a character is incomplete.

    `logprob` is the model's own log-probability in nats, when asked for. The last step alone has a
    `finish_reason`: "stop" (an end token or stop text) or "length".
    """

    token: int
    text: str
    logprob: float | None = None
    finish_reason: str | None = None


@dataclass(frozen=True)
class Generated:
    """All of a generation: the new ids and their text."""

    tokens: list[int]
    text: str
    logprobs: list[float] | None
    finish_reason: str | None


def encode_prompt(loaded: Loaded, prompt: str | Sequence[int], special_tokens: bool = True) -> list[int]:
    """The ids of a prompt; PromptError when it is empty, too long, or holds an id outside the vocabulary."""
    if isinstance(prompt, str):
        if not prompt:
            raise PromptError("the prompt is empty")
        if loaded.tokenizer is None:
            raise PromptError(f"{loaded.folder}: has no tokenizer, so the prompt must be a list of token ids")
        ids = loaded.tokenizer.encode(prompt, special_tokens)
    else:
        ids = [int(token) for token in prompt]
    if not ids:
        raise PromptError("the prompt is empty")
    vocab = loaded.recipe.embedding.vocab
    strange = next((token for token in ids if not 0 <= token < vocab), None)
    if strange is not None:
        raise PromptError(f"token id {strange} lies outside the vocabulary of {vocab}")
    if learned_context(loaded.recipe) is not None and len(ids) > learned_context(loaded.recipe):
        limit = learned_context(loaded.recipe)
        raise PromptError(f"the prompt has {len(ids)} tokens, more than the {limit} learned positions")
    return ids


def learned_context(recipe: Any) -> int | None:
    """The number of positions that a model has a vector for; None when its positions have no end."""
    return getattr(recipe.embedding.positions, "context", None)


def sampling_of(loaded: Loaded, **given: float | int | None) -> Sampling:
    """The settings given, else the checkpoint's `generation_config.json`, else greedy."""
    defaults = loaded.generation_config
    settings: dict[str, Any] = {}
    if defaults.get("do_sample"):
        settings["temperature"] = 1.0
        settings |= {k: defaults[k] for k in ("temperature", "top_k", "top_p", "min_p") if defaults.get(k) is not None}
    settings |= {key: value for key, value in given.items() if value is not None}
    narrowing = [key for key in ("top_k", "top_p", "min_p") if given.get(key) is not None]
    if narrowing and given.get("temperature") is None and not settings.get("temperature"):
        settings["temperature"] = 1.0  # a filter is asked for, so a draw is wanted
    return Sampling(**settings)


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
    logprobs: bool = False,
    special_tokens: bool = True,
    prefill_chunk: int = PREFILL_CHUNK,
) -> Iterator[Step]:
    """Continue `prompt`, text or token ids, yielding a `Step` a token as they come.

    Ends at an end token (not yielded as text), before any of the `stop` texts, after `max_tokens` (256), or
    when learned positions run out. Settings left None are the checkpoint's `generation_config.json`, else
    greedy. PromptError, before anything runs, for a prompt or setting that cannot be.
    """
    sampling = sampling_of(loaded, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ids = encode_prompt(loaded, prompt, special_tokens)
    limit = MAX_TOKENS if max_tokens is None else max_tokens
    if limit < 1:
        raise PromptError(f"max-tokens must be at least 1, got {limit}")
    context = learned_context(loaded.recipe)
    if context is not None:
        limit = min(limit, context - len(ids) + 1)  # the last token chosen needs no position of its own
    stops = [stop] if isinstance(stop, str) else list(stop)
    return _steps(loaded, ids, limit, sampling, seed, stops, logprobs, prefill_chunk)


def _steps(
    loaded: Loaded,
    ids: list[int],
    limit: int,
    sampling: Sampling,
    seed: int | None,
    stops: list[str],
    logprobs: bool,
    prefill_chunk: int,
) -> Iterator[Step]:
    ends = end_ids(loaded)
    detokenizer = loaded.tokenizer.detokenizer() if loaded.tokenizer else None
    text = StopText(stops)
    steps = decode(
        loaded.model, ids, limit, sampling=sampling, seed=seed, logprobs=logprobs, prefill_chunk=prefill_chunk
    )
    for count, (token, logprob) in enumerate(steps, 1):
        ended = token in ends
        last = ended or count == limit
        piece = ""
        if detokenizer is not None:
            piece = "" if ended else detokenizer.add(token)
            piece = text.add(piece + (detokenizer.finish() if last else ""), last)
        if text.found:
            last = ended = True
        yield Step(token, piece, logprob, ("stop" if ended else "length") if last else None)
        if last:
            return


def end_ids(loaded: Loaded) -> frozenset[int]:
    """Every id that ends a text: those that config, generation_config and tokenizer name."""
    ids: set[int] = set(loaded.tokenizer.eos_ids) if loaded.tokenizer else set()
    for values in (loaded.config, loaded.generation_config):
        named = values.get("eos_token_id")
        ids |= set(named if isinstance(named, list) else [named] if named is not None else [])
    return frozenset(ids)


def generate(loaded: Loaded, prompt: str | Sequence[int], **settings: Any) -> Generated:
    """Continue `prompt` to its end; the settings are those of `stream`."""
    steps = list(stream(loaded, prompt, **settings))
    return Generated(
        tokens=[step.token for step in steps],
        text="".join(step.text for step in steps),
        logprobs=[step.logprob for step in steps if step.logprob is not None] if settings.get("logprobs") else None,
        finish_reason=steps[-1].finish_reason,
    )
