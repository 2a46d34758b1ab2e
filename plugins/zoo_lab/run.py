"""Runs an experiment, run by run: each is kept as soon as it is over, so that an interrupted experiment can continue."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from zoo import runtime
from zoo.architecture import Experiment
from zoo.errors import PluginError, ZooError, in_words
from zoo.files.writing import check_output, locked, make_folder
from zoo.host.registry import Registry, default_registry
from zoo_lab.plan import Arm, Plan, Result, Scale, Trial
from zoo_lab.record import ArmRecord, ExperimentRecord, RunRecord, rounded, thinned
from zoo_lab.report import read, record_path, save

MOST_SEEDS = 1000


class Failed(ZooError):
    """A run whose outcome is that nothing can be measured, such as a training that diverges; the record says so."""


@dataclass(frozen=True)
class ExperimentCallbacks:
    """Callbacks that observe an experiment.

    `begun(runs, done)` says how many runs there are, and how many of them were done before; `progress(done, total)` counts
    thousandths of runs, and `over(run, number)` comes after each one.
    """

    begun: Callable[[int, int], None] = lambda runs, done: None
    progress: Callable[[int, int], None] = lambda done, total: None
    over: Callable[[RunRecord, int], None] = lambda run, number: None


def plan_of(experiment: Experiment, scale: Scale) -> Plan:
    """The plan of an experiment, checked; PluginError where it breaks the contract or cannot be made."""
    label = f"experiment {experiment.name}"
    plan = _call(label, experiment.load(), scale)
    if not isinstance(plan, Plan):
        raise PluginError(f"{label}: {experiment.target} gave {type(plan).__name__}, not a Plan")
    plan.check(label)
    return plan


def run_experiment(
    name: str,
    out: Path,
    *,
    seeds: int | None = None,
    scale: Scale | None = None,
    fresh: bool = False,
    callbacks: ExperimentCallbacks | None = None,
    registry: Registry | None = None,
) -> ExperimentRecord:
    """Run an experiment and write its record `out`/NAME.json; returns the record.

    The record is written after every run. One that already exists, of the same arms and settings on the same software,
    is continued: its runs are kept, and none is run twice. Another one is refused, unless `fresh` replaces it.
    `seeds` is the least number of runs an arm (default: the experiment's own). PluginError for an experiment that does
    not exist or breaks its contract.
    """
    callbacks = callbacks or ExperimentCallbacks()
    experiment = (registry or default_registry()).table(Experiment).require(name)
    count = experiment.seeds if seeds is None else seeds
    if not 1 <= count <= MOST_SEEDS:
        raise ZooError(f"`seeds` must be from 1 to {MOST_SEEDS}, got {count}")
    scale = scale or Scale()
    plan = plan_of(experiment, scale)
    record = ExperimentRecord(
        experiment=experiment.name,
        seeds=count,
        versions=runtime.versions(),
        **{name: getattr(experiment, name) for name in ("question", "expected", "references")},
        **vars(plan)
        | {"arms": tuple(ArmRecord(arm.name, arm.values, arm.series) for arm in plan.arms)}
        | {"settings": dict(plan.settings) | {"quick": scale.quick}},
    )
    path = record_path(experiment.name, out)
    with ExitStack() as claim:  # no other process writes the record meanwhile
        try:
            make_folder(path.parent)
            check_output(path, overwrite=True)
            claim.enter_context(locked(path))
        except OSError as error:
            raise ZooError(f"{path}: cannot be written ({error.strerror or error})") from error
        if path.exists() and not fresh:
            before = read(path)
            if not record.same_design(before):
                raise ZooError(
                    f"{path}: is a record of other settings or on other software: choose another `out`, or `fresh` to "
                    "replace it"
                )
            record.seeds = max(record.seeds, before.seeds) if before.complete else record.seeds
            record.runs = [run for run in before.runs if run.seed < record.seeds]
        finished = {(run.arm, run.seed) for run in record.runs}
        callbacks.begun(record.seeds * len(plan.arms), len(finished))
        # Seed by seed: arms that are compared run close to one another in time, whatever else the machine does.
        pairs = [(arm, seed) for seed in range(record.seeds) for arm in plan.arms]
        for number, (arm, seed) in enumerate(pairs):
            if (arm.name, seed) not in finished:

                def report(done: int, steps: int, before: int = number) -> None:
                    callbacks.progress(1000 * before + 1000 * done // max(steps, 1), 1000 * len(pairs))

                report(0, 1)
                run = _run(experiment, plan, arm, Trial(seed, report))
                record.runs.append(run)
                save(record, path)
                report(1, 1)
                callbacks.over(run, number + 1)
        save(record, path)  # with what is computed now, where nothing was left to run
    return record


def _run(experiment: Experiment, plan: Plan, arm: Arm, trial: Trial) -> RunRecord:
    label = f"experiment {experiment.name}: arm {arm.name!r}"
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    began = time.perf_counter()
    try:
        result, failed = _call(label, arm.run, trial), None
    except Failed as error:
        result, failed = Result({}), str(error)
    seconds = round(time.perf_counter() - began, 2)
    if not isinstance(result, Result):
        raise PluginError(f"{label}: gave {type(result).__name__}, not a Result")
    known = [curve.name for curve in plan.curves]
    if unknown := next((name for name in result.curves if name not in known), None):
        raise PluginError(f"{label}: gave the curve {unknown!r}, which is not one of {known}")
    return RunRecord(
        arm=arm.name,
        seed=trial.seed,
        numbers=_numbers(label, plan, result, failed),
        curves={name: thinned(points) for name, points in result.curves.items() if points},
        seconds=seconds,
        load=load,
        failed=failed,
    )


def _call(label: str, function: Callable[..., object], argument: object) -> object:
    """Call an experiment's function; an exception of its code becomes a PluginError."""
    try:
        return function(argument)
    except (ZooError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(f"{label}: {in_words(error)}") from error


def _numbers(label: str, plan: Plan, result: Result, failed: str | None) -> dict[str, float]:
    """The numbers of a run, checked."""
    known = [metric.name for metric in plan.metrics]
    numbers = {}
    for name, value in result.numbers.items():
        if name not in known:
            raise PluginError(f"{label}: gave {name!r}, which is not one of {', '.join(known)}")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise PluginError(f"{label}: {name} is {value!r:.60}, not a finite number")
        numbers[name] = rounded(float(value))
    if not numbers and failed is None:
        raise PluginError(f"{label}: measured none of {', '.join(known)}")
    return numbers
