"""The shapes of what a prompt is at each stage of a model, from the model's recipe. Imports no mlx and no Sphinx."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zoo.describe import describe
from zoo.describe.facts.counts import ENCODER, stacks
from zoo.host.registry import default_registry
from zoo.recipe import Model, Spec


@dataclass(frozen=True)
class Stage:
    """What the prompt is at one stage: the stage's `name`, the axes' symbols, the page, and the address in a trace."""

    name: str
    axes: tuple[str, ...]
    page: str
    address: str = ""


@dataclass(frozen=True)
class Row:
    """The stages of one stack, `before`, within and `after` its `count` layers, under a title where there are several."""

    before: tuple[Stage, ...]
    layer: tuple[Stage, ...]
    count: int
    after: tuple[Stage, ...]
    title: str = ""
    sizes: dict[str, int] = field(default_factory=dict)  # of the axes, by symbol

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (*self.before, *self.layer, *self.after)


def recipe_of(name: str) -> Model:
    """The recipe of an architecture's pocket."""
    return describe(f"{name}:pocket", default_registry()).recipe


def rows_of(name: str, lengths: dict[str, int], phase: str = "", title: str = "") -> list[Row]:
    """The rows of an architecture's pocket for texts of `lengths`: "T" tokens, "S" of the source, "B" texts.

    `phase` "decode" is one more token after T; "training" is a batch and its loss.
    """
    recipe = recipe_of(name)
    found = stacks(recipe)
    if len(found) == 2:
        return [encoder(found[ENCODER], lengths), decoder_of_two(recipe, found["decoder"], lengths)]
    if ENCODER in found:
        return [encoder_only(recipe, lengths)]
    if recipe.layers[0].mixer.recurrent:
        return [recurrent(recipe, lengths, title or name)]
    return [decoder(recipe, lengths, phase, title)]


def sizes(model: Model, lengths: dict[str, int]) -> dict[str, int]:
    """The size of each axis of a stack of attention, by its symbol."""
    layer: Any = model.layers[0]
    mixer, part = layer.mixer, layer.feedforward
    found = {**lengths, "D": model.dim, "H": mixer.heads}
    found |= {"G": mixer.kv_heads or mixer.heads, "d": mixer.head_width(model.dim)}
    if hasattr(part, "experts"):
        found |= {"F": part.experts.hidden, "N": part.router.experts, "k": part.router.top_k}
    else:
        found["F"] = part.hidden
    return found


def attending(model: Model, new: str, seen: str, start: str = "", cached: bool = True) -> tuple[Stage, ...]:
    """The stages of a layer of attention and feed-forward, where `new` tokens attend to `seen` tokens."""
    layer: Any = model.layers[0]
    at = f"{start}layers.0"
    stages = []
    if cached and layer.mixer.rope is not None:
        stages.append(Stage("queries", ("H", new, "d"), "positions", f"{at}.mixer.queries"))
    if cached:
        stages.append(Stage("kept", ("G", seen, "d"), "attention-variants", f"{at}.mixer.keys"))
    stages.append(Stage("attention", ("H", new, seen), "attention", f"{at}.mixer.pattern"))
    stages.append(Stage("sum", (new, "D"), "residuals-and-norms", f"{at}.resid_mid"))
    if hasattr(layer, "cross"):
        stages.append(Stage("cross", ("H", new, "S"), "translation", f"{at}.cross.pattern"))
        stages.append(Stage("sum", (new, "D"), "residuals-and-norms", f"{at}.resid_cross"))
    stages += feeding(layer.feedforward, new, at)
    stages.append(Stage("sum", (new, "D"), "residuals-and-norms", at))
    return tuple(stages)


def feeding(part: Spec, new: str, at: str) -> list[Stage]:
    """The feed-forward of a layer, or its router and experts."""
    if hasattr(part, "experts"):
        return [
            Stage("router", (new, "N"), "experts", f"{at}.feedforward.router.scores"),
            Stage("experts", (new, "k", "F"), "experts"),
        ]
    return [Stage("feedforward", (new, "F"), "feedforward", f"{at}.feedforward.hidden")]


def entering(model: Model, new: str, start: str = "") -> tuple[Stage, ...]:
    """The ids and their vectors, with positions where these are added."""
    stages = [
        Stage("tokens", (new,), "tokens"),
        Stage("embedding", (new, "D"), "embeddings", f"{start}embedding.vectors"),
    ]
    if model.embedding.positions is not None:
        stages.append(Stage("positions", (new, "D"), "positions", f"{start}embedding"))
    return tuple(stages)


def decoder(model: Model, lengths: dict[str, int], phase: str, title: str) -> Row:
    """A decoder-only model: a prompt, one more token after it ("decode"), a batch ("training"), or masks to fill."""
    found = sizes(model, lengths) | {"V": model.embedding.vocab}
    if model.causality == "full":  # masked diffusion
        after = (Stage("masks", ("L", "V"), "diffusion"), Stage("kept predictions", ("L",), "diffusion"))
        return Row(
            entering(model, "T"),
            attending(model, "T", "T", cached=False),
            len(model.layers),
            after,
            title,
            found,
        )
    if phase == "training":
        stages = (entering(model, "T"), attending(model, "T", "T", cached=False))
        before, layer = (tuple(batched(stage) for stage in part) for part in stages)
        after = (Stage("logits", ("B", "T", "V"), "logits"), Stage("losses", ("B", "T"), "training"))
        return Row(before, layer, len(model.layers), (*after, Stage("loss", (), "training")), title, found)
    new, seen = ("1", "S") if phase == "decode" else ("T", "T")
    found |= {"S": lengths["T"] + 1} if phase == "decode" else {}
    after = (
        Stage("logits", (new, "V"), "logits"),
        Stage("choice", ("1",), "sampling"),
        Stage("text", (), "text"),
    )
    return Row(entering(model, new), attending(model, new, seen), len(model.layers), after, title, found)


def batched(stage: Stage) -> Stage:
    """The stage of several texts at once."""
    return Stage(stage.name, ("B", *stage.axes), stage.page, stage.address)


def encoder(model: Model, lengths: dict[str, int]) -> Row:
    """The encoder of an encoder-decoder: the source becomes the memory."""
    layer = attending(model, "S", "S", "encoder.", cached=False)
    after = (Stage("memory", ("S", "D"), "translation"),)
    found = sizes(model, lengths)
    return Row(entering(model, "S", "encoder."), layer, len(model.layers), after, "encoder", found)


def decoder_of_two(recipe: Model, model: Model, lengths: dict[str, int]) -> Row:
    """The decoder of an encoder-decoder, whose cross-attention looks at the memory."""
    layer = attending(model, "T", "T", "decoder.", cached=False)
    after = (Stage("logits", ("T", "V"), "logits"),)
    found = sizes(model, lengths) | {"V": recipe.vocab}
    return Row(entering(model, "T", "decoder."), layer, len(model.layers), after, "decoder", found)


def encoder_only(model: Model, lengths: dict[str, int]) -> Row:
    """An encoder: a distribution for each place, of which those of masks are used, or the mean of the vectors."""
    layer = attending(model, "T", "T", cached=False)
    after = (Stage("masks", ("T", "V"), "bert", "head"), Stage("mean", ("D",), "bert"))
    found = sizes(model, lengths) | {"V": model.embedding.vocab}
    return Row(entering(model, "T"), layer, len(model.layers), after, "", found)


def recurrent(model: Model, lengths: dict[str, int], title: str) -> Row:
    """A recurrent model: a state of one size after any number of tokens."""
    layer: Any = model.layers[0]
    mixer, found = layer.mixer, {**lengths, "D": model.dim, "V": model.embedding.vocab}
    if hasattr(mixer, "gates"):
        found |= {"g": mixer.gates, "c": mixer.states}
        inside = (
            Stage("gates", ("T", "g", "D"), "recurrence"),
            Stage("state", ("c", "D"), "recurrence"),
            Stage("output", ("T", "D"), "recurrence", "layers.0"),
        )
    else:
        found |= {"E": mixer.hidden, "N": mixer.state}
        inside = (
            Stage("channels", ("T", "E"), "recurrence", "layers.0.mixer.convolved"),
            Stage("state", ("N", "E"), "recurrence"),
            Stage("sum", ("T", "D"), "residuals-and-norms", "layers.0"),
        )
    after = (Stage("logits", ("T", "V"), "logits"), Stage("choice", ("1",), "sampling"))
    return Row(entering(model, "T"), inside, len(model.layers), after, title, found)
