"""The base of the records that plugins give. Imports no mlx."""

from __future__ import annotations

from typing import Any

from zoo.architecture.checks import check_target, checked_name, import_target
from zoo.frozen import Frozen, frozen


@frozen()
class Record(Frozen):
    """What a hook yields: checked when it is made. A record claims a name, its `identifier`.

    `noun` is what messages call one, `prefix` stands before its name in a list of records of all kinds. `by_name`: a
    person asks for one by its name, `choose` saying how in messages; others are found by what a folder or a recipe holds.
    `counted`: a plugin's records are listed by their number only, since each goes with a block.
    """

    noun, prefix = "record", ""
    by_name, choose = True, "ask for"
    counted = False

    @property
    def identifier(self) -> str:
        """The name that the record claims."""
        return self.name  # type: ignore[attr-defined, no-any-return]

    def load(self) -> Any:
        """The object at the record's `target`, imported now."""
        return import_target(self.target)  # type: ignore[attr-defined]

    @property
    def label(self) -> str:
        """What messages call this record: "corpus atlas"."""
        return f"{self.noun} {self.identifier}"


@frozen()
class TargetRecord(Record):
    """A record with a name, and a `target` at "package.module:attribute", imported only when it is used."""

    name: str
    target: str

    def __post_init__(self) -> None:
        checked_name(self.noun, self.name)
        check_target(self.label, self.target)
