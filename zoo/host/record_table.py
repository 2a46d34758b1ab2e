"""The records of one kind by the names that they claim, and the choice of one among them.

Of the plugins that claim one name, a third party gets it before the zoo; of two third parties, neither does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from zoo.architecture.architecture import Record, is_same
from zoo.errors import PluginError, similar_names
from zoo.host.plugins import Plugin

T = TypeVar("T", bound=Record)


class RecordTable(Generic[T]):
    """The records of one kind, by the names that they claim.

    A name that two third parties claim is ambiguous: a person must ask for "distribution::name". A name that a third
    party and the zoo both claim is the third party's, with a warning, so that no later release of the zoo takes a name
    from a plugin.
    """

    def __init__(self, noun: str, choose: str) -> None:
        """`noun` is what messages call a record, `choose` how they tell a person to choose one."""
        self.noun, self.choose = noun, choose
        self._claims: dict[str, list[tuple[Plugin, T]]] = {}

    def add(self, name: str, plugin: Plugin, record: T) -> None:
        """Add a plugin's `record` under `name`."""
        self._claims.setdefault(name, []).append((plugin, record))

    def __contains__(self, name: str) -> bool:
        """Whether some plugin claims this name, plain or qualified."""
        return bool(self.claims(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def pairs(self) -> Iterator[tuple[Plugin, T]]:
        """Every record, with its plugin."""
        return (claim for claims in self._claims.values() for claim in claims)

    def claims(self, name: str) -> list[tuple[Plugin, T]]:
        """Every record that claims a name, plain or qualified, each with its plugin."""
        distribution, _, plain = ("", "", name) if name in self._claims else name.rpartition("::")
        claims = self._claims.get(plain, [])
        return [claim for claim in claims if distribution in ("", claim[0].distribution)]

    def get(self, name: str) -> T | None:
        """The record of a name, None when no plugin claims it; PluginError when several third parties do."""
        return self.winner(claims, name)[1] if (claims := self.claims(name)) else None

    def require(self, name: str) -> T:
        """The record of a name; PluginError, which lists the names there are, for none."""
        found = self.get(name)
        if found is None:
            raise PluginError(f"no {self.noun} {name!r}; there are: {', '.join(self.listed()) or 'none'}")
        return found

    def winner(self, claims: list[tuple[Plugin, T]], name: str) -> tuple[Plugin, T]:
        """The claim that gets the name, with a warning when it replaces one of the zoo's; PluginError when none does."""
        found = _holder(claims)
        if found is None:
            options = " or ".join(_of_third_parties(claims))
            raise PluginError(f"{self.noun} {name!r} is claimed by several plugins: {self.choose} {options}")
        if not found[0].first_party and len(claims) > 1:
            replaced = next(claim for claim in claims if claim[0].first_party)
            warnings.warn(
                f"{self.noun} {name!r} is served by the plugin {found[0].label}, "
                f"not by the zoo's own {_qualified(*replaced)}",
                stacklevel=3,
            )
        return found

    def contested(self) -> dict[str, list[str]]:
        """The names that several third parties claim, each with the qualified names to ask for instead."""
        return {
            name: _of_third_parties(claims)
            for name, claims in self._claims.items()
            if _holder(claims) is None
        }

    def listed(self) -> dict[str, T]:
        """Every record by a name that finds it: qualified where the plain one finds another record or is contested."""
        found: dict[str, T] = {}
        for name, claims in self._claims.items():
            winner = _holder(claims)
            for claim in claims:
                found[name if claim is winner else f"{claim[0].distribution}::{name}"] = claim[1]
        return dict(sorted(found.items()))

    def plugin_of(self, record: T | None) -> Plugin | None:
        """The plugin that gave this record, None for none."""
        very = (plugin for plugin, given in self.pairs() if given is record)
        copied = (plugin for plugin, given in self.pairs() if is_same(given, record))
        return next(chain(very, copied), None)

    def spelling(self, name: str) -> str:
        """The name that differs from this one in nothing but case; `name` itself where it is claimed, or none is like it."""
        return (
            name if name in self else next((known for known in self if known.lower() == name.lower()), name)
        )

    def similar(self, name: str) -> list[str]:
        """At most three names that resemble this one, whatever library stands before "::"."""
        plain = {full.rpartition("::")[2]: full for full in sorted(self._claims, key=lambda n: "::" not in n)}
        return [plain[match] for match in similar_names(name.lower(), plain, 3, 0.5)]


def choose(
    table: RecordTable[T],
    serves: Callable[[T], bool],
    what: str,
    *,
    name: str | None = None,
    given_by: Plugin | None = None,
    prefers: Callable[[T], bool] = lambda record: True,
) -> T:
    """The record `name`, else the first that `serves` and that the caller `prefers`, else the first that serves.

    `what` says in messages what is to be served. Records of the distribution of `given_by`, the architecture's plugin, come
    first, then the zoo's own; another third party's serves unasked only where none of these does. PluginError when there is none,
    or several third parties' fit.
    """
    if name is not None:
        found = table.get(name)
        if found is None or not serves(found):
            known = ", ".join(name for name, record in table.listed().items() if serves(record))
            raise PluginError(f"{table.noun} {name!r}: none of that name {what}; known: {known or 'none'}")
        return found

    def rank(claim: tuple[Plugin, T]) -> int:
        same = given_by is not None and claim[0].distribution == given_by.distribution
        return 0 if same else 1 if claim[0].first_party else 2

    serving = sorted((claim for claim in table.pairs() if serves(claim[1])), key=rank)
    fitting = [claim for claim in serving if prefers(claim[1])] or serving[:1]
    if not fitting:
        raise PluginError(f"no {table.noun} {what}")
    if rank(fitting[0]) == 2 and len(fitting) > 1:
        options = " or ".join(_qualified(*claim) for claim in fitting)
        raise PluginError(f"several plugins have a {table.noun} that {what}: ask for {options}")
    return fitting[0][1]


def _qualified(plugin: Plugin, record: Record) -> str:
    return f"{plugin.distribution}::{record.identifier}"


def _of_third_parties(claims: list[tuple[Plugin, T]]) -> list[str]:
    return [_qualified(*claim) for claim in claims if not claim[0].first_party]


def _holder(claims: list[tuple[Plugin, T]]) -> tuple[Plugin, T] | None:
    """The claim that gets a name, a third party's before the zoo's; None where several third parties claim it."""
    third_party = [claim for claim in claims if not claim[0].first_party]
    return None if len(third_party) > 1 else (*third_party, *claims)[0]
