"""GGUF files: one file that holds config, tokenizer and weights."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.checkpoint.checkpoint import Checkpoint, Pooling
from zoo.checkpoint.finite import finite
from zoo.checkpoint.gguf.config import (
    architecture_of,
    config_of,
    gguf_of,
    origin_of,
    own_keys,
)
from zoo.checkpoint.gguf.header import Header, decimal, read_header, shown, with_scales
from zoo.checkpoint.gguf.positions import FREQUENCIES, LONG, SHORT, factor_scaling, long_scaling
from zoo.checkpoint.gguf.tensors import (
    REQUANTIZATIONS,
    Requantized,
    check_kinds,
    layer_groups,
    own_dtype,
    read_requantized,
    read_tensor,
    reading_pool,
    unread,
    warn_of_dequantized,
)
from zoo.checkpoint.safetensors import Tensors
from zoo.checkpoint.sentence_vectors import save_pooling
from zoo.config import Origin
from zoo.errors import CheckpointError, ConfigError
from zoo.files.reading import file_in_folder
from zoo.host.registry import Registry
from zoo.tokenizer import Tokenizer

SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
}
POOLINGS = {None: None, 0: None, 1: "mean", 2: "first", 3: "last"}
LONGEST_NAME = 100  # characters
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class GGUFCheckpoint(Checkpoint):
    """A GGUF file, or the first of several that a model is divided among. Opening it reads the headers.

    `repack` (4, 6 or 8) packs in so many bits those matrices that no quantization of MLX holds exactly.
    """

    lazy = False

    def __init__(
        self,
        path: Path,
        *,
        registry: Registry,
        architecture: Architecture | None = None,
        repack: int | None = None,
    ) -> None:
        super().__init__(path, registry=registry, architecture=architecture)
        self.header = with_scales(read_headers(path))
        if repack not in (None, *REQUANTIZATIONS):
            raise CheckpointError(f"`repack` {repack!r} is not one of {', '.join(map(str, REQUANTIZATIONS))}")
        self._entries = list(self.header.tensors.values())
        check_kinds(self._entries)
        self._repack, self._losses = repack, Requantized(repack or 0)

    @property
    def name(self) -> str:
        name, part = self.header.metadata.get("general.name"), PART.fullmatch(self.path.name)
        own = " ".join(name.split()) if isinstance(name, str) else ""
        return own[:LONGEST_NAME] or (part[1] if part else self.path.stem)

    @cached_property
    def architecture(self) -> Architecture:
        found = self._architecture or architecture_of(self.header, self.registry)
        return found.with_causality({"is_causal": own_keys(self.header).get("attention.causal")})

    @cached_property
    def config(self) -> dict[str, Any]:
        config = config_of(self.header, self.architecture)
        _add_frequencies(self.header, config)
        return config

    @cached_property
    def origin(self) -> Origin:
        return origin_of(self.header, gguf_of(self.architecture, self.header))

    @cached_property
    def _own_dtype(self) -> mx.Dtype:
        return own_dtype(self._entries)

    def tensors(self, dtype: mx.Dtype | None = None) -> Tensors:
        dtype = dtype or self._own_dtype
        return self._named({entry.name: unread(entry, dtype, self._repack) for entry in self._entries})

    def _named(self, arrays: dict[str, Any]) -> Tensors:
        kinds = {entry.name: entry.kind for entry in self._entries}
        return Tensors(arrays, kinds, {"format": "gguf"})

    def groups(self) -> list[list[str]]:
        return layer_groups(self.header.tensors)

    def read(self, dtype: mx.Dtype | None, names: Collection[str] | None = None) -> Tensors:
        dtype = dtype or self._own_dtype
        with reading_pool() as pool:
            arrays = {
                entry.name: read_requantized(entry, dtype, self._repack, self._losses, pool)
                for entry in self._entries
                if names is None or entry.name in names
            }
        return self._named(arrays)

    def warn_of_losses(self, dtype: mx.Dtype | None) -> None:
        warn_of_dequantized(self._entries, dtype or self._own_dtype, self._repack)
        self._losses.warn()

    def weight_files(self) -> list[Path]:
        return list(dict.fromkeys(entry.path for entry in self._entries))

    def find_not_finite(self) -> tuple[Path, str] | None:
        return next(((e.path, e.name) for e in self._entries if not finite(read_tensor(e, mx.float32))), None)

    def tokenizer(self) -> Tokenizer | None:
        from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer

        return load_gguf_tokenizer(self.header, self.config.get("vocab_size", 0))

    def generation_config(self) -> dict[str, Any]:
        found = {name: self.header.metadata.get(key) for name, key in SAMPLING.items()}
        numbers = {name: decimal(value) for name, value in found.items() if type(value) in (int, float)}
        return {"do_sample": True, **numbers} if numbers else {}

    def pooling(self) -> Pooling:
        return Pooling(_pooling_mode(self.header) or "mean")

    def save_auxiliary_files(self, folder: Path) -> None:
        from zoo.checkpoint.gguf.tokenizer import save_gguf_tokenizer

        save_gguf_tokenizer(self.header, folder, self.generation_config())
        if mode := _pooling_mode(self.header):
            save_pooling(folder, mode, self.config.get("hidden_size"))


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
    others = [path.with_name(f"{name[1]}-{number:05}-of-{name[3]}.gguf") for number in range(2, count + 1)]
    if missing := [other.name for other in others if file_in_folder(other.parent, other.name) is None]:
        more_missing = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise CheckpointError(f"{path}: {', '.join(missing[:8])}{more_missing} of {count} files are missing")
    tensors = dict(header.tensors)
    for other in others:
        more = read_header(other).tensors
        twice = next((name for name in more if name in tensors), None)
        if twice:
            raise CheckpointError(f"{other}: tensor {twice} stands in an earlier file too")
        tensors |= more
    return Header(path, header.metadata, tensors)


def _pooling_mode(header: Header) -> str | None:
    """The mode of pooling that a file names: "mean", "first" or "last"; None for none. ConfigError for another."""
    kind = own_keys(header).get("pooling_type")
    if kind not in POOLINGS:
        raise ConfigError(f"{header.path}: pooling_type {shown(kind)} is not implemented")
    return POOLINGS[kind]


def _add_frequencies(header: Header, config: dict[str, Any]) -> None:
    """Add the scaling of rotary positions that files keep as tensors, LLaMA 3's and LongRoPE's, to the config."""
    rows = {name: _factors(header, name) for name in (FREQUENCIES, SHORT, LONG) if name in header.tensors}
    if not rows:
        return
    names, theta, keys = ", ".join(rows), config.get("rope_theta", 10000.0), own_keys(header)
    context = config.get("max_position_embeddings")
    if rows.keys() == {FREQUENCIES}:
        if type(theta) not in (int, float):
            raise ConfigError(f"{header.path}: rope.freq_base {shown(theta)} is no number")
        scaling = factor_scaling(rows[FREQUENCIES], float(theta), f"{header.path}: {FREQUENCIES}")
    elif rows.keys() == {SHORT, LONG}:
        scaling = long_scaling(rows[SHORT], rows[LONG], decimal(keys.get("rope.scaling.attn_factor", 1.0)))
        context = keys.get("rope.scaling.original_context_length", context)
    else:
        raise ConfigError(f"{header.path}: of {FREQUENCIES} or {SHORT} and {LONG} it has {names}")
    if scaling is None:
        return
    if "rope_scaling" in config:
        kind = config["rope_scaling"]["rope_type"]
        raise ConfigError(f"{header.path}: {names} beside scaling of the type {kind} is not implemented")
    config["rope_scaling"] = scaling
    if scaling["rope_type"] == "longrope":
        config["original_max_position_embeddings"] = context


def _factors(header: Header, name: str) -> list[float]:
    """A tensor of factors, one for each frequency."""
    entry = header.tensors[name]
    if len(entry.shape) != 1 or entry.kind != "F32" or entry.size > 2**16:
        raise ConfigError(f"{header.path}: {name} is no row of factors")
    factors: list[float] = read_tensor(entry, mx.float32).tolist()
    return factors
