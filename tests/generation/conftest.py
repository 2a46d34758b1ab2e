"""Fixtures of the tests of generation."""

import pytest

from zoo import runtime


@pytest.fixture(params=[False, True], ids=["in turn", "ahead"])
def ahead(request, monkeypatch):
    """Whether the pass for the next tokens begins before the last are given: as on a CPU, and as on a GPU."""
    monkeypatch.setattr(runtime, "evaluates_in_background", lambda: request.param)
    return request.param
