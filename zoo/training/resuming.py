"""Checks before a run is resumed, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo import runtime
from zoo.deferred_warnings import warn
from zoo.errors import ConfigError, ZooError
from zoo.files.reading import read_object
from zoo.training.corpora import TextCorpus
from zoo.training.record import TRAINING, TrainingSettings, settings_in
from zoo.training.state import State, open_state, state_path


def settings_to_resume(out: Path, given: Mapping[str, Any]) -> TrainingSettings:
    """The settings of the run in `out`, with more steps if `given` says so; ZooError for any other change.

    A corpus may be given by another path: that its texts are the same is checked when it is read.
    """
    state = open_state(state_path(out))
    saved = settings_in(state.record["settings"])
    for key, value in given.items():
        if key not in ("steps", "corpus") and getattr(saved, key) != value:
            raise ZooError(
                f"`{key}`: the run was started with {getattr(saved, key)}, not {value}; only `steps` may change"
            )
    settings = saved.to(given.get("steps", saved.steps), state.step)
    return replace(settings, corpus=given.get("corpus", saved.corpus))


def check_resumed(out: Path, state: State, settings: TrainingSettings, texts: TextCorpus) -> None:
    """ZooError when the run cannot go on with these settings and texts, or has nothing left to do.

    Warns of libraries of other versions: with them the run is not, bit for bit, the one that was not interrupted.
    """
    saved = settings_in(state.record["settings"])
    if texts.user_text is not None and texts.user_text.digest != state.record["settings"].get(
        "corpus_sha256"
    ):
        raise ZooError(f"{texts.name}: is not the text that the run in {out} was started with")
    corpus = (
        settings.corpus if texts.user_text is not None else saved.corpus
    )  # its digest says that it is the same
    if settings != replace(saved.to(settings.steps, state.step), corpus=corpus):
        raise ZooError(f"{out}: its run was made with other settings; only `steps` may change")
    # A model that is there may be an older one, if the run was killed before it wrote its own.
    if state.step == settings.steps and read_object(out, TRAINING, ConfigError) == state.record:
        raise ZooError(f"{out}: all {settings.steps} steps are done; give more `steps` to go on")
    now, before = runtime.versions(), state.record.get("versions", {})
    changed = [f"{name} {before[name]}" for name in before if now.get(name, before[name]) != before[name]]
    if changed:
        warn(f"{out}: its run was started with {', '.join(changed)}; here it goes on with other versions")
