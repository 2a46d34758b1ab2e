"""GGUF files: one file that holds config, tokenizer and weights."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.checkpoint.gguf.config import architecture_of, config_of, decimal, own_keys
from zoo.checkpoint.gguf.header import Header, read_header, shown
from zoo.checkpoint.gguf.reading import read
from zoo.checkpoint.gguf.rope import llama3_scaling
from zoo.checkpoint.gguf.tensors import GGUFTensors, tensors_of
from zoo.errors import CheckpointError, ConfigError
from zoo.files import inside
from zoo.host.registry import Registry
from zoo.tokenizer import Tokenizer

SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
}
POOLINGS = {1: "mean", 2: "first", 3: "last"}
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


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

    @property
    def generation_config(self) -> dict[str, Any]:
        """How the file recommends to draw tokens, as a generation_config.json says it; empty where it does not."""
        found = {name: self.header.metadata.get(key) for name, key in SAMPLING.items()}
        told = {name: decimal(value) for name, value in found.items() if type(value) in (int, float)}
        return {"do_sample": True, **told} if told else {}

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the file's vocabulary, None where it has none."""
        from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer

        return load_gguf_tokenizer(self.header, self.config.get("vocab_size", 0))

    def save_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer, how to draw tokens and how to pool them, as the files of a model folder."""
        from zoo.checkpoint.gguf.tokenizer import save_gguf_tokenizer

        save_gguf_tokenizer(self.header, folder, self.generation_config)
        if mode := pooling_of(self.header):
            save_pooling(folder, mode, self.config.get("hidden_size"))


def open_gguf(
    path: Path, registry: Registry, architecture: str | Architecture | None = None, repack: int | None = None
) -> GGUFFile:
    """Read a file's header. CheckpointError and ConfigError name the file and what in it is wrong."""
    header = read_headers(path)
    tensors = tensors_of(header.tensors, repack)
    chosen = registry.architecture(architecture) if architecture else architecture_of(header, registry)
    config = config_of(header, chosen)
    _add_frequencies(header, config)
    return GGUFFile(header, chosen, config, tensors)


def read_headers(path: Path) -> Header:
    """The header of a file, or of the first of several that a model was divided among, with the tensors of all.

    CheckpointError, naming the file, for one that is missing, is no GGUF or contradicts itself.
    """
    header = read_header(path)
    count = header.metadata.get("split.count", 1)
    if count in (0, 1):
        return header
    name = PART.fullmatch(path.name)
    if type(count) is not int or name is None or int(name[3]) != count:
        raise CheckpointError(
            f"{path}: one of {shown(count)} files, which its name does not say as NAME-00001-of-00002.gguf"
        )
    if int(name[2]) != 1:
        raise CheckpointError(
            f"{path}: one of {count} files; name the first, {name[1]}-00001-of-{name[3]}.gguf"
        )
    tensors = dict(header.tensors)
    for number in range(2, count + 1):
        other = path.with_name(f"{name[1]}-{number:05}-of-{name[3]}.gguf")
        if inside(other.parent, other.name) is None:
            raise CheckpointError(f"{other}: missing; {path.name} is the first of {count} files")
        more = read_header(other).tensors
        twice = next((one for one in more if one in tensors), None)
        if twice:
            raise CheckpointError(f"{other}: tensor {twice} stands in an earlier file too")
        tensors |= more
    return Header(path, header.metadata, tensors)


def pooling_of(header: Header) -> str | None:
    """How a file says that hidden states become one vector: "mean", "first" or "last"; None where it does not.

    ConfigError for another way.
    """
    kind = own_keys(header).get("pooling_type", 0)
    if kind in (0, None):
        return None
    if kind not in POOLINGS:
        raise ConfigError(f"{header.path}: pooling_type {shown(kind)} is not implemented")
    return POOLINGS[kind]


def save_pooling(folder: Path, mode: str, width: int | None) -> None:
    """Write how hidden states become one vector, as sentence-transformers reads it."""
    from zoo.checkpoint.save import write_json

    keys = {
        "mean": "pooling_mode_mean_tokens",
        "first": "pooling_mode_cls_token",
        "last": "pooling_mode_lasttoken",
    }
    (folder / "1_Pooling").mkdir()
    told = {key: name == mode for name, key in keys.items()}
    write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": width, **told})
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")


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
