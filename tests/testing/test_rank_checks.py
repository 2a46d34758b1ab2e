"""The checks of models that are divided among ranks."""

from types import SimpleNamespace

import mlx.core as mx
import pytest

from zoo.testing import rank_checks


def test_a_recipe_that_miscounts_its_parameters_is_told_both_numbers(monkeypatch):
    cut = SimpleNamespace(axis=0, ranges=[(0, 1500), (1500, 2000)])
    parts = [SimpleNamespace(cuts={"weight": cut}, spec=SimpleNamespace(parameters=lambda dim: 2001))] * 2
    monkeypatch.setattr(rank_checks, "divisions", lambda *_, **__: [parts])
    recipe = SimpleNamespace(dim=1)
    model = SimpleNamespace(parameters=lambda: {"weight": mx.zeros((2000, 1))})
    with pytest.raises(AssertionError, match="2 ranks: the recipes count 4,002 parameters, 4,000 are held"):
        rank_checks.shares_make_up_the_whole(SimpleNamespace(model=model, recipe=recipe))
