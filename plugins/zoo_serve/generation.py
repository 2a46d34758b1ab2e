"""One request for text under way: what the worker delivers to it, and the answer that grows of that."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

from zoo.generation.chat.chat_prompt import ChatPrompt
from zoo.generation.loop.step import Step
from zoo_serve.metrics import Metrics
from zoo_serve.models import ServedModel
from zoo_serve.prepare import token_of
from zoo_serve.requests import (
    Answer,
    Choice,
    Delta,
    GenerationRequest,
    RequestError,
    Times,
    Token,
    TokenLogprobs,
)
from zoo_serve.runner import PreparedSequence, request_error

MOST_UNREAD = 8192  # steps that wait for a slow reader before its request is cancelled


class Mailbox:
    """What the worker delivers to one request, read in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._items, self._filled = loop, deque[Any](), asyncio.Event()
        self.unread = 0

    def deliver(self, item: Any) -> None:
        """Add an item. From the worker's thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._add, item)

    def _add(self, item: Any) -> None:
        self._items.append(item)
        self.unread += len(item) if isinstance(item, list) else 1
        self._filled.set()

    async def next(self) -> Any:
        """The next item; a RequestError is raised."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        item = self._items.popleft()
        self.unread -= len(item) if isinstance(item, list) else 1
        if isinstance(item, RequestError):
            raise item
        return item


class Generation:
    """A request for text under way. `answer` grows as `deltas` are read."""

    def __init__(
        self,
        request: GenerationRequest,
        model: ServedModel,
        sequences: list[PreparedSequence],
        prompts: list[ChatPrompt],
        mailbox: Mailbox,
        metrics: Metrics,
        times: Times | None = None,
    ) -> None:
        self.request, self.model, self.sequences, self.metrics = request, model, sequences, metrics
        self.answer = Answer(model.name, [Choice() for _ in sequences], times=times or Times())
        self.began = time.monotonic()
        self._prompts, self._mailbox = prompts, mailbox
        self._parsers = [prompt.step_parser() for prompt in prompts]
        self._tokens: list[list[int]] = [[] for _ in sequences]
        self._last: list[float | None] = [None] * len(sequences)
        self._ended: set[int] = set()  # numbers of sequences; more steps of one are not looked at
        self.answer.usage.prompt = sum({id(prompt): len(prompt.ids) for prompt in prompts}.values())

    @property
    def ended(self) -> bool:
        """Whether all of the answer has been read."""
        return len(self._ended) == len(self.sequences)

    async def next(self) -> list[Delta]:
        """The next parts of the answer, which the answer then has. Nothing is lost where this is cancelled."""
        steps = await self._mailbox.next()
        if self._mailbox.unread > MOST_UNREAD:
            raise RequestError(408, "the answer is read too slowly")
        deltas = []
        for number, step in steps:
            deltas += self._deltas(number, step) if number not in self._ended else []
        for delta in deltas:
            self.answer.add(delta)
        return deltas

    async def remember(self) -> None:
        """Have the model know its own tokens when the conversation goes on."""
        known, messages = self.model.conversations, self.request.messages
        if known is not None and messages is not None:
            rows = zip(self.answer.choices, self.sequences, self._tokens, strict=True)
            for choice, sequence, tokens in rows:
                ids = [*sequence.ids, *tokens]
                await asyncio.to_thread(known.add, messages, choice.text, choice.calls, ids)

    def _deltas(self, number: int, step: Step) -> list[Delta]:
        """The parts that a step of the sequence of this number adds."""
        if step.error is not None:
            raise request_error(step.error, self.model)
        deltas = []
        self._count(number, step)
        if step.prompt is not None and self.request.echo:
            deltas.append(self._echo(number, step))
        step = self._parsers[number](step)
        if step.tool_calls and not self.request.parallel_calls:
            step = replace(step, tool_calls=step.tool_calls[:1], finish_reason="stop")
        self.answer.usage.thinking += bool(step.thinking)
        reason = step.finish_reason
        if reason is not None:
            self._ended.add(number)
            if step.tool_calls or self.answer.choices[number].calls:
                reason = "tool_calls" if reason == "stop" else reason
            reason = "length" if reason == "time" else reason
        tokens = []
        if step.token is not None and step.logprob is not None and step.candidate is None:
            tokens = [self._logprobs(step.token, step.logprob, step.alternatives)]
        deltas.append(
            Delta(
                index=number,
                text=step.text,
                thinking=step.thinking,
                calls=step.tool_calls,
                tokens=tuple(tokens),
                finish_reason=reason,
                stop=step.stop,
                candidate=step.candidate,
            )
        )
        return deltas

    def _count(self, number: int, step: Step) -> None:
        """Count a step's tokens, and measure its time."""
        now, usage, name = time.monotonic(), self.answer.usage, self.model.name
        if step.prompt is not None:
            if number % self.request.count == 0:  # a prompt counts once
                usage.cached += step.prompt.cached_tokens
            self.metrics.prompt_read(name, step.prompt)
        if step.token is None or step.candidate is not None:
            return
        usage.completion += 1
        self._tokens[number].append(step.token)
        last = self._last[number]
        if last is None:
            self.metrics.first_token(name, now - self.began)
        else:
            self.metrics.next_token(name, now - last)
        self._last[number] = now
        self.answer.times.first_token = self.answer.times.first_token or now
        self.answer.times.last_token = now

    def _echo(self, number: int, step: Step) -> Delta:
        """The prompt of a completion, with the log-probabilities of its tokens where they were asked for."""
        ids, loaded = self.sequences[number].ids, self.model.loaded
        assert step.prompt is not None
        text = self.request.prompts[number // self.request.count]
        if not isinstance(text, str):
            text = loaded.tokenizer.decode(ids) if loaded.tokenizer else ""
        tokens: list[TokenLogprobs] = []
        if step.prompt.logprobs is not None:
            alternatives = step.prompt.alternatives or (None,) * len(step.prompt.logprobs)
            tokens = [TokenLogprobs(self._token(ids[0], None))]
            tokens += map(self._logprobs, ids[1:], step.prompt.logprobs, alternatives)
        return Delta(index=number, text=text, tokens=tuple(tokens))

    def _logprobs(self, token: int, logprob: float, alternatives: Any) -> TokenLogprobs:
        others = tuple(self._token(id, value) for id, value in (alternatives or {}).items())
        return TokenLogprobs(self._token(token, logprob), others)

    def _token(self, id: int, logprob: float | None) -> Token:
        return token_of(self.model.loaded, id, logprob)
