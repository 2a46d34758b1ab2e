"""The conformance suite in pytest, one test a check: `pytest --zoo-arch NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from zoo.checkpoint.source import split_preset
from zoo.errors import ZooError
from zoo.testing import Check, Subject, checks_of, outcome, subject


def collect_checks(session: pytest.Session, name: str) -> Iterator[pytest.Item]:
    """A test for each check that applies to the architecture `name`; UsageError for an unknown one."""
    try:
        about = subject(*split_preset(name))
    except ZooError as error:
        raise pytest.UsageError(str(error)) from error
    first, *others = checks_of(about)
    runs = outcome(first, about).passed
    for check in (first, *others):
        id = f"{name}::{check.name}"
        needed = None if runs or check is first else f"{name}::{first.name}"
        yield CheckItem.from_parent(session, name=id, nodeid=id, check=check, about=about, needed=needed)


class CheckFailed(Exception):
    """The report of a failed check."""


class CheckItem(pytest.Item):
    """One check of the suite, run on one architecture; `needed` is the item whose failure fails it, too."""

    def __init__(self, *, check: Check, about: Subject, needed: str | None, **settings: Any) -> None:
        super().__init__(**settings)
        self.check, self.about, self.needed = check, about, needed

    def runtest(self) -> None:
        if self.needed is not None:
            raise CheckFailed(f"the model does not run: see {self.needed}")
        result = outcome(self.check, self.about)
        if not result.passed:
            # The message first: pytest's summary has the first line.
            raise CheckFailed(f"{result.message}\n({result.reason})\n{result.traceback}".rstrip())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CheckFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, None, str]:
        return self.path, None, self.name
