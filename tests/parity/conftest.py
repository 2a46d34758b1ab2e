"""What tests of parity share."""

import pytest

from tests.helpers import pairwise

LONGEST = ("test_smollm2.py", "test_evaluate.py", "test_translation.py")  # files, each run by one process
SPREAD = "test_families.py"  # run by whichever process is free


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each file to one process: its tests share what they load, and one counts the others."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return nodeid if file.endswith(SPREAD) else file

    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Begin with the files that take longest and end with what is spread, so that all processes end together."""
    pairwise.pytest_collection_modifyitems(items)
    items.sort(key=lambda item: (item.path.name == SPREAD, item.path.name not in LONGEST))


@pytest.fixture(autouse=True)
def gradients():
    """torch computes gradients, whatever a library has switched off at its import."""
    import torch

    torch.set_grad_enabled(True)
