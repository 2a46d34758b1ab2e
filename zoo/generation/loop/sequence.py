"""One sequence under way: its prompt, its settings, its sampler, and the steps that its tokens become."""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import mlx.core as mx

from zoo.errors import PromptError, ZooError
from zoo.generation.loop.prefill import Report
from zoo.generation.loop.prompt import start_token, tokenize_prompt
from zoo.generation.loop.step import PromptRead, Step
from zoo.generation.loop.text_stream import TextStream
from zoo.generation.sampling import TokenSampler, sampler_of
from zoo.generation.sampling.logits import token_logprobs
from zoo.generation.settings import Settings
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.speculative import DraftConfig, Drafter


@dataclass(eq=False)
class Sequence:
    """State of one sequence, independent of its batch.

    `ids` are the prompt's, or the source's of an encoder-decoder, whose target begins with `start`. At most `limit`
    tokens are generated; `tokens` are those that were. `checkpoints` are lengths of the prompt at which to keep the
    caches for other prompts. `drafting` says how its tokens are drafted. `report` is called with the tokens of the
    prompt that were read and those in all.
    """

    handle: int
    ids: list[int]
    settings: Settings
    limit: int
    sampler: TokenSampler
    stream: TextStream
    start: int | None = None
    checkpoints: Iterable[int] = ()
    report: Report | None = None
    drafting: DraftConfig | None = None

    def __post_init__(self) -> None:
        self.tokens: list[int] = []
        self.prompt = PromptRead(len(self.ids))
        self.drafter: Drafter | None = None
        self.cancelled = False
        self.finished = False
        self.deadline: float | None = None

    @property
    def alternatives(self) -> int:
        """How many of the likeliest tokens are asked for with each token."""
        return 0 if isinstance(self.settings.logprobs, bool) else self.settings.logprobs

    @property
    def length(self) -> int:
        """How many tokens its caches have taken in, at most one more or less."""
        return len(self.ids) * (self.start is None) + len(self.tokens)

    def begin(self) -> None:
        """Start the time that it may take; called when its prompt is first read."""
        if self.settings.max_time is not None:
            self.deadline = time.monotonic() + self.settings.max_time

    def failed(self, error: ZooError) -> Step:
        """The step that ends this sequence, and no other, with an error."""
        self.finished = True
        return Step(None, "", finish_reason="error", error=error)

    def choose(self, token: int, logits: mx.array) -> Step:
        """The step of a token that the caller chose by `logits` (1, V)."""
        if not self.settings.logprobs:
            return self.update(token, None, None)
        [(logprob, alternatives)] = token_logprobs(logits, mx.array([token]), self.alternatives).rows()
        return self.update(token, logprob, alternatives)

    def update(self, token: int, logprob: float | None, alternatives: Mapping[int, float] | None) -> Step:
        """The step of the next token."""
        step = self.stream.add(token, logprob, alternatives)
        if not self.tokens:
            step = replace(step, prompt=self.prompt)
        self.tokens.append(token)
        self.sampler.update(token)
        reason = None
        if self.sampler.mask is not None and self.sampler.mask.done:
            reason = "stop"  # only an end token could follow, and the model may have none
        elif self.deadline is not None and time.monotonic() >= self.deadline:
            reason = "time"
        if step.finish_reason is None and reason is not None:
            step = replace(step, text=step.text + self.stream.rest(), finish_reason=reason)
        self.finished = step.finish_reason is not None
        return step


def sequence_of(
    loaded: Loaded,
    prompt: str | abc.Sequence[int],
    settings: Settings,
    *,
    handle: int = 0,
    checkpoints: Iterable[int] = (),
    report: Report | None = None,
) -> Sequence:
    """The sequence that continues `prompt`, or, of an encoder-decoder, translates it. PromptError for what cannot be."""
    ids, constraints = tokenize_prompt(loaded, prompt, settings)
    vocab = loaded.recipe.embedding.vocab
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(settings, name) > vocab:
            raise PromptError(
                f"`{name}` must be at most {vocab}, the vocabulary, got {getattr(settings, name)}"
            )
    drafting = None
    if settings.drafts:  # else nothing of drafting is imported
        from zoo.generation.speculative import draft_config

        drafting = draft_config(loaded, settings)
    limit = constraints.max_tokens
    return Sequence(
        handle,
        ids,
        settings,
        limit,
        sampler_of(loaded, settings, constraints),
        TextStream(loaded, limit, settings.stop, settings.stop_tokens, settings.stop_regex),
        start_token(loaded) if loaded.model.translates else None,
        checkpoints,
        report,
        drafting,
    )
