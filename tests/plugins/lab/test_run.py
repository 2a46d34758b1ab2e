"""Runs of an experiment, a third party's: each kept, none run twice, every mistake one line."""

import json

import pytest

from zoo.architecture import Experiment
from zoo.errors import PluginError, ZooError
from zoo_lab.plan import Arm, Metric, Plan, Result, Scale, Trial, lower
from zoo_lab.report import as_json, read
from zoo_lab.run import ExperimentCallbacks, Failed, plan_of, run_experiment


def counted():
    """Callbacks, and the runs that they saw."""
    seen = []
    return ExperimentCallbacks(over=lambda run, number: seen.append((run.arm, run.seed))), seen


def test_a_third_partys_experiment_runs_every_arm_with_every_seed(dice, tmp_path):
    callbacks, seen = counted()
    record = run_experiment("dice", tmp_path / "out", callbacks=callbacks)
    assert seen == [(arm, seed) for seed in range(3) for arm in ("2 dice", "10 dice")]
    assert record.complete and all(2 <= value <= 12 for value in record.values("2 dice", "sum"))
    written = json.loads((tmp_path / "out" / "dice.json").read_text())
    assert written["complete"] and written["seeds"] == 3 and written["versions"]["mlx"]
    assert written["findings"][0]["verdict"] == "seen"
    assert {row["arm"] for row in written["summary"]} == {"2 dice", "10 dice"}


def test_a_record_read_back_is_the_record(dice, tmp_path):
    record = run_experiment("dice", tmp_path)
    again = read(tmp_path / "dice.json")
    assert as_json(again) == as_json(record) and again.same_design(record)


def test_what_was_run_is_not_run_again(dice, tmp_path):
    first = run_experiment("dice", tmp_path)
    callbacks, seen = counted()
    more = run_experiment("dice", tmp_path, seeds=4, callbacks=callbacks)
    assert seen == [("2 dice", 3), ("10 dice", 3)] and more.runs[:6] == first.runs
    fewer = run_experiment("dice", tmp_path, seeds=2)
    assert fewer.runs == more.runs
    anew = run_experiment("dice", tmp_path, seeds=2, fresh=True, callbacks=callbacks)
    assert len(seen) == 6 and anew.complete and anew.seeds == 2


def test_a_record_of_other_settings_is_neither_taken_over_nor_lost(dice, tmp_path):
    run_experiment("dice", tmp_path)
    written = (tmp_path / "dice.json").read_bytes()
    with pytest.raises(ZooError, match=r"dice\.json: is a record of other settings"):
        run_experiment("dice", tmp_path, scale=Scale(quick=True))
    assert (tmp_path / "dice.json").read_bytes() == written
    callbacks, seen = counted()
    run_experiment("dice", tmp_path, scale=Scale(quick=True), fresh=True, callbacks=callbacks)
    assert len(seen) == 6


def test_an_interrupted_experiment_goes_on(dice, tmp_path):
    def stop(run, number):
        if (run.arm, run.seed) == ("2 dice", 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment("dice", tmp_path, callbacks=ExperimentCallbacks(over=stop))
    kept = read(tmp_path / "dice.json")
    assert len(kept.runs) == 3 and not kept.complete
    callbacks, seen = counted()
    assert run_experiment("dice", tmp_path, callbacks=callbacks).complete and len(seen) == 3
    assert [path.name for path in tmp_path.glob("*part*")] == []


def plan(run, **changes):
    arms = (Arm("a", run), Arm("b", lambda trial: Result({"x": 1.0})))
    return Plan(**{"arms": arms, "metrics": (Metric("x", "x"),)} | changes)


def divide(trial):
    return Result({"x": 1 / 0})


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (divide, "experiment dice: arm 'a': ZeroDivisionError: division by zero"),
        (lambda trial: 1.0, "arm 'a': gave float, not a Result"),
        (lambda trial: Result({"y": 1.0}), "gave 'y', which is not one of x"),
        (lambda trial: Result({"x": float("nan")}), "x is nan, not a finite number"),
        (lambda trial: Result({}), "measured none of x"),
        (lambda trial: Result({"x": 1.0}, {"c": [[1, 1]]}), "gave the curve 'c'"),
    ],
)
def test_a_broken_arm_is_one_line_that_names_it(dice, tmp_path, monkeypatch, run, said):
    monkeypatch.setattr(dice[1], "throws", lambda scale: plan(run))
    with pytest.raises(PluginError) as error:
        run_experiment("dice", tmp_path)
    assert said in str(error.value) and "experiment dice" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": ()}, "at least one arm"),
        ({"arms": (Arm("a", divide), Arm("a", divide))}, "two are called 'a'"),
        ({"arms": (Arm("a", divide, {"x": 1}),)}, "'x' is a metric and a value of the arms"),
        ({"claims": (lower("c", "a", "z", "x"),)}, "claim 'c': 'z' is not one of a, b"),
        ({"claims": (lower("c", "a", "b", "z"),)}, "claim 'c': 'z' is not one of x"),
    ],
)
def test_a_broken_plan_is_one_line(dice, monkeypatch, changes, said):
    monkeypatch.setattr(dice[1], "throws", lambda scale: plan(divide, **changes))
    with pytest.raises(PluginError, match="experiment dice") as error:
        plan_of(dice[0].table(Experiment).require("dice"), Scale())
    assert said in str(error.value)


def test_a_training_that_diverges_is_an_outcome(dice, tmp_path, monkeypatch):
    def diverge(trial):
        raise Failed("the loss is nan at step 3")

    monkeypatch.setattr(dice[1], "throws", lambda scale: plan(diverge))
    record = run_experiment("dice", tmp_path)
    assert record.failures("a") == 3 and record.failures("b") == 0
    assert read(tmp_path / "dice.json").runs[0].failed == "the loss is nan at step 3"


def test_bad_numbers_name_their_argument(dice, tmp_path):
    with pytest.raises(ZooError, match="`seeds` must be from 1"):
        run_experiment("dice", tmp_path, seeds=0)
    with pytest.raises(ZooError, match="`steps` must be at least 1"):
        Scale(steps=0)
    with pytest.raises(PluginError, match="no experiment 'dcie'"):
        run_experiment("dcie", tmp_path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"zoo_lab": 1}', "not JSON"])
def test_a_file_that_is_no_record_is_refused_by_name(tmp_path, text):
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(ZooError, match=r"some\.json"):
        read(path)


def test_a_trial_has_its_seed(dice):
    arm = plan_of(dice[0].table(Experiment).require("dice"), Scale()).arms[0]
    assert arm.run(Trial(5)) == arm.run(Trial(5)) != arm.run(Trial(6))
