"""`Step`, what every strategy yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import PluginError, ZooError
from zoo.frozen import Frozen, frozen


@frozen()
class PromptRead(Frozen):
    """How a prompt was read: its tokens, and how many of them a prompt cache had.

    `miss_reason` says why it had no more of them; None where no cache was asked. `logprobs` (nats) and `alternatives`, when
    asked for, have an entry for each token but the first.
    """

    tokens: int
    cached_tokens: int = 0
    miss_reason: str | None = None
    logprobs: tuple[float, ...] | None = None
    alternatives: tuple[Mapping[int, float], ...] | None = None


@frozen()
class Drafted(Frozen):
    """Counts of one sequence's drafts: tokens proposed and accepted, and passes of the model."""

    proposed: int
    accepted: int
    passes: int


@frozen()
class ToolCall(Frozen):
    """A call that a model asks for: the tool's `name` and its `arguments`; `id` names the call in the tool's answer.

    >>> from zoo.generation.loop.step import ToolCall
    >>> call = ToolCall("a1", "add", {"x": 2, "y": 3})
    >>> {"add": lambda x, y: x + y}[call.name](**call.arguments)
    5
    """

    id: str
    name: str
    arguments: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The call as an entry of an assistant message's "tool_calls".

        >>> from zoo.generation.loop.step import ToolCall
        >>> ToolCall("a1", "add", {"x": 2}).to_json()
        {'id': 'a1', 'type': 'function', 'function': {'name': 'add', 'arguments': {'x': 2}}}
        """
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@frozen()
class Step(Frozen):
    """One generated token. `text` is the text that became final with it: empty while a character is incomplete.

    `logprob` is the model's own log-probability in nats, if asked for. `alternatives`, if asked for, are the likeliest
    tokens at its position with their log-probabilities, the likeliest first; the chosen token is among them only if it is
    one of these. The first step of an answer to a prompt has `prompt`: how that was read. Only the last step has a
    `finish_reason`: "stop" (an end token or stop string), "length" or "time", and with drafts `drafted`. In an engine,
    where an error of one sequence must not end the others, it may be "error": `error` is then what `zoo.stream` would
    raise, and there is no token. `stop` is the stop string that ended the text.

    A step without a token only shows progress: its `draft` is the text that may still change, and replaces the draft
    before. `candidate`, in a task with several answers, describes the answer of this step.

    `zoo.chat` divides what a chat model writes: `text` is the answer, `thinking` the reasoning before it, and
    `tool_calls` are the calls that are complete with this token.

    >>> for step in zoo.stream(zoo.load("llama"), "中国的首都是", max_tokens=2):
    ...     print(step.token, step.text, step.finish_reason)
    741 北 None
    1779 京 length
    """

    token: int | None
    text: str
    logprob: float | None = None
    finish_reason: str | None = None
    draft: str | None = None
    candidate: Mapping[str, Any] | None = None
    alternatives: Mapping[int, float] | None = None
    prompt: PromptRead | None = None
    drafted: Drafted | None = None
    error: ZooError | None = None
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: str | None = None


def check_step(step: object, before: Step | None, label: str) -> None:
    """PluginError, naming the strategy by its `label`, for a value that is not a `Step` or follows the last step."""
    if not isinstance(step, Step):
        raise PluginError(f"{label} yielded {kind_of(step)}, not a zoo.Step")
    if not isinstance(step.text, str):
        raise PluginError(f"{label} yielded a step whose text is {kind_of(step.text)}")
    if before is not None and before.finish_reason is not None:
        raise PluginError(
            f"{label} yielded a step after the one whose finish_reason is {before.finish_reason!r}"
        )


def candidate(steps: Sequence[Step], score: float) -> dict[str, Any]:
    """One of several texts, made of the steps of its tokens."""
    return {
        "text": "".join(step.text for step in steps),
        "score": score,
        "tokens": [step.token for step in steps],
        "finish_reason": steps[-1].finish_reason,
    }


def kind_of(value: object) -> str:
    """The kind of a value, for a message."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
