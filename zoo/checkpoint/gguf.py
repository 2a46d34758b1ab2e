"""GGUF files: one file that holds config, tokenizer and weights; and the folders such a file lies in."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.checkpoint import gguf_blocks
from zoo.checkpoint.gguf_config import architecture_of, config_of
from zoo.checkpoint.gguf_header import Entry, Header, read_header
from zoo.checkpoint.gguf_rope import llama3_scaling
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import ConfigError
from zoo.registry import Registry
from zoo.tokenizer import Tokenizer


@dataclass
class GGUFTensors(Tensors):
    """The tensors of a GGUF file. `arrays` have their shapes and no numbers; `read` gives those that have."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def held(self, dtype: mx.Dtype | None) -> int:
        """The bytes of what `read` gives."""
        dtype = dtype or own_dtype(self.entries)
        return sum(gguf_blocks.unread(entry, dtype).nbytes for entry in self.entries.values())

    def read(self, dtype: mx.Dtype | None) -> Tensors:
        """The tensors themselves, floats cast to `dtype` (None: one that holds all of them as they are).

        They are read one after the other, the largest first, so that what a single one takes is never on top of the rest.
        """
        dtype = dtype or own_dtype(self.entries)
        _warn_of_unpacked(self.entries, dtype)
        order = sorted(self.entries.values(), key=lambda entry: -entry.size)
        arrays = {entry.name: gguf_blocks.read(entry, dtype) for entry in order}
        return Tensors(arrays, self.dtypes, self.metadata)


@dataclass(frozen=True)
class GGUFFile:
    """An opened GGUF file: the architecture it is of, its config.json, its tensors, unread."""

    header: Header
    architecture: Architecture
    config: dict[str, Any]
    tensors: GGUFTensors

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the file's vocabulary, None where it has none."""
        from zoo.checkpoint.gguf_tokenizer import load_gguf_tokenizer

        return load_gguf_tokenizer(self.header, self.config.get("vocab_size", 0))


def open_gguf(path: Path, known: Registry, architecture: str | None = None) -> GGUFFile:
    """Read a file's header. CheckpointError and ConfigError name the file and what in it is wrong."""
    header = read_header(path)
    for kind in {entry.kind: entry for entry in header.tensors.values()}.values():
        gguf_blocks.check_kind(kind)
    chosen = known.architecture(architecture) if architecture else architecture_of(header, known)
    config = config_of(header, chosen)
    _add_frequencies(header, config)
    entries = dict(header.tensors)
    dtype = own_dtype(entries)
    arrays = {name: gguf_blocks.unread(entry, dtype) for name, entry in entries.items()}
    kinds = {name: entry.kind for name, entry in entries.items()}
    return GGUFFile(header, chosen, config, GGUFTensors(arrays, kinds, {"format": "gguf"}, entries))


def own_dtype(entries: dict[str, Entry]) -> mx.Dtype:
    """The smallest float that holds the numbers, scales and biases of all matrices as they are."""
    wanted = {gguf_blocks.EXACT.get(entry.kind, mx.float32) for entry in entries.values() if len(entry.shape) > 1}
    return wanted.pop() if len(wanted) == 1 else mx.float32


def _add_frequencies(header: Header, config: dict[str, Any]) -> None:
    """Put LLaMA 3's scaling of positions into the config, which a file keeps as a tensor."""
    entry = header.tensors.get("rope_freqs.weight")
    if entry is None:
        return
    if len(entry.shape) != 1 or entry.kind != "F32" or entry.size > 2**16:
        raise ConfigError(f"{header.path}: rope_freqs.weight is no row of factors")
    factors, theta = gguf_blocks.read(entry, mx.float32).tolist(), config.get("rope_theta", 10000.0)
    if not isinstance(theta, float):
        raise ConfigError(f"{header.path}: rope.freq_base {theta!r} is no number with a fraction")
    scaling = llama3_scaling(factors, theta, str(header.path))
    if scaling is not None:
        config["rope_scaling"] = scaling


def _warn_of_unpacked(entries: dict[str, Entry], dtype: mx.Dtype) -> None:
    """Say which kinds have no packed form."""
    kinds = Counter(
        entry.kind
        for entry in entries.values()
        if entry.kind not in gguf_blocks.PLAIN and not gguf_blocks.stays_packed(entry)
    )
    if kinds:
        what = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
        warnings.warn(f"tensors without an exact packed form, dequantized to {str(dtype).removeprefix('mlx.core.')}: {what}", stacklevel=4)
