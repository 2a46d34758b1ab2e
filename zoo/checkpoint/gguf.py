"""GGUF files: one file that holds config, tokenizer and weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.checkpoint.gguf_config import architecture_of, config_of
from zoo.checkpoint.gguf_header import Header, read_header, shown
from zoo.checkpoint.gguf_rope import llama3_scaling
from zoo.checkpoint.gguf_tensors import GGUFTensors, read, tensors_of
from zoo.errors import ConfigError
from zoo.registry import Registry
from zoo.tokenizer import Tokenizer


@dataclass(frozen=True)
class GGUFFile:
    """An opened GGUF file: the architecture it is of, its config.json, its tensors, unread."""

    header: Header
    architecture: Architecture
    config: dict[str, Any]
    tensors: GGUFTensors

    def names(self, error: ConfigError) -> ConfigError:
        """The error with this file in the place of the config.json that it has not."""
        return ConfigError(str(error).replace("config.json", f"{self.header.path}, read as a config.json", 1))

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the file's vocabulary, None where it has none."""
        from zoo.checkpoint.gguf_tokenizer import load_gguf_tokenizer

        return load_gguf_tokenizer(self.header, self.config.get("vocab_size", 0))

    def save_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer as the files of a model folder."""
        from zoo.checkpoint.gguf_tokenizer import save_gguf_tokenizer

        save_gguf_tokenizer(self.header, folder)


def open_gguf(path: Path, known: Registry, architecture: str | None = None) -> GGUFFile:
    """Read a file's header. CheckpointError and ConfigError name the file and what in it is wrong."""
    header = read_header(path)
    tensors = tensors_of(header.tensors)
    chosen = known.architecture(architecture) if architecture else architecture_of(header, known)
    config = config_of(header, chosen)
    _add_frequencies(header, config)
    return GGUFFile(header, chosen, config, tensors)


def _add_frequencies(header: Header, config: dict[str, Any]) -> None:
    """Put LLaMA 3's scaling of positions into the config, which a file keeps as a tensor."""
    entry = header.tensors.get("rope_freqs.weight")
    if entry is None:
        return
    if len(entry.shape) != 1 or entry.kind != "F32" or entry.size > 2**16:
        raise ConfigError(f"{header.path}: rope_freqs.weight is no row of factors")
    theta = config.get("rope_theta", 10000.0)
    if not isinstance(theta, float):
        raise ConfigError(f"{header.path}: rope.freq_base {shown(theta)} is no float")
    scaling = llama3_scaling(read(entry, mx.float32).tolist(), theta, str(header.path))
    if scaling is not None:
        config["rope_scaling"] = scaling
