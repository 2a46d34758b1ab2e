"""Guesses weight rules for tensors that a family's rules do not take, by their names and shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zoo import weights
from zoo.errors import ZooError
from zoo.weights import Ignore, Rename, Rule, Split, Stack
from zoo_new.checkpoint_fit import BUFFERS, Fit, Shape, kinds, pattern

FUSED = {
    "query_key_value": ("query", "key", "value"),
    "qkv": ("query", "key", "value"),
    "gate_up": ("gate", "up"),
}
CERTAIN = 0.75  # share of words in common from which a rule is certain
LIKELY = 0.34  # and from which it is worth a look

# Names of one thing, as the zoo's paths call it.
WORDS = {
    **dict.fromkeys(("q", "query"), "query"),
    **dict.fromkeys(("k", "key"), "key"),
    **dict.fromkeys(("v", "value"), "value"),
    **dict.fromkeys(("o", "out", "dense", "output"), "output"),
    **dict.fromkeys(("ln", "layernorm", "norm", "rmsnorm"), "norm"),
    **dict.fromkeys(("mlp", "ffn", "ff", "feedforward"), "feedforward"),
    **dict.fromkeys(("attn", "attention", "self", "mixer"), "mixer"),
    **dict.fromkeys(("embed", "embedding", "embeddings", "wte", "tokens"), "embedding"),
}
MEANINGLESS = {"model", "layers", "layer", "block", "blocks", "h", "proj", "weight", "transformer"}


def prefix_rules(fit: Fit) -> tuple[Rule, ...]:
    """Rules for tensors whose names differ from the family's only in the first step."""
    rules: dict[str, Rule] = {}
    for kind, (name, *_) in kinds(fit.left).items():
        shape, rest = fit.left[name], name.partition(".")[2]
        for other in (rest, f"model.{name}", f"model.{rest}"):
            path = _path(fit, other, shape) if rest else None
            if path is not None and path in fit.wanted and fit.wanted[path] == shape:
                rules[kind] = Rename(kind, pattern(path))
                break
    return tuple(rules.values())


def _path(fit: Fit, name: str, shape: Shape) -> str | None:
    """The parameter that the family's rules make of a tensor of this name; None where it is not one."""
    import mlx.core as mx

    try:
        found, _ = weights.apply(
            fit.architecture.weights, {name: mx.zeros(shape)}, fit.recipe, mx.concatenate
        )
    except (ZooError, KeyError):
        return None
    return next(iter(found)) if len(found) == 1 else None


def certain_rules(fit: Fit) -> tuple[Rule, ...]:
    """Rules for tensors that fit exactly one missing parameter, and for computed buffers."""
    found: list[Rule] = []
    for kind, names in kinds(fit.left).items():
        if kind.endswith(BUFFERS):
            found.append(Ignore(kind))
            continue
        likely = sorted(_likely(fit, kind, names), reverse=True)
        if likely and likely[0][0] >= CERTAIN and (len(likely) == 1 or likely[1][0] < likely[0][0]):
            found.append(_rule(kind, likely[0][1]))
    targets = [rule.target for rule in found if isinstance(rule, Rename | Stack)]
    return tuple(
        rule for rule in found if not isinstance(rule, Rename | Stack) or targets.count(rule.target) == 1
    )


def guess(fit: Fit, kind: str) -> Rule | None:
    """A rule from tensors of a kind to the missing parameter or parameters that they resemble most; None for none."""
    score, target = max(_likely(fit, kind, kinds(fit.left)[kind]), default=(0.0, ""))
    return _rule(kind, target) if score >= LIKELY else _split(fit, kind)


def _split(fit: Fit, kind: str) -> Rule | None:
    """A rule that splits a fused tensor, if its name says that it is fused and its rows are those of its parts."""
    shape, missing = fit.left[kinds(fit.left)[kind][0]], kinds(fit.missing)
    for parts in (parts for name, parts in FUSED.items() if name in kind.lower()):
        targets = [target for part in parts for target in missing if target.endswith(f".{part}.weight")]
        sides = [fit.missing[missing[target][0]] for target in targets]
        rows = [side[0] for side in sides]
        if len(targets) == len(parts) and shape == (sum(rows), *sides[0][1:]):
            sizes = None if len(set(rows)) == 1 else ("heads", "kv_heads", "kv_heads")
            return Split(kind, tuple(targets), sizes=sizes)
    return None


def _likely(fit: Fit, kind: str, names: list[str]) -> Iterator[tuple[float, str]]:
    """The kinds of missing parameters of the tensors' shape, each with the likeness of its name."""
    shape = fit.left[names[0]]
    if "{e}" in kind:
        experts = {name.split(".experts.")[1].partition(".")[0] for name in names if ".experts." in name}
        shape = (len(experts), *shape)
    for target, paths in kinds(fit.missing).items():
        alike = all((mark in kind) == (mark in target) for mark in ("{i}", ".bias"))
        if fit.missing[paths[0]] == shape and alike:
            yield _likeness(kind, target), target


def _rule(kind: str, target: str) -> Rule:
    return (Stack if "{e}" in kind else Rename)(kind, target)


def _likeness(name: str, path: str) -> float:
    """The share of the words of the shorter name that are also in the other."""
    first, second = words(name), words(path)
    return len(first & second) / (min(len(first), len(second)) or 1)


def words(name: str) -> set[str]:
    """The words of a name, synonyms replaced by one word."""
    split = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().replace("layer_norm", "norm")
    found = {WORDS.get(word, word) for word in re.split(r"[._]", split)}
    return found - MEANINGLESS - {"", "{i}", "{e}"}
