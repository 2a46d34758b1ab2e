"""LLaMA 4's text model, as a difference from LLaMA. Imports no mlx."""

from dataclasses import replace

from zoo.architecture import Architecture, Preset, Rename, Split, Transpose, hookimpl
from zoo.recipe import Experts, GatedMLP, MoE, PlainRMSNorm, QueryScale
from zoo_deepseek.spec import SigmoidRouter
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_smollm3 import with_positions


def llama4(config):
    """LLaMA with chunks, layers without positions that see all, and one expert beside a shared one (Meta, 2025)."""
    config.ignore(
        "router_aux_loss_coef",
        "router_jitter_noise",
        "output_router_logits",
        "for_llm_compression",
        "cache_implementation",
    )
    config = config.with_defaults(
        **dict(num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-5, rope_theta=500000.0),
        **dict(max_position_embeddings=131072, no_rope_layer_interval=4),
    )
    bias = config.flag("attention_bias", False)
    rotated, count = with_positions(config), config.layers()
    chunk = None if config.is_null("attention_chunk_size") else config.count("attention_chunk_size", 8192)
    default = ["chunked_attention" if turns and chunk else "full_attention" for turns in rotated]
    kinds = config.choices("layer_types", ("chunked_attention", "full_attention"), count, default)
    if chunk is None and "chunked_attention" in kinds:
        raise config.error("attention_chunk_size", "must be a number: layer_types asks for chunks")
    norm = PlainRMSNorm(config.number("rms_norm_eps")) if config.flag("use_qk_norm", True) else None
    scale = query_scale(config)
    sparse = sparse_layers(config)
    feedforward = mixture(config) if sparse else None
    dense = GatedMLP(config.count("intermediate_size_mlp", 16384), config.activation("hidden_act", "silu"))

    def change(index, layer):
        turns = rotated[index]
        mixer = dict(
            output_bias=bias,
            rope=layer.mixer.rope.change(interleaved=True) if turns else None,
            # RoPE does not change the length of a vector. These norms may come before it, as here, or after.
            query_norm=norm if turns else None,
            key_norm=norm if turns else None,
            query_scale=None if turns else scale,
            window=chunk if kinds[index] == "chunked_attention" else None,
            chunked=kinds[index] == "chunked_attention",
        )
        return dict(mixer=mixer, feedforward=feedforward if index in sparse else dense)

    return llama(config).change_layers(change)


def query_scale(config):
    """What multiplies the queries of layers without positions; published configs say 4 for yes."""
    tuned = config.get("attn_temperature_tuning", True)
    if not isinstance(tuned, int):
        raise config.error("attn_temperature_tuning", "must be true, false or a number")
    beta, context = config.number("attn_scale", 0.1, least=0, most=100), config.count("floor_scale", 8192)
    return QueryScale(beta, context, shift=1) if tuned and beta else None


def mixture(config):
    """The experts of a sparse layer, whose sigmoids multiply what they read, and the shared one."""
    count, hidden = config.count("num_local_experts", 16), config.count("intermediate_size")
    top_k, activation = config.count("num_experts_per_tok", 1), config.activation("hidden_act", "silu")
    if top_k > count:
        raise config.error("num_experts_per_tok", f"is more than the {count} experts")
    router = SigmoidRouter(count, top_k, normalised=False, corrects=False)
    shared = GatedMLP(hidden, activation)
    return MoE(router, Experts(count, hidden, activation), shared, scales_inputs=True)


def sparse_layers(config):
    """The layers with experts: `moe_layers`, or every `interleave_moe_layer_step`-th; none where that is 0."""
    config.ignore("num_local_experts", "num_experts_per_tok")  # where there are none
    count, step = config.layers(), config.count("interleave_moe_layer_step", 1, least=0)
    layers = config.get("moe_layers", list(range(step - 1, count, step)) if step else [])
    if not isinstance(layers, list) or any(type(index) is not int for index in layers):
        raise config.error("moe_layers", "must be a list of layer numbers")
    return layers


LAYER, FEEDFORWARD = "[model.]layers.{i}.feed_forward.", "layers.{i}.feedforward."
EXPERTS = (FEEDFORWARD + "experts.gate.weight", FEEDFORWARD + "experts.up.weight")
COMMON = (
    Rename(LAYER + "router.weight", FEEDFORWARD + "router.weight"),
    Rename(LAYER + "shared_expert.{p}_proj.*", FEEDFORWARD + "shared.{p}.*"),
    Rename(LAYER + "{p}_proj.*", FEEDFORWARD + "{p}.*"),
    *LLAMA_WEIGHTS,
)
WEIGHTS = (
    Split(LAYER + "experts.gate_up_proj", EXPERTS, transpose=True, axis=1),
    Transpose(LAYER + "experts.down_proj", FEEDFORWARD + "experts.down.weight"),
    *COMMON,
)


def of_language_model(rule):
    """The rule for a folder of mlx-lm, where all tensors are those of a `language_model`."""
    source = rule.source.replace("[model.]", "model.")
    return replace(rule, source="[language_model.]" + source)


MLX_WEIGHTS = tuple(
    map(of_language_model, (Rename(LAYER + "experts.{p}_proj.*", FEEDFORWARD + "experts.{p}.*"), *COMMON))
)
PUBLISHED = sized(48, 5120, 40, 8, 8192, head_dim=128, vocab_size=202048, rms_norm_eps=1e-5)
PUBLISHED |= dict(intermediate_size_mlp=16384, rope_theta=500000.0, attention_chunk_size=8192)
PUBLISHED |= dict(attn_temperature_tuning=4, floor_scale=8192, attn_scale=0.1, num_experts_per_tok=1)
SCOUT_ROPE = dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0)
SCOUT_ROPE |= dict(original_max_position_embeddings=8192)
SMALL = dict(
    num_hidden_layers=4,
    num_local_experts=4,
    interleave_moe_layer_step=2,
    attention_chunk_size=32,
    floor_scale=32,
)


@hookimpl
def zoo_architectures():
    """LLaMA 4."""
    licence = "Llama 4 Community License"
    yield Architecture(
        name="llama4",
        base="llama",
        summary="LLaMA with attention within chunks, layers without positions, and an expert beside a shared one",
        model_types=("llama4_text",),
        text_of=("llama4",),
        mlx_type="llama4",
        recipe=llama4,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "scout",
                "meta-llama/Llama-4-Scout-17B-16E-Instruct",
                licence,
                aliases=("llama4:scout",),
                **PUBLISHED,
                **dict(num_local_experts=16, max_position_embeddings=10485760, rope_scaling=SCOUT_ROPE),
            ),
            published(
                "maverick",
                "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
                licence,
                aliases=("llama4:maverick",),
                **PUBLISHED,
                **dict(num_local_experts=128, max_position_embeddings=1048576),
                **dict(interleave_moe_layer_step=2, use_qk_norm=False),
            ),
            Preset(
                "pocket",
                config=POCKET | SMALL | dict(head_dim=32, intermediate_size=256, intermediate_size_mlp=256),
            ),
            Preset("tiny", config=TINY | SMALL | dict(head_dim=16, intermediate_size_mlp=96)),
        ),
        references=('Meta, 2025, "Llama 4"', "Nakanishi, 2025, arXiv:2501.19399"),
        published="2025-04",
    )
