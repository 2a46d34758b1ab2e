"""What tests of parity share."""

from tests.helpers.pairwise import pytest_collection_modifyitems  # noqa: F401
