"""The conformance suite: checks that every architecture must pass, a third party's included.

    from zoo.testing import check_architecture
    check_architecture("llama")

Each check has a name and a reason; one that fails says what differed. Models are small, their weights random:
the checks hold for any weights, and `subject_of` holds a loaded checkpoint to them. Axes: B batch, T length,
V vocabulary.
"""

from __future__ import annotations

from zoo.testing.model_checks import imports_nothing_heavy
from zoo.testing.strategies import check_strategy
from zoo.testing.subjects import TOLERANCE, Check, Subject, numbers_of, randomise, same, subject, subject_of
from zoo.testing.suite import (
    CHECKS,
    CheckResult,
    check_architecture,
    check_card,
    checks_of,
    outcome,
    results_of,
    run_checks,
)

__all__ = [
    "CHECKS",
    "TOLERANCE",
    "Check",
    "CheckResult",
    "Subject",
    "check_architecture",
    "check_card",
    "check_strategy",
    "checks_of",
    "imports_nothing_heavy",
    "numbers_of",
    "outcome",
    "randomise",
    "results_of",
    "run_checks",
    "same",
    "subject",
    "subject_of",
]
