"""DeepSeek-V3.2 and GLM-5: DeepSeek-V3 with an indexer in each layer, which chooses the tokens to attend to. Imports no mlx."""

from zoo.architecture import Architecture, Block, ModuleProbe, Preset, Rename, hookimpl
from zoo.recipe import LayerNorm
from zoo_deepseek import POCKET as V3_POCKET
from zoo_deepseek import TINY as V3_TINY
from zoo_deepseek import V3, decoder, dense_first, moe, prediction
from zoo_deepseek.rules import LAYER
from zoo_deepseek.rules import MLX_WEIGHTS as V3_MLX_WEIGHTS
from zoo_deepseek.rules import WEIGHTS as V3_WEIGHTS
from zoo_deepseek.spec import Indexer
from zoo_llama import published, sized


def deepseek_v32(config):
    """DeepSeek-V3 whose tokens attend to the `index_topk` that an indexer chooses (DeepSeek-AI, 2025)."""
    config.refuse("mlp_bias")
    config.choices("layer_types", ("indexed_attention",), config.layers(), None)
    config = dense_first(config)
    if config.is_null("q_lora_rank"):
        raise config.error("q_lora_rank", "must be a number: the indexer reads the queries' latents")
    model = decoder(config, moe(config, config.activation("hidden_act", "silu")))
    attention = model.layers[0].mixer
    width = config.count("index_head_dim", 128)
    if attention.rope_dim > width:
        raise config.error("index_head_dim", f"is less than qk_rope_head_dim, {attention.rope_dim}")
    indexer = Indexer(
        heads=config.count("index_n_heads", 64),
        head_dim=width,
        top_k=config.count("index_topk", 2048),
        query_rank=attention.query_rank,
        key_norm=LayerNorm(eps=1e-6),
        rope=attention.rope.change(
            dims=attention.rope_dim, interleaved=config.flag("indexer_rope_interleave", False)
        ),
    )
    return model.change_layers(mixer=dict(indexer=indexer))


def glm_moe_dsa(config):
    """DeepSeek-V3.2 in other sizes, without groups of experts (Z.ai, 2026)."""
    # In some configs only every few layers have an indexer, and those between use its choice.
    why = "is not implemented: every layer has an indexer of its own"
    config.choices("indexer_types", ("full",), config.layers(), None)
    if config.get("index_topk_freq", 1) not in (0, 1):
        raise config.error("index_topk_freq", why)
    pattern = config.get("index_topk_pattern")
    if pattern is not None and set(pattern) - {"F", "full"}:
        raise config.error("index_topk_pattern", why)
    config.ignore("index_skip_topk_offset")
    return deepseek_v32(config.with_defaults(**DEFAULTS))


DEFAULTS = dict(
    kv_lora_rank=512,
    q_lora_rank=2048,
    qk_nope_head_dim=192,
    v_head_dim=256,
    rms_norm_eps=1e-5,
    max_position_embeddings=202752,
    n_group=1,
    topk_group=1,
    index_n_heads=32,
    indexer_rope_interleave=True,
)
INDEXER = "layers.{i}.mixer.indexer."
INDEXER_WEIGHTS = tuple(
    Rename(LAYER + f"self_attn.indexer.{theirs}.*", INDEXER + f"{ours}.*")
    for theirs, ours in dict(wq_b="query", wk="key", k_norm="key_norm", weights_proj="weights").items()
)
WEIGHTS, MLX_WEIGHTS = (V3_WEIGHTS[0], *INDEXER_WEIGHTS, *V3_WEIGHTS[1:]), INDEXER_WEIGHTS + V3_MLX_WEIGHTS
V32 = V3 | dict(index_head_dim=128, index_n_heads=64, index_topk=2048)
GLM_5 = V32 | dict(
    **sized(layers=78, dim=6144, heads=64, kv_heads=64, hidden=12288, rms_norm_eps=1e-5),
    q_lora_rank=2048,
    qk_nope_head_dim=192,
    v_head_dim=256,
    n_group=1,
    topk_group=1,
    index_n_heads=32,
    max_position_embeddings=202752,
    vocab_size=154880,
    rope_theta=1000000.0,
    rope_scaling=None,
)
SMALL = dict(index_head_dim=32, index_n_heads=8, index_topk=48)


@hookimpl
def zoo_blocks():
    """The indexer, which is all that DeepSeek-V3 lacks."""
    yield Block(Indexer, "zoo_deepseek_v32.block:Indexer", "lightning indexer of sparse attention")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_deepseek_v32.block:Indexer", "zoo_deepseek_v32.probe:IndexerProbe")


@hookimpl
def zoo_architectures():
    """DeepSeek-V3.2 and GLM-5."""
    yield Architecture(
        name="deepseek-v3.2",
        base="deepseek-v3",
        summary="DeepSeek-V3 whose tokens attend to those that a small indexer chooses",
        model_types=("deepseek_v32",),
        recipe=deepseek_v32,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published("671b", "deepseek-ai/DeepSeek-V3.2", "MIT", aliases=("deepseek-v3.2",), **V32),
            Preset("pocket", config=V3_POCKET | SMALL),
            Preset("tiny", config=V3_TINY | SMALL | dict(index_topk=4)),
        ),
        references=('DeepSeek-AI, 2025, "DeepSeek-V3.2-Exp"', "DeepSeek-AI, 2025, arXiv:2512.02556"),
        published="2025-09",
        prediction=prediction("deepseek-v3.2", deepseek_v32, WEIGHTS),
    )
    yield Architecture(
        name="glm-moe-dsa",
        base="deepseek-v3.2",
        summary="DeepSeek-V3.2 of 78 layers with 256 experts in no groups, and wider values",
        model_types=("glm_moe_dsa",),
        mlx_type="glm_moe_dsa",
        recipe=glm_moe_dsa,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published("744b-a40b", "zai-org/GLM-5", "MIT", aliases=("glm-5",), **GLM_5),
            Preset("pocket", config=V3_POCKET | SMALL | dict(n_group=1, topk_group=1)),
            Preset("tiny", config=V3_TINY | SMALL | dict(n_group=1, topk_group=1, index_topk=4)),
        ),
        references=('Z.ai, 2026, "GLM-5"',),
        published="2026-02",
        prediction=prediction("glm-moe-dsa", glm_moe_dsa, WEIGHTS),
    )
