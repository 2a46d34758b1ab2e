"""Probes: how the values inside a module are seen, and replaced, while it runs.

While a model is watched, the class of each of its modules is replaced by a subclass, which is made of a probe and the
module's own class. The probe's methods call those of the module (`super()`), note what they give, and hand it on. When
watching ends every module has its own class again: a model that is not watched runs no line of this file.

Axes: B batch, T new tokens, S cached and new, M tokens of a source, D width, H heads, G key/value heads, K width of a
head, F hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import mlx.core as mx

from zoo.errors import PluginError


class Value(NamedTuple):
    """What a value is: its `axes` ("B H T S", empty where they are not known), what its numbers mean, their `unit`.

    Parts along the axis `item_axis` are addressed by number: `pattern.2`; with `item`, "head", by that name as well:
    `head.2` is part 2 of the value `heads`.

    `derived` names the value that this one is computed from, where the model goes on with that and never with this:
    an intervention belongs there. `stepwise`: it is noted once a token, (B, 1, …) each, as a recurrent module
    computes it; an intervention is given one token at a time.
    """

    axes: str
    summary: str
    unit: str = ""
    item: str = ""
    item_axis: str = ""
    derived: str = ""
    stepwise: bool = False


class Hook:
    """What a probe reports to: `note` may give another value back, which the model then goes on with."""

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        """The value at `address`, or what is to be in its place."""
        raise NotImplementedError

    def begin(self, kind: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """A pass of the model begins: `kind` is the name of the method that is called, with these arguments."""

    def end(self) -> None:
        """The pass ends."""


class Traces(NamedTuple):
    """What a probe notes. `output` is what the module gives, at the module's own path; None: that is not noted.

    `values` are those noted by name: a value `pattern` of the module at `layers.3.mixer` has the address
    `layers.3.mixer.pattern`. `inputs` maps the name of a part to the name of the value that this part is called with:
    `{"down": "hidden"}`. `parts` says what parts of the module give, in the place of what their own probes say.
    """

    output: Value | None = Value("", "what the module gives")
    values: Mapping[str, Value] = MappingProxyType({})
    inputs: Mapping[str, str] = MappingProxyType({})
    parts: Mapping[str, Value | None] = MappingProxyType({})


class Probe:
    """The probe of any module: it notes what the module gives.

    A probe for a class of modules derives from this one, declares in `traces` what it notes, and overrides methods of
    the module, each of which calls the module's own (`super()`) and notes a value under its name.
    """

    traces: ClassVar[Traces] = Traces()

    # Set by `hooked`, for each module.
    _address: ClassVar[str] = ""
    _hook: ClassVar[Hook]
    _output: ClassVar[Value | None] = None
    _input: ClassVar[tuple[str, Value] | None] = None

    @classmethod
    def traces_of(cls, module: Any) -> Traces:
        """What is noted of this module: `traces`, but for a probe whose modules differ in what they compute."""
        return cls.traces

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._input is not None and args and isinstance(args[0], mx.array):
            args = (self._hook.note(self._input[0], args[0], self._input[1]), *args[1:])
        given = super().__call__(*args, **options)  # type: ignore[misc]
        return self.gives(given) if isinstance(given, mx.array) else given

    def gives(self, value: mx.array) -> mx.array:
        """Report what the module gives; gives it back, or what is to be in its place."""
        if self._output is None:
            return value
        return self._hook.note(self._address, value, self._output)

    def note(self, name: str, value: mx.array) -> mx.array:
        """Report the value `name`, which `traces` declares; gives it back, or what is to be in its place.

        PluginError for a name that is not declared.
        """
        about = self.traces.values.get(name)
        if about is None:
            raise PluginError(f"{self.traced_by()} notes {name!r}, which its `traces` do not declare")
        address = f"{self._address}.{name}" if self._address else name
        noted = self._hook.note(address, value, about)
        return value if about.derived else noted

    @classmethod
    def traced_by(cls) -> str:
        """The probe of this class by its module and name: "zoo.inspect.tracing.block_probes:AttentionProbe"."""
        own = next(base for base in cls.__mro__ if issubclass(base, Probe) and "traces" in vars(base))
        return f"{own.__module__}:{own.__qualname__}"
