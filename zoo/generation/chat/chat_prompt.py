"""Answers messages with `chat`. A `ChatPrompt` holds the prompt of a conversation and parses the answer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from copy import deepcopy
from dataclasses import field, replace
from typing import Any, Unpack

from zoo.errors import PromptError, TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.generation import check_loaded, stream
from zoo.generation.chat.answer_grammar import AnswerSyntax
from zoo.generation.chat.conversation import Conversation
from zoo.generation.chat.parsing import Parser, answer_format
from zoo.generation.chat.tool_choice import ToolChoice, call_grammar, chosen_tools
from zoo.generation.chat.tools import Tool, declarations
from zoo.generation.loop.prompt import encode_messages, encode_prompt, has_chat_template, render_messages
from zoo.generation.loop.step import Step
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.generation.setting_types import GenerateSettings
from zoo.generation.settings import ONE_OF
from zoo.loading import Loaded


def chat(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Iterable[Tool] = (),
    tool_choice: ToolChoice | None = None,
    variables: Mapping[str, Any] | None = None,
    **settings: Unpack[GenerateSettings],
) -> Iterator[Step]:
    """Answer the last of `messages`, yielding a `Step` a token as `stream` does, whose settings it takes.

    The messages have the form of OpenAI's interface: a "role" ("system", "user", "assistant", "tool") and a "content", a
    string or a list of text parts, which may be None beside "tool_calls". The checkpoint's chat template lays them out, in
    the form that it takes; `variables` are what the template sees besides, such as `enable_thinking`. With the variable
    `continue_final_message` the answer goes on with the text of the last message, an assistant's. `tools` are those
    that the model may call: OpenAI's JSON declarations, or Python functions with type hints. `tool_choice` is "auto"
    (also None), "none", "required", or a tool that has to be called: its name or OpenAI's object with it. A step's `text` is the
    answer, `thinking` the reasoning before it, and `tool_calls` are complete calls; what is no whole call in the end is
    text. A `prompt_cache` is used up to where the conversation is the one that it has seen. PromptError, before anything
    runs, for a `tool_choice` that cannot be, for a model without a chat template (`zoo.stream` continues a text), and for
    tools that its template does not take; TokenizerError for what the template refuses, and for calls in the messages that
    it would leave out.

    The embedded checkpoints have no template: the example gives one by hand.

    >>> loaded = zoo.load("llama")
    >>> loaded.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    >>> messages = [{"role": "user", "content": "The capital city of China is"}]
    >>> "".join(step.text for step in zoo.chat(loaded, messages))
    ' Beijing.'
    """
    check_loaded(loaded, "chat")
    messages = list(messages) if isinstance(messages, Iterator) else messages
    prompt = chat_prompt(loaded, messages, tools=tools, tool_choice=tool_choice, variables=variables)
    if settings.get("prompt_cache") is not None and "checkpoints" not in settings:
        settings["checkpoints"] = next_turn_checkpoints(loaded, messages, prompt.ids, prompt.variables)
    return prompt.parsed(stream(prompt.loaded, prompt.ids, **prompt.constrained(settings)))


@frozen()
class ChatPrompt(Frozen):
    """The `ids` of a conversation's prompt, and what generates and parses the answer.

    The tokenizer of `loaded` writes the special tokens that the `parser` looks for; `parser` None: all of the answer is
    text. `variables` are those that the template saw. `syntax` says how the answer is written, None where it is no
    answer of a chat; `calls` is the grammar of the calls that it has to be, if any. `constrained` makes the settings to
    generate with.
    """

    loaded: Loaded
    ids: list[int]
    parser: Parser | None
    variables: Mapping[str, Any] = field(default_factory=dict)
    syntax: AnswerSyntax | None = None
    calls: str | None = None

    def constrained(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings to generate the answer with, given those that are asked for.

        A `json_schema`, `regex` or `grammar` constrains the answer after the thinking; `calls` are a `grammar` by
        themselves. PromptError where both are given, and for an unsupported constraint.
        """
        asked = next((name for name in ONE_OF if settings.get(name) is not None), None)
        if self.calls is not None and asked:
            raise PromptError(f"`tool_choice` and `{asked}` cannot be given together")
        if self.calls is not None:
            return {**settings, "grammar": self.calls}
        return settings if self.syntax is None or not asked else self.syntax.constrained(settings)

    def step_parser(self) -> Callable[[Step], Step]:
        """A function that parses the text of the steps of one answer, in their order.

        The last step also has what was held back. The text of a candidate is parsed by itself; it gets a key "thinking"
        where there is some.
        """
        parser = deepcopy(self.parser)

        def parse(step: Step) -> Step:
            if parser is None:
                return step
            part = parser.add(step.text)
            if step.finish_reason is not None:
                part += parser.finish()
            candidate = step.candidate and _parsed_candidate(step.candidate, deepcopy(self.parser))
            return replace(
                step, text=part.text, thinking=part.thinking, tool_calls=part.calls, candidate=candidate
            )

        return parse

    def parsed(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps that `loaded` generates after `ids`, their text parsed as `step_parser` does."""
        with closing(steps) if isinstance(steps, Generator) else nullcontext():  # with this iterator
            yield from map(self.step_parser(), steps)


def _parsed_candidate(candidate: Mapping[str, Any], parser: Parser | None) -> Mapping[str, Any]:
    """A candidate with its answer as "text", and its thinking, if any."""
    if parser is None or not isinstance(candidate.get("text"), str):
        return candidate
    part = parser.add(candidate["text"]) + parser.finish()
    thinking = {"thinking": part.thinking} if part.thinking else {}
    return {**candidate, "text": part.text, **thinking}


def prompt_of(
    loaded: Loaded,
    prompt: str | Sequence[int],
    settings: Mapping[str, Any],
    *,
    system: str | None = None,
    raw: bool = False,
) -> ChatPrompt:
    """The prompt of a text: the chat template rendered with the text as the user's message.

    The text itself is the prompt with `raw` and where there is no template; a list of token ids always is. `system` is a
    message before the user's. The `settings` may name languages, and leave special tokens out. PromptError for an empty
    message, for a `system` message without a template, and as for `encode_prompt`.
    """
    if isinstance(prompt, str) and has_chat_template(loaded) and not raw:
        conversation = Conversation(system=system)
        conversation.add_question(prompt)
        return chat_prompt(loaded, conversation.messages)
    if system:
        raise no_template(loaded, raw)
    languages = (settings.get(f"{side}_language") for side in ("source", "target"))
    special = settings.get("special_tokens") is not False
    return ChatPrompt(loaded, encode_prompt(loaded, prompt, special, *languages), None)


def no_template(loaded: Loaded, raw: bool) -> PromptError:
    """The error for a system message that no chat template lays out."""
    why = "`raw` leaves it out" if raw else f"{loaded.folder.name or loaded.architecture.name} has none"
    return PromptError(f"`system` needs a chat template, and {why}")


def chat_prompt(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Iterable[Tool] = (),
    tool_choice: ToolChoice | None = None,
    parallel_calls: bool = True,
    variables: Mapping[str, Any] | None = None,
    encode: Callable[[str], list[int]] | None = None,
) -> ChatPrompt:
    """The prompt of a conversation; the arguments and errors are those of `chat`.

    Without `parallel_calls`, an answer that has to call a tool calls one. `encode` makes ids of the rendered text; None: the
    tokenizer does.
    """
    shown, called = chosen_tools(tool_choice, declarations(tools))
    variables = {**(variables or {}), **({"tools": list(shown)} if shown else {})}
    text = render_messages(loaded, messages, variables)
    prompt = rendered_prompt(loaded, text, variables, None if encode is None else encode(text))
    if not called or prompt.syntax is None:
        return prompt
    several = parallel_calls and tool_choice == "required"
    return replace(prompt, calls=call_grammar(prompt.syntax, called, several))


def rendered_prompt(
    loaded: Loaded,
    text: str,
    variables: Mapping[str, Any] | None = None,
    ids: list[int] | None = None,
) -> ChatPrompt:
    """The prompt of a `text` that the chat template rendered with these variables, declared `tools` among them.

    `ids` encode the text; None: as the tokenizer does.
    """
    variables = variables or {}
    tools = variables.get("tools") or ()
    assert loaded.tokenizer is not None
    loaded = replace(loaded, tokenizer=loaded.tokenizer.for_tools(tools))
    assert loaded.tokenizer is not None
    format = answer_format(loaded.tokenizer, loaded.registry)
    if tools:
        name = loaded.folder.name or loaded.architecture.name
        takes_tools = re.search(r"\btools\b", loaded.tokenizer.chat_template or "") is not None
        if not takes_tools and format.calls is None:
            raise PromptError(f"`tools`: the chat template of {name} takes none")
        why = "its chat template does not list tools, so a message has to describe them"
        if takes_tools:
            why = "" if format.calls else "how it writes calls of tools is not known, so they come as text"
        if why:
            warnings.warn(f"{name}: {why}", stacklevel=4)
    ids = encode_prompt(loaded, text if ids is None else ids, special_tokens=False)
    visible = replace(loaded, tokenizer=loaded.tokenizer.with_visible_tokens(format.tokens))
    syntax = AnswerSyntax(loaded, format, text, variables)
    return ChatPrompt(visible, ids, format.parser(text, tools), variables, syntax)


FOLLOWING = ({"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"})


def next_turn_checkpoints(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    ids: Sequence[int],
    variables: Mapping[str, Any] | None = None,
) -> Iterator[int]:
    """Yield the number of tokens that this prompt and the prompt of the next turn share, whatever the answer is.

    `ids` are those of `encode_messages` with the same messages and variables. A template may render a past answer
    differently from the prompt for it, for example without the thinking. So the conversation is rendered with one more
    turn or, where the template refuses that, without the generation prompt; this takes time, and is done when the
    first number is asked for. Yields nothing when all of the prompt is shared, or where rendering fails.
    """
    for following, more in ((FOLLOWING, {}), ((), {"add_generation_prompt": False})):
        more |= {"continue_final_message": False}
        try:
            later = encode_messages(loaded, [*messages, *following], {**(variables or {}), **more})
        except (TokenizerError, PromptError):  # the next turn alone fails: the prompt itself was rendered
            continue
        shared = common_prefix(list(ids), later)
        if 0 < shared < len(ids):
            yield shared
        return
