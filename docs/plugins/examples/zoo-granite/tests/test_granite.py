"""What granite must hold."""

import zoo_granite

from zoo.architecture import Config
from zoo.testing import check_architecture


def test_conforms(zoo_registry):
    """The zoo's suite."""
    check_architecture("granite", registry=zoo_registry(zoo_granite))


def test_the_four_numbers_stand_in_the_recipe():
    """Logits are divided by theirs."""
    recipe = zoo_granite.granite(Config(zoo_granite.GRANITE_8B))
    layer = recipe.layers[0]
    assert (recipe.embedding.scale, recipe.head.scale) == (12.0, 1 / 16)
    assert (layer.mixer.scale, layer.residual_scale) == (1 / 128, 0.22)
