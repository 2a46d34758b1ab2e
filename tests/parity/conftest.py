"""What tests of parity share."""

import pytest

from tests.helpers import pairwise

LONGEST = ("test_smollm2.py", "test_evaluate.py", "test_translation.py")  # files, each run by one process
SPREAD = "test_families.py"  # run by whichever process is free


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Begin with the files that take longest and end with what is spread, so that all processes end together."""
    pairwise.pytest_collection_modifyitems(items)
    items.sort(key=lambda item: (item.path.name == SPREAD, item.path.name not in LONGEST))
    for item in items:
        if item.path.name != SPREAD:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
