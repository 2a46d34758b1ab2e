"""Which architectures the long tests take in each run: together they have every kind of block."""

from functools import cache

import pytest

from zoo.checkpoint.open import make_recipe
from zoo.host.registry import default_registry
from zoo.testing.subjects import numbers_of

REGISTRY = default_registry()
ORDINARY = ("bert", "llama")  # an encoder and a decoder, which ordinary tests take


@cache
def smallest_recipe(name):
    """The recipe of an architecture's smallest preset."""
    architecture = REGISTRY.architecture(name)
    return make_recipe(architecture, numbers_of(architecture, None), REGISTRY)


@cache
def representatives():
    """Those that differ from no other, then each that has a kind of block that none before it has."""
    seen, found = set(), []
    for name in sorted(
        REGISTRY.architectures, key=lambda each: (bool(REGISTRY.architecture(each).base), each)
    ):
        if not (new := {spec.block() for _, spec in smallest_recipe(name).walk()}) <= seen:
            seen |= new
            found.append(name)
    return found


def each_architecture(names=None):
    """Architectures, by default all, as parameters of a test: two are ordinary, others slow, or nightly where others have their blocks."""
    chosen = representatives()

    def marks(name):
        if name not in chosen:
            return [pytest.mark.slow, pytest.mark.nightly]
        return [] if name in ORDINARY else [pytest.mark.slow]

    return [pytest.param(name, marks=marks(name)) for name in names or sorted(REGISTRY.architectures)]
