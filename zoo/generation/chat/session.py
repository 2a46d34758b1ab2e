"""A conversation with a model: questions are answered, and the oldest turns left out where the context is full."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from zoo.architecture import Setting
from zoo.architecture.shared_settings import SHARED
from zoo.errors import PromptError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.generation import started, stream
from zoo.generation.chat.chat import Question, question_of
from zoo.generation.chat.checkpoints import next_turn_checkpoints
from zoo.generation.chat.conversation import Conversation, Message
from zoo.generation.chat.tools import ToolCall
from zoo.generation.chat.transcript import Transcript
from zoo.generation.loop.prompt import encode_prompt, has_chat_template, render_messages
from zoo.generation.loop.step import PromptRead, Step
from zoo.generation.settings.generation_config import token_limit
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.prefix_cache import PromptCache

ROOM = 4  # an answer has at least this part of the context to itself, or all the tokens that it may have
KEPT = 2  # a full context is emptied to this part, so that the next turns need not drop again


@frozen()
class Dropped(Frozen):
    """What was left out because the `context` was full: how many turns, and the tokens before and after."""

    turns: int
    before: int
    after: int
    context: int


@dataclass
class Answer:
    """What has come of an answer."""

    text: str = ""
    thinking: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, text: str, thinking: str, calls: Sequence[ToolCall]) -> None:
        """Take more of it."""
        self.text += text
        self.thinking += thinking
        self.calls += calls


class ChatSession:
    """Answers the questions of a `conversation` with a model, by `settings` that may change between the turns.

    Each answer follows from all that was said, if the model `remembers`: one without a chat template, or where `raw`
    leaves it out, takes each question as a prompt of its own. PromptError for settings that cannot be.

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
        """`prompt_cache` keeps what was computed of the conversation, so that a turn computes what is new."""
        self.loaded, self.strategy, self.raw = loaded, strategy, raw
        self.conversation = conversation or Conversation()
        self.settings = dict(settings or {})
        self.remembers = has_chat_template(loaded) and not raw
        self.prompt_cache = prompt_cache
        self.read: PromptRead | None = None  # how the last prompt was read
        self._transcript = Transcript(loaded.tokenizer) if loaded.tokenizer else None
        if self.conversation.system and not self.remembers:
            why = (
                "`raw` leaves it out" if raw else f"{loaded.folder.name or loaded.architecture.name} has none"
            )
            raise PromptError(f"`system` needs a chat template, and {why}")
        self._check(self.settings)

    @property
    def context(self) -> int | None:
        """The most tokens that the model is made for; None where it is made for any number."""
        return self.loaded.recipe.context

    @property
    def keeps(self) -> bool:
        """Whether what was computed of a turn serves the next one."""
        chosen, _ = started(self.loaded, self.settings, self.strategy)
        return self.prompt_cache is not None and "prompt_cache" in chosen.setting_names

    def declared(self) -> dict[str, Setting]:
        """The settings that may be changed, by their names: those of every strategy that serves the model's task."""
        chosen, _ = started(self.loaded, self.settings, self.strategy)
        task = self.loaded.architecture.task
        others = [s for s in self.loaded.registry.strategies.values() if task in s.tasks]
        known = {setting.name: setting for strategy in others for setting in strategy.own_settings}
        known |= SHARED | {setting.name: setting for setting in chosen.own_settings}
        taken = {name for strategy in (chosen, *others) for name in strategy.setting_names}
        return {name: setting for name, setting in known.items() if name in taken}

    def set(self, name: str, text: str) -> Any:
        """Change a setting to the value that a text spells, and give it. PromptError for what cannot be."""
        value = self._declaration(name).parsed(text)
        self._check({**self.settings, name: value})
        self.settings[name] = value
        return value

    def unset(self, name: str) -> None:
        """Leave a setting to the checkpoint again. PromptError where it is not set."""
        if name not in self.settings:
            raise PromptError(f"`{name}` is not set")
        del self.settings[name]

    def resume(self, conversation: Conversation, settings: Mapping[str, Any]) -> None:
        """Go on with another conversation and its settings. PromptError, nothing being changed, for what cannot be."""
        if not self.remembers and conversation.messages:
            raise PromptError("without a chat template there is no conversation to go on with")
        values = {name: self._declaration(name).checked(value) for name, value in settings.items()}
        self._check(values)
        self.conversation, self.settings, self.read = conversation, values, None

    def _declaration(self, name: str) -> Setting:
        declared = self.declared()
        if name not in declared:
            self._check({**self.settings, name: True})  # says why, where the strategy has no such setting
            raise PromptError(f"`{name}` cannot be set in a conversation")
        return declared[name]

    def _check(self, settings: Mapping[str, Any]) -> None:
        """PromptError for a setting that the model's strategy does not take, or a value that cannot be."""
        started(self.loaded, settings, self.strategy)

    def tokens(self) -> int:
        """How many tokens the conversation has as it is sent; 0 before the first question."""
        sent = self.conversation.sent
        return len(self._laid_out(sent)[1]) if sent and self.remembers else 0

    def answer(
        self,
        question: str | None = None,
        *,
        report: Callable[[int, int], None] | None = None,
        dropped: Callable[[Dropped], None] | None = None,
    ) -> Iterator[Step]:
        """Ask a question, or the last one again, and yield the steps of the answer.

        The answer is part of the conversation when the steps are over; where they are stopped, by closing the iterator or
        by an interrupt, as far as it came. `report` is that of `zoo.stream`; `dropped` is called when turns are left
        out. ZooError for what cannot be answered: a new question is then taken back.
        """
        if question is None:
            self.conversation.reopen()
        else:
            self.conversation.ask(question)
        answer, prompt = Answer(), None
        tokens: list[int] = []
        try:
            prompt = self._prompt(dropped)
            with closing(self._steps(prompt, report)) as steps:
                for step in steps:
                    self.read = step.prompt or self.read
                    tokens += [] if step.token is None else [step.token]
                    answer.add(step.text, step.thinking, step.tool_calls)
                    yield step
        except ZooError:
            if question is not None:
                self.conversation.undo()
            raise
        except BaseException:  # stopped
            if prompt is not None and prompt.parser is not None:
                rest = prompt.parser.finish()
                answer.add(rest.text, rest.thinking, rest.calls)
            self.conversation.answered(answer.text, answer.thinking, answer.calls)
            raise
        finally:
            if prompt is not None and tokens and self._transcript is not None:
                self._transcript.add([*prompt.ids, *tokens])
        self.conversation.answered(answer.text, answer.thinking, answer.calls)

    def _prompt(self, dropped: Callable[[Dropped], None] | None) -> Question:
        """What is asked of the model, the oldest turns left out if the context is full."""
        if not self.remembers:
            source, target = (self.settings.get(f"{side}_language") for side in ("source", "target"))
            text = self.conversation.messages[-1]["content"]
            ids = encode_prompt(self.loaded, text, source_language=source, target_language=target)
            return Question(self.loaded, ids, None)
        text, ids = self._laid_out(self.conversation.sent)
        if self.context is not None and len(ids) > self.context - self._room(self.context):
            turns = self._drop(self.context)
            if turns:
                text, after = self._laid_out(self.conversation.sent)
                if dropped is not None:
                    dropped(Dropped(turns, len(ids), len(after), self.context))
                ids = after
            if len(ids) > self.context:
                warnings.warn(
                    f"the question alone has {len(ids)} tokens, more than the {self.context} the model is made for",
                    stacklevel=2,
                )
        return replace(question_of(self.loaded, text), ids=ids)

    def _room(self, context: int) -> int:
        """The tokens that an answer needs in the context."""
        return min(token_limit(self.loaded, 0, self.settings.get("max_tokens")), context // ROOM)

    def _drop(self, context: int) -> int:
        """Leave out the oldest turns until the others fill a part of the context; gives how many."""
        conversation = self.conversation
        first = conversation.dropped
        counts = range(first + 1, conversation.turns)
        if counts:
            # The more turns are left out, the fewer tokens there are.
            fits = bisect_left(
                counts,
                True,
                key=lambda count: len(self._laid_out(conversation.without(count))[1]) <= context // KEPT,
            )
            conversation.dropped = counts[min(fits, len(counts) - 1)]
        return conversation.dropped - first

    def _laid_out(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        """The text that the template makes of messages, and its ids."""
        assert self._transcript is not None
        text = render_messages(self.loaded, messages)
        return text, self._transcript.encode(text)

    def _steps(self, prompt: Question, report: Callable[[int, int], None] | None) -> Generator[Step]:
        settings = dict(self.settings)
        room = None if self.context is None else self.context - len(prompt.ids)
        chosen, _ = started(self.loaded, settings, self.strategy)
        if self.remembers and room is not None and room > 0 and "max_tokens" in chosen.setting_names:
            settings["max_tokens"] = min(token_limit(self.loaded, 0, settings.get("max_tokens")), room)
        if self.prompt_cache is not None and "prompt_cache" in chosen.setting_names:
            settings["prompt_cache"] = self.prompt_cache
            if self.remembers:
                settings["checkpoints"] = next_turn_checkpoints(
                    self.loaded, self.conversation.sent, prompt.ids
                )
        steps = stream(prompt.loaded, prompt.ids, strategy=self.strategy, report=report, **settings)
        yield from prompt.answer(steps)
