"""The hooks a plugin may implement. Each returns or yields frozen records, so it is tested without the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from zoo.architecture import Architecture, Block, Command, Strategy

hookspec = pluggy.HookspecMarker("zoo")


@hookspec
def zoo_architectures() -> Iterable[Architecture]:  # type: ignore[empty-body]
    """Architectures: what each is called, how its config becomes a recipe, how its weights are named.

    >>> from zoo.architecture import Architecture, Rename, hookimpl
    >>> @hookimpl
    ... def zoo_architectures():
    ...     yield Architecture(name="tiny", summary="…", recipe=lambda config: ..., weights=(Rename("*", "*"),))
    >>> [architecture.name for architecture in zoo_architectures()]
    ['tiny']
    """


@hookspec
def zoo_blocks() -> Iterable[Block]:  # type: ignore[empty-body]
    """Blocks: a spec, and where the module that runs it is found.

    >>> from dataclasses import dataclass
    >>> from zoo.architecture import Block, hookimpl
    >>> from zoo.recipe import Spec
    >>> @dataclass(frozen=True)
    ... class Nothing(Spec):
    ...     kind, name = "mixer", "nothing"
    >>> @hookimpl
    ... def zoo_blocks():
    ...     yield Block(Nothing, "my_plugin.nothing:Nothing", "gives its input back")
    >>> [block.spec.block() for block in zoo_blocks()]
    ['mixer/nothing']
    """


@hookspec
def zoo_strategies() -> Iterable[Strategy]:  # type: ignore[empty-body]
    """Ways to make text: each a function from a loaded model and a prompt to an iterator of steps.

    >>> from zoo.architecture import Strategy, hookimpl
    >>> @hookimpl
    ... def zoo_strategies():
    ...     yield Strategy("backwards", "my_plugin.backwards:stream", tasks=("generate",), options=("max_tokens",))
    >>> [strategy.name for strategy in zoo_strategies()]
    ['backwards']
    """


@hookspec(firstresult=True)
def zoo_resolve(config: Mapping[str, Any]) -> str | None:
    """The architecture that a config.json is of, where its `model_type` alone cannot tell; None to pass.

    >>> from zoo.architecture import hookimpl
    >>> @hookimpl
    ... def zoo_resolve(config):
    ...     return "tiny" if config.get("tiny_heads") else None
    >>> zoo_resolve({"tiny_heads": 2})
    'tiny'
    """


@hookspec
def zoo_commands() -> Iterable[Command]:  # type: ignore[empty-body]
    """Subcommands of `zoo`, imported only when they are called.

    >>> from zoo.architecture import Command, hookimpl
    >>> @hookimpl
    ... def zoo_commands():
    ...     yield Command("hello", "my_plugin.cli:hello", "says hello")
    >>> [command.name for command in zoo_commands()]
    ['hello']
    """
