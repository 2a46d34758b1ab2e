"""The kinds of models among the zoo's architectures, told from their recipes."""

from __future__ import annotations

from functools import cache
from typing import Any

from zoo.describe import describe
from zoo.describe.facts.counts import DECODER, ENCODER, is_opaque, stacks
from zoo.host.registry import default_registry

KINDS = ("encoder-only", "decoder-only", "encoder-decoder", "prefix", "masked diffusion", "recurrent")


def kind_of(recipe: Any) -> str:
    """Which of `KINDS` a recipe is: by its stacks, by what a token may see, and by whether layers attend at all."""
    found = stacks(recipe)
    if DECODER not in found:
        return "encoder-only"
    if ENCODER in found:
        return "encoder-decoder"
    decoder: Any = found[DECODER]
    mixers = [spec for _, spec in decoder.walk() if spec.kind == "mixer"]
    if mixers and all(mixer.recurrent for mixer in mixers):
        return "recurrent"
    return {"causal": "decoder-only", "prefix": "prefix", "full": "masked diffusion"}[decoder.causality]


def causality(name: str, stack: str) -> str:
    """What a token may see in a stack of an architecture's pocket: "causal", "prefix" or "full"."""
    found: Any = stacks(describe(f"{name}:pocket", default_registry()).recipe)[stack]
    return str(found.causality)


@cache
def by_kind() -> dict[str, list[str]]:
    """The names of the zoo's own architectures whose layers are known, by kind."""
    registry = default_registry()
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, architecture in registry.architectures.items():
        preset = architecture.full_size or next(iter(architecture.presets), None)
        if preset is None or preset.config is None:
            continue
        recipe = describe(f"{name}:{preset.name}", registry).recipe
        if not is_opaque(recipe):
            found[kind_of(recipe)].append(name)
    return found


def names(kind: str, language: str = "en") -> str:
    """The architectures of a kind, as they are called on the command line."""
    return ("、" if language == "zh" else ", ").join(by_kind()[kind])
