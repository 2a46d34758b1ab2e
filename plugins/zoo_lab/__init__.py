"""`zoo lab`, and the zoo's own experiments, small enough to run in minutes on two cores. Imports no mlx."""

import json
from pathlib import Path

from zoo.architecture import Command, Experiment, hookimpl

EXPERIMENTS = Path(__file__).with_name("experiments.json")  # their records, with question and expectation


@hookimpl
def zoo_commands():
    yield Command(
        "lab",
        "zoo_lab.command:lab",
        "Run experiments that train or run small models.",
        group="Look inside",
    )


@hookimpl
def zoo_experiments():
    for record in json.loads(EXPERIMENTS.read_text(encoding="utf-8")):
        yield Experiment(**record | {"references": tuple(record["references"])})
