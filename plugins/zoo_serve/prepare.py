"""From a request to sequences: prompts laid out and encoded, settings checked, memory counted. Runs in any thread."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.architecture import Strategy
from zoo.generation import resolve_strategy
from zoo.generation.chat.conversation import ChatPrompt, chat_prompt, next_turn_checkpoints
from zoo.generation.loop.prompt import encode_prompt
from zoo.generation.settings import Settings, generation_config_of, settings_for, token_limit
from zoo.generation.strategies import autoregressive, beam
from zoo_serve.models import ServedModel
from zoo_serve.protocols.openai import seeded
from zoo_serve.requests import GenerationRequest, RequestError, TokenizeRequest
from zoo_serve.worker import PreparedSequence

MAX_TOKENS = 2048  # of an answer, where neither the request nor the server says


def prepare(
    model: ServedModel, request: GenerationRequest, most_seconds: float
) -> tuple[list[PreparedSequence], list[ChatPrompt]]:
    """The sequences that answer a request, in the order of its choices, each with its prompt.

    A sequence takes at most `most_seconds` from when its prompt is read.

    PromptError or TokenizerError for a prompt or a setting that cannot be; RequestError for a prompt beyond the context.
    """
    sequences: list[PreparedSequence] = []
    prompts: list[ChatPrompt] = []
    for prompt in _prompts(model, request):
        for number in range(request.count):
            settings = {**model.settings, **seeded(request.settings, number)}
            sequences.append(_sequence(model, request, prompt, settings, most_seconds))
            prompts.append(prompt)
    return sequences, prompts


def _prompts(model: ServedModel, request: GenerationRequest) -> list[ChatPrompt]:
    if request.messages is not None:
        return [lay_out(model, request)]
    settings = {**model.settings, **request.settings}
    special = settings.get("special_tokens") is not False
    languages = (settings.get("source_language"), settings.get("target_language"))
    return [
        ChatPrompt(model.loaded, encode_prompt(model.loaded, _plain(prompt), special, *languages), None)
        for prompt in request.prompts
    ]


def lay_out(model: ServedModel, request: GenerationRequest | TokenizeRequest) -> ChatPrompt:
    """The prompt of a conversation."""
    assert request.messages is not None
    choice = request.tool_choice if isinstance(request, GenerationRequest) else "auto"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the server's operator is told of once, at loading
        return chat_prompt(
            model.loaded,
            request.messages,
            tools=request.tools,
            variables=request.variables,
            # Only an answer has ids of the model's own; a first message has the same ids whatever others were answered.
            encode=model.encode if any(one["role"] == "assistant" for one in request.messages) else None,
        )


def _plain(prompt: str | Sequence[int]) -> str | list[int]:
    return prompt if isinstance(prompt, str) else list(prompt)


def _sequence(
    model: ServedModel,
    request: GenerationRequest,
    prompt: ChatPrompt,
    settings: dict[str, Any],
    most_seconds: float,
) -> PreparedSequence:
    loaded, length = model.loaded, len(prompt.ids)
    context = loaded.recipe.context if not loaded.model.translates else None
    if context is not None and length >= context and settings.get("max_kv_size") is None:
        raise RequestError(
            400,
            f"the prompt has {length} tokens, and the model's context is {context}",
            param="prompt" if request.messages is None else "messages",
            code="context_length_exceeded",
        )
    strategy, arguments = resolve_strategy(loaded, settings, request.strategy or model.strategy)
    names = strategy.setting_names
    if "max_tokens" in names and not loaded.model.translates:
        most = arguments.get("max_tokens", MAX_TOKENS)
        arguments["max_tokens"] = most if context is None else min(most, max(context - length, 1))
    if "max_time" in names:
        arguments["max_time"] = min(arguments.get("max_time", most_seconds), most_seconds)
    checked = _engine_settings(model, strategy, arguments)
    checkpoints: tuple[int, ...] = ()
    if checked is not None and not model.by_column and request.messages is not None:
        checkpoints = tuple(next_turn_checkpoints(loaded, request.messages, prompt.ids, prompt.variables))
    nbytes = 0
    if loaded.model.decodes:
        limit = token_limit(loaded, length, arguments.get("max_tokens"))
        policy = (checked or Settings()).policy()
        nbytes = model.cache_bytes(length + limit, policy) * int(arguments.get("beams") or 1)
    return PreparedSequence(prompt.ids, prompt.loaded, checked, strategy, arguments, checkpoints, nbytes)


def _engine_settings(model: ServedModel, strategy: Strategy, arguments: Mapping[str, Any]) -> Settings | None:
    """The settings of a sequence of the engine; None where another strategy runs."""
    function = strategy.load()
    if function is beam.stream:  # with one beam the engine does the same
        own = {setting.name for setting in strategy.own_settings}
        given = {name: arguments.get(name) for name, _ in beam.SETTINGS.values()}
        if beam.beam_config(generation_config_of(model.loaded), given).count > 1:
            return None
        arguments = {name: value for name, value in arguments.items() if name not in own}
    elif function is not autoregressive.stream:
        return None
    return settings_for(model.loaded, arguments)
