"""What a checkpoint was trained on: the record that a training run writes beside the weights."""

from __future__ import annotations

from pathlib import Path

from zoo.architecture import Corpus
from zoo.errors import ZooError
from zoo.files import read_object
from zoo.host.registry import Registry
from zoo.training.run_folder import TRAINING


def trained_on(folder: Path, registry: Registry) -> Corpus | str | None:
    """The registered corpus that the checkpoint in a folder was trained on, or the path of a person's own text.

    None where no record says so. ZooError for a record that is not a JSON object.
    """
    settings = read_object(folder, TRAINING, ZooError).get("settings") if folder.is_dir() else None
    name = settings.get("corpus") if isinstance(settings, dict) else None
    if not isinstance(name, str):
        return None
    return registry.corpus(name) if name in registry.corpora else name
