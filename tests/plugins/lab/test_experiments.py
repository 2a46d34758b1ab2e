"""The zoo's own experiments: every arm can be run, and the records in the documentation are theirs."""

from pathlib import Path

import pytest

from zoo.architecture import Experiment
from zoo.assemble import assemble
from zoo.host.registry import default_registry
from zoo_lab import training
from zoo_lab.plan import Scale, Trial
from zoo_lab.report import read
from zoo_lab.run import plan_of

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "docs" / "records" / "lab"
EXPERIMENTS = [
    record.name
    for plugin in default_registry().plugins
    if plugin.first_party
    for record in plugin.records.get("zoo_experiments", ())
]
TRAINING = ("norm-placement", "norm", "positions", "feedforward", "experts", "heads", "teacher-forcing")


class Built(Exception):
    """The recipe of an arm was assembled."""


@pytest.fixture
def only_build(monkeypatch):
    """Trainings end where the model has been made."""

    def trained(recipe, *_, **__):
        assemble(recipe.with_vocab(261), default_registry())
        raise Built

    monkeypatch.setattr(training, "trained", trained)


def test_all_experiments_are_there():
    assert len(EXPERIMENTS) == 11 and set(TRAINING) < set(EXPERIMENTS)


@pytest.mark.parametrize("name", TRAINING)
def test_every_arm_that_trains_can_be_built(only_build, name):
    for quick in (True, False):
        for arm in plan_of(default_registry().table(Experiment).require(name), Scale(quick=quick)).arms:
            with pytest.raises(Built):
                arm.run(Trial(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - set(TRAINING)))
def test_arms_that_measure_what_there_is_do(name):
    plan = plan_of(default_registry().table(Experiment).require(name), Scale(quick=True))
    metrics = {metric.name for metric in plan.metrics}
    for arm in plan.arms[:2]:
        result = arm.run(Trial(0))
        assert result.numbers and set(result.numbers) <= metrics


def test_arms_of_equal_parameters_have_them(monkeypatch):
    counts = {}

    def trained(recipe, *_, **__):
        recipe = recipe.with_vocab(512)
        counts[name, arm.name] = recipe.parameters(recipe.dim)
        raise Built

    monkeypatch.setattr(training, "trained", trained)
    for name in ("feedforward", "heads"):
        for arm in plan_of(default_registry().table(Experiment).require(name), Scale()).arms:
            with pytest.raises(Built):
                arm.run(Trial(0))
        found = [count for (of, _), count in counts.items() if of == name]
        assert max(found) - min(found) <= 0.003 * min(found)


@pytest.mark.slow
def test_a_quick_training_learns_and_measures():
    plan = plan_of(default_registry().table(Experiment).require("experts"), Scale(steps=4, quick=True))
    result = plan.arms[-1].run(Trial(0))
    (_, first), (step, last) = result.curves["loss"][0], result.curves["loss"][-1]
    assert last < first and step == 4
    assert 1 <= result.numbers["busiest"] <= 4  # of 8, of which 2 are used


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_documented_record_is_whole_and_of_this_experiment(name):
    record, experiment = read(RECORDS / f"{name}.json"), default_registry().table(Experiment).require(name)
    plan = plan_of(experiment, Scale())
    assert record.complete and not record.settings["quick"] and record.seeds >= 3
    assert (record.question, record.expected) == (experiment.question, experiment.expected)
    assert [arm.name for arm in record.arms] == [arm.name for arm in plan.arms]
    assert record.claims == plan.claims
    assert abs(experiment.seconds - record.seconds) < 1
    for run in record.runs:
        assert all(len(points) <= 100 for points in run.curves.values())


def test_norms_are_compared_in_trainings_long_enough_for_depth():
    record = read(RECORDS / "norm-placement.json")
    shallow, *_, deep = sorted({arm.values["layers"] for arm in record.arms})
    two, twelve = (record.interval(f"Pre-LN, warm-up, {n} layers", "loss") for n in (shallow, deep))
    assert twelve.value <= two.value
