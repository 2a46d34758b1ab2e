"""What falcon-h1 must hold."""

from pathlib import Path

import pytest
import zoo_falcon_h1
import zoo_mamba2

from zoo.describe.plugin_card import card
from zoo.testing import check_architecture, same, subject


@pytest.fixture
def registry(zoo_registry):
    """The zoo's own plugins and these two, whatever else is installed here."""
    return zoo_registry(zoo_mamba2, zoo_falcon_h1)


def test_conforms(registry):
    """The zoo's suite."""
    check_architecture("falcon-h1", registry=registry)


def test_a_layer_is_the_sum_of_its_mixers(registry):
    """With one of them silenced the other is left."""
    import mlx.core as mx

    made = subject("falcon-h1", registry=registry)
    layer, x = made.model.layers[0], mx.random.normal((1, 9, 32))
    masks, caches = dict(mixer="causal", memory=None), dict(mixer=None, memory=None)
    layer.feedforward.down.weight = mx.zeros_like(layer.feedforward.down.weight)
    both = layer(x, masks, caches) - x
    parts = []
    for silenced in ("mixer", "memory"):
        output = layer[silenced].output
        kept, output.weight = output.weight, mx.zeros_like(output.weight)
        parts.append(layer(x, masks, caches) - x)
        output.weight = kept
    same(both, parts[0] + parts[1], "sum")


def test_the_card_in_the_readme_is_made_from_the_code(registry):
    """It goes with the code."""
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    made = card(registry.plugin("zoo-falcon-h1"), registry)
    assert made in readme, "run: zoo plugins --card falcon-h1 --into README.md"
