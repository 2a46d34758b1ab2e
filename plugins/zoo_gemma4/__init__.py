"""Gemma 4's dense models without embeddings a layer, as a difference from Gemma 3, and the blocks that only they have. Imports no mlx."""

from collections.abc import Mapping
from dataclasses import replace

from zoo.architecture import Architecture, Block, Drawing, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, RMSNorm, RoPE, Spec
from zoo_gemma import POCKET, TINY, CappedHead, SandwichLayer, cap
from zoo_gemma import WEIGHTS as GEMMA_WEIGHTS
from zoo_llama import published, sized, windows_by_type


@frozen()
class ProportionalScaling(Spec):
    """Only the first `rotated` pairs of a head are rotated, at the frequencies that they have among all pairs."""

    kind, name = "rope-scaling", "proportional"
    rotated: int


@frozen()
class ValueNormAttention(Attention):
    """Attention whose values are normalised without a gain. `keys_as_values`: values are the keys before norm and rotation."""

    kind, name = "mixer", "value-norm-attention"
    eps: float = 1e-6
    keys_as_values: bool = False

    @property
    def title(self):
        """The kind of attention, with what is done to values."""
        return f"{super().title} with normalised values"

    def matrices(self, dim):
        return tuple(m for m in super().matrices(dim) if not (self.keys_as_values and m.name == "value"))

    def divided(self, dim, share):
        """By heads."""
        division = super().divided(dim, share)
        if not self.keys_as_values:
            return division
        cuts = {path: cut for path, cut in division.cuts.items() if not path.startswith("value.")}
        return replace(division, cuts=cuts)


@frozen()
class ScaledSandwichLayer(SandwichLayer):
    """A layer with norms on both sides of each part, whose output is multiplied by a learned number.

    Parameters: `scalar` (1,).
    """

    kind, name = "layer", "scaled-sandwich"

    def own_parameters(self, dim):
        return super().own_parameters(dim) + 1


FULL, WINDOW = "full_attention", "sliding_attention"


def gemma4(config):
    """Gemma 3 without offsets of norms and scales of scores; wider heads in layers that see all (Gemma Team, 2026)."""
    config.refuse("hidden_size_per_layer_input", why="is not implemented: embeddings a layer (E2B, E4B)")
    if "hidden_size_per_layer_input" not in config:
        raise config.error("hidden_size_per_layer_input", "must be 0: embeddings a layer are not implemented")
    config.refuse("num_kv_shared_layers")
    config.refuse("enable_moe_block")
    config.refuse("attention_bias")
    if config.get("use_bidirectional_attention") not in (None, "vision"):  # which is about images
        raise config.error("use_bidirectional_attention", "is not implemented")
    # Of models with experts, with layers that share keys and values, and with embeddings a layer.
    config.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    config.ignore("use_double_wide_mlp", "vocab_size_per_layer_input", "attention_dropout")
    config = config.with_defaults(sliding_window=512)
    dim, heads = config.count("hidden_size"), config.count("num_attention_heads")
    windows, norm = windows_by_type(config, 6), RMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    if windows[-1] is not None:
        raise config.error("layer_types", "must end with full_attention")
    same, kv_heads = config.flag("attention_k_eq_v", False), config.kv_heads(4)
    own = full_layers(config, windows)
    width = config.count("global_head_dim", own.get("head_dim", 512))
    groups = config.count("num_global_key_value_heads", own.get("num_key_value_heads"))

    def attention(window):
        kind = WINDOW if window else FULL
        head_dim = config.count("head_dim", 256) if window else width
        return ValueNormAttention(
            heads=heads,
            kv_heads=groups if same and groups and not window else kv_heads,
            head_dim=head_dim,
            rope=positions(config, kind, head_dim),
            query_norm=norm,
            key_norm=norm,
            window=window,
            scale=1.0,
            eps=norm.eps,
            keys_as_values=same and not window,
        )

    activation = config.activation("hidden_activation", "gelu_pytorch_tanh")
    layer = ScaledSandwichLayer(
        mixer_norm=norm,
        mixer=attention(None),
        mixer_output_norm=norm,
        feedforward_norm=norm,
        feedforward=GatedMLP(hidden=config.count("intermediate_size"), activation=activation),
        feedforward_output_norm=norm,
    )
    mixers = {window: attention(window) for window in dict.fromkeys(windows)}
    tied, limit = config.flag("tie_word_embeddings", True), cap(config, "final_logit_softcapping", None)
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=dim, scale=dim**0.5),
        layers=tuple(layer.change(mixer=mixers[window]) for window in windows),
        norm=norm,
        head=CappedHead(tied=tied, cap=limit) if limit else Head(tied=tied),
        context=config.count("max_position_embeddings", 131072),
    )


def full_layers(config, windows):
    """What `per_layer_config`, which transformers 5 writes, says of the layers that see all tokens; {} without it."""
    given = config.get("per_layer_config", {})
    full = {str(index) for index, window in enumerate(windows) if window is None}
    if not given:
        return {}
    fits = isinstance(given, Mapping) and {str(key) for key in given} == full
    values = [v for v in given.values() if isinstance(v, Mapping)] if fits else []
    same = len(values) == len(full) and all(value == values[0] for value in values)
    if not same or not set(values[0]) <= {"head_dim", "num_key_value_heads"}:
        raise config.error(
            "per_layer_config", "is not implemented but for the heads of all layers without a window"
        )
    return values[0]


def positions(config, kind, head_dim):
    """The rotary positions of layers of a kind, whose heads are `head_dim` wide."""
    defaults = {FULL: dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1e6)}
    defaults |= {WINDOW: dict(rope_type="default", rope_theta=1e4)}
    every = config.nested("rope_parameters") or config.with_defaults(rope_parameters=defaults).nested(
        "rope_parameters"
    )
    inner = every.nested(kind)
    every.ignore(FULL, WINDOW)
    if unread := every.unread():
        raise every.error(unread[0], "is of no kind of layer")
    if inner is None:
        raise config.error("rope_parameters", f"has no {kind}")
    theta, share = inner.number("rope_theta", defaults[kind]["rope_theta"]), 1.0
    if inner.choice("rope_type", ("default", "proportional"), "default") == "proportional":
        share = inner.number("partial_rotary_factor", 1.0, least=0, most=1)
    if unread := inner.unread():
        raise inner.error(unread[0], "is not implemented")
    rotated = int(share * head_dim // 2)
    scaling = None if share == 1.0 else ProportionalScaling(rotated)
    return RoPE(theta=theta, scaling=scaling)


WEIGHTS = (Rename("[model.]layers.{i}.layer_scalar", "layers.{i}.scalar"), *GEMMA_WEIGHTS)
DENSE = dict(
    attention_k_eq_v=True,
    num_global_key_value_heads=1,
    hidden_size_per_layer_input=0,
    final_logit_softcapping=30.0,
)


def small(config, **numbers):
    """Numbers of Gemma 2 without what Gemma 4 does not read."""
    return {key: value for key, value in config.items() if key != "query_pre_attn_scalar"} | DENSE | numbers


@hookimpl
def zoo_blocks():
    yield Block(
        ProportionalScaling, "zoo_gemma4.block:ProportionalScaling", "RoPE on the first pairs of a head"
    )
    yield Block(ValueNormAttention, "zoo_gemma4.block:ValueNormAttention", "attention with normalised values")
    yield Block(
        ScaledSandwichLayer, "zoo_gemma4.block:ScaledSandwichLayer", "a sandwich layer times a learned number"
    )


@hookimpl
def zoo_drawings():
    yield Drawing(ValueNormAttention, "zoo_gemma4.drawing:value_norm_attention")
    yield Drawing(ScaledSandwichLayer, "zoo_gemma.drawing:sandwich")


@hookimpl
def zoo_architectures():
    """Gemma 4's dense models."""
    yield Architecture(
        name="gemma4",
        base="gemma3",
        summary="Gemma 3 with normalised values, and wider heads whose values are their keys in the layers without a window",
        model_types=("gemma4_text",),
        text_of=("gemma4",),
        recipe=gemma4,
        weights=WEIGHTS,
        presets=(
            published(
                "31b",
                "google/gemma-4-31B-it",
                "Apache-2.0",
                **sized(layers=60, dim=5376, heads=32, kv_heads=16, hidden=21504),
                **DENSE | dict(num_global_key_value_heads=4),
                **dict(head_dim=256, global_head_dim=512, sliding_window=1024),
                **dict(vocab_size=262144, max_position_embeddings=262144),
            ),
            Preset("pocket", config=small(POCKET, global_head_dim=64, layer_types=[WINDOW, FULL] * 2)),
            Preset(
                "tiny",
                config=small(TINY, global_head_dim=32, sliding_window=6, layer_types=[WINDOW] * 2 + [FULL]),
            ),
        ),
        references=('Gemma Team, 2026, "Gemma 4"',),
        published="2026-04",
    )
