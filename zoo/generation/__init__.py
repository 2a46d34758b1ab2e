"""Text from a model: `stream` yields steps as they come, `generate` collects them.

How the text is made is a strategy: a function `(loaded, prompt, **settings) -> Iterator[Step]`, chosen by the
architecture's task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.generation.step import Step
from zoo.loading import Loaded


@dataclass(frozen=True)
class Generated:
    """All of a generation: the new ids and their text; `candidates` of a task with several answers, best first."""

    tokens: list[int]
    text: str
    logprobs: list[float] | None
    finish_reason: str | None
    candidates: Sequence[Mapping[str, Any]] = ()


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    strategy: str | None = None,
    report: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Iterator[Step]:
    """Run `loaded` on `prompt`, text or token ids, yielding a `Step` a token as they come.

    Continuing text takes `max_tokens`, `temperature`, `top_k`, `top_p`, `min_p`, `seed`, `stop` and `logprobs`
    (see `zoo.generation.autoregressive.stream`), or `beams` and what `zoo.generation.beam.stream` takes, as
    translating does; other tasks take what their strategy's record lists. `strategy` names one, a plugin's for
    example; without it the architecture's task and the settings choose. `report` is called with the tokens of the
    prompt that were read and those in all, by a strategy that knows.
    PromptError, before anything runs, for a prompt or a setting that cannot be.
    """
    given = [name for name, value in settings.items() if value is not None and value != ()]
    architecture = loaded.architecture
    chosen = loaded.registry.strategy(architecture.task, given, name=strategy, architecture=architecture)
    told = {"report": report} if report is not None and "report" in chosen.options else {}
    return chosen.function()(loaded, prompt, **chosen.settings(settings), **told)


def generate(loaded: Loaded, prompt: str | Sequence[int], **settings: Any) -> Generated:
    """Run `loaded` on `prompt` to the end; the settings are those of `stream`."""
    steps = list(stream(loaded, prompt, **settings))
    return Generated(
        tokens=[step.token for step in steps if step.token is not None],
        text="".join(step.text for step in steps),
        logprobs=[step.logprob for step in steps if step.logprob is not None]
        if settings.get("logprobs")
        else None,
        finish_reason=steps[-1].finish_reason if steps else None,
        candidates=[step.candidate for step in steps if step.candidate is not None],
    )
