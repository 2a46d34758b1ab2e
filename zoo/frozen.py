"""Frozen dataclasses that are cheap to define.

`dataclass` writes and compiles five methods for each class when the class is made, at every start of the program. `Frozen`
has one of each for all classes. `dataclasses.fields`, `replace` and `asdict` work as usual, and a class that
`@dataclass(frozen=True)` decorates may derive from one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

Record = TypeVar("Record", bound="Frozen")


class _Signature:
    """The arguments of a class, for `help` and `inspect.signature`."""

    def __get__(self, instance: object, cls: type[Frozen]) -> Any:
        from inspect import Parameter, Signature

        positional, named = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        parameters = [
            Parameter(
                f.name,
                named if f.kw_only else positional,
                default=Parameter.empty if f.default is f.default_factory is MISSING else f.default,
                annotation=f.type,
            )
            for f in fields(cls)
        ]
        return Signature(sorted(parameters, key=lambda parameter: parameter.kind))


@dataclass(frozen=True, eq=False, repr=False)
class _FrozenDataclass:
    """Tells `dataclasses` that what derives from this class is frozen."""


class Frozen(_FrozenDataclass):
    """The base of classes that `frozen` decorates: two are equal when they are of one class and their fields are."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    __signature__ = _Signature()
    __match_args__: ClassVar[tuple[str, ...]] = ()  # the fields that may be given by position
    _defaults: ClassVar[dict[str, Any]] = {}  # of all fields in their order; MISSING for one without
    _factories: ClassVar[dict[str, Any]] = {}  # of the fields without a default

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        positional = dict(zip(self.__match_args__, args, strict=False))
        if len(positional) < len(args) or positional.keys() & kwargs.keys():
            raise self._wrong_arguments(f"takes each of {', '.join(self.__match_args__)} once")
        values = self.__dict__
        values.update(self._defaults)
        values.update(positional)
        values.update(kwargs)
        if len(values) > len(self._defaults):
            raise self._wrong_arguments(
                f"got an unexpected keyword argument {min(values.keys() - self._defaults.keys())!r}"
            )
        for name, factory in self._factories.items():
            if values[name] is MISSING:
                if factory is MISSING:
                    raise self._wrong_arguments(f"is missing the argument {name!r}")
                values[name] = factory()
        self.__post_init__()

    def _wrong_arguments(self, reason: str) -> TypeError:
        return TypeError(f"{type(self).__qualname__}.__init__() {reason}")

    def __post_init__(self) -> None:
        """Check the values of the fields."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        names = self.__dataclass_fields__
        return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))

    def __repr__(self) -> str:
        shown = (name for name, field in self.__dataclass_fields__.items() if field.repr)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, kw_only: bool = False) -> Callable[[type[Record]], type[Record]]:
    """A decorator that makes a subclass of `Frozen` a frozen dataclass."""
    read_fields = dataclass(init=False, eq=False, repr=False, kw_only=kw_only)

    def define(cls: type[Record]) -> type[Record]:
        # `dataclass` reads the annotations and defaults in a class apart, because it adds methods to a frozen one.
        given = {name: getattr(cls, name) for name in cls.__annotations__ if hasattr(cls, name)}
        names = dict(__annotations__=cls.__annotations__, __module__=cls.__module__, __doc__="Fields.")
        apart: Any = read_fields(type(cls.__name__, (), names | given))
        cls.__dataclass_fields__ = cls.__dataclass_fields__ | apart.__dataclass_fields__
        for name, value in given.items():
            if isinstance(value, Field):
                if name in vars(apart):
                    setattr(cls, name, vars(apart)[name])
                else:
                    delattr(cls, name)
        cls._defaults = {f.name: f.default for f in fields(cls)}
        cls._factories = {f.name: f.default_factory for f in fields(cls) if f.default is MISSING}
        cls.__match_args__ = tuple(f.name for f in fields(cls) if not f.kw_only)  # type: ignore[misc]
        if "__init__" not in vars(cls):
            cls.__init__ = Frozen.__init__  # type: ignore[method-assign]  # a base may have one of `dataclass`
        return cls

    return define
