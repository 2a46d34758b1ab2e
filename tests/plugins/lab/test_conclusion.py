"""What is concluded follows from the numbers, whatever the claims say."""

from zoo_lab.plan import Metric
from zoo_lab.record import RunRecord
from zoo_lab.report import conclusion, findings, method, number


def verdicts(record):
    return [finding.verdict for finding in findings(record)]


def test_a_difference_beyond_its_interval_is_seen_and_its_opposite_contradicted(made_up):
    record = made_up([1.0, 1.01, 0.99], [2.0, 2.01, 1.99])
    assert verdicts(record) == ["seen", "contrary", "contrary"]
    assert "Claims seen: 1 of 3." in conclusion(record)
    assert "Contradicted: a is higher; they are near" in conclusion(record)


def test_the_same_claims_turn_around_with_the_numbers(made_up):
    assert verdicts(made_up([2.0, 2.01, 1.99], [1.0, 1.01, 0.99])) == ["contrary", "seen", "contrary"]


def test_equal_arms_are_near_and_neither_is_lower(made_up):
    record = made_up([1.0, 1.01, 0.99], [1.0, 1.01, 0.99])
    assert verdicts(record) == ["not shown", "not shown", "seen"]


def test_noise_shows_nothing_and_says_so(made_up):
    record = made_up([1.0, 2.0, 3.0], [1.5, 2.5, 3.4])
    assert verdicts(record) == ["not shown"] * 3
    assert conclusion(record).startswith("It showed nothing")


def test_runs_on_the_same_data_are_compared_run_by_run(made_up):
    numbers = [1.0, 2.0, 3.0], [1.5, 2.5, 3.4]
    assert verdicts(made_up(*numbers, paired=True))[0] == "seen"
    assert "run by run" in method(made_up(*numbers, paired=True))
    assert "Welch" in method(made_up(*numbers))


def test_one_run_shows_nothing(made_up):
    record = made_up([1.0], [2.0])
    assert verdicts(record) == ["not shown"] * 3
    assert "one run gives no interval" in findings(record)[0].words


def test_runs_that_failed_are_named_and_nothing_is_concluded_of_them(made_up):
    record = made_up([1.0, 1.01, 0.99], [2.0, 2.01, 1.99])
    record.runs = [
        run if run.arm == "a" else RunRecord("b", run.seed, {}, {}, 1.0, failed="the loss is nan")
        for run in record.runs
    ]
    assert verdicts(record) == ["not measured"] * 3
    assert findings(record)[0].words == "3 of 3 runs of b failed"
    assert conclusion(record).startswith("It showed nothing")


def test_a_record_that_is_not_finished_says_that_it_is_not(made_up):
    record = made_up([1.0, 1.01, 0.99], [2.0, 2.01])
    assert conclusion(record) == "Not finished: 5 of 6 runs."


def test_a_quick_run_concludes_nothing(made_up):
    record = made_up([1.0, 1.01, 0.99], [2.0, 2.01, 1.99])
    record.settings = {"quick": True}
    assert conclusion(record).startswith("A quick run") and "seen" not in conclusion(record)


def test_numbers_have_three_digits_and_a_true_minus():
    assert [number(x) for x in (0, 1234567.0, 0.123456, -2.5, 0.0000123)] == [
        "0",
        "1,234,567",
        "0.123",
        "−2.5",
        "1.2e-05",
    ]
    assert number(0.5, signed=True) == "+0.5"


def test_a_difference_of_percentages_is_in_percentage_points(made_up):
    record = made_up([10.0, 11.0, 9.0], [20.0, 21.0, 19.0])
    record.metrics = (Metric("loss", "right answers", "%"),)
    assert findings(record)[0].words.startswith("difference −10 percentage points, interval ")
