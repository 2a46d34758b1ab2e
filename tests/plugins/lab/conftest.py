"""A third party's experiment, and records of made-up numbers."""

import sys
import textwrap

import pytest

from zoo_lab.plan import Chart, Curve, Metric, higher, lower, near
from zoo_lab.record import ArmRecord, ExperimentRecord, RunRecord

DICE = """
    import random
    from zoo.architecture import Experiment, hookimpl
    from zoo_lab.plan import Arm, Chart, Curve, Metric, Plan, Result, lower

    def throws(scale):
        def arm(dice):
            def run(trial):
                draw = random.Random(trial.seed)
                thrown = [draw.randint(1, 6) for _ in range(dice)]
                sums = [[n + 1, sum(thrown[: n + 1])] for n in range(dice)]
                return Result({"sum": sum(thrown)}, {"sums": sums})
            return Arm(f"{dice} dice", run, {"dice": dice})
        return Plan(
            (arm(2), arm(10)),
            (Metric("sum", "sum of a throw", "points"),),
            curves=(Curve("sums", "sum so far", "die", "points"),),
            charts=(Chart("sums", "curves", "sums"), Chart("dice", "points", "sum", "dice"), Chart("rows", "dots", "sum")),
            claims=(lower("Two dice show less than ten", "2 dice", "10 dice", "sum"),),
            settings={"sides": 6},
        )

    @hookimpl
    def zoo_experiments():
        yield Experiment(
            name="dice",
            target="zoo_dice:throws",
            question="Do more dice show more?",
            expected="Two dice show less than ten.",
            references=("Bernoulli, 1713",),
        )
"""


@pytest.fixture
def dice_code():
    """The source of a third party's plugin with one experiment, the module zoo_dice."""
    return textwrap.dedent(DICE)


@pytest.fixture
def dice(dice_code, tmp_path, monkeypatch):
    """A registry that has that plugin; gives it and the module."""
    from zoo.host.registry import isolated, using

    (tmp_path / "zoo_dice.py").write_text(dice_code)
    monkeypatch.syspath_prepend(str(tmp_path))
    import zoo_dice

    with using(isolated(zoo_dice)) as registry:
        yield registry, zoo_dice
    del sys.modules["zoo_dice"]


@pytest.fixture
def made_up():
    """A function that makes a record of arms a and b with these losses, one a run."""

    def make(a, b, paired=False, margin=0.1):
        values = {"a": a, "b": b}
        runs = [
            RunRecord(name, seed, {"loss": loss}, {"loss": [[1, 2 * loss], [2, loss]]}, 1.0)
            for name, losses in values.items()
            for seed, loss in enumerate(losses)
        ]
        return ExperimentRecord(
            experiment="made-up",
            question="Is a lower than b?",
            expected="It is.",
            references=("Somebody, 2020, arXiv:2001.00001",),
            arms=(ArmRecord("a", {"size": 1}), ArmRecord("b", {"size": 2})),
            metrics=(Metric("loss", "loss", "nats", "lower"),),
            curves=(Curve("loss", "loss", "step", "nats"),),
            charts=(
                Chart("curves", "curves", "loss"),
                Chart("rows", "dots", "loss"),
                Chart("size", "points", "loss", "size", labels=True),
            ),
            claims=(
                lower("a is lower", "a", "b", "loss"),
                higher("a is higher", "a", "b", "loss"),
                near("they are near", "a", "b", "loss", margin),
            ),
            settings={"steps": 2},
            repeated="seed",
            paired=paired,
            seeds=max(len(a), len(b)),
            versions={"mlx": "0", "machine": "none", "backend": "CPU", "blas": "none"},
            runs=runs,
        )

    return make
