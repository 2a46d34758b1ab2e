"""Metrics of items: their values, intervals, and differences paired by item."""

import numpy as np
import pytest

from zoo_evaluate.report import figures, shown
from zoo_evaluate.sample import mean, of_sums, proportion, ratio


def test_a_ratio_is_of_the_sums_not_the_mean_of_ratios():
    assert of_sums("lower", [(1.0, 1), (30.0, 10)], ratio).interval().value == pytest.approx(31 / 11)


def test_a_difference_is_paired_by_item():
    draw = np.random.default_rng(0)
    hard = draw.normal(5.0, 3.0, 60)  # how hard an item is, for both models
    first, other = (
        mean("lower", hard.tolist()),
        mean("lower", (hard - 0.1 + draw.normal(0, 0.1, 60)).tolist()),
    )
    assert first.interval().high > other.interval().value > first.interval().low
    found = other.minus(first)
    assert found.value == pytest.approx(other.interval().value - first.interval().value)
    assert found.high < 0 and found.high - found.low < 0.1


def test_a_share_stays_between_0_and_1():
    found = mean("higher", [1, 0, 1, 1]).interval()
    assert found.value == 0.75 and 0 <= found.low < 0.75 < found.high <= 1


def test_every_model_after_the_first_has_its_difference_from_the_first():
    judged = [
        (name, {"loss": mean("lower", values)})
        for name, values in (("a", [1, 2]), ("b", [2, 4]), ("c", [0, 1]))
    ]
    found = figures(judged)
    assert [figure.difference and figure.difference.value for figure in found] == [None, 1.5, -1.0]
    lines = shown(found, several=True).splitlines()
    assert "difference" in lines[0] and lines[3].split()[:3] == ["loss", "b", "3"]
    assert "+1.5" in lines[3] and "−1" in lines[4]


def test_one_item_has_no_interval():
    assert "–" in shown(figures([("a", {"loss": mean("lower", [1.0])})]), several=False)


def test_a_share_of_items_that_all_agree_has_an_interval():
    found = proportion([True] * 8).interval()
    assert (found.value, found.high, found.count) == (1.0, 1.0, 8) and found.low == pytest.approx(
        0.6756, abs=1e-4
    )
    assert "0.6756 to 1" in shown(figures([("a", {"accuracy": proportion([1.0] * 8)})]), several=False)
    assert proportion([0, 0, 0]).interval().high > 0.5


def test_items_that_are_right_in_part_have_the_bootstraps_interval():
    values = [1, 0.5, 0, 1]
    assert proportion(values).interval() == mean("higher", values).interval()


def test_a_difference_of_shares_is_paired_by_item():
    first, other = proportion([1, 0, 1, 1]), proportion([1, 1, 1, 1])
    assert other.minus(first).value == 0.25
