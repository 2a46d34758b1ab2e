"""The order in which pages are read makes the runs of a parallel build alike."""

import pytest


@pytest.fixture
def reading_order(monkeypatch):
    from pathlib import Path

    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")
    from building import reading_order

    return reading_order


def test_runs_of_pages_cost_about_the_same(reading_order):
    costs = {f"page{number:02}": number**2 for number in range(1, 41)}
    sizes = [10, 10, 10, 10]
    ordered = reading_order.spread(costs, sizes)
    assert sorted(ordered) == sorted(costs)
    runs = [ordered[at : at + 10] for at in range(0, 40, 10)]
    sums = [sum(costs[name] for name in run) for run in runs]
    assert max(sums) < 1.1 * min(sums)
    assert all(costs[run[0]] == max(costs[name] for name in run) for run in runs)


def test_a_short_last_run_gets_its_share(reading_order):
    ordered = reading_order.spread({name: 1 for name in "abcdefg"}, [3, 3, 1])
    assert sorted(ordered) == list("abcdefg")


def test_commands_and_directives_are_what_takes_time(reading_order):
    text = "# Page\n\n```{console}\n$ zoo list\n$ zoo doctor\n```\n\n```{drawing} costs\n```\n"
    assert reading_order.cost(text) == 1 + 2 * reading_order.START + 2
    assert reading_order.cost("words\n") == 1
