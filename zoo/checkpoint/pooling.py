"""Pooling of hidden states to one vector a text, read from and written to sentence-transformers' files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from zoo.config import Config, Origin
from zoo.errors import ConfigError
from zoo.files.reading import read_json, read_object
from zoo.files.writing import write_json, write_text
from zoo.frozen import Frozen, frozen

POOLINGS = ("mean", "first", "last")
MODULES, POOLING, LIMITS = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"

# What sentence-transformers calls them, in its folders' old and new spelling.
_KEYS = {
    "mean": "pooling_mode_mean_tokens",
    "first": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
_NAMES = {"mean": "mean", "cls": "first", "lasttoken": "last"}


@frozen()
class Pooling(Frozen):
    """Pooling of a text's hidden states to one vector: their mean, or the first or last token's.

    `normalise` to length 1. Texts are cut to `length` tokens (None: never).
    """

    mode: str = "mean"
    normalise: bool = False
    length: int | None = None


def pooling_of(folder: Path) -> Pooling:
    """The pooling that a folder's sentence-transformers files describe; the mean where there are none.

    ConfigError for a module or a mode that is not implemented.
    """
    modules = list(_modules(folder))
    if not modules:
        return Pooling()
    mode, normalise = "mean", False
    for kind, path in modules:
        if kind == "Pooling":
            mode = _mode(folder, f"{path}/config.json" if path else "config.json")
        elif kind == "Normalize":
            normalise = True
        elif kind != "Transformer":
            raise ConfigError(f"{folder / MODULES}: the module {kind} is not implemented")
    limits = Config(read_object(folder, LIMITS, ConfigError), origin=Origin(str(folder / LIMITS)))
    return Pooling(mode, normalise, limits.count("max_seq_length", None))


def save_pooling(folder: Path, mode: str, width: int | None) -> None:
    """Write a pooling `mode` of vectors of `width` numbers, as sentence-transformers reads it."""
    (folder / POOLING).parent.mkdir()
    flags = {key: name == mode for name, key in _KEYS.items()}
    write_json(folder / POOLING, {"word_embedding_dimension": width, **flags})
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    write_text(folder / MODULES, json.dumps(modules, indent=2) + "\n")


def _modules(folder: Path) -> Iterator[tuple[str, str]]:
    """The class name and folder of each module that a `modules.json` lists; nothing when there is none."""
    path = folder / MODULES
    modules = read_json(folder, MODULES, ConfigError)
    if not isinstance(modules, list | None):
        raise ConfigError(f"{path}: must be a list of modules with a type and a path")
    for module in modules or ():
        try:
            kind, subfolder = str(module["type"]).rpartition(".")[2], str(module["path"])
        except (TypeError, KeyError) as error:
            raise ConfigError(f"{path}: must be a list of modules with a type and a path") from error
        if subfolder and (PurePosixPath(subfolder).name != subfolder or subfolder == ".."):
            raise ConfigError(f"{path}: path {subfolder!r} is not a folder beside it")
        yield kind, subfolder


def _mode(folder: Path, name: str) -> str:
    """The mode of a Pooling module's config."""
    values = read_object(folder, name, ConfigError, required=True)
    given = values.get("pooling_mode")
    if given is not None:
        names = list(map(str, given)) if isinstance(given, list) else [str(given)]
        modes = [_NAMES.get(name, name) for name in names]
    else:
        known = {key: mode for mode, key in _KEYS.items()}
        keys = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
        modes = [known.get(key, key) for key in keys]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ConfigError(
            f"{folder / name}: pooling by {' and '.join(modes) or 'nothing'} is not implemented"
        )
    return modes[0]
