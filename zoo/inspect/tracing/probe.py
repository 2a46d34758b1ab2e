"""Probes show the values inside a module while it runs, and may replace them.

While a model has hooks, each of its modules has another class, made of a probe and the module's own class. The probe's
methods call those of the module (`super()`), note the result, and return it. Afterwards every module has its own class
again: a model without hooks runs no line of this file.

Axes: B batch, T new tokens, S cached and new, M tokens of a source, D width, H heads, G key/value heads, K width of a
head, F hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from zoo.errors import PluginError


class Value(NamedTuple):
    """A value's `axes` ("B H T S", empty if unknown), the meaning of its numbers and their `unit`.

    Parts along the axis `item_axis` are addressed by number: `pattern.2`. With `item`, "head", they have that name as
    well: `head.2` is part 2 of the value `heads`.

    `derived` names the value that this one is computed from, if the model itself does not use this one. Interventions then
    change that value. A `stepwise` value is noted once a token, (B, 1, …), as a recurrent module computes it, and an
    intervention gets one token at a time.
    """

    axes: str
    summary: str
    unit: str = ""
    item: str = ""
    item_axis: str = ""
    derived: str = ""
    stepwise: bool = False


class Hook:
    """Receives the values that probes report. The model continues with the value that `note` returns."""

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        """The value at `address`, or its replacement."""
        raise NotImplementedError

    def begin(self, kind: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """A pass of the model begins: `kind` is the name of the method that is called, with these arguments."""

    def end(self) -> None:
        """The pass ends."""


class Traces(NamedTuple):
    """What a probe notes. `output` describes the module's result, at the module's own path; None does not note it.

    `values` are noted by name: a value `pattern` of the module at `layers.3.mixer` has the address
    `layers.3.mixer.pattern`. `inputs` maps the name of a part to the name of the value that this part is called with:
    `{"down": "hidden"}`. `parts` describes the results of parts, and overrides what their own probes declare.
    """

    output: Value | None = Value("", "what the module gives")
    values: Mapping[str, Value] = MappingProxyType({})
    inputs: Mapping[str, str] = MappingProxyType({})
    parts: Mapping[str, Value | None] = MappingProxyType({})


class Probe:
    """The probe of any module: it notes the module's result.

    A probe for a class of modules derives from this one and declares in `traces` what it notes. It overrides methods of
    the module; each calls the module's own (`super()`) and notes a value by name.
    """

    traces: ClassVar[Traces] = Traces()

    # Set by `hooked`, for each module.
    _address: ClassVar[str] = ""
    _hooks: ClassVar[list[Hook]]
    _output: ClassVar[Value | None] = None
    _input: ClassVar[tuple[str, Value] | None] = None

    @classmethod
    def traces_of(cls, module: nn.Module) -> Traces:
        """What is noted of this module: `traces`, unless the probe's modules differ in what they compute."""
        return cls.traces

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._input is not None and args and isinstance(args[0], mx.array):
            args = (self._report(self._input[0], args[0], self._input[1]), *args[1:])
        given = super().__call__(*args, **options)  # type: ignore[misc]
        return self.note_output(given) if isinstance(given, mx.array) else given

    def note_output(self, value: mx.array) -> mx.array:
        """Report the module's result; returns it, or its replacement."""
        return value if self._output is None else self._report(self._address, value, self._output)

    def note(self, name: str, value: mx.array) -> mx.array:
        """Report the value `name`, which `traces` declares; returns it, or its replacement.

        PluginError for a name that is not declared.
        """
        about = self.traces.values.get(name)
        if about is None:
            own = next(
                base for base in type(self).__mro__ if issubclass(base, Probe) and "traces" in vars(base)
            )
            probe = f"{own.__module__}:{own.__qualname__}"
            raise PluginError(f"{probe} notes {name!r}, which its `traces` do not declare")
        address = f"{self._address}.{name}" if self._address else name
        noted = self._report(address, value, about)
        return value if about.derived else noted

    def _report(self, address: str, value: mx.array, about: Value) -> mx.array:
        for hook in self._hooks:
            value = hook.note(address, value, about)
        return value
