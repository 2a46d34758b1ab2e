"""What tests of parity share."""

import pytest

from tests.helpers import pairwise

LONGEST = ("test_smollm2.py", "test_evaluate.py", "test_translation.py")  # files, each run by one process


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that no process ends long after the others."""
    pairwise.pytest_collection_modifyitems(items)
    items.sort(key=lambda item: item.path.name not in LONGEST)
