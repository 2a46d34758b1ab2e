"""The differences of every two presets are in the Chinese catalogue."""

import itertools

import pytest

from tests.helpers.known_texts import is_known
from zoo.describe import describe
from zoo.describe.differences import differences
from zoo.host.registry import default_registry


@pytest.mark.nightly  # tests/describe/test_language.py has some of the pairs
def test_differences_of_all_pairs_are_known():
    registry = default_registry()
    recipes = [
        describe(f"{architecture.name}:{preset.name}", registry).recipe
        for architecture in registry.architectures.values()
        for preset in architecture.presets
        if preset.config
    ]
    told = {
        sentence
        for base, other in itertools.permutations(recipes, 2)
        for sentence in differences(base, other)
    }
    assert len(told) > 2000 and {sentence for sentence in told if not is_known(sentence)} == set()
