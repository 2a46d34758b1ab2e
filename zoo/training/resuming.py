"""Whether a run can go on, and with which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.errors import ConfigError, ZooError
from zoo.files import read_object
from zoo.training.corpora import Texts
from zoo.training.place import TRAINING
from zoo.training.record import Settings, settings_in
from zoo.training.state import State, open_state, state_path

TOKENIZERS = ("vocab_size", "bos_token_id", "eos_token_id")  # numbers that come from the tokenizer


def settings_to_resume(out: Path, given: Mapping[str, Any]) -> Settings:
    """The settings of the run in `out`, with more steps if `given` says so; ZooError for any other change.

    A corpus may be given by another path: that its texts are the same is checked when it is read.
    """
    state = open_state(state_path(out))
    saved = settings_in(state.record["settings"])
    for key, value in given.items():
        if key not in ("steps", "corpus") and getattr(saved, key) != value:
            raise ZooError(
                f"{key}: the run was started with {getattr(saved, key)}, not {value}; only steps may change"
            )
    settings = saved.to(given.get("steps", saved.steps), state.step)
    return replace(settings, corpus=given.get("corpus", saved.corpus))


def numbers_to_resume(out: Path, name: str, state: State, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The numbers of the run's config; ZooError for a run of another architecture or with others."""
    if state.record["architecture"] != name:
        raise ZooError(f"{out}: its run trains {state.record['architecture']}, not {name}")
    numbers = state.record["settings"]["config"]
    if given is not None and any(
        numbers.get(key, value) != value for key, value in given.items() if key not in TOKENIZERS
    ):
        raise ZooError(f"{out}: its run has another config; leave the given one out")
    return dict(numbers)


def check_resumed(out: Path, state: State, settings: Settings, texts: Texts) -> None:
    """ZooError when the run cannot go on with these settings and texts, or has nothing left to do."""
    saved = settings_in(state.record["settings"])
    if texts.own is not None and texts.own.digest != state.record["settings"].get("corpus_sha256"):
        raise ZooError(f"{texts.name}: is not the text that the run in {out} was started with")
    corpus = settings.corpus if texts.own is not None else saved.corpus  # its digest says that it is the same
    if settings != replace(saved.to(settings.steps, state.step), corpus=corpus):
        raise ZooError(f"{out}: its run was made with other settings; only steps may change")
    # A model that is there may be an older one, if the run was killed before it wrote its own.
    if state.step == settings.steps and read_object(out, TRAINING, ConfigError) == state.record:
        raise ZooError(f"{out}: all {settings.steps} steps are done; give more steps to go on")
