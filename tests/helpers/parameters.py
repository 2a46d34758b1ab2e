"""Parameters of tests."""

import pytest


def ordinary(values, *chosen):
    """All values, of which those that are not chosen are parameters of slow tests."""
    assert set(chosen) <= set(values)
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.slow) for value in values]
