"""OLMo 2 and OLMo 3: LLaMA with norms on what its blocks give, not on what they read; OLMoE. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Block, Drawing, ModuleProbe, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.gguf import DECODER, MOE
from zoo.recipe import JointRMSNorm, RoPE, Spec
from zoo_llama import POCKET, TINY, llama, published, sized, windows_by_type
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_mixtral import QWEN_MLX_WEIGHTS, QWEN_WEIGHTS, moe


@frozen()
class OutputNormLayer(Spec):
    """x + mixer_norm(mixer(x)), then the same with the feed-forward (OLMo Team, 2024, section 3.2)."""

    kind, name = "layer", "output-norm"
    mixer: Spec
    feedforward: Spec
    mixer_norm: Spec
    feedforward_norm: Spec

    @property
    def norm_placement(self) -> str:
        """On what is added to the residual stream, which itself is never normalised."""
        return "after each part, before its sum"


def olmo2(config, rope=None):
    """LLaMA with its norms moved, and a norm on all queries and one on all keys (OLMo Team, 2024)."""
    config = config.with_defaults(rms_norm_eps=1e-5, max_position_embeddings=2048)
    recipe, eps = llama(config, rope), config.number("rms_norm_eps")

    def moved(layer):
        mixer = layer.mixer.change(**joint_norms(layer.mixer, eps))
        return OutputNormLayer(mixer, layer.feedforward, layer.mixer_norm, layer.feedforward_norm)

    return recipe.change(layers=tuple(moved(layer) for layer in recipe.layers))


def olmo3(config):
    """OLMo 2 with windows in three of four layers, whose positions are not scaled (OLMo Team, 2025)."""
    config = config.with_defaults(rope_theta=500000.0)
    windows = windows_by_type(config, every=4)
    rope = RoPE.of(config, layer_type="full_attention")
    local = RoPE.of(config, layer_type="sliding_attention", scaling_key="rope_parameters")
    config.note("rope_theta", rope.theta)
    return olmo2(config, rope).change_layers(
        lambda index, layer: dict(mixer=dict(window=windows[index], rope=local if windows[index] else rope))
    )


def olmoe(config):
    """LLaMA with many small experts in every layer, and norms over all queries and all keys (Muennighoff et al., 2024)."""
    config.refuse("clip_qkv")
    config = config.with_defaults(
        num_experts=64, num_experts_per_tok=8, rms_norm_eps=1e-5, max_position_embeddings=4096
    )
    count, hidden = config.count("num_experts"), config.count("intermediate_size")
    sparse = moe(config, count, hidden, config.flag("norm_topk_prob", False))
    return llama(config).change_layers(
        lambda index, layer: dict(mixer=joint_norms(layer.mixer, layer.mixer_norm.eps), feedforward=sparse)
    )


def joint_norms(mixer, eps):
    """A norm over all queries, and one over all keys."""
    return dict(
        query_norm=JointRMSNorm(heads=mixer.heads, eps=eps),
        key_norm=JointRMSNorm(heads=mixer.kv_heads, eps=eps),
    )


# The norms have other places; all else is named as in LLaMA, where the first of these names means another norm.
WEIGHTS = (
    Rename("[model.]layers.{i}.post_attention_layernorm.*", "layers.{i}.mixer_norm.*"),
    Rename("[model.]layers.{i}.post_feedforward_layernorm.*", "layers.{i}.feedforward_norm.*"),
    *LLAMA_WEIGHTS,
)
GGUF_WEIGHTS = (
    Rename("blk.{i}.post_attention_norm.*", "layers.{i}.mixer_norm.*"),
    Rename("blk.{i}.post_ffw_norm.*", "layers.{i}.feedforward_norm.*"),
    *DECODER,
)

OLMO2 = dict(rope_theta=500000.0, rms_norm_eps=1e-6, vocab_size=100352, max_position_embeddings=4096)
OLMO3 = OLMO2 | dict(
    vocab_size=100278,
    max_position_embeddings=65536,
    sliding_window=4096,
    rope_scaling=dict(
        rope_type="yarn", factor=8.0, original_max_position_embeddings=8192, beta_fast=32.0, beta_slow=1.0
    ),
)


@hookimpl
def zoo_blocks():
    """The layer, which is all that the zoo lacks."""
    summary = "norms on what mixer and feed-forward give"
    yield Block(OutputNormLayer, "zoo_olmo.block:OutputNormLayer", summary)


@hookimpl
def zoo_drawings():
    yield Drawing(OutputNormLayer, "zoo_olmo.drawing:output_norm_layer")


@hookimpl
def zoo_architectures():
    """OLMo 2 and OLMo 3."""
    yield Architecture(
        name="olmo2",
        base="llama",
        summary="LLaMA with norms after each part instead of before it, and over all queries and all keys",
        model_types=("olmo2",),
        recipe=olmo2,
        weights=WEIGHTS,
        gguf=GGUF("olmo2", GGUF_WEIGHTS),
        presets=(
            published(
                "7b",
                "allenai/OLMo-2-1124-7B",
                "Apache-2.0",
                **sized(layers=32, dim=4096, heads=32, kv_heads=32, hidden=11008, **OLMO2),
            ),
            published(
                "32b",
                "allenai/OLMo-2-0325-32B",
                "Apache-2.0",
                **sized(layers=64, dim=5120, heads=40, kv_heads=8, hidden=27648, **OLMO2),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("OLMo Team, 2024, arXiv:2501.00656",),
        published="2025-01",
    )
    yield Architecture(
        name="olmo3",
        base="olmo2",
        summary="OLMo 2 with a window in three of four layers, and scaled positions in the others alone",
        model_types=("olmo3",),
        recipe=olmo3,
        weights=WEIGHTS,
        gguf=GGUF("olmo2", GGUF_WEIGHTS, when="attention.sliding_window"),
        presets=(
            published(
                "7b",
                "allenai/Olmo-3-1025-7B",
                "Apache-2.0",
                **sized(layers=32, dim=4096, heads=32, kv_heads=32, hidden=11008, **OLMO3),
            ),
            published(
                "32b",
                "allenai/Olmo-3-1125-32B",
                "Apache-2.0",
                **sized(layers=64, dim=5120, heads=40, kv_heads=8, hidden=27648, **OLMO3),
            ),
            Preset("pocket", config=POCKET | dict(sliding_window=16)),
            Preset("tiny", config=TINY | dict(num_hidden_layers=4, sliding_window=6)),
        ),
        references=("OLMo Team, 2025, arXiv:2512.13961",),
        published="2025-12",
    )
    yield Architecture(
        name="olmoe",
        base="llama",
        summary="LLaMA with sixty-four small experts in every layer, and norms over all queries and all keys",
        model_types=("olmoe",),
        recipe=olmoe,
        weights=QWEN_WEIGHTS,
        mlx_weights=QWEN_MLX_WEIGHTS,
        gguf=GGUF("olmoe", (*MOE, *DECODER)),
        presets=(
            published(
                "1b-7b",
                "allenai/OLMoE-1B-7B-0924",
                "Apache-2.0",
                **sized(layers=16, dim=2048, heads=16, kv_heads=16, hidden=1024),
                vocab_size=50304,
                max_position_embeddings=4096,
                rms_norm_eps=1e-5,
                num_experts=64,
                num_experts_per_tok=8,
            ),
            Preset(
                "pocket", config=POCKET | dict(num_experts=16, num_experts_per_tok=4, intermediate_size=96)
            ),
            Preset("tiny", config=TINY | dict(num_experts=6, num_experts_per_tok=2, intermediate_size=32)),
        ),
        references=("Muennighoff et al., 2024, arXiv:2409.02060",),
        published="2024-09",
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_olmo.block:OutputNormLayer", "zoo.inspect.tracing.block_probes:ResidualProbe")
