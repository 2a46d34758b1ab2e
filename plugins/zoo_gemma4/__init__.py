"""Gemma 4, as a difference from Gemma 3, and the blocks that only it has. Imports no mlx."""

from collections.abc import Mapping
from functools import cache

from zoo.architecture import Architecture, Block, Drawing, Preset, Rename, hookimpl
from zoo.recipe import (
    Decoder,
    Embedding,
    Experts,
    GatedMLP,
    Head,
    PerLayerEmbedding,
    PerLayerInput,
    RMSNorm,
    RoPE,
    SharedKeyValueAttention,
)
from zoo.weights.experts import stacked_expert_rules
from zoo.weights.shared import IgnoreShared
from zoo_gemma import POCKET, TINY, CappedHead, cap
from zoo_gemma import WEIGHTS as GEMMA_WEIGHTS
from zoo_gemma4.specs import (
    NormedMoE,
    ProportionalScaling,
    ScaledRouter,
    ScaledSandwichLayer,
    ValueNormAttention,
)
from zoo_llama import published, sized, windows_by_type

FULL, WINDOW = "full_attention", "sliding_attention"


def gemma4(config):
    """Gemma 3 without offsets of norms and scales of scores; wider heads in layers that see all (Gemma Team, 2026)."""
    config.refuse("attention_bias")
    if config.get("use_bidirectional_attention") not in (None, "vision"):  # which is about images
        raise config.error("use_bidirectional_attention", "is not implemented")
    config.ignore("attention_dropout")
    config = config.with_defaults(sliding_window=512)
    heads = config.count("num_attention_heads")
    windows, norm = windows_by_type(config, 6), RMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    if windows[-1] is not None:
        raise config.error("layer_types", "must end with full_attention")
    same, kv_heads = config.flag("attention_k_eq_v", False), config.kv_heads(4)
    own = full_layers(config, windows)
    width = config.count("global_head_dim", own.get("head_dim", 512))
    groups = config.count("num_global_key_value_heads", own.get("num_key_value_heads"))

    kinds = [WINDOW if window else FULL for window in windows]
    sources = key_value_sources(config, kinds)
    widths = {FULL: width, WINDOW: config.count("head_dim", 256)}
    ropes = {kind: positions(config, kind, widths[kind]) for kind in set(kinds)}

    def attention(window, shared, shares):
        kind = WINDOW if window else FULL
        common = dict(
            heads=heads,
            kv_heads=groups if same and groups and not window else kv_heads,
            head_dim=widths[kind],
            rope=ropes[kind],
            query_norm=norm,
            window=window,
            scale=1.0,
        )
        if shared:
            return SharedKeyValueAttention(source=kind, **common)
        return ValueNormAttention(
            key_norm=norm,
            eps=norm.eps,
            keys_as_values=same and not window,
            shares=kind if shares else None,
            **common,
        )

    activation = config.activation("hidden_activation", "gelu_pytorch_tanh")
    hidden, double = config.count("intermediate_size"), config.flag("use_double_wide_mlp", False)
    embedding = per_layer_embedding(config, norm)
    own_input = isinstance(embedding, PerLayerEmbedding)
    sparse = mixture(config, activation, norm)

    @cache  # equal layers are one object
    def layer(window, shared, shares):
        return ScaledSandwichLayer(
            mixer_norm=norm,
            mixer=attention(window, shared, shares),
            mixer_output_norm=norm,
            feedforward_norm=norm,
            feedforward=GatedMLP(hidden=hidden * (2 if double and shared else 1), activation=activation),
            feedforward_output_norm=norm,
            layer_input=PerLayerInput(embedding.width_per_layer, activation) if own_input else None,
            layer_input_norm=norm if own_input else None,
            mixture=sparse,
            dense_output_norm=norm if sparse else None,
            mixture_output_norm=norm if sparse else None,
        )

    first_shared = len(kinds) - config.count("num_kv_shared_layers", 0, least=0)
    tied, limit = config.flag("tie_word_embeddings", True), cap(config, "final_logit_softcapping", None)
    return Decoder(
        embedding=embedding,
        layers=tuple(
            layer(window, index >= first_shared, index in sources) for index, window in enumerate(windows)
        ),
        norm=norm,
        head=CappedHead(tied=tied, cap=limit) if limit else Head(tied=tied),
        context=config.count("max_position_embeddings", 131072),
    )


def mixture(config, activation, norm):
    """The experts beside each layer's dense feed-forward; None without `enable_moe_block`."""
    if not config.flag("enable_moe_block", False):
        config.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
        return None
    count, top_k = config.count("num_experts"), config.count("top_k_experts")
    if top_k > count:
        raise config.error("top_k_experts", f"is more than the {count} experts")
    return NormedMoE(
        router=ScaledRouter(count, top_k, eps=norm.eps),
        experts=Experts(count, config.count("moe_intermediate_size"), activation),
        experts_norm=norm,
    )


def key_value_sources(config, kinds):
    """The indices of the layers whose keys and values the last `num_kv_shared_layers` read: the last before these of each kind.

    `kinds` are those of all layers. ConfigError where there is none of a kind.
    """
    shared = config.count("num_kv_shared_layers", 0, least=0)
    first = len(kinds) - shared
    own = {kind: index for index, kind in enumerate(kinds[: max(first, 0)])}
    if missing := set(kinds[max(first, 0) :]) - set(own):
        raise config.error("num_kv_shared_layers", f"leaves no layer of {min(missing)} with keys and values")
    return {own[kind] for kind in kinds[first:]} if shared else set()


def per_layer_embedding(config, norm):
    """The embedding, scaled by √D, with inputs of `hidden_size_per_layer_input` numbers for each layer; 0: without."""
    dim, width = config.count("hidden_size"), 0
    common = dict(vocab=config.count("vocab_size"), dim=dim, scale=dim**0.5)
    rows = config.count("vocab_size_per_layer_input", 262144)
    if not config.is_null("hidden_size_per_layer_input"):
        width = config.count("hidden_size_per_layer_input", 256, least=0)
    if not width:
        return Embedding(**common)
    own = dict(layers=config.layers(), width_per_layer=width, rows=rows, projection_norm=norm)
    return PerLayerEmbedding(**common, **own)


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


PER_LAYER_WEIGHTS = (
    IgnoreShared("[model.]layers.{i}.self_attn.k_proj.*"),
    IgnoreShared("[model.]layers.{i}.self_attn.v_proj.*"),
    IgnoreShared("[model.]layers.{i}.self_attn.k_norm.*"),
    Rename("[model.]layers.{i}.per_layer_input_gate.*", "layers.{i}.layer_input.gate.*"),
    Rename("[model.]layers.{i}.per_layer_projection.*", "layers.{i}.layer_input.output.*"),
    Rename("[model.]layers.{i}.post_per_layer_input_norm.*", "layers.{i}.layer_input_norm.*"),
    Rename("[model.]embed_tokens_per_layer.*", "embedding.layer_tokens.*"),
    Rename("[model.]per_layer_model_projection.*", "embedding.projection.*"),
    Rename("[model.]per_layer_projection_norm.*", "embedding.projection_norm.*"),
)
LAYER, MIXTURE = "[model.]layers.{i}.", "layers.{i}.mixture."
COMMON = (
    Rename(LAYER + "layer_scalar", "layers.{i}.scalar"),
    Rename(LAYER + "router.proj.*", MIXTURE + "router.scores.*"),
    Rename(LAYER + "router.scale", MIXTURE + "router.gain"),
    Rename(LAYER + "router.per_expert_scale", MIXTURE + "router.expert_scale"),
    Rename(LAYER + "pre_feedforward_layernorm_2.*", MIXTURE + "experts_norm.*"),
    Rename(LAYER + "post_feedforward_layernorm_1.*", "layers.{i}.dense_output_norm.*"),
    Rename(LAYER + "post_feedforward_layernorm_2.*", "layers.{i}.mixture_output_norm.*"),
    *PER_LAYER_WEIGHTS,
    *GEMMA_WEIGHTS,
)
STACKED = (LAYER + "experts.gate_up_proj", LAYER + "experts.down_proj")
WEIGHTS = (*stacked_expert_rules(*STACKED, MIXTURE + "experts."), *COMMON)
MLX_WEIGHTS = (Rename(LAYER + "experts.switch_glu.{p}_proj.*", MIXTURE + "experts.{p}.*"), *COMMON)
DENSE = dict(
    attention_k_eq_v=True,
    num_global_key_value_heads=1,
    hidden_size_per_layer_input=0,
    final_logit_softcapping=30.0,
)
# The models with inputs for each layer.
E_TYPE = dict(
    hidden_size_per_layer_input=256,
    vocab_size_per_layer_input=262144,
    final_logit_softcapping=30.0,
    **dict(head_dim=256, global_head_dim=512, sliding_window=512),
    **dict(vocab_size=262144, max_position_embeddings=131072),
)
# The model with experts beside the dense feed-forward.
EXPERTS = dict(enable_moe_block=True, num_experts=128, top_k_experts=8, moe_intermediate_size=704)
TINY_E = dict(
    num_hidden_layers=6,
    attention_k_eq_v=False,
    **dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=200),
    **dict(num_kv_shared_layers=3, use_double_wide_mlp=True),
    **dict(global_head_dim=32, sliding_window=6, layer_types=([WINDOW] * 2 + [FULL]) * 2),
)

TINY_LAYERS = dict(global_head_dim=32, sliding_window=6, layer_types=[WINDOW] * 2 + [FULL])
TINY_MOE = TINY_LAYERS | EXPERTS | dict(num_experts=6, top_k_experts=2, moe_intermediate_size=32)


def small(config, **numbers):
    """Numbers of Gemma 2 without what Gemma 4 does not read."""
    return {key: value for key, value in config.items() if key != "query_pre_attn_scalar"} | DENSE | numbers


@hookimpl
def zoo_blocks():
    yield Block(
        ProportionalScaling, "zoo_gemma4.block:ProportionalScaling", "RoPE on the first pairs of a head"
    )
    yield Block(ValueNormAttention, "zoo_gemma4.block:ValueNormAttention", "attention with normalised values")
    yield Block(ScaledRouter, "zoo_gemma4.block:ScaledRouter", "a router with a norm and a factor an expert")
    yield Block(NormedMoE, "zoo_gemma4.block:NormedMoE", "a mixture whose experts alone read a norm")
    yield Block(
        ScaledSandwichLayer, "zoo_gemma4.block:ScaledSandwichLayer", "a sandwich layer times a learned number"
    )


@hookimpl
def zoo_drawings():
    yield Drawing(ValueNormAttention, "zoo_gemma4.drawing:value_norm_attention")
    yield Drawing(ScaledRouter, "zoo.describe.diagram.parts:router")
    yield Drawing(NormedMoE, "zoo.describe.diagram.parts:moe")
    yield Drawing(ScaledSandwichLayer, "zoo_gemma4.drawing:scaled_sandwich")


@hookimpl
def zoo_architectures():
    """Gemma 4."""
    yield Architecture(
        name="gemma4",
        base="gemma3",
        summary="Gemma 3 with normalised values, and wider heads whose values are their keys in the layers without a window",
        model_types=("gemma4_text",),
        text_of=("gemma4",),
        recipe=gemma4,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "26b",
                "google/gemma-4-26B-A4B-it",
                "Apache-2.0",
                **sized(layers=30, dim=2816, heads=16, kv_heads=8, hidden=2112),
                **DENSE | dict(num_global_key_value_heads=2),
                **EXPERTS,
                **dict(head_dim=256, global_head_dim=512, sliding_window=1024),
                **dict(vocab_size=262144, max_position_embeddings=262144),
            ),
            published(
                "31b",
                "google/gemma-4-31B-it",
                "Apache-2.0",
                **sized(layers=60, dim=5376, heads=32, kv_heads=16, hidden=21504),
                **DENSE | dict(num_global_key_value_heads=4),
                **dict(head_dim=256, global_head_dim=512, sliding_window=1024),
                **dict(vocab_size=262144, max_position_embeddings=262144),
            ),
            published(
                "e2b",
                "google/gemma-4-E2B-it",
                "Apache-2.0",
                **sized(layers=35, dim=1536, heads=8, kv_heads=1, hidden=6144),
                **E_TYPE,
                **dict(num_kv_shared_layers=20, use_double_wide_mlp=True),
                layer_types=([WINDOW] * 4 + [FULL]) * 7,
            ),
            published(
                "e4b",
                "google/gemma-4-E4B-it",
                "Apache-2.0",
                **sized(layers=42, dim=2560, heads=8, kv_heads=2, hidden=10240),
                **E_TYPE,
                num_kv_shared_layers=18,
            ),
            Preset("pocket", config=small(POCKET, global_head_dim=64, layer_types=[WINDOW, FULL] * 2)),
            Preset("tiny", config=small(TINY, **TINY_LAYERS)),
            Preset("tiny-e", config=small(TINY, **TINY_E)),
            Preset("tiny-moe", config=small(TINY, **TINY_MOE)),
        ),
        references=('Gemma Team, 2026, "Gemma 4"',),
        published="2026-04",
    )
