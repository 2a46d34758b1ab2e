"""What tests of several plugins need."""

import pytest


@pytest.fixture(scope="module")
def interpreted():
    """No kernels are compiled: on a CPU each would call the C++ compiler."""
    import mlx.core as mx

    mx.disable_compile()
    yield
    mx.enable_compile()
