"""The order in which pages are read lets the processes of a parallel build end together."""

from building import reading_order


def test_later_runs_of_pages_cost_less():
    costs = {f"page{number:02}": number**2 for number in range(1, 41)}
    sizes = [10, 10, 10, 10]
    ordered = reading_order.spread(costs, sizes)
    assert sorted(ordered) == sorted(costs)
    runs = [ordered[at : at + 10] for at in range(0, 40, 10)]
    sums = [sum(costs[name] for name in run) for run in runs]
    assert sums == sorted(sums, reverse=True) and sums[0] < sum(sums) / 2
    assert sums[-1] < 0.2 * sum(sums)
    assert all(costs[run[0]] == max(costs[name] for name in run) for run in runs)


def test_a_short_last_run_gets_its_share():
    ordered = reading_order.spread({name: 1 for name in "abcdefg"}, [3, 3, 1])
    assert sorted(ordered) == list("abcdefg")


def test_commands_and_parts_are_what_takes_time():
    text = "# Page\n\n<!-- console: zoo list -->\n<!-- end -->\n\n![costs](pictures/drawn/costs.svg)\n"
    assert reading_order.cost(text) == 1 + reading_order.START + 2
    assert reading_order.cost("words\n") == 1
