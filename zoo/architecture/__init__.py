"""The records that plugins give to the zoo, and what they are made of. Imports no mlx."""

from __future__ import annotations

from zoo.architecture.architecture import API, Architecture, Block, Preset, hookimpl, import_target, pocket
from zoo.architecture.records import (
    CallFormat,
    CheckpointFormat,
    Command,
    Corpus,
    Drawing,
    Experiment,
    FactSource,
    ModuleProbe,
    Objective,
    QuantizedFormat,
    Quantizer,
    Sampler,
    Strategy,
    TokenizerFormat,
)
from zoo.architecture.setting import Setting
from zoo.config import Config
from zoo.gguf import GGUF
from zoo.weights import Depthwise, Ignore, OfBlock, OutputHead, Rename, Rule, Split, Stack, Transpose, behind

__all__ = [
    "API",
    "GGUF",
    "Architecture",
    "Block",
    "CallFormat",
    "CheckpointFormat",
    "Command",
    "Config",
    "Corpus",
    "Depthwise",
    "Drawing",
    "Experiment",
    "FactSource",
    "Ignore",
    "ModuleProbe",
    "Objective",
    "OfBlock",
    "OutputHead",
    "Preset",
    "QuantizedFormat",
    "Quantizer",
    "Rename",
    "Rule",
    "Sampler",
    "Setting",
    "Split",
    "Stack",
    "Strategy",
    "TokenizerFormat",
    "Transpose",
    "behind",
    "hookimpl",
    "import_target",
    "pocket",
]
