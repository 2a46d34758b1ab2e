"""Hugging Face's folders: a config.json, safetensors, and the files of a tokenizer beside them.

sentence-transformers' files say how hidden states are pooled to one vector a text.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import mlx.core as mx

from zoo.architecture import QuantizedFormat, TokenizerFormat
from zoo.checkpoint.checkpoint import POOLINGS, Checkpoint, Pooling
from zoo.checkpoint.finite import finite
from zoo.checkpoint.quantization_settings import QuantizationSettings
from zoo.checkpoint.quantized_tensors import gather, settings_of
from zoo.checkpoint.safetensors import Tensors, load_file, open_tensors, weight_files
from zoo.config import Config, Origin
from zoo.errors import ConfigError
from zoo.files.reading import file_in_folder, read_json, read_object
from zoo.files.writing import write_json, write_text
from zoo.tokenizer import Tokenizer, load_tokenizer

CONFIG, GENERATION = "config.json", "generation_config.json"
# What belongs to a model beside its weights and config.
AUXILIARY_FILES = (
    *("*.json", "*.jinja", "*.txt", "*.model", "*.spm"),
    *("1_Pooling/config.json", "additional_chat_templates/*.jinja"),
)
NOT_COPIED = (CONFIG, "*.index.json", "adapter_config.json", "training.json", "accuracy.json")


class FolderCheckpoint(Checkpoint):
    """A folder with a config.json and safetensors, quantized by any of the registry's formats or not."""

    @cached_property
    def config(self) -> dict[str, Any]:
        config = read_object(self.path, CONFIG, ConfigError, required=True)
        formats = self.registry.table(QuantizedFormat).listed().values()
        if settings_of(config) is None:  # some writers put the settings into a file of their own
            for name, file in ((format.name, format.settings_file) for format in formats):
                if file is not None and (found := read_object(self.path, file, ConfigError)):
                    settings = {"quant_method": name, **found}
                    return {**config, "quantization_config": QuantizationSettings(settings, Origin(file))}
        return config

    def tensors(self, dtype: mx.Dtype | None = None) -> Tensors:
        return gather(open_tensors(self.path), self.config, self.registry, dtype)

    def stored(self, dtype: mx.Dtype | None = None) -> Tensors:
        return gather(open_tensors(self.path), self.config, self.registry, dtype, stored=True)

    def weight_files(self) -> list[Path]:
        return weight_files(self.path)

    def find_not_finite(self) -> tuple[Path, str] | None:
        for path in self.weight_files():
            arrays = load_file(path).arrays
            for name in list(arrays):
                if not finite(arrays.pop(name)):
                    return path, name
        return None

    def tokenizer(self) -> Tokenizer | None:
        return load_tokenizer(self.path, self.config, self.registry.table(TokenizerFormat).listed())

    def generation_config(self) -> dict[str, Any]:
        return read_object(self.path, GENERATION, ConfigError)

    def pooling(self) -> Pooling:
        return pooling_of(self.path)

    def save_auxiliary_files(self, folder: Path) -> None:
        for pattern in AUXILIARY_FILES:
            for path in self.path.glob(pattern):
                name = str(path.relative_to(self.path))
                if any(fnmatchcase(name, other) for other in NOT_COPIED):
                    continue
                if file_in_folder(self.path, name) is not None:
                    target = folder / name
                    target.parent.mkdir(exist_ok=True)
                    shutil.copyfile(path, target)


MODULES, POOLING, LIMITS = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"

# What sentence-transformers calls them, in its folders' new spelling and in the old one, flags.
_MODES = {"mean": "mean", "cls": "first", "lasttoken": "last"}
_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


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
    flags = {key: name == mode for key, name in _FLAGS.items()}
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
    modules = [] if modules is None else modules
    known = isinstance(modules, list) and all(isinstance(module, dict) for module in modules)
    if not known or not all({"type", "path"} <= module.keys() for module in modules):
        raise ConfigError(f"{path}: must be a list of modules with a type and a path")
    for module in modules:
        kind, subfolder = str(module["type"]).rpartition(".")[2], str(module["path"])
        if subfolder and (PurePosixPath(subfolder).name != subfolder or subfolder == ".."):
            raise ConfigError(f"{path}: path {subfolder!r} is not a folder beside it")
        yield kind, subfolder


def _mode(folder: Path, name: str) -> str:
    """The mode of a Pooling module's config."""
    values = read_object(folder, name, ConfigError, required=True)
    given, known = values.get("pooling_mode"), _MODES
    if given is None:
        given = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
        known = _FLAGS
    modes = [known.get(str(key), str(key)) for key in (given if isinstance(given, list) else [given])]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        what = " and ".join(modes) or "nothing"
        raise ConfigError(f"{folder / name}: pooling by {what} is not implemented")
    return modes[0]
