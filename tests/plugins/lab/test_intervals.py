"""Student's intervals, held to published quantiles and to values worked out by hand."""

import pytest

from zoo_lab.record import contrast, interval, student


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (10, 2.22814), (30, 2.04227), (1e4, 1.96020)]
)
def test_the_quantiles_are_those_of_the_tables(freedom, t):
    assert student(freedom) == pytest.approx(t, rel=1e-4)


def test_the_interval_of_a_mean():
    found = interval([1.0, 2.0, 3.0])  # standard error 1/√3
    assert (found.mean, found.runs) == (2.0, 3)
    assert found.high - found.mean == pytest.approx(4.30265 / 3**0.5, rel=1e-4)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_one_run_has_no_interval_and_equal_runs_one_of_no_width():
    assert interval([5.0]).low is None
    assert (interval([5.0, 5.0]).low, interval([5.0, 5.0]).high) == (5.0, 5.0)


def test_a_difference_has_welchs_degrees_of_freedom():
    equal = contrast([(1, [1.0, 2.0, 3.0]), (-1, [4.0, 5.0, 6.0])])  # equal variances: 4 degrees
    assert equal.mean == -3
    assert equal.high - equal.mean == pytest.approx(2.77645 * (2 / 3) ** 0.5, rel=1e-4)
    unequal = contrast([(1, [1.0, 2.0, 3.0]), (-1, [5.0, 5.0, 5.0])])  # all of it from one arm: 2 degrees
    assert unequal.high - unequal.mean == pytest.approx(4.30265 / 3**0.5, rel=1e-4)


def test_pairs_leave_out_what_their_runs_share():
    arms = [(1, [1.0, 5.0, 9.0]), (-1, [1.5, 5.6, 9.4])]
    assert contrast(arms).high > 0 > contrast(arms).low
    assert contrast(arms, paired=True).high < 0


def test_an_arm_without_runs_is_refused():
    with pytest.raises(ValueError, match="no runs"):
        contrast([(1, [1.0]), (-1, [])])
