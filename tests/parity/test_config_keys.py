"""Every key of the configuration classes of transformers is followed, refused by name, or known to change nothing.

A key that a later transformers adds to a class fails here by its name.
"""

import dataclasses

import pytest
import transformers as tf

from tests.helpers.config_keys import REGISTRY, effect, is_harmless, other_values
from zoo.testing import numbers_of

# What a class says of itself: no key of a config.json changes a model by these.
OF_CLASSES = {"model_type", "transformers_weights", "default_theta", *vars(tf.PreTrainedConfig)}
FAMILIES = [
    pytest.param(name, kind, id=kind)
    for name, architecture in sorted(REGISTRY.architectures.items())
    for kind in architecture.model_types
    if not architecture.bridged and kind in tf.CONFIG_MAPPING
]


def keys_of(kind):
    """The keys that a class declares or writes, with their defaults."""
    cls = tf.CONFIG_MAPPING[kind]
    written = cls().to_dict()
    declared = {field.name for field in dataclasses.fields(cls)} | set(written)
    names = (key for key in declared if key not in OF_CLASSES and not key.startswith("__"))
    return {key: written.get(key, getattr(cls, key, None)) for key in names}


@pytest.mark.parametrize("name, kind", FAMILIES)
def test_no_key_is_dropped_without_a_reason(name, kind):
    numbers = numbers_of(REGISTRY.architecture(name))
    dropped = {}
    for key, default in sorted(keys_of(kind).items()):
        effects = {effect(name, key, value) for value in other_values(numbers.get(key, default))}
        if "unknown" in effects or (effects == {"nothing"} and not is_harmless(name, key)):
            dropped[key] = effects
    assert not dropped
