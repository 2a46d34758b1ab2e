"""Diagrams of every architecture at full size, drawn once."""

import pytest

from zoo.describe import describe
from zoo.describe.diagram import diagram_of
from zoo.host.registry import default_registry


@pytest.fixture(scope="session")
def draw():
    """The diagram of a name such as "llama:8b"."""

    def of(name):
        registry = default_registry()
        found = describe(name, registry)
        preset, recipe = found.preset, found.recipe
        return diagram_of(recipe, f"{name.partition(':')[0]}:{preset.name}", registry)

    return of


@pytest.fixture(scope="session")
def every(draw):
    """The diagrams of all of the zoo's architectures, by name."""
    return {name: draw(name) for name in default_registry().architectures}
