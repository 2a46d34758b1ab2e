"""Text from a model: `stream` yields steps as they come, `generate` collects them.

How the text is generated is a strategy: a function `(loaded, prompt, **settings) -> Iterator[Step]`, chosen by the
architecture's task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from zoo import runtime
from zoo.architecture import Strategy
from zoo.errors import PluginError, PromptError, ZooError, did_you_mean
from zoo.frozen import Frozen, frozen
from zoo.generation.loop.step import PromptRead, Step, check_step, kind_of
from zoo.generation.setting_types import GenerateSettings, StreamSettings
from zoo.generation.settings import warn_of_ignored
from zoo.loading import Loaded


@frozen()
class Generated(Frozen):
    """All of a generation: the new ids and their text; `candidates` of a task with several answers, best first.

    `logprobs` (nats) and `alternatives` have an entry a token, as `Step` does, when they were asked for; `finish_reason` is
    "stop", "length" or "time"; `prompt` says how the prompt was read, with 0 tokens where the strategy does not say it, `error`, of an engine's text alone, what ended it.
    `thinking` is the reasoning before an answer, of steps that `zoo.chat` yields.

    >>> answer = zoo.generate(zoo.load("llama"), "The capital city of China is")
    >>> answer.text, answer.finish_reason
    (' Beijing.', 'stop')
    """

    tokens: list[int]
    text: str
    logprobs: list[float] | None
    finish_reason: str | None
    candidates: Sequence[Mapping[str, Any]] = ()
    alternatives: Sequence[Mapping[int, float]] | None = None
    prompt: PromptRead = PromptRead(0)
    error: ZooError | None = None
    thinking: str = ""

    def _repr_html_(self) -> str:
        """The text, or a table of the candidates, as a notebook shows it."""
        from html import escape

        from zoo.describe.html_table import html_table

        thinking = f"<details><pre>{escape(self.thinking)}</pre></details>" if self.thinking else ""
        columns = list(dict.fromkeys(name for candidate in self.candidates for name in candidate))
        rows = [[candidate.get(name, "") for name in columns] for candidate in self.candidates]
        text = f'<div style="white-space:pre-wrap">{escape(self.text)}</div>'
        return thinking + (html_table(rows, columns) if rows else text)


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    strategy: str | None = None,
    report: Callable[[int, int], None] | None = None,
    **settings: Unpack[StreamSettings],
) -> Iterator[Step]:
    """Run `loaded` on `prompt`, text or token ids, yielding a `Step` a token as they come.

    Continuing text takes `max_tokens`, `min_tokens`, `temperature`, `top_k`, `top_p`, `min_p`, `seed`, `stop` and
    `logprobs` (see `zoo.generation.strategies.autoregressive.stream`), or `beams` and what `zoo.generation.strategies.beam.stream` takes, as
    translating does; other tasks take what their strategy declares. `strategy` names one, a plugin's for
    example; without it the architecture's task and the settings choose. `report` is called with the tokens of the
    prompt that were read and those in all, by a strategy that knows. A `generation_config.json` is followed where the
    strategy can; what it cannot is warned of once.
    PromptError, before anything runs, for a prompt or a setting that cannot be; PluginError for a plugin's strategy
    that yields something else than steps, of which the last has a finish reason.

    >>> loaded = zoo.load("llama")
    >>> [step.text for step in zoo.stream(loaded, "中国的首都是", max_tokens=3)]
    ['北', '京', '。']
    >>> zoo.stream(loaded, "中国的首都是", temperature=-1)
    Traceback (most recent call last):
    zoo.errors.PromptError: `temperature` must be a number of at least 0, got -1
    """
    check_loaded(loaded, "stream")
    runtime.check_not_forked()
    chosen, arguments = resolve_strategy(loaded, settings, strategy)
    if report is not None and "report" in chosen.setting_names:
        arguments["report"] = report
    return _run(chosen.load()(loaded, prompt, **arguments), label_of(loaded, chosen))


def resolve_strategy(
    loaded: Loaded, settings: Mapping[str, Any], strategy: str | None = None
) -> tuple[Strategy, dict[str, Any]]:
    """The strategy that serves a model and these settings, and the settings checked; PromptError for one it does not take.

    What the checkpoint's `generation_config.json` asks for and the strategy cannot is warned of once.
    """
    if strategy is not None and not isinstance(strategy, str):
        raise PromptError(f"`strategy` must be a name, got {strategy!r:.60}")
    registry, architecture = loaded.registry, loaded.architecture
    # An empty list of texts is as if it was not given.
    given = {
        name: value
        for name, value in settings.items()
        if value is not None and not (isinstance(value, list | tuple) and not value)
    }
    chosen = registry.strategy(architecture.task, [*given], name=strategy, architecture=architecture)
    if unknown := next((name for name in given if name not in chosen.setting_names), None):
        others = [name for name, other in registry.strategies.items() if unknown in other.setting_names]
        hint = f"; it is a setting of {', '.join(others)}" if others else ""
        hint = hint or did_you_mean(unknown, [f"`{known}`" for known in chosen.setting_names])
        raise PromptError(f"`{unknown}`: {chosen.name} generation has no such setting{hint}")
    warn_of_ignored(loaded, chosen)
    return chosen, chosen.arguments(given)


def label_of(loaded: Loaded, chosen: Strategy) -> str:
    """What messages call a strategy."""
    plugin = loaded.registry.plugin_of(chosen)
    return f"strategy {chosen.name}{'' if plugin.first_party else f' of the plugin {plugin.name}'}"


def check_loaded(loaded: object, call: str) -> None:
    """PromptError, saying how `call` is called, for anything but a loaded model."""
    if not isinstance(loaded, Loaded):
        what = f"zoo.load({loaded!r:.60})" if isinstance(loaded, str) else "zoo.load(…)"
        raise PromptError(
            f"zoo.{call} takes a loaded model first, got {type(loaded).__name__}: zoo.{call}({what}, …)"
        )


def _run(steps: object, label: str) -> Iterator[Step]:
    """The steps of the strategy called `label`, each checked; PluginError, at once, for what is no iterable."""
    if not isinstance(steps, Iterable):
        raise PluginError(f"{label} gave {kind_of(steps)}, not an iterator of zoo.Step")
    return _released(iter(steps), label)


def _released(steps: Iterator[Any], label: str | None = None) -> Iterator[Any]:
    """The steps; their memory goes back to the system when they are over, or no longer wanted.

    With the `label` of a strategy each is checked.
    """
    runtime.check_not_forked()
    last = None
    try:
        with runtime.wired_memory():
            for step in steps:
                if label is not None:
                    check_step(step, last, label)
                last = step
                yield step
                runtime.check_not_forked()
            if label is not None:
                if last is None:
                    raise PluginError(f"{label} yielded no step; the last step must have a finish_reason")
                if last.finish_reason is None:
                    raise PluginError(f"{label} ended with a step that has no finish_reason")
            runtime.synchronize()  # for the pass that was begun before the last token was known to be the last
    finally:
        if isinstance(steps, Generator):
            steps.close()
        del steps
        runtime.release_memory()


def generate(loaded: Loaded, prompt: str | Sequence[int], **settings: Unpack[GenerateSettings]) -> Generated:
    """Run `loaded` on `prompt` to the end; the settings are those of `stream`, and so are the errors.

    PromptError for a prompt or a setting that cannot be.

    >>> loaded = zoo.load("llama")
    >>> zoo.generate(loaded, "The capital city of China is").text
    ' Beijing.'
    >>> zoo.generate(zoo.load("transformer"), "I love NLP", beams=4).text
    '我爱NLP'
    """
    check_loaded(loaded, "generate")
    return collect(stream(loaded, prompt, **settings))


def collect(steps: Iterable[Step]) -> Generated:
    """All of a generation: its steps put together."""
    steps = list(steps)
    first = next((step.prompt for step in steps if step.prompt is not None), PromptRead(0))
    return Generated(
        tokens=[step.token for step in steps if step.token is not None],
        text="".join(step.text for step in steps),
        logprobs=[step.logprob for step in steps if step.logprob is not None] or None,
        finish_reason=steps[-1].finish_reason if steps else None,
        candidates=[step.candidate for step in steps if step.candidate is not None],
        alternatives=[step.alternatives for step in steps if step.alternatives is not None] or None,
        prompt=first,
        error=steps[-1].error if steps else None,
        thinking="".join(step.thinking for step in steps),
    )


def batch(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    *,
    strategy: str | None = None,
    report: Callable[[int, int], None] | None = None,
    **settings: Unpack[StreamSettings],
) -> list[Generated]:
    """Run `loaded` on several prompts at once: what `generate` gives for each of them, in their order.

    The settings are those of `stream`, for all prompts. Where the strategy runs texts side by side, as continuing and
    translating do, a pass serves all of them, and each is as it would be alone, but for rounding; with a `seed` each
    text draws as it would alone. `report` is called with the number of texts that are done and of all. `zoo.Engine`
    takes texts one by one, each with its settings. PromptError, before anything runs, for a prompt that cannot be.

    >>> loaded = zoo.load("llama")
    >>> [answer.text for answer in zoo.batch(loaded, ["The capital city of China is", "中国的首都是"], max_tokens=4)]
    [' Beijing.', '北京。中']
    """
    check_loaded(loaded, "batch")
    if isinstance(prompts, str | bytes | Mapping) or not isinstance(prompts, Iterable):
        raise PromptError(f"`prompts` must be a list of prompts, got {prompts!r:.60}")
    prompts = list(prompts)
    steps: list[list[Step]] = [[] for _ in prompts]
    done = 0
    for index, step in batch_stream(loaded, prompts, strategy=strategy, **settings):
        steps[index].append(step)
        if step.finish_reason is not None:
            done += 1
            if report is not None:
                report(done, len(prompts))
    return [collect(each) for each in steps]


def batch_stream(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    *,
    strategy: str | None = None,
    **settings: Unpack[StreamSettings],
) -> Iterator[tuple[int, Step]]:
    """The steps of several prompts as they come, each with the index of its prompt; otherwise as `batch`."""
    runtime.check_not_forked()
    chosen, arguments = resolve_strategy(loaded, settings, strategy)
    together = chosen.batch_function()
    if together is not None:
        return _released(together(loaded, prompts, **arguments))
    label, function = label_of(loaded, chosen), chosen.load()
    checked = [_run(function(loaded, prompt, **arguments), label) for prompt in prompts]
    return ((index, step) for index, steps in enumerate(checked) for step in steps)
