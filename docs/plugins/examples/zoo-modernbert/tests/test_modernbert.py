"""What modernbert must hold."""

import zoo_modernbert

from zoo.architecture import Config
from zoo.testing import check_architecture


def test_conforms(zoo_registry):
    """The zoo's suite."""
    check_architecture("modernbert", registry=zoo_registry(zoo_modernbert))


def test_one_layer_in_three_sees_all_tokens_and_turns_more_slowly():
    """The others see a window."""
    layers = zoo_modernbert.modernbert(Config(zoo_modernbert.BASE)).layers
    assert [index for index, layer in enumerate(layers) if layer.mixer.window is None] == [*range(0, 22, 3)]
    assert {(layer.mixer.window, layer.mixer.rope.theta) for layer in layers} == {
        (None, 160000.0),
        (128, 10000.0),
    }
