"""Facts about an architecture's embedded checkpoint: its training and its accuracy. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.architecture import Architecture
from zoo.describe.facts.fact import Fact
from zoo.errors import CheckpointError
from zoo.files.reading import read_object

NOT_MEASURED = "not measured"
# The figures of a record (`tools/measure_pockets.py`) in which models can be compared: name, label, key, unit. Its speeds
# are not among them: they are medians without intervals.
RECORDED = (
    ("bits", "held-out text, bits a byte", "bits_per_byte", "bits"),
    ("peak", "peak memory", "peak_memory_bytes", "bytes"),
)


def pocket_facts(architecture: Architecture, record: Mapping[str, Any] | None = None) -> tuple[Fact, ...]:
    """The facts of an architecture's embedded checkpoint; none where it has none.

    Training and answers are read beside the checkpoint. `record` has what was measured of it, by the keys of `RECORDED`: a
    value of None is one that it cannot have, one that is missing was not measured.
    """
    preset = next((one for one in architecture.presets if one.embedded), None)
    if preset is None or preset.folder is None:
        return ()
    training, accuracy = (
        read_object(preset.folder, name, CheckpointError) for name in ("training.json", "accuracy.json")
    )
    settings = training.get("settings", {})
    return (
        Fact("pocket", "checkpoint", f"{architecture.name}:{preset.name}"),
        Fact("parameters", "parameters", training.get("parameters"), "parameters"),
        Fact("corpus", "trained on", settings.get("corpus")),
        Fact("steps", "training steps", settings.get("steps")),
        *_answers(accuracy.get("scores", [])),
        *(_recorded(record or {}, *one) for one in RECORDED),
    )


def _answers(scores: list[dict[str, Any]]) -> Iterator[Fact]:
    """The shares of right answers: to all questions, and to those that were not in the training text."""
    for name, label, right, questions in (
        ("right", "right answers", "right", "questions"),
        ("unseen", "right answers to what it was not trained on", "unseen_right", "unseen"),
    ):
        total, good = (sum(score.get(key, 0) for score in scores) for key in (questions, right))
        words = f"{100 * good / total:.1f} % ({good:,} / {total:,})" if total else NOT_MEASURED
        yield Fact(name, label, good / total if total else None, words=words)


def _recorded(record: Mapping[str, Any], name: str, label: str, key: str, unit: str) -> Fact:
    if key not in record:
        return Fact(name, label, None, words=NOT_MEASURED)
    value = record[key]
    words = f"{value:.3f}" if value is not None and unit == "bits" else ""
    return Fact(name, label, value, unit, words=words)
