"""From a request to sequences: prompts laid out and encoded, settings checked, memory counted. Runs in any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from zoo.architecture import Strategy
from zoo.errors import PluginError
from zoo.generation import resolve_strategy
from zoo.generation.chat.chat_prompt import ChatPrompt, chat_prompt, next_turn_checkpoints
from zoo.generation.grammar.token_mask import token_mask
from zoo.generation.loop.prompt import encode_prompt
from zoo.generation.settings import Settings, generation_config_of, settings_for, token_limit
from zoo.generation.strategies import autoregressive, beam
from zoo.loading import Loaded
from zoo_serve.models import ServedModel
from zoo_serve.protocols.openai import seeded
from zoo_serve.requests import DetokenizeRequest, GenerationRequest, RequestError, Token, TokenizeRequest
from zoo_serve.runner import PreparedSequence

Encode = Callable[[str], list[int]]
OVER = "context_length_exceeded"
MAX_TOKENS = 2048  # of an answer, where neither the request nor the server says
MOST_TOKENS = 2**18  # of a prompt that no context bounds, and of a text whose tokens are asked for


def prepare(
    model: ServedModel, request: GenerationRequest, most_seconds: float, encode: Encode | None = None
) -> tuple[list[PreparedSequence], list[ChatPrompt]]:
    """The sequences that answer a request, in the order of its choices, each with its prompt.

    A sequence takes at most `most_seconds` from when its prompt is read. `encode` makes ids of a conversation's text;
    by default, the model's own tokens are kept as they were generated.

    PromptError or TokenizerError for a prompt or a setting that cannot be; RequestError for a prompt beyond the context.
    """
    sequences: list[PreparedSequence] = []
    prompts: list[ChatPrompt] = []
    for prompt in _prompts(model, request, encode):
        for number in range(request.count):
            settings = {**model.settings, **seeded(request.settings, number)}
            sequences.append(_sequence(model, request, prompt, settings, most_seconds))
            prompts.append(prompt)
    return sequences, prompts


def _prompts(
    model: ServedModel, request: GenerationRequest, encode: Encode | None = None
) -> list[ChatPrompt]:
    settings = {**model.settings, **request.settings}
    context = _context(model, request, settings)
    if request.messages is not None:
        return [lay_out(model, request, context, encode)]
    for prompt in request.prompts:
        check_length(model.loaded, prompt, context, "prompt")
    special = settings.get("special_tokens") is not False
    languages = (settings.get("source_language"), settings.get("target_language"))
    return [
        ChatPrompt(model.loaded, encode_prompt(model.loaded, _plain(prompt), special, *languages), None)
        for prompt in request.prompts
    ]


def _context(model: ServedModel, request: GenerationRequest, settings: Mapping[str, Any]) -> int | None:
    """The tokens that a prompt and its answer may have; None where nothing bounds them."""
    if model.loaded.model.translates or settings.get("max_kv_size") is not None:
        return None
    return smaller(model.loaded.recipe.context, request.context)


def smaller(*bounds: int | None) -> int | None:
    """The smallest bound, None where nothing bounds."""
    return min((bound for bound in bounds if bound is not None), default=None)


def check_length(loaded: Loaded, text: str | Sequence[int], context: int | None, param: str) -> None:
    """RequestError, before it is encoded, for a text that surely has more tokens than the context, or than are read."""
    tokenizer, most = loaded.tokenizer, context or MOST_TOKENS
    if isinstance(text, str) and tokenizer is not None and tokenizer.beginning(text, most) != text:
        raise too_long(most + 1, context, param, exact=False)


def too_long(tokens: int, context: int | None, param: str, exact: bool = True) -> RequestError:
    """The error for a prompt that leaves no room in the context for an answer, or where it is None, that is not read.

    It has `tokens`, or if that is not `exact`, at least so many.
    """
    count = str(tokens) if exact else f"at least {tokens}"
    if context is None:
        return RequestError(
            400, f"the prompt has {count} tokens, more than this server reads", param=param, code=OVER
        )
    # Programs look for these words, of each interface's own errors, and then shorten the conversation.
    return RequestError(
        400,
        f"This model's maximum context length is {context} tokens. However, the prompt has {count} tokens.",
        param=param,
        code=OVER,
        length=(tokens, context),
    )


def lay_out(
    model: ServedModel,
    request: GenerationRequest | TokenizeRequest,
    context: int | None,
    encode: Encode | None = None,
) -> ChatPrompt:
    """The prompt of a conversation; RequestError for one that surely has more tokens than the context, or than are read."""
    assert request.messages is not None
    asked = request if isinstance(request, GenerationRequest) else GenerationRequest()
    known, tokenizer = model.conversations, model.loaded.tokenizer
    if encode is None and known is not None:
        encode = partial(known.encode, request.messages)
    elif encode is None and tokenizer is not None:
        encode = partial(tokenizer.encode, special_tokens=False)

    def encode_checked(text: str) -> list[int]:
        check_length(model.loaded, text, context, "messages")
        assert encode is not None
        return encode(text)

    return chat_prompt(
        model.loaded,
        request.messages,
        tools=request.tools,
        tool_choice=asked.tool_choice,
        parallel_calls=asked.parallel_calls,
        variables=request.variables,
        encode=encode_checked,
    )


def tokenized(model: ServedModel, request: TokenizeRequest) -> tuple[int | None, list[int], list[str] | None]:
    """The model's context, the token ids of a text or of a conversation, and their texts if those are asked for."""
    loaded = model.loaded
    context = loaded.recipe.context
    bound = context if context is not None and context > MOST_TOKENS else None
    check_length(loaded, request.text or "", bound, "prompt")
    if request.messages is not None:
        ids = lay_out(model, request, bound).ids
    elif request.text or request.special_tokens:
        ids = encode_prompt(loaded, request.text or "", request.special_tokens)
    else:
        ids = []
    if len(ids) > (bound or MOST_TOKENS):
        raise too_long(len(ids), bound, "prompt" if request.messages is None else "messages")
    texts = [token_of(loaded, id).text for id in ids] if request.token_texts else None
    return context, ids, texts


def detokenized(model: ServedModel, request: DetokenizeRequest) -> str:
    """The text of token ids; PromptError for one that the model does not have."""
    tokenizer = model.loaded.tokenizer
    if tokenizer is None:
        raise RequestError(400, f"the model {model.name} has no tokenizer", param="model")
    return tokenizer.decode(encode_prompt(model.loaded, list(request.tokens)), False)


def token_of(loaded: Loaded, id: int, logprob: float | None = None) -> Token:
    """A token with its text and bytes."""
    if loaded.tokenizer is None:
        return Token(id, str(id), None, logprob)
    data = loaded.tokenizer.token_bytes(id)
    text = loaded.tokenizer.decode([id], False) if data is None else data.decode("utf-8", "replace")
    return Token(id, text, None if data is None else tuple(data), logprob)


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
    bound = _context(model, request, settings)
    if bound is not None and length >= bound:
        raise too_long(length, bound, "prompt" if request.messages is None else "messages")
    context = smaller(loaded.recipe.context, request.context) if not loaded.model.translates else None
    constrained = prompt.constrained(settings)
    try:
        strategy, arguments = resolve_strategy(loaded, constrained, request.strategy or model.strategy)
    except PluginError as error:  # there is no such strategy, or none for the model's task
        raise RequestError(400, str(error), param="strategy" if request.strategy else "model") from error
    if "max_tokens" in strategy.setting_names and not loaded.model.translates:
        most = arguments.get("max_tokens", MAX_TOKENS)
        arguments["max_tokens"] = most if context is None else min(most, max(context - length, 1))
    checked = _engine_settings(model, strategy, arguments)
    if checked is not None:  # what other strategies generate ends with its request
        checked = replace(checked, max_time=min(checked.max_time or most_seconds, most_seconds))
    _compile(prompt.loaded, arguments)
    checkpoints: tuple[int, ...] = ()
    if checked is not None and not model.by_column and request.messages is not None:
        checkpoints = tuple(next_turn_checkpoints(loaded, request.messages, prompt.ids, prompt.variables))
    nbytes = 0
    if loaded.model.decodes:
        limit = token_limit(loaded, length, arguments.get("max_tokens"))
        policy = (checked or Settings()).policy()
        nbytes = model.cache_bytes(length + limit, policy) * int(arguments.get("beams") or 1)
    return PreparedSequence(prompt.ids, prompt.loaded, checked, strategy, arguments, checkpoints, nbytes)


def _compile(loaded: Loaded, arguments: Mapping[str, Any]) -> None:
    """Compile what constrains an answer. It may take seconds, and is kept, so that the worker need not."""
    forms = {name: arguments[name] for name in ("json_schema", "regex", "grammar") if name in arguments}
    if forms:
        vocab = loaded.recipe.head.vocab or loaded.recipe.embedding.vocab
        token_mask(loaded.tokenizer, vocab, (), **forms)


def _engine_settings(model: ServedModel, strategy: Strategy, arguments: Mapping[str, Any]) -> Settings | None:
    """The settings of a sequence of the engine; None where another strategy runs."""
    function = strategy.load()
    if function is beam.stream:  # with one beam the engine does the same
        strategy_settings = {setting.name for setting in strategy.own_settings}
        given = {name: arguments.get(name) for name in strategy_settings}
        if beam.beam_config(generation_config_of(model.loaded), given).beams > 1:
            return None
        arguments = {name: value for name, value in arguments.items() if name not in strategy_settings}
    elif function is not autoregressive.stream:
        return None
    return settings_for(model.loaded, arguments)
