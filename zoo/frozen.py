"""Frozen dataclasses that are cheap to define.

`dataclass` compiles the methods of each class when the class is made, at every start of the program. Half of these,
those that compare, hash and show an instance, are the same for all classes: `Frozen` has them once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, TypeVar, dataclass_transform

Record = TypeVar("Record", bound="Frozen")


class Frozen:
    """The base of classes that `frozen` decorates: two are equal when they are of one class and their fields are."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

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

    def define(cls: type[Record]) -> type[Record]:
        return dataclass(frozen=True, eq=False, repr=False, kw_only=kw_only)(cls)

    return define
