"""Version 1 of the contract, as a plugin. NEVER EDIT THIS FILE: see pyproject.toml. Imports no mlx."""

from dataclasses import dataclass, field
from typing import ClassVar

import zoo_llama
from zoo.architecture import (
    Architecture,
    Block,
    Command,
    Ignore,
    OutputHead,
    Preset,
    Rename,
    Split,
    Stack,
    Strategy,
    Transpose,
    hookimpl,
    pocket,
)
from zoo.errors import RecipeError
from zoo.recipe import (
    MLP,
    Attention,
    Decoder,
    Embedding,
    Experts,
    GatedMLP,
    Head,
    Layer,
    LayerNorm,
    LearnedPositions,
    MoE,
    RMSNorm,
    RoPE,
    Router,
    Spec,
    repeat,
)


@dataclass(frozen=True)
class LengthNorm(Spec):
    """x / ‖x‖ · gain: a norm with a field that may be zero."""

    kind, name = "norm", "frozen-length"
    eps: float = 1e-6
    shift: int = field(default=0, metadata={"least": 0})

    def own_parameters(self, dim):
        return 1


@dataclass(frozen=True)
class PlainAttention(Spec):
    """Attention written out, with a rope and a norm of each head as parts."""

    kind, name = "mixer", "frozen-attention"
    heads: int
    rope: Spec | None = None
    head_norm: Spec | None = None
    window: int | None = None

    def width(self, part, dim):
        return dim // self.heads

    def own_parameters(self, dim):
        return 4 * dim * dim

    def cached(self, dim):
        return 2 * dim


@dataclass(frozen=True)
class Memory(Spec):
    """A running mean of the tokens so far: state ← decay · state + (1 − decay) · x."""

    kind, name = "mixer", "frozen-memory"
    recurrent: ClassVar[bool] = True
    decay: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.decay < 1:
            raise RecipeError(f"decay: must lie in [0, 1), got {self.decay}")

    def own_parameters(self, dim):
        return dim * dim

    def carried(self, dim):
        return dim


@dataclass(frozen=True)
class GatedLayer(Spec):
    """x + gate · (mixer(norm(x)) + feedforward(norm(x)))."""

    kind, name = "layer", "frozen-gated"
    norm: Spec
    mixer: Spec
    feedforward: Spec

    def own_parameters(self, dim):
        return 1


def frozen(config):
    """Layers of the plugin's own kind, with attention and a mixture of experts."""
    dim, heads = config.count("width"), config.count("heads")
    config.head_width("width", "heads")
    config.refuse("biases", why="are not implemented")
    if config.is_null("decay"):
        raise config.error("decay", "must be a number")
    kind = config.choice("norm", ("length", "rms"), "length")
    norm = LengthNorm(eps=config.number("eps", 1e-6)) if kind == "length" else RMSNorm()
    turns = config.nested("turns")
    rope = RoPE(theta=turns.number("theta", 100.0), interleaved=turns.flag("pairs", False)) if turns else None
    experts = config.count("experts", 4)
    layer = GatedLayer(
        norm=norm,
        mixer=PlainAttention(heads=heads, rope=rope, head_norm=RMSNorm(eps=1e-5)),
        feedforward=MoE(
            router=Router(experts=experts, top_k=min(2, experts)),
            experts=Experts(count=experts, hidden=config.count("hidden")),
            shared=GatedMLP(hidden=config.count("hidden"), activation=config.activation("act", "silu")),
        ),
    )
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab"), dim=dim, scale=dim**0.5),
        layers=repeat(layer, config.layers("layers")),
        norm=LayerNorm(),
        head=Head(tied=config.flag("tied", False)),
        context=config.count("context", 128),
    ).change_layers(lambda index, layer: dict(mixer=dict(window=6 if index % 2 else None)))


def memory(config):
    """The zoo's own layer with a recurrent mixer of the plugin's, learned positions and a bias in the head."""
    dim = config.count("width")
    layer = Layer(
        placement="post",
        mixer=Memory(decay=config.number("decay", 0.5)),
        mixer_norm=LayerNorm(bias=False),
        feedforward=MLP(hidden=2 * dim, activation="relu", bias=False),
        feedforward_norm=LayerNorm(),
    )
    return Decoder(
        embedding=Embedding(
            config.count("vocab"), dim, positions=LearnedPositions(config.count("context", 64))
        ),
        layers=repeat(layer, config.layers("layers")),
        norm=None,
        head=Head(bias=True),
        context=config.count("context", 64),
    )


def variant(config):
    """LLaMA with windows and another norm at the end: a difference from a family of the zoo's own."""
    recipe = zoo_llama.llama(config).change(norm=dict(eps=1e-3), head=dict(scale=0.5))
    heads = recipe.layers[0].mixer.heads
    return recipe.change_layers(mixer=Attention(heads=heads, rope=RoPE.of(config), window=8))


BLOCK = "body.{i}."
WEIGHTS = (
    Rename("[net.]words.*", "embedding.tokens.*"),
    Split(
        BLOCK + "qkv",
        tuple("layers.{i}.mixer." + part + ".weight" for part in ("query", "key", "value")),
        True,
    ),
    Transpose(BLOCK + "out", "layers.{i}.mixer.output.weight"),
    Rename(BLOCK + "head_scale", "layers.{i}.mixer.head_norm.weight"),
    Rename(BLOCK + "gain", "layers.{i}.norm.gain"),
    Rename(BLOCK + "gate", "layers.{i}.gate"),
    Rename(BLOCK + "router.*", "layers.{i}.feedforward.router.scores.*"),
    Stack(BLOCK + "expert.{e}.{part}.weight", "layers.{i}.feedforward.experts.{part}.weight"),
    Rename(BLOCK + "shared.*", "layers.{i}.feedforward.shared.*"),
    Rename("final.*", "norm.*"),
    OutputHead("logits.*", "head.output.*"),
    Ignore(BLOCK + "mask"),
)
MLX_WEIGHTS = (
    Rename("model.words.*", "embedding.tokens.*"),
    Rename("model.body.{i}.*", "layers.{i}.*"),
    Rename("model.final.*", "norm.*"),
    OutputHead("logits.*", "head.output.*"),
)
MEMORY_WEIGHTS = (
    Rename("words", "embedding.tokens.weight"),
    Rename("places", "embedding.positions.weight"),
    Rename("step.{i}.*", "layers.{i}.*"),
    Rename("logits.*", "head.output.*"),
)

TINY = dict(width=32, heads=4, hidden=24, layers=2, vocab=128, turns=dict(theta=50.0, pairs=True))


@hookimpl
def zoo_blocks():
    return [
        Block(LengthNorm, "zoo_frozen.block:LengthNorm", "one gain for all features"),
        Block(PlainAttention, "zoo_frozen.block:PlainAttention", "attention written out"),
        Block(Memory, "zoo_frozen.block:Memory", "a running mean"),
        Block(GatedLayer, "zoo_frozen.block:GatedLayer", "a gated sum"),
    ]


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="frozen",
        summary="every weight rule, and a layer, a norm and attention of its own",
        task="generate",
        causality="causal",
        model_types=("frozen", "frozen-v1"),
        recipe=frozen,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            Preset("tiny", "for tests", config=TINY),
            Preset("large", hub="nobody/frozen", config=TINY | dict(width=512, layers=24)),
        ),
        references=("The contract, version 1",),
        api=1,
    )
    yield Architecture(
        name="frozen-memory",
        base="frozen",
        summary="a recurrent mixer",
        model_types=("frozen-memory",),
        recipe=memory,
        weights=MEMORY_WEIGHTS,
        presets=(pocket(__file__, "frozen-memory", width=16, layers=2, vocab=64),),
        api=1,
    )
    yield Architecture(
        name="frozen-llama",
        base="llama",
        summary="LLaMA with windows",
        recipe=variant,
        weights=zoo_llama.WEIGHTS,
        presets=(Preset("tiny", config=zoo_llama.TINY),),
        api=1,
    )


@hookimpl
def zoo_strategies():
    yield Strategy(
        "frozen-greedy",
        "zoo_frozen.strategy:stream",
        tasks=("generate",),
        options=("max_tokens",),
        summary="the likeliest token each time",
    )


@hookimpl
def zoo_resolve(config):
    return "frozen" if "frozen_marks" in config else None


@hookimpl
def zoo_commands():
    yield Command("frozen", "zoo_frozen.command:frozen", "Says what it is given.")
