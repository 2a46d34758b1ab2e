"""What mamba2 must hold."""

from pathlib import Path

import pytest
import zoo_mamba2

from zoo.describe.plugin_card import card
from zoo.testing import check_architecture, same


@pytest.fixture
def registry(zoo_registry):
    """The zoo's own plugins and this one, whatever else is installed here."""
    return zoo_registry(zoo_mamba2)


def test_conforms(registry):
    """The zoo's suite."""
    check_architecture("mamba2", registry=registry)


@pytest.mark.parametrize("chunk", [1, 5, 16, 40])
def test_chunks_of_any_size_give_the_same(chunk):
    """The recurrence itself is chunks of one token."""
    import mlx.core as mx
    from zoo_mamba2.block import scan

    x, write, read = (mx.random.normal((2, 3, 33, size), key=mx.random.key(size)) for size in (4, 5, 6))
    rate = -mx.random.uniform(shape=(2, 3, 33), key=mx.random.key(1))
    state = mx.random.normal((2, 3, 4, 5))
    expected = []
    h = state
    for t in range(33):
        h = mx.exp(rate[:, :, t])[..., None, None] * h + x[:, :, t, :, None] * write[:, :, t, None]
        expected.append((h * read[:, :, t, None, :5]).sum(axis=-1))
    y, last = scan(x, rate, write, read[..., :5], state, chunk)
    same(y, mx.stack(expected, axis=2), "outputs")
    same(last, h, "state")


def test_the_card_in_the_readme_is_made_from_the_code(registry):
    """It goes with the code."""
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    made = card(registry.plugin("zoo-mamba2"), registry)
    assert made in readme, "run: zoo plugins --card mamba2 --into README.md"
