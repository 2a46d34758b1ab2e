"""The checks of strategies: what each yields and refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.architecture import Strategy
from zoo.errors import PromptError
from zoo.generation import stream
from zoo.generation.loop.step import Step
from zoo.host.registry import Registry, default_registry
from zoo.loading import Loaded
from zoo.testing.subjects import Subject, loaded_of, subject

LENGTH = 8  # tokens of a prompt, and of an answer
MASK = 3  # the id that stands for a hidden token
PROMPT = tuple(range(MASK, MASK + LENGTH))


def loaded_with_mask(subject: Subject) -> Loaded:
    """A subject as a loaded model whose config has the id of the mask token."""
    return loaded_of(subject, {**subject.numbers, "mask_token_id": MASK})


def check_strategy(
    name: str, architecture: str | None = None, registry: Registry | None = None, **settings: Any
) -> list[Step]:
    """Check the contract of the strategy `name`, plain or qualified; AssertionError or PluginError says what fails.

    It runs with `settings` on token ids and a small model of random weights: of `architecture`, else of the first whose
    task it serves. Returns the steps of one run.
    """
    registry = registry or default_registry()
    plain = name.rpartition("::")[2]
    tasks = next((strategy.tasks for strategy in registry.strategies.values() if strategy.name == plain), ())
    if architecture is None:
        fitting = (a.name for a in registry.architectures.values() if a.task in tasks and a.presets)
        architecture = "llama" if "generate" in tasks else next(fitting, "llama")
    made = subject(architecture, registry=registry)
    strategy = registry.strategy(made.architecture.task, name=name)
    return _checked_runs(loaded_with_mask(made), strategy, name, settings)


def strategies_end_as_they_must(subject: Subject) -> None:
    """A strategy yields steps, and the last one has a finish reason."""
    for strategy in strategies_of(subject):
        _checked_runs(loaded_with_mask(subject), strategy, _full(subject.registry, strategy), {})


def _checked_runs(loaded: Loaded, strategy: Strategy, name: str, settings: Any) -> list[Step]:
    """Run once to the end, close a second run early, and start one that must be refused."""
    most = {"max_tokens": LENGTH} if "max_tokens" in strategy.setting_names else {}

    def start(ids: Sequence[int]) -> Any:
        return stream(loaded, ids, strategy=name, **{**most, **settings})

    steps = list(start(PROMPT))  # PluginError when these are no steps, or have no end
    tokens = [step.token for step in steps if step.token is not None]
    if most and not settings.get("max_tokens"):
        assert len(tokens) <= LENGTH, f"{strategy.name}: {len(tokens)} tokens where max_tokens is {LENGTH}"
    vocab = getattr(loaded.recipe.head, "vocab", None) or loaded.recipe.embedding.vocab
    strange = next((token for token in tokens if not 0 <= token < vocab), None)
    assert strange is None, f"{strategy.name}: token {strange} lies outside the vocabulary of {vocab}"
    given_up = start(PROMPT)
    next(given_up)
    given_up.close()
    try:
        start([])
    except PromptError:
        return steps
    raise AssertionError(
        f"{strategy.name}: an empty prompt must be a PromptError when it is called, not while it runs"
    )


def strategies_of(subject: Subject) -> list[Strategy]:
    """The strategies of the architecture's plugin that serve its task and run without settings.

    `check_strategy` checks those that need settings.
    """
    registry, task = subject.registry, subject.architecture.task
    given = registry.plugin_of(subject.architecture).records.get("zoo_strategies", ())
    return [strategy for strategy in given if task in strategy.tasks and _starts(subject, strategy)]


def _starts(subject: Subject, strategy: Strategy) -> bool:
    try:
        stream(loaded_with_mask(subject), PROMPT, strategy=_full(subject.registry, strategy))
    except PromptError:
        return False
    except Exception:  # whatever it is, the check itself runs into it and says so
        return True
    return True


def _full(registry: Registry, strategy: Strategy) -> str:
    """The qualified name of a strategy."""
    return f"{registry.plugin_of(strategy).distribution}::{strategy.name}"
