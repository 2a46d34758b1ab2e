"""Who claims which name: between two third parties neither wins, and a third party's beats the zoo's own."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from zoo.errors import PluginError
from zoo.host.discovery import Plugin

T = TypeVar("T")


class RecordTable(Generic[T]):
    """The records that plugins gave, by the names they claim.

    A name that two third parties claim belongs to neither: it must be asked for as "distribution::name". One that
    a third party and the zoo both have is the third party's, so that no later release takes a name from a user;
    asking for it says so.
    """

    def __init__(self, what: str, ask: str = "ask for", named: Callable[[T], str] | None = None) -> None:
        # For messages: what is claimed, how to ask for one of several, and by which name when not the one claimed.
        self.what, self.ask, self.named = what, ask, named
        self._claims: dict[str, list[tuple[Plugin, T]]] = {}

    def add(self, name: str, plugin: Plugin, record: T) -> None:
        """Note that `plugin` gives `record` under `name`."""
        self._claims.setdefault(name, []).append((plugin, record))

    def __contains__(self, name: str) -> bool:
        """Whether some plugin claims this name, plain or qualified."""
        return bool(self.of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def pairs(self) -> Iterator[tuple[Plugin, T]]:
        """Every record, with its plugin."""
        return (claim for claims in self._claims.values() for claim in claims)

    def of(self, name: str) -> list[tuple[Plugin, T]]:
        """Every claim on a name, plain or qualified, each with its plugin."""
        distribution, _, plain = ("", "", name) if name in self._claims else name.rpartition("::")
        claims = self._claims.get(plain, [])
        return (
            [claim for claim in claims if claim[0].distribution == distribution] if distribution else claims
        )

    def get(self, name: str) -> T | None:
        """The record of a name, None when nobody claims it; PluginError when several third parties do."""
        claims = self.of(name)
        return self.chosen(claims, name)[1] if claims else None

    def require(self, name: str) -> T:
        """The record of a name; PluginError, naming those there are, for none."""
        found = self.get(name)
        if found is None:
            raise PluginError(f"no {self.what} {name!r}; there are: {', '.join(self.listed()) or 'none'}")
        return found

    def chosen(self, claims: list[tuple[Plugin, T]], name: str) -> tuple[Plugin, T]:
        """The claim that wins, with a notice when it beats one of the zoo's; PluginError when none does."""
        theirs = [claim for claim in claims if not claim[0].ours]
        if len(theirs) > 1:
            options = " or ".join(self._qualified(*claim, name) for claim in theirs)
            raise PluginError(f"{self.what} {name!r} is claimed by several plugins: {self.ask} {options}")
        if theirs and len(claims) > 1:
            ours = next(claim for claim in claims if claim[0].ours)
            warnings.warn(
                f"{self.what} {name!r} is served by the plugin {theirs[0][0].told}, "
                f"not by the zoo's own {self._qualified(*ours, name)}",
                stacklevel=3,
            )
        return theirs[0] if theirs else claims[0]

    def contested(self) -> dict[str, list[str]]:
        """The names that several third parties claim, each with the qualified names to ask for instead."""
        found = {}
        for name, claims in self._claims.items():
            theirs = [claim for claim in claims if not claim[0].ours]
            if len(theirs) > 1:
                found[name] = [self._qualified(*claim, name) for claim in theirs]
        return found

    def _qualified(self, plugin: Plugin, record: T, name: str) -> str:
        return f"{plugin.distribution}::{self.named(record) if self.named else name.rpartition('::')[2]}"

    def listed(self) -> dict[str, T]:
        """Every record under a name that gives it, qualified where the plain one gives another or is contested."""
        found: dict[str, T] = {}
        for name, claims in self._claims.items():
            theirs = [claim for claim in claims if not claim[0].ours]
            winner = None if len(theirs) > 1 else theirs[0] if theirs else claims[0]
            for claim in claims:
                found[name if claim is winner else f"{claim[0].distribution}::{name}"] = claim[1]
        return dict(sorted(found.items()))

    def plugin_of(self, record: T) -> Plugin:
        """The plugin that gave this very record; PluginError for none."""
        for plugin, given in self.pairs():
            if given is record:
                return plugin
        raise PluginError(f"no plugin gave this {self.what}")

    def near(self, name: str) -> list[str]:
        """At most three names that look like this one, what stands before "::" aside."""
        plain = {full.rpartition("::")[2]: full for full in sorted(self._claims, key=lambda n: "::" not in n)}
        return [plain[one] for one in difflib.get_close_matches(name.lower(), plain, 3, 0.5)]
