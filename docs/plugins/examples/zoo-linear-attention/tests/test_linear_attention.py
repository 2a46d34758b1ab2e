"""What linear attention must hold."""

from pathlib import Path

import mlx.core as mx
import pytest
import zoo_linear_attention

from zoo.describe import describe
from zoo.describe.diagram import diagram_of, to_text
from zoo.describe.plugin_card import card
from zoo.testing import check_architecture, same, subject


@pytest.fixture
def registry(zoo_registry):
    """The zoo's own plugins and this one, whatever else is installed here."""
    return zoo_registry(zoo_linear_attention)


def test_conforms(registry):
    """The zoo's suite."""
    check_architecture("linear-llama", registry=registry)


def test_it_is_the_sum_that_the_paper_writes(registry):
    """Equation 9, token by token."""
    mixer = subject("linear-llama", registry=registry).model.layers[0].mixer
    x = mx.random.normal((1, 5, 64))
    q, k, v = (mixer.split(project(x))[0, 1] for project in (mixer.query, mixer.key, mixer.value))
    phi = lambda a: mx.where(a > 0, a + 1, mx.exp(a))  # noqa: E731
    rows = []
    for t in range(5):
        weight = phi(k[: t + 1]) @ phi(q[t])
        rows.append((weight[:, None] * v[: t + 1]).sum(axis=0) / weight.sum())
    mixer.output.weight = mx.eye(64)
    same(mixer.split(mixer(x))[0, 1], mx.stack(rows), "head 1")


def test_the_zoo_tells_what_the_plugin_says(registry):
    """Its fact, and its box."""
    described = describe("linear-llama:tiny", registry)
    assert described.sheet(registry)["state.tokens"].value == 8
    drawn = to_text([diagram_of(described.recipe, "linear-llama", registry)])
    assert "Linear attention" in drawn and "elu + 1" in drawn


def test_the_card_in_the_readme_is_made_from_the_code(registry):
    """It goes with the code."""
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    made = card(registry.plugin("zoo-linear-attention"), registry)
    assert made in readme, "run: zoo plugins --card linear-attention --into README.md"
