"""What cohere2 must hold."""

import zoo_cohere2

from zoo.architecture import Config
from zoo.testing import check_architecture


def test_conforms(zoo_registry):
    """The zoo's suite."""
    check_architecture("cohere2", registry=zoo_registry(zoo_cohere2))


def test_one_layer_in_four_sees_all_tokens_and_has_no_positions():
    """The others have a window and rotary positions."""
    layers = zoo_cohere2.cohere2(Config(zoo_cohere2.R7B)).layers
    assert [index for index, layer in enumerate(layers) if layer.mixer.rope is None] == [*range(3, 32, 4)]
    assert {(layer.mixer.rope is None, layer.mixer.window) for layer in layers} == {
        (True, None),
        (False, 4096),
    }
