"""Timed rounds that are given a time."""

import pytest

from zoo.inspect import timing


@pytest.mark.parametrize(("seconds", "rounds"), [(None, 5), (1000, 5), (41, 3), (39, 2), (1, 1)], ids=str)
def test_fewer_rounds_are_made_where_all_would_take_too_long_but_one_at_least(monkeypatch, seconds, rounds):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def run(name):
        now[0] += 5
        return {"ended": now[0]}

    taken = timing.alternating(["a", "b"], 5, run, warm_up=1, seconds=seconds)
    assert [len(values) for values in taken.values()] == [rounds] * 2
    assert taken["a"][0]["ended"] == 15  # after the round that is not kept
