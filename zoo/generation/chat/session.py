"""`ChatSession`: a conversation with a model. Where the context is full, the oldest turns are left out.

`Transcript` re-encodes a conversation with the ids that the model generated, so that its KV cache stays valid.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from zoo.architecture import Setting, Strategy
from zoo.architecture.settings import SHARED
from zoo.errors import PromptError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.generation import resolve_strategy, stream
from zoo.generation.chat.chat_prompt import (
    ChatPrompt,
    next_turn_checkpoints,
    no_template,
    prompt_of,
    rendered_prompt,
)
from zoo.generation.chat.conversation import Conversation
from zoo.generation.chat.parsing import Parsed
from zoo.generation.loop.prompt import has_chat_template, render_messages
from zoo.generation.loop.step import PromptRead, Step
from zoo.generation.settings import token_limit
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.tokenizer.chat_messages import Message, text_of

if TYPE_CHECKING:
    from zoo.generation.prefix_cache import PromptCache

ANSWER_SHARE = 4  # the part of the context that is left for an answer, unless it has fewer tokens
KEPT_SHARE = 2  # the part that is filled after turns were dropped, so that the next turns need not drop more


@frozen()
class DroppedTurns(Frozen):
    """How many turns were left out because the `context` was full, and the prompt's tokens before and after."""

    turns: int
    before: int
    after: int
    context: int


class ChatSession:
    """Answers the questions of a `conversation` with a model, by `settings` that may change between the turns.

    `multi_turn`: an answer depends on the whole conversation. Without a chat template, or where `raw` leaves it out, each
    question is a prompt of its own. PromptError for invalid settings.

    >>> from zoo.generation.chat.session import ChatSession
    >>> loaded = zoo.load("llama")
    >>> loaded.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    >>> talk = ChatSession(loaded, settings={"max_tokens": 3})
    >>> "".join(step.text for step in talk.answer("The capital city of China is"))
    ' Beijing'
    >>> talk.conversation.messages[-1]["content"]
    ' Beijing'
    """

    def __init__(
        self,
        loaded: Loaded,
        conversation: Conversation | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        strategy: str | None = None,
        raw: bool = False,
        prompt_cache: PromptCache | None = None,
    ) -> None:
        """`prompt_cache` keeps the KV caches of the conversation, so that a turn computes only what is new."""
        self.loaded, self.strategy, self.raw = loaded, strategy, raw
        self.conversation = conversation or Conversation()
        self.settings = dict(settings or {})
        self.context = (
            loaded.recipe.context
        )  # the most tokens that the model is made for; None without a limit
        self.multi_turn = has_chat_template(loaded) and not raw
        self.prompt_cache = prompt_cache
        self.last_prompt: PromptRead | None = None  # what a prompt cache had of it, and its log-probabilities
        self._unanswered: Message | None = None  # a question whose answer said nothing
        self._transcript = Transcript(loaded.tokenizer) if loaded.tokenizer else None
        if self.conversation.system and not self.multi_turn:
            raise no_template(loaded, raw)
        self._strategy_for(self.settings)

    @property
    def uses_prompt_cache(self) -> bool:
        """Whether the strategy uses the prompt cache that was given."""
        chosen = self._strategy_for(self.settings)
        return self.prompt_cache is not None and "prompt_cache" in chosen.setting_names

    def available_settings(self) -> dict[str, Setting]:
        """The settings that may be changed, by name: those of every strategy that serves the model's task."""
        chosen = self._strategy_for(self.settings)
        task = self.loaded.architecture.task
        others = [s for s in self.loaded.registry.strategies.values() if task in s.tasks]
        known = {setting.name: setting for strategy in others for setting in strategy.own_settings}
        known |= SHARED | {setting.name: setting for setting in chosen.own_settings}
        taken = {name for strategy in (chosen, *others) for name in strategy.setting_names}
        return {name: setting for name, setting in known.items() if name in taken}

    def set(self, name: str, text: str) -> Any:
        """Set a setting to the value that a text spells, and return the value. PromptError for an invalid one."""
        value = self._declaration(name).parsed(text)
        self._strategy_for({**self.settings, name: value})
        self.settings[name] = value
        return value

    def unset(self, name: str) -> None:
        """Leave a setting to the checkpoint again. PromptError where it is not set."""
        if name not in self.settings:
            raise PromptError(f"`{name}` is not set")
        del self.settings[name]

    def resume(self, conversation: Conversation, settings: Mapping[str, Any]) -> None:
        """Continue another conversation with its settings. PromptError, before anything changes, for invalid settings."""
        if not self.multi_turn and conversation.messages:
            raise PromptError("without a chat template there is no conversation to go on with")
        values = {name: self._declaration(name).checked(value) for name, value in settings.items()}
        self._strategy_for(values)
        self.conversation, self.settings, self.last_prompt = conversation, values, None

    def _declaration(self, name: str) -> Setting:
        declared = self.available_settings()
        if name not in declared:
            self._strategy_for({**self.settings, name: True})  # whose refusal says why
            raise PromptError(f"`{name}` cannot be set in a conversation")
        return declared[name]

    def _strategy_for(self, settings: Mapping[str, Any]) -> Strategy:
        """The strategy that generates with these settings. PromptError for a setting or value that it does not take."""
        return resolve_strategy(self.loaded, settings, self.strategy)[0]

    def tokens(self) -> int:
        """The number of tokens of the next prompt so far; 0 before the first question."""
        messages = self.conversation.active_messages
        return len(self._rendered(messages)[1]) if messages and self.multi_turn else 0

    def answer(
        self,
        question: str | None = None,
        *,
        report: Callable[[int, int], None] | None = None,
        dropped: Callable[[DroppedTurns], None] | None = None,
    ) -> Iterator[Step]:
        """Ask a question, or the last one again, and yield the steps of the answer.

        After the last step the answer is part of the conversation. Where the iterator is closed or interrupted before,
        the part that came is. An answer without text or tool calls is not kept: the question can be answered again, and the
        next question takes its place. `report` is that of `zoo.stream`; `dropped` is called when turns are left out. ZooError
        where generation fails. A new question is then removed again, and an answer to an old one is kept.
        """
        conversation, former = self.conversation, list[Message]()
        if question is None:
            former = conversation.remove_answer()
        else:
            if conversation.messages and conversation.messages[-1] is self._unanswered:
                conversation.undo()  # many templates refuse two questions in a row
            conversation.add_question(question)
        answer, prompt = Parsed(), None
        tokens: list[int] = []
        try:
            prompt = self._prompt(dropped)
            with closing(self._steps(prompt, report)) as steps:
                for step in steps:
                    self.last_prompt = step.prompt or self.last_prompt
                    tokens += [] if step.token is None else [step.token]
                    answer += Parsed(step.text, step.thinking, tuple(step.tool_calls))
                    yield step
        except ZooError:
            if question is not None:
                conversation.undo()
            conversation.messages += former
            raise
        except BaseException:  # stopped
            if prompt is not None and prompt.parser is not None:
                answer += prompt.parser.finish()
            self._add_answer(answer, former)
            raise
        finally:
            if prompt is not None and tokens and self._transcript is not None:
                self._transcript.add([*prompt.ids, *tokens])
        self._add_answer(answer, former)

    def _add_answer(self, answer: Parsed, former: list[Message]) -> None:
        """Add an answer that says something; without one, keep the former answer to the same question, if any."""
        messages = self.conversation.messages
        if answer.text.strip() or answer.calls:
            self.conversation.add_answer(answer.text, answer.thinking, answer.calls)
        elif former:
            messages += former
        else:
            self._unanswered = messages[-1]

    def _prompt(self, dropped: Callable[[DroppedTurns], None] | None) -> ChatPrompt:
        """The prompt of the last question; the oldest turns are left out if the context is full."""
        if not self.multi_turn:
            return prompt_of(self.loaded, text_of(self.conversation.messages[-1]), self.settings, raw=True)
        text, ids = self._rendered(self.conversation.active_messages)
        answer = token_limit(self.loaded, 0, self.settings.get("max_tokens"))
        if self.context is not None and len(ids) > self.context - min(answer, self.context // ANSWER_SHARE):
            turns = self._drop(self.context)
            if turns:
                text, after = self._rendered(self.conversation.active_messages)
                if dropped is not None:
                    dropped(DroppedTurns(turns, len(ids), len(after), self.context))
                ids = after
        return rendered_prompt(self.loaded, text, ids=ids)

    def _drop(self, context: int) -> int:
        """Leave out the oldest turns until the others fill `1 / KEPT_SHARE` of the context; returns how many."""
        conversation = self.conversation
        first = conversation.dropped
        counts = range(first + 1, conversation.turns)
        if counts:

            def fit(count: int) -> bool:  # the more turns are left out, the fewer tokens there are
                return len(self._rendered(conversation.without(count))[1]) <= context // KEPT_SHARE

            fits = bisect_left(counts, True, key=fit)
            conversation.dropped = counts[min(fits, len(counts) - 1)]
        return conversation.dropped - first

    def _rendered(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        """Messages as the text that the template renders, and its ids."""
        assert self._transcript is not None
        text = render_messages(self.loaded, messages)
        return text, self._transcript.encode(text)

    def _steps(self, prompt: ChatPrompt, report: Callable[[int, int], None] | None) -> Generator[Step]:
        settings = dict(self.settings)
        room = None if self.context is None else self.context - len(prompt.ids)
        chosen = self._strategy_for(settings)
        if self.multi_turn and room is not None and room > 0 and "max_tokens" in chosen.setting_names:
            settings["max_tokens"] = min(token_limit(self.loaded, 0, settings.get("max_tokens")), room)
        if self.prompt_cache is not None and "prompt_cache" in chosen.setting_names:
            settings["prompt_cache"] = self.prompt_cache
            if self.multi_turn:
                settings["checkpoints"] = next_turn_checkpoints(
                    self.loaded, self.conversation.active_messages, prompt.ids
                )
        constrained = prompt.constrained(settings)
        steps = stream(prompt.loaded, prompt.ids, strategy=self.strategy, report=report, **constrained)
        yield from prompt.parsed(steps)


MOST = 8  # texts: the last one has the whole conversation, the others serve turns that are undone


class Transcript:
    """Encodes a conversation's prompts. One that begins with an earlier prompt and its answer begins with their ids.

    A model may write a text in other tokens than the tokenizer would. Its caches hold the keys and values of its own
    tokens: were the answer encoded anew, all of it would be computed again.

    >>> from zoo.generation.chat.session import Transcript
    >>> tokenizer = zoo.load("llama").tokenizer
    >>> transcript = Transcript(tokenizer)
    >>> said = [tokenizer.encode(letter)[0] for letter in "China"]
    >>> transcript.add(said)
    >>> transcript.encode("China is large.")[:5] == said, tokenizer.encode("China is large.")[:5] == said
    (True, False)
    """

    def __init__(self, tokenizer: Tokenizer, most: int = MOST) -> None:
        """It remembers the last `most` texts."""
        self._tokenizer = tokenizer
        self._encoded: deque[tuple[str, list[int]]] = deque(maxlen=most)

    def add(self, ids: Sequence[int]) -> None:
        """Keep the ids of a prompt and its answer, with and without the last: templates may write another end token."""
        for end in (len(ids) - 1, len(ids)):
            self._encoded.append((self._text(ids[:end]), list(ids[:end])))

    def encode(self, text: str) -> list[int]:
        """The ids of a rendered text, which has its special tokens in it."""
        for start, ids in reversed(self._encoded):
            if start and text.startswith(start):
                rest = self._tokenizer.encode(text[len(start) :], special_tokens=False)
                if self._text([*ids, *rest]) == text:  # some tokenizers add a space before a text
                    return [*ids, *rest]
        return self._tokenizer.encode(text, special_tokens=False)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)
