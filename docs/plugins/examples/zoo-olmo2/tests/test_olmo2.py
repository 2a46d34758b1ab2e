"""What olmo2 must hold."""

import zoo_olmo2

from zoo.testing import check_architecture


def test_conforms(zoo_registry):
    """The zoo's suite."""
    check_architecture("olmo2", registry=zoo_registry(zoo_olmo2))
