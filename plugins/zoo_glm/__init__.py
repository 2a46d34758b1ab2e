"""GLM-4, GLM-4.5 and GLM-4.7-Flash, as differences from LLaMA with parts of Gemma 2 and DeepSeek-V3. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, Rename, Split, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import RMSNorm
from zoo_deepseek import POCKET as DEEPSEEK_POCKET
from zoo_deepseek import TINY as DEEPSEEK_TINY
from zoo_deepseek import decoder, dense_first, moe, prediction
from zoo_deepseek.rules import (
    EXPERTS,
    GGUF_MIXTURE,
    MIXTURE,
    MIXTURE_KEYS,
    MLX_EXPERTS,
    IgnorePredictionLayers,
    mixture_of_gguf,
)
from zoo_deepseek.rules import MLX_WEIGHTS as DEEPSEEK_MLX_WEIGHTS
from zoo_deepseek.rules import WEIGHTS as DEEPSEEK_WEIGHTS
from zoo_gemma import SandwichLayer
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


def glm4(config):
    """LLaMA with sandwich norms, half of each head turned, and query, key and value biases (GLM Team, 2025)."""
    config = config.with_defaults(
        partial_rotary_factor=0.5,
        head_dim=128,
        num_key_value_heads=2,
        attention_bias=True,
        rms_norm_eps=1.5625e-7,
        max_position_embeddings=131072,
    )
    recipe = llama(config)

    def sandwich(layer):
        norm, rope = layer.mixer_norm, layer.mixer.rope.change(interleaved=True)
        return SandwichLayer(
            mixer_norm=norm,
            mixer=layer.mixer.change(output_bias=False, rope=rope),
            mixer_output_norm=norm,
            feedforward_norm=norm,
            feedforward=layer.feedforward,
            feedforward_output_norm=norm,
        )

    return recipe.change(layers=tuple(map(sandwich, recipe.layers)))


def glm4_moe(config):
    """LLaMA with DeepSeek-V3's mixture of experts and half of each head turned (GLM Team, 2025)."""
    # Of layers that are not run, and of training.
    config.ignore(
        "num_nextn_predict_layers", "num_mtp_layers", "output_router_logits", "router_aux_loss_coef"
    )
    config = config.with_defaults(
        partial_rotary_factor=0.5,
        num_key_value_heads=8,
        rms_norm_eps=1e-5,
        max_position_embeddings=131072,
        n_routed_experts=128,
        moe_intermediate_size=1408,
        routed_scaling_factor=1.0,
        n_group=1,
        topk_group=1,
    )
    norm = RMSNorm(eps=config.number("rms_norm_eps")) if config.flag("use_qk_norm", False) else None
    sparse = moe(config, config.activation("hidden_act", "silu"))
    first = config.count("first_k_dense_replace", 1, least=0)
    return llama(config).change_layers(
        lambda index, layer: dict(
            mixer=dict(output_bias=False, query_norm=norm, key_norm=norm),
            feedforward=sparse if index >= first else layer.feedforward,
        )
    )


def glm4_moe_lite(config):
    """DeepSeek-V3 in the sizes of GLM-4.7-Flash, without groups of experts (Z.ai, 2026)."""
    config = config.with_defaults(
        kv_lora_rank=512,
        q_lora_rank=768,
        qk_nope_head_dim=192,
        v_head_dim=256,
        rms_norm_eps=1e-5,
        max_position_embeddings=202752,
        n_routed_experts=64,
        moe_intermediate_size=1536,
        num_experts_per_tok=4,
        routed_scaling_factor=1.8,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
    )
    config = dense_first(config)
    return decoder(config, moe(config, config.activation("hidden_act", "silu")))


LAYER, GATED = "[model.]layers.{i}.", ("layers.{i}.feedforward.gate.*", "layers.{i}.feedforward.up.*")
WEIGHTS = (
    Rename(LAYER + "post_self_attn_layernorm.*", "layers.{i}.mixer_output_norm.*"),
    Rename(LAYER + "post_mlp_layernorm.*", "layers.{i}.feedforward_output_norm.*"),
    Split(LAYER + "mlp.gate_up_proj.*", GATED),
    *LLAMA_WEIGHTS,
)
GLM4_GGUF = (
    Rename("blk.{i}.post_attention_norm.*", "layers.{i}.mixer_output_norm.*"),
    Rename("blk.{i}.post_ffw_norm.*", "layers.{i}.feedforward_output_norm.*"),
    Split("blk.{i}.ffn_up.*", GATED),
    *DECODER,
)
MOE_WEIGHTS = (IgnorePredictionLayers(LAYER), *MIXTURE, *EXPERTS, *LLAMA_WEIGHTS)
MOE_MLX_WEIGHTS = (*MIXTURE, MLX_EXPERTS, *LLAMA_WEIGHTS)
MOE_GGUF = (
    IgnorePredictionLayers("blk.{i}.", mark="nextn.eh_proj.weight"),
    Rename("blk.{i}.post_attention_norm.*", "layers.{i}.feedforward_norm.*"),
    *GGUF_MIXTURE,
    *DECODER,
)


def biases(config, tensors):
    """Whether queries, keys and values have biases: only the tensors show it."""
    return dict(attention_bias="blk.0.attn_q.bias" in tensors)


def moe_of_gguf(config, tensors):
    """The config.json of a file's metadata: its layers without those that predict further tokens."""
    layers = config["num_hidden_layers"] - config.get("num_nextn_predict_layers", 0)
    seen = biases(config, tensors) | dict(use_qk_norm="blk.0.attn_q_norm.weight" in tensors)
    return mixture_of_gguf(config) | seen | dict(num_hidden_layers=layers)


FLASH = dict(
    **sized(layers=47, dim=2048, heads=20, kv_heads=20, hidden=10240, rms_norm_eps=1e-5),
    moe_intermediate_size=1536,
    first_k_dense_replace=1,
    kv_lora_rank=512,
    q_lora_rank=768,
    qk_nope_head_dim=192,
    qk_rope_head_dim=64,
    v_head_dim=256,
    n_routed_experts=64,
    n_shared_experts=1,
    num_experts_per_tok=4,
    n_group=1,
    topk_group=1,
    routed_scaling_factor=1.8,
    vocab_size=154880,
    max_position_embeddings=202752,
    rope_theta=1000000.0,
)
GLM4 = dict(vocab_size=151552, head_dim=128, rms_norm_eps=1e-5, rope_theta=10000.0)
GLM4 |= dict(max_position_embeddings=32768, partial_rotary_factor=0.5)
GLM45 = GLM4 | dict(rope_theta=1000000.0, max_position_embeddings=131072, attention_bias=True)
GLM45 |= dict(num_experts_per_tok=8, n_shared_experts=1, norm_topk_prob=True)
# Under 3 million parameters, 1.2 million of them active for a token.
EXPERTS_OF_POCKET = dict(
    n_routed_experts=16, num_experts_per_tok=4, moe_intermediate_size=96, use_qk_norm=True
)
SMALL_EXPERTS = dict(n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)


@hookimpl
def zoo_architectures():
    """GLM-4, GLM-4.5 and GLM-4.7-Flash."""
    yield Architecture(
        name="glm4",
        base="llama",
        summary="LLaMA with sandwich norms, rotary positions on half of each head, query, key and value biases",
        model_types=("glm4",),
        recipe=glm4,
        weights=WEIGHTS,
        gguf=GGUF("glm4", GLM4_GGUF, config=biases),
        presets=(
            published(
                "9b",
                "zai-org/GLM-4-9B-0414",
                "MIT",
                **sized(layers=40, dim=4096, heads=32, kv_heads=2, hidden=13696, **GLM4),
                attention_bias=True,
            ),
            published(
                "32b",
                "zai-org/GLM-4-32B-0414",
                "MIT",
                **sized(layers=61, dim=6144, heads=48, kv_heads=2, hidden=23040, **GLM4),
                attention_bias=False,
            ),
            Preset("pocket", config=POCKET | dict(head_dim=32)),
            Preset("tiny", config=TINY | dict(head_dim=16)),
        ),
        references=('GLM Team, 2025, "GLM-4-0414"', "GLM Team, 2024, arXiv:2406.12793"),
        published="2025-04",
    )
    yield Architecture(
        name="glm4-moe",
        base="llama",
        summary="LLaMA with many small experts and a shared one after dense layers, rotary positions on half of each head",
        model_types=("glm4_moe",),
        recipe=glm4_moe,
        weights=MOE_WEIGHTS,
        mlx_weights=MOE_MLX_WEIGHTS,
        gguf=GGUF("glm4moe", MOE_GGUF, keys=MIXTURE_KEYS, config=moe_of_gguf),
        presets=(
            published(
                "355b-a32b",
                "zai-org/GLM-4.5",
                "MIT",
                **sized(layers=92, dim=5120, heads=96, kv_heads=8, hidden=12288, **GLM45),
                moe_intermediate_size=1536,
                n_routed_experts=160,
                first_k_dense_replace=3,
                routed_scaling_factor=2.5,
                use_qk_norm=True,
                aliases=("glm-4.5",),
            ),
            published(
                "106b-a12b",
                "zai-org/GLM-4.5-Air",
                "MIT",
                **sized(layers=46, dim=4096, heads=96, kv_heads=8, hidden=10944, **GLM45),
                moe_intermediate_size=1408,
                n_routed_experts=128,
                first_k_dense_replace=1,
                routed_scaling_factor=1.0,
                use_qk_norm=False,
                aliases=("glm-4.5-air",),
            ),
            Preset("pocket", config=POCKET | EXPERTS_OF_POCKET),
            Preset("tiny", config=TINY | SMALL_EXPERTS | dict(use_qk_norm=True, attention_bias=True)),
        ),
        references=("GLM Team, 2025, arXiv:2508.06471",),
        published="2025-08",
        prediction=prediction("glm4-moe", glm4_moe, MOE_WEIGHTS),
    )
    yield Architecture(
        name="glm4-moe-lite",
        base="deepseek-v3",
        summary="DeepSeek-V3 of 47 layers with 64 experts in no groups, and wider values",
        model_types=("glm4_moe_lite",),
        recipe=glm4_moe_lite,
        weights=DEEPSEEK_WEIGHTS,
        mlx_weights=DEEPSEEK_MLX_WEIGHTS,
        presets=(
            published("30b-a3b", "zai-org/GLM-4.7-Flash", "MIT", aliases=("glm-4.7-flash",), **FLASH),
            Preset("pocket", config=DEEPSEEK_POCKET | dict(n_group=1, topk_group=1)),
            Preset("tiny", config=DEEPSEEK_TINY | dict(n_group=1, topk_group=1)),
        ),
        references=('Z.ai, 2026, "GLM-4.7-Flash"', "GLM Team, 2025, arXiv:2508.06471"),
        published="2026-01",
        prediction=prediction("glm4-moe-lite", glm4_moe_lite, DEEPSEEK_WEIGHTS),
    )
