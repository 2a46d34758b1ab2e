"""What a config says of a classifier: its labels, and how logits become scores. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.config import MOST, Config
from zoo.errors import ConfigError

PROBLEMS = {
    "regression": "none",
    "multi_label_classification": "sigmoid",
    "single_label_classification": "softmax",
}
# Names of torch's classes in configs of sentence-transformers.
ACTIVATIONS = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax", "Tanh": "tanh"}


def labels_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels in the order of their logits, by `id2label`, else LABEL_0, LABEL_1 … as many as `num_labels`.

    ConfigError where `id2label` does not number them from 0.
    """
    values = config if isinstance(config, Config) else Config(config)
    named = values.get("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(values.count("num_labels", 2, most=MOST)))
    if not isinstance(named, Mapping) or {str(key) for key in named} != set(map(str, range(len(named)))):
        raise values.error("id2label", "must map the numbers from 0 on to labels")
    by_number = {int(key): str(label) for key, label in named.items()}
    if not by_number:
        raise values.error("id2label", "has no label")
    return tuple(by_number[number] for number in range(len(by_number)))


def function_of(config: Mapping[str, Any]) -> str:
    """What transformers' pipeline makes of the logits: "none", "sigmoid" or "softmax". ConfigError for another problem."""
    problem, single = config.get("problem_type"), len(labels_of(config)) == 1
    if problem is None:
        return "sigmoid" if single else "softmax"
    if problem not in PROBLEMS or (single and PROBLEMS[problem] == "softmax"):
        why = "needs several labels" if problem in PROBLEMS else f"is not one of {', '.join(PROBLEMS)}"
        raise ConfigError(f"config.json: problem_type {problem!r} {why}")
    return PROBLEMS[problem]


def relevance_function_of(config: Mapping[str, Any], file: str = "config.json") -> str:
    """What a cross-encoder makes of the logit of a pair: as its config says, else a sigmoid.

    ConfigError, naming the `file`, for what is unknown.
    """
    nested = config.get("sentence_transformers")
    key, name = "sbert_ce_default_activation_function", config.get("sbert_ce_default_activation_function")
    if isinstance(nested, Mapping) and nested.get("activation_fn") is not None:
        key, name = "sentence_transformers.activation_fn", nested["activation_fn"]
    if name is None:
        return "sigmoid"
    short = str(name).rpartition(".")[2]
    if short not in ACTIVATIONS or short == "Softmax":
        raise ConfigError(f"{file}: {key} {name!r} is not one of Identity, Sigmoid, Tanh")
    return ACTIVATIONS[short]
