"""Text from a model: `stream` yields steps as they come, `generate` collects them.

How the text is made is a strategy: a function `(loaded, prompt, **settings) -> Iterator[Step]`, chosen by the
architecture's task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo import runtime
from zoo.errors import PromptError
from zoo.generation.checked import checked_steps
from zoo.generation.settings import check_loaded, checked
from zoo.generation.step import Step
from zoo.loading import Loaded


@dataclass(frozen=True)
class Generated:
    """All of a generation: the new ids and their text; `candidates` of a task with several answers, best first.

    `logprobs` and `alternatives` have an entry a token, as `Step` does, when they were asked for.
    """

    tokens: list[int]
    text: str
    logprobs: list[float] | None
    finish_reason: str | None
    candidates: Sequence[Mapping[str, Any]] = ()
    alternatives: Sequence[Mapping[int, float]] | None = None


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
    PromptError, before anything runs, for a prompt or a setting that cannot be; PluginError for a plugin's strategy
    that yields something else than steps, of which the last has a finish reason.
    """
    check_loaded(loaded, "stream")
    runtime.check_process()
    settings = checked(settings)
    if strategy is not None and not isinstance(strategy, str):
        raise PromptError(f"strategy must be a name, got {strategy!r:.60}")
    given = [name for name, value in settings.items() if value != ()]
    architecture = loaded.architecture
    chosen = loaded.registry.strategy(architecture.task, given, name=strategy, architecture=architecture)
    plugin = loaded.registry.plugin_of(chosen)
    told = f"strategy {chosen.name}{'' if plugin.first_party else f' of the plugin {plugin.name}'}"
    more = {"report": report} if report is not None and "report" in chosen.options else {}
    return _run(checked_steps(chosen.function()(loaded, prompt, **chosen.settings(settings), **more), told))


def _run(steps: Iterator[Step]) -> Iterator[Step]:
    """The steps; their memory goes back to the system when they are over, or no longer wanted."""
    runtime.check_process()
    try:
        for step in steps:
            yield step
            runtime.check_process()
    finally:
        if isinstance(steps, Generator):
            steps.close()
        del steps
        runtime.give_back()


def generate(loaded: Loaded, prompt: str | Sequence[int], **settings: Any) -> Generated:
    """Run `loaded` on `prompt` to the end; the settings are those of `stream`."""
    check_loaded(loaded, "generate")
    steps = list(stream(loaded, prompt, **settings))
    return Generated(
        tokens=[step.token for step in steps if step.token is not None],
        text="".join(step.text for step in steps),
        logprobs=[step.logprob for step in steps if step.logprob is not None]
        if settings.get("logprobs")
        else None,
        finish_reason=steps[-1].finish_reason if steps else None,
        candidates=[step.candidate for step in steps if step.candidate is not None],
        alternatives=[step.alternatives for step in steps if step.alternatives is not None] or None,
    )
