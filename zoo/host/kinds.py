"""The kinds of record that plugins give: which hook yields each, and what messages call it. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.architecture import (
    Architecture,
    Block,
    CheckpointFormat,
    Command,
    Corpus,
    Drawing,
    Experiment,
    FactSource,
    Objective,
    Probe,
    QuantizedFormat,
    Sampler,
    Strategy,
    TokenizerFormat,
)


def _name(record: Any) -> str:
    return record.name


class Kind(NamedTuple):
    """One kind of record.

    `hook` yields the records, all of type `record`. `noun` is what messages call one, and `ask` how they tell a person
    to choose between two of one name. `prefix` stands before its name where the records of several kinds are listed.
    `by_name`: one is asked for by its name, and not found by what a folder holds. `identify` gives the name that a
    record claims. `counted`: of a plugin's records only the number is listed, since each goes with a block.
    """

    hook: str
    record: type
    noun: str
    prefix: str
    ask: str = "ask for"
    by_name: bool = True
    identify: Callable[[Any], str] = _name
    counted: bool = False


KINDS = (
    Kind("zoo_architectures", Architecture, "architecture", ""),
    Kind("zoo_blocks", Block, "block", "", identify=lambda block: block.spec.block()),
    Kind("zoo_strategies", Strategy, "strategy", "strategy/"),
    Kind("zoo_samplers", Sampler, "sampler", "sampler/"),
    Kind("zoo_tokenizers", TokenizerFormat, "tokenizer", "tokenizer/", by_name=False),
    Kind(
        "zoo_formats",
        QuantizedFormat,
        "quant_method",
        "format/",
        "choose one by ZOO_BLOCK: it is of",
        by_name=False,
    ),
    Kind(
        "zoo_checkpoints",
        CheckpointFormat,
        "checkpoint",
        "checkpoint/",
        "choose one by ZOO_BLOCK: it is of",
        by_name=False,
    ),
    Kind("zoo_corpora", Corpus, "corpus", "corpus/"),
    Kind("zoo_objectives", Objective, "objective", "objective/"),
    Kind("zoo_experiments", Experiment, "experiment", "experiment/"),
    Kind(
        "zoo_drawings",
        Drawing,
        "drawing",
        "drawing/",
        "choose one by ZOO_BLOCK: it is of",
        by_name=False,
        identify=lambda drawing: drawing.spec.block(),
        counted=True,
    ),
    Kind(
        "zoo_probes",
        Probe,
        "probe",
        "probe/",
        by_name=False,
        identify=lambda probe: probe.module,
        counted=True,
    ),
    Kind("zoo_facts", FactSource, "facts", "facts/"),
    Kind("zoo_commands", Command, "command", "zoo ", "run zoo"),
)
