"""A small tuning, in this process or as a script on several ranks.

As a script: `python tuning_on_ranks.py DATA FOLDER SCENARIO …`, where a scenario is the name of a function below.
"""

import os
import signal
import sys
from pathlib import Path

from zoo.errors import ZooError
from zoo.runtime import ranks
from zoo.training.adapters import AdapterSettings
from zoo.training.loop import Stopped, TrainingCallbacks
from zoo_tune.run import TuneSettings, tune_folder

STEPS, STOPPED, KILLED = 12, 5, 8  # it is measured and saved at each third step
SETTINGS = dict(steps=STEPS, batch=5, accumulate=2, warmup=2, rate=1e-3)


def tune(data, out, act=lambda step: None, **given):
    """Tune LLaMA's pocket; `act` is called after each step, and stops the run where it returns True."""
    done = []
    callbacks = TrainingCallbacks(
        step=lambda step, *_: done.append(act(step)), stop=lambda: bool(done and done[-1])
    )
    settings = TuneSettings(AdapterSettings(kind="full"), training=SETTINGS)
    return tune_folder("llama", out, data, settings, callbacks=callbacks, **given)


def whole(data, folder):
    """The uninterrupted run."""
    tune(data, folder / "whole")


def stopped(data, folder):
    """A run that the last rank alone is asked to stop, and that goes on."""
    last = ranks.rank() == ranks.size() - 1
    try:
        tune(data, folder / "stopped", lambda step: last and step == STOPPED)
    except Stopped as error:
        (folder / f"rank-{ranks.rank()}").write_text(str(error.step))
    tune(data, folder / "stopped", resume=True)


def killed(data, folder):
    """A run whose last rank is killed."""

    def act(step):
        if step == KILLED and ranks.rank() == ranks.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    tune(data, folder / "killed", act)


def resumed(data, folder):
    """The rest of the run that was killed, as a copy of its folder."""
    tune(data, folder / f"killed-{ranks.size()}", resume=True)


def others(data, folder):
    """Each rank has other data, in a working folder of its own: refused."""
    os.chdir(folder / str(ranks.rank()))
    try:
        tune("data.jsonl", folder / "others")
    except ZooError as error:
        (folder / f"refused-{ranks.rank()}").write_text(str(error))


if __name__ == "__main__":
    for scenario in sys.argv[3:]:
        globals()[scenario](sys.argv[1], Path(sys.argv[2]))
