"""Hugging Face's folders: a config.json, safetensors, and the files of a tokenizer beside them.

sentence-transformers' files say how hidden states are pooled to one vector a text.
"""

from __future__ import annotations

import shutil
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.architecture import QuantizedFormat, TokenizerFormat
from zoo.checkpoint.checkpoint import Checkpoint, Pooling
from zoo.checkpoint.finite import finite
from zoo.checkpoint.quantization_settings import QuantizationSettings
from zoo.checkpoint.quantized_tensors import gather, settings_of
from zoo.checkpoint.safetensors import Tensors, load_file, open_tensors, weight_files
from zoo.checkpoint.sentence_vectors import module_files, pooling_of
from zoo.checkpoint.text_part import text_config, text_tensors
from zoo.config import Origin
from zoo.errors import ConfigError
from zoo.files.reading import file_in_folder, is_system_name, read_object
from zoo.tokenizer import Tokenizer, load_tokenizer

CONFIG, GENERATION = "config.json", "generation_config.json"
# What belongs to a model beside its weights and config.
AUXILIARY_FILES = (
    *("*.json", "*.jinja", "*.txt", "*.model", "*.spm"),
    "additional_chat_templates/*.jinja",
)
NOT_COPIED = (CONFIG, "*.index.json", "adapter_config.json", "training.json", "accuracy.json")


class FolderCheckpoint(Checkpoint):
    """A folder with a config.json and safetensors, quantized by any of the registry's formats or not."""

    @cached_property
    def config(self) -> dict[str, Any]:
        config = read_object(self.path, CONFIG, ConfigError, required=True)
        if self._architecture is None or not self._architecture.bridged:
            config = text_config(config, self.registry)
        formats = self.registry.table(QuantizedFormat).listed().values()
        if settings_of(config) is None:  # some writers put the settings into a file of their own
            for name, file in ((format.name, format.settings_file) for format in formats):
                if file is not None and (found := read_object(self.path, file, ConfigError)):
                    settings = {"quant_method": name, **found}
                    return {**config, "quantization_config": QuantizationSettings(settings, Origin(file))}
        return config

    def tensors(self, dtype: mx.Dtype | None = None) -> Tensors:
        tensors = open_tensors(self.path)
        if self.architecture.text_of:
            tensors = text_tensors(tensors)
        return gather(tensors, self.config, self.registry, dtype)

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
        for pattern in (*AUXILIARY_FILES, *module_files(self.path)):
            for path in self.path.glob(pattern):
                name = str(path.relative_to(self.path))
                if is_system_name(path.name) or any(fnmatchcase(name, other) for other in NOT_COPIED):
                    continue
                if file_in_folder(self.path, name) is not None:
                    target = folder / name
                    target.parent.mkdir(exist_ok=True)
                    shutil.copyfile(path, target)
