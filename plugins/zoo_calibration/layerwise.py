"""A model run over a text a layer at a time: each layer sees the outputs of the layers before it as they were changed.

The layers of a model are the members of its lists of modules that are called one after the other, each with the result
of the one before. Until its turn comes, a layer is run by the model's own code, with the masks, caches and values that
this passes; earlier layers then return what they gave, without being computed again. What lies outside such lists (a head),
or in a model whose layers do not follow each other in this way, is run at the end, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.model import modules_of
from zoo_calibration.text import Inputs
from zoo_calibration.watch import InputSums, intercepted, watched


class _Stop(Exception):
    """Ends a pass once the layer that was asked for has its result."""


@dataclass
class Result:
    """What a layer gave in one pass: its value, and what it put into the dicts that it was called with."""

    value: Any
    passed: dict[str, dict[str, Any]]

    def replayed(self, options: dict[str, Any]) -> Any:
        """The value, for a call with these options."""
        for key, values in self.passed.items():
            options[key].update(values)
        return self.value


@dataclass
class Layer:
    """One layer, or all that is outside the layers: the linear layers in it by path, and the sums of their inputs."""

    path: str
    linears: dict[str, nn.Module]
    sums: dict[str, InputSums]
    run: Callable[[int], Any]  # the output of pass `number`, with the layer's weights as they are now


class Layerwise:
    """The layers of a model in the order of their calls, for `passes`, the inputs of each."""

    def __init__(self, model: nn.Module, passes: Sequence[Inputs], linears: Mapping[str, nn.Module]) -> None:
        self.model, self.passes, self.linears = model, passes, dict(linears)
        self.members = _chains(model, passes[0])  # of a list, by the paths of the members in order
        self._results: dict[str, list[Result]] = {}  # of each list's last finished member, by pass
        self._finished: set[str] = set()

    def __iter__(self) -> Iterator[Layer]:
        """Yields each layer with its sums. What the consumer makes of its weights is what later layers see."""
        left = dict(self.linears)
        for name, members in self.members.items():
            for path, module in members.items():
                inside = {below: left.pop(below) for below in list(left) if below.startswith(f"{path}.")}
                if inside:
                    with watched(inside) as sums:
                        for number in range(len(self.passes)):
                            self._result(path, module, number)
                    yield Layer(path, inside, sums, partial(self._value, path, module))
                self._results[name] = [
                    self._result(path, module, number) for number in range(len(self.passes))
                ]
                self._finished.add(path)
        if left:
            with watched(left) as sums:
                for number in range(len(self.passes)):
                    self._whole(number)
            yield Layer("", left, sums, self._whole)

    def _whole(self, number: int) -> Any:
        """The output of the model in one pass."""
        with intercepted(self._modules(), self._replay(number)):
            output = self.model(*self.passes[number])
        mx.eval(output)
        return output

    def _value(self, path: str, module: nn.Module, number: int) -> Any:
        """The output of the layer at `path` in one pass."""
        return self._result(path, module, number).value

    def _result(self, path: str, module: nn.Module, number: int) -> Result:
        """The result of the layer at `path` in one pass, in which earlier layers are not computed again."""
        results: list[Result] = []
        replay = self._replay(number)

        def around(at: str, own: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            if at != path:
                return replay(at, own, args, options)
            results.append(_result(own, args, options))
            raise _Stop

        try:
            with intercepted({**self._modules(), path: module}, around):
                self.model(*self.passes[number])
        except _Stop:
            pass
        mx.eval([results[0].value, results[0].passed])
        return results[0]

    def _modules(self) -> dict[str, nn.Module]:
        return {
            path: module
            for members in self.members.values()
            for path, module in members.items()
            if path in self._finished
        }

    def _replay(self, number: int) -> Callable[..., Any]:
        def around(path: str, own: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            return self._results[_list_of(path) or ""][number].replayed(options)

        return around


def _result(own: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Result:
    value = own(*args, **options)
    return Result(value, {key: dict(given) for key, given in options.items() if isinstance(given, dict)})


def _list_of(path: str) -> str | None:
    """The path of the outermost list of modules whose member is at `path`; None where it is no member of such a list."""
    name, _, last = path.rpartition(".")
    numbered = [step.isdecimal() for step in path.split(".")]
    return name if last.isdecimal() and sum(numbered) == 1 else None


def _chains(model: nn.Module, inputs: Inputs) -> dict[str, dict[str, nn.Module]]:
    """The lists of modules whose members are called once each, with the result of the one before, by their paths.

    Found by running the model. None where it does not give the same when the members of a list but the last are not
    computed, and return what the one before the last gave.
    """
    members = {path: module for path, module in modules_of(model).items() if _list_of(path) is not None}
    calls: dict[str, list[str]] = {}
    broken: set[str] = set()
    results: dict[str, list[Result]] = {}  # of each list, the last two

    def around(path: str, own: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        name = _list_of(path) or ""
        before = results.setdefault(name, [])
        if path in calls.setdefault(name, []) or (before and not (args and args[0] is before[-1].value)):
            broken.add(name)
        calls[name].append(path)
        before.append(_result(own, args, options))
        del before[:-2]
        return before[-1].value

    with intercepted(members, around):
        expected = model(*inputs)
    chains = {
        name: {path: members[path] for path in paths} for name, paths in calls.items() if name not in broken
    }
    skipped = {path: results[name][0] for name, paths in chains.items() for path in list(paths)[:-1]}

    def replay(path: str, own: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return skipped[path].replayed(options)

    with intercepted({path: members[path] for path in skipped}, replay):
        again = model(*inputs)
    return chains if mx.allclose(expected, again).item() else {}
