"""Intervals, held to published quantiles and to values worked out by hand."""

import numpy as np
import pytest

from zoo.inspect.interval import bootstrap, contrast, interval, share, student


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (10, 2.22814), (30, 2.04227), (1e4, 1.96020)]
)
def test_the_quantiles_are_those_of_the_tables(freedom, t):
    assert student(freedom) == pytest.approx(t, rel=1e-4)


def test_the_interval_of_a_mean():
    found = interval([1.0, 2.0, 3.0])  # standard error 1/√3
    assert (found.value, found.count) == (2.0, 3)
    assert found.high - found.value == pytest.approx(4.30265 / 3**0.5, rel=1e-4)
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_one_value_has_no_interval_and_equal_ones_one_of_no_width():
    assert interval([5.0]).low is None
    assert (interval([5.0, 5.0]).low, interval([5.0, 5.0]).high) == (5.0, 5.0)


def test_a_difference_has_welchs_degrees_of_freedom():
    equal = contrast([(1, [1.0, 2.0, 3.0]), (-1, [4.0, 5.0, 6.0])])  # equal variances: 4 degrees
    assert equal.value == -3
    assert equal.high - equal.value == pytest.approx(2.77645 * (2 / 3) ** 0.5, rel=1e-4)
    unequal = contrast([(1, [1.0, 2.0, 3.0]), (-1, [5.0, 5.0, 5.0])])  # all of it from one arm: 2 degrees
    assert unequal.high - unequal.value == pytest.approx(4.30265 / 3**0.5, rel=1e-4)


def test_pairs_leave_out_what_their_items_share():
    arms = [(1, [1.0, 5.0, 9.0]), (-1, [1.5, 5.6, 9.4])]
    assert contrast(arms).high > 0 > contrast(arms).low
    assert contrast(arms, paired=True).high < 0


def test_an_arm_without_values_is_refused():
    with pytest.raises(ValueError, match="no values"):
        contrast([(1, [1.0]), (-1, [])])


def test_the_bootstraps_interval_of_a_mean_is_close_to_students():
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    found = bootstrap(400, lambda times: float(times @ values) / 400)
    expected = interval(values.tolist())
    assert found.value == pytest.approx(expected.value) and found.count == 400
    assert found.low == pytest.approx(expected.low, abs=0.02)
    assert found.high == pytest.approx(expected.high, abs=0.02)


def test_the_bootstrap_counts_as_many_items_as_there_are_and_draws_the_same_each_time():
    drawn = []
    for _ in range(2):
        drawn.append([])
        bootstrap(5, lambda times: drawn[-1].append(times.tolist()) or 0.0)
    assert drawn[0] == drawn[1]
    assert {sum(times) for times in drawn[0]} == {5} and {len(times) for times in drawn[0]} == {5}
    assert drawn[0][0] == [1] * 5 and len({tuple(times) for times in drawn[0]}) > 50


def test_the_bootstrap_of_one_item_has_no_interval():
    found = bootstrap(1, lambda times: float(times.sum()))
    assert (found.value, found.low, found.high) == (1.0, None, None)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_the_published_one(hits, count, low, high):
    found = share(hits, count)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    other = share(count - hits, count)
    assert (other.low, other.high) == (pytest.approx(1 - found.high), pytest.approx(1 - found.low))


def test_a_share_of_no_items_is_refused():
    with pytest.raises(ValueError, match="0 of 0 items is no share"):
        share(0, 0)
