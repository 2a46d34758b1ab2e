"""What the config.json of each family says: its size is the published one, no key is unknown, what cannot be is refused."""

import pytest

from zoo.checkpoint.open import make_recipe
from zoo.errors import ConfigError, RecipeError
from zoo.host.registry import default_registry


def recipe(name, **changes):
    """The recipe of an architecture's first published size, or of a preset of it ("llama:tiny"), some numbers changed."""
    architecture, _, preset = name.partition(":")
    known = default_registry()
    found = known.architecture(architecture)
    numbers = (found.preset(preset) if preset else found.full_size).config
    return make_recipe(found, {**numbers, **changes}, known)


# Parameters in all, and of those that a token uses.
SIZES = [
    ("bert:base", 109_514_298, None),
    ("bert:minilm", 22_565_376, None),
    ("gemma2:2b", 2_614_341_888, None),
    ("gpt-oss", 20_914_757_184, pytest.approx(3.6e9, abs=5e7)),
    ("llada:8b", 8_015_581_184, None),
    ("mamba:130m", 129_135_360, None),
    ("mixtral", 46_702_792_704, 12_748_853_248),
    ("qwen2-moe", 14_315_784_192, 2_378_008_576),
    ("qwen3-moe", 30_532_122_624, 3_041_867_776),
    ("deepseek-v3", pytest.approx(671e9, rel=0.01), None),
    ("deepseek-v3:moonlight-16b", pytest.approx(16e9, rel=0.01), None),
]


@pytest.mark.parametrize(("name", "parameters", "active"), SIZES)
def test_published_sizes_have_as_many_parameters_as_published(name, parameters, active):
    made = recipe(name)
    assert made.parameters(made.dim) == parameters
    assert active is None or made.active_parameters(made.dim) == active


REFUSED = [
    ("olmo3", dict(sliding_window=None), "sliding_window None must be a number"),
    ("olmo3", dict(layer_types=["full_attention"]), "layer_types"),
    ("gemma3", dict(attn_logit_softcapping=50.0), "attn_logit_softcapping 50.0 is not implemented"),
    ("gemma3", dict(sliding_window_pattern=0), "sliding_window_pattern 0 must lie in"),
    ("glm4", dict(partial_rotary_factor=1.5), "partial_rotary_factor 1.5 must lie in"),
    ("glm4-moe", dict(scoring_func="softmax"), "scoring_func 'softmax' is not implemented"),
    ("glm4-moe", dict(num_experts_per_tok=200), "num_experts_per_tok 200 is more than the 160 experts"),
    ("minimax-m2", dict(qk_norm_type="per_head"), "qk_norm_type 'per_head' is not implemented"),
    ("minimax-m2", dict(use_routing_bias=False), "use_routing_bias False is not implemented"),
    ("minimax-m2", dict(shared_intermediate_size=64), "shared_intermediate_size 64 is not implemented"),
    ("minimax-m2", dict(num_experts_per_tok=300), "num_experts_per_tok 300 is more than the 256 experts"),
    ("granite", dict(logits_scaling=0.0), "logits_scaling 0.0 must lie in"),
    ("smollm3", dict(no_rope_layers=[1]), "no_rope_layers [1] must be a list of 36, each 0 or 1"),
    ("cohere", dict(use_qk_norm=True), "use_qk_norm True is not implemented"),
    ("hunyuan-dense", dict(rope_scaling=dict(type="dynamic", factor=2.0)), "rope_scaling.alpha"),
    ("hunyuan-dense", dict(use_qk_norm=False), "use_qk_norm False is not implemented"),
    ("starcoder2", dict(use_bias="yes"), "use_bias 'yes' expected true or false"),
    ("mixtral", dict(num_experts_per_tok=9), "num_experts_per_tok 9 is more than the 8 experts"),
    ("mixtral", dict(num_local_experts=0), "num_local_experts 0 must lie in 1"),
    ("mixtral", dict(sliding_window="all"), "sliding_window 'all' expected a whole number"),
    ("qwen2-moe", dict(mlp_only_layers=3), "mlp_only_layers 3 must be a list"),
    ("qwen2-moe", dict(layer_types=["sliding_attention"] * 24), "layer_types"),
    ("qwen3-moe", dict(decoder_sparse_step=0), "decoder_sparse_step 0 must lie in 1"),
    ("qwen3-moe", dict(norm_topk_prob="yes"), "norm_topk_prob 'yes' expected true or false"),
    ("qwen3-moe", dict(hidden_act="swiglu"), "hidden_act 'swiglu'"),
    ("bert:base", dict(is_decoder=True), "is_decoder True is not implemented"),
    ("bert:base", dict(add_cross_attention=True), "add_cross_attention True is not implemented"),
    (
        "bert:base",
        dict(position_embedding_type="relative_key"),
        "position_embedding_type 'relative_key' is not implemented",
    ),
    ("bert:base", dict(hidden_act="mish"), "hidden_act 'mish' is not an activation"),
    ("bert:base", dict(num_attention_heads=7), "num_attention_heads 7 does not divide hidden_size, 768"),
    ("bert:base", dict(type_vocab_size=0), "type_vocab_size 0 must lie in"),
    (
        "deepseek-v3:pocket",
        dict(num_key_value_heads=2),
        "num_key_value_heads 2 must equal num_attention_heads, 4",
    ),
    ("deepseek-v3:pocket", dict(scoring_func="softmax"), "scoring_func 'softmax' is not implemented"),
    ("deepseek-v3:pocket", dict(topk_method="greedy"), "topk_method 'greedy' is not implemented"),
    ("deepseek-v3:pocket", dict(n_group=3), "n_group 3 must divide n_routed_experts, 16"),
    ("deepseek-v3:pocket", dict(n_group=16, topk_group=8), "n_group 16 must divide"),
    ("deepseek-v3:pocket", dict(topk_group=5), "topk_group 5 is more than n_group, 4"),
    ("deepseek-v3:pocket", dict(num_experts_per_tok=9), "num_experts_per_tok 9 is more than the 8 experts"),
    ("deepseek-v3:pocket", dict(qk_rope_head_dim=7), "qk_rope_head_dim 7 must be even"),
    ("deepseek-v3:pocket", dict(partial_rotary_factor=0.5), "partial_rotary_factor 0.5 is not implemented"),
    ("deepseek-v3:pocket", dict(kv_lora_rank=0), "kv_lora_rank 0 must lie in"),
    ("deepseek-v3:pocket", dict(n_routed_experts=True), "n_routed_experts True expected a whole number"),
    ("falcon-h1:tiny", dict(ssm_multipliers=[1.0, 2.0]), "ssm_multipliers .* must be 5 numbers"),
    ("falcon-h1:tiny", dict(mlp_multipliers="many"), "mlp_multipliers 'many' expected a list of numbers"),
    ("falcon-h1:tiny", dict(mamba_n_heads=7), "mamba_n_heads 7 times mamba_d_head must be the width, 48"),
    ("falcon-h1:tiny", dict(mamba_use_mlp=False), "mamba_use_mlp False is not implemented"),
    ("falcon-h1:tiny", dict(time_step_limit=[5.0, 0.1]), "time_step_limit .* must be two numbers"),
    (
        "gemma2:2b",
        dict(use_bidirectional_attention=True),
        "use_bidirectional_attention True is not implemented",
    ),
    ("gemma2:2b", dict(attn_logit_softcapping=-1.0), "attn_logit_softcapping -1.0 must be positive"),
    ("gemma2:2b", dict(final_logit_softcapping="30"), "final_logit_softcapping '30' expected a number"),
    ("gemma2:2b", dict(query_pre_attn_scalar=0), "query_pre_attn_scalar 0 must be positive"),
    ("gemma2:2b", dict(layer_types=["sliding_attention"]), "layer_types"),
    ("gemma2:2b", dict(layer_types=["chunked_attention"] * 26), "layer_types"),
    ("gemma2:2b", dict(sliding_window=None), "sliding_window None must be a number"),
    ("gemma2:2b", dict(hidden_activation="gelu_10"), "hidden_activation 'gelu_10'"),
    ("gemma2:2b", dict(num_key_value_heads=3), "num_key_value_heads 3 does not divide"),
    ("gpt-oss", dict(hidden_act="gelu"), "hidden_act 'gelu' is not implemented"),
    ("gpt-oss", dict(swiglu_limit=0), "swiglu_limit 0 must be positive"),
    ("gpt-oss", dict(num_experts_per_tok=33), "num_experts_per_tok 33 is more than the 32 experts"),
    ("gpt-oss", dict(layer_types=["chunked_attention"] * 24), "layer_types"),
    (
        "granite-hybrid:tiny",
        dict(position_embedding_type="alibi"),
        "position_embedding_type 'alibi' is not implemented",
    ),
    (
        "granite-hybrid:tiny",
        dict(layer_types=["mamba", "rnn", "mamba"]),
        "layer_types .* must be a list of 3",
    ),
    (
        "granite-hybrid:tiny",
        dict(mamba_n_heads=7),
        "mamba_n_heads 7 times mamba_d_head must be the width, 128",
    ),
    ("granite-hybrid:tiny", dict(logits_scaling=0.0), "logits_scaling 0.0 must lie in"),
    ("granite-hybrid:tiny", dict(num_experts_per_tok=5), "num_experts_per_tok 5 is more than the 4 experts"),
    ("jamba:tiny", dict(attn_layer_offset=3), "attn_layer_offset 3 is not below attn_layer_period, 3"),
    ("jamba:tiny", dict(expert_layer_offset=2), "expert_layer_offset 2 is not below expert_layer_period, 2"),
    ("jamba:tiny", dict(mamba_dt_rank="half"), "mamba_dt_rank 'half'"),
    ("jamba:tiny", dict(layers_block_type=["mamba"]), "layers_block_type .* must be a list of 3"),
    ("lfm2:tiny", dict(layer_types=["conv", "mamba", "conv"]), "layer_types .* must be a list of 3"),
    (
        "lfm2:tiny",
        dict(layer_types=None, full_attn_idxs="all"),
        "full_attn_idxs 'all' must be a list of layer numbers",
    ),
    ("lfm2:tiny", dict(conv_L_cache=0), "conv_L_cache 0"),
    ("lfm2:tiny", dict(block_use_swiglu=False), "block_use_swiglu False is not implemented"),
    ("llada:8b", dict(block_type="sequential"), "block_type 'sequential' is not implemented"),
    ("llada:8b", dict(layer_norm_type="default"), "layer_norm_type 'default' is not implemented"),
    ("llada:8b", dict(activation_type="swiglu"), "activation_type 'swiglu' is not an activation"),
    ("llada:8b", dict(rope=False), "rope False is not implemented"),
    ("llada:8b", dict(alibi=True), "alibi True is not implemented"),
    ("llada:8b", dict(attention_layer_norm=True), "attention_layer_norm True is not implemented"),
    ("llada:8b", dict(scale_logits=True), "scale_logits True is not implemented"),
    ("llada:8b", dict(multi_query_attention=True), "multi_query_attention True is not implemented"),
    ("llada:8b", dict(layer_norm_with_affine=False), "layer_norm_with_affine False is not implemented"),
    ("llada:8b", dict(block_group_size=4), "block_group_size 4 is not implemented"),
    ("llada:8b", dict(include_bias=True), "include_bias True gives the norms a bias"),
    ("llada:8b", dict(bias_for_layer_norm=True), "bias_for_layer_norm True gives the norms a bias"),
    ("llada:8b", dict(embedding_size=126000), "embedding_size 126000 is smaller than vocab_size"),
    ("llada:8b", dict(n_kv_heads=5), "n_kv_heads 5 does not divide n_heads, 32"),
    ("mamba:pocket", dict(use_bcdt_rms=True), "use_bcdt_rms True is not implemented"),
    ("mamba:pocket", dict(rms_norm=False), "rms_norm False is not implemented"),
    ("mamba:pocket", dict(ssm_cfg=dict(layer="Mamba2")), "ssm_cfg"),
    ("mamba:pocket", dict(time_step_rank="half"), "time_step_rank 'half'"),
    ("mamba:pocket", dict(state_size=0), "state_size 0"),
    ("mamba:pocket", dict(expand=0), "expand 0"),
    ("mamba:pocket", dict(hidden_act="softmax"), "hidden_act 'softmax'"),
    ("mamba2:tiny", dict(time_step_limit=[5.0, 0.1]), "time_step_limit .* must be two numbers"),
    ("mamba2:tiny", dict(num_heads=0), "num_heads 0"),
    ("mamba2:tiny", dict(hidden_act="mish"), "hidden_act 'mish'"),
    ("mamba2:tiny", dict(rms_norm=False), "rms_norm False is not implemented"),
    ("modernbert:base", dict(hidden_activation="mish"), "hidden_activation 'mish' is not an activation"),
    ("modernbert:base", dict(layer_types=["full_attention"]), "layer_types .* must be a list of 22"),
    (
        "modernbert:base",
        dict(num_attention_heads=7),
        "num_attention_heads 7 does not divide hidden_size, 768",
    ),
    ("modernbert:base", dict(global_rope_theta=0.5), "global_rope_theta 0.5 must be greater than 1"),
    (
        "nemotron-h:tiny",
        dict(hybrid_override_pattern="M-E"),
        "hybrid_override_pattern 'M-E' is not a pattern",
    ),
    ("nemotron-h:tiny", dict(hybrid_override_pattern=None), "hybrid_override_pattern None is not a pattern"),
    (
        "nemotron-h:tiny",
        dict(layers_block_type=["linear_attention", "moe"]),
        "layers_block_type .* is not a pattern",
    ),
    ("nemotron-h:tiny", dict(sliding_window=128), "sliding_window 128 is not implemented"),
    ("nemotron-h:tiny", dict(attention_bias=True), "attention_bias True is not implemented"),
    ("nemotron-h:tiny", dict(time_step_limit=[0.001, 0.1]), "time_step_limit .* is not implemented"),
    ("qwen3-next:tiny", dict(layer_types=["full_attention"]), "layer_types .* must be a list of 4"),
    ("qwen3-next:tiny", dict(linear_num_key_heads=3), "key_heads: 3 does not divide heads, 4"),
    ("qwen3-next:tiny", dict(num_experts_per_tok=7), "num_experts_per_tok 7 is more than the 6 experts"),
    ("qwen3-next:tiny", dict(linear_conv_kernel_dim=0), "linear_conv_kernel_dim 0"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(name, changes, message):
    with pytest.raises((ConfigError, RecipeError)) as caught:
        recipe(name, **changes)
    assert all(part in str(caught.value) for part in message.split(" .* "))
    assert caught.type is RecipeError or str(caught.value).startswith("config.json: ")


# Keys of released configs beside those of a preset.
RELEASED = {
    "olmo3": dict(model_type="olmo3", attention_dropout=0.0, hidden_act="silu"),
    "gemma3": dict(
        model_type="gemma3_text",
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        cache_implementation="hybrid",
        hidden_activation="gelu_pytorch_tanh",
        rope_scaling=None,
        use_bidirectional_attention=False,
    ),
    "glm4-moe": dict(model_type="glm4_moe", num_nextn_predict_layers=1, n_group=1, topk_group=1),
    "minimax-m2": dict(
        model_type="minimax_m2",
        attn_type_list=[1] * 62,
        layernorm_full_attention_beta=1.0,
        layernorm_linear_attention_beta=1.0,
        layernorm_mlp_beta=1.0,
        mlp_intermediate_size=8192,
        mtp_transformer_layers=1,
        num_mtp_modules=3,
        output_router_logits=False,
        qk_norm_type="per_layer",
        router_aux_loss_coef=0.001,
        router_jitter_noise=0.0,
        scoring_func="sigmoid",
        shared_intermediate_size=0,
        shared_moe_mode="sigmoid",
        sliding_window=None,
        use_mtp=True,
        use_qk_norm=True,
        use_routing_bias=True,
    ),
    "smollm3": dict(
        model_type="smollm3", use_sliding_window=False, sliding_window=None, max_window_layers=28
    ),
    "cohere2": dict(
        model_type="cohere2", cache_implementation="hybrid", use_parallel_block=True, sliding_window_pattern=4
    ),
    "starcoder2": dict(
        model_type="starcoder2", residual_dropout=0.0, mlp_type="default", norm_type="layer_norm"
    ),
    "seed-oss": dict(model_type="seed_oss", residual_dropout=0.1, attention_out_bias=False, pretraining_tp=1),
    "bert:minilm": dict(position_embedding_type="absolute", type_vocab_size=2, chunk_size_feed_forward=0),
    "deepseek-v3": dict(
        **dict(
            model_type="deepseek_v3", aux_loss_alpha=0.001, ep_size=1, hidden_act="silu", moe_layer_freq=1
        ),
        **dict(norm_topk_prob=True, num_nextn_predict_layers=1, rope_theta=10000, scoring_func="sigmoid"),
        **dict(seq_aux=True, topk_method="noaux_tc", attention_bias=False),
    ),
    "falcon-h1:0.5b": dict(mamba_expand=2, mamba_use_mlp=True, num_logits_to_keep=1, mlp_expansion_factor=8),
    "gemma2:2b": dict(
        **dict(model_type="gemma2", hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh"),
        **dict(cache_implementation="hybrid", sliding_window_size=4096, rope_theta=10000.0),
        **dict(attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
        **dict(attention_bias=False, attention_dropout=0.0),
    ),
    "gpt-oss": dict(
        **dict(experts_per_token=4, initial_context_length=4096, hidden_act="silu"),
        **dict(layer_types=["sliding_attention", "full_attention"] * 12, output_router_logits=False),
        router_aux_loss_coef=0.9,
        quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"]),
    ),
    "granite-hybrid:tiny": dict(
        **dict(attention_bias=False, attention_dropout=0.0, hidden_act="silu", init_method="mup"),
        **dict(logits_to_keep=1, mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=32, mamba_expand=2),
        **dict(mamba_proj_bias=False, normalization_function="rmsnorm", position_embedding_type="nope"),
        **dict(output_router_logits=False, rope_scaling=None, rope_theta=10000, router_aux_loss_coef=0.0),
        **dict(router_jitter_noise=0.0, layers_block_type=["mamba", "attention", "mamba"]),
    ),
    "jamba": dict(
        **dict(attention_dropout=0.0, hidden_act="silu", mamba_conv_bias=True, mamba_proj_bias=False),
        **dict(num_logits_to_keep=1, output_router_logits=False, rms_norm_eps=1e-06),
        **dict(router_aux_loss_coef=0.001, tie_word_embeddings=False, use_mamba_kernels=True),
    ),
    "lfm2:tiny": dict(
        **dict(block_dim=64, block_ff_dim=96, block_ffn_dim_multiplier=1.0, block_mlp_init_scale=1.0),
        **dict(block_multiple_of=256, block_norm_eps=1e-05, block_out_init_scale=1.0, block_use_swiglu=True),
        **dict(block_use_xavier_init=True, conv_L_cache=3, conv_bias=False, conv_dim=64, conv_dim_out=64),
        **dict(conv_use_xavier_init=True, norm_eps=1e-05, num_heads=4, rope_theta=1e6, theta=1e6),
        **dict(use_pos_enc=True, full_attn_idxs=[1], tie_embedding=True),
    ),
    "mamba:pocket": dict(time_step_min=0.001, fused_add_norm=True, ssm_cfg={}, rms_norm=True, n_layer=4),
    "mixtral": dict(router_aux_loss_coef=0.02, output_router_logits=False, sliding_window=None),
    "modernbert:base": dict(
        **dict(attention_bias=False, attention_dropout=0.0, classifier_activation="gelu"),
        **dict(classifier_bias=False, classifier_dropout=0.0, classifier_pooling="mean", decoder_bias=True),
        **dict(norm_bias=False, deterministic_flash_attn=False, embedding_dropout=0.0),
        **dict(global_attn_every_n_layers=3, global_rope_theta=160000.0, hidden_activation="gelu"),
        **dict(initializer_cutoff_factor=2.0, layer_norm_eps=1e-05, local_attention=128),
        **dict(local_rope_theta=10000.0, mlp_bias=False, mlp_dropout=0.0, norm_eps=1e-05),
        **dict(position_embedding_type="absolute", repad_logits_with_grad=False),
        **dict(max_position_embeddings=8192, sparse_pred_ignore_index=-100, sparse_prediction=False),
        **dict(reference_compile=None, tie_word_embeddings=True),
    ),
    "nemotron-h:nano-9b-v2": dict(
        **dict(attention_bias=False, attention_dropout=0.0, chunk_size=128, expand=2, hidden_dropout=0.0),
        **dict(mamba_hidden_act="silu", mamba_proj_bias=False, mlp_bias=False, mlp_hidden_act="relu2"),
        **dict(num_hidden_layers=56, num_logits_to_keep=1, rescale_prenorm_residual=True),
        **dict(sliding_window=None, residual_in_fp32=False, tie_word_embeddings=False, time_step_max=0.1),
        **dict(time_step_floor=0.0001, time_step_limit=[0.0, float("inf")], time_step_min=0.001),
        **dict(use_bias=False, use_conv_bias=True, use_mamba_kernels=True, mamba_ssm_cache_dtype="float32"),
    ),
    "qwen2-moe": dict(
        max_window_layers=21, use_sliding_window=False, sliding_window=32768, decoder_sparse_step=1
    ),
    "qwen2-moe:a2.7b": dict(sliding_window=0, qkv_bias=True, layer_types=["full_attention"] * 24),
    "qwen3-moe": dict(
        max_window_layers=48, use_sliding_window=False, sliding_window=None, mlp_only_layers=[]
    ),
    "qwen3-next:tiny": dict(
        **dict(attention_bias=False, attention_dropout=0.0, decoder_sparse_step=1, hidden_act="silu"),
        **dict(linear_conv_kernel_dim=4, mlp_only_layers=[], norm_topk_prob=True),
        **dict(output_router_logits=False, partial_rotary_factor=0.25, rope_scaling=None, rope_theta=1e7),
        **dict(router_aux_loss_coef=0.001, use_sliding_window=False),
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", RELEASED)
def test_the_keys_of_released_configs_are_all_known(name):
    recipe(name, **RELEASED[name])


@pytest.mark.parametrize(("name", "layers", "window"), [("gemma2", 26, 4096), ("gpt-oss", 24, 128)])
def test_windows_alternate_from_the_first_layer_on_or_as_layer_types_say(name, layers, window):
    types = ["full_attention"] * (layers - 1) + ["sliding_attention"]
    for changes, windows in (
        ({}, [window, None] * (layers // 2)),
        ({"layer_types": types}, [None] * (layers - 1) + [window]),
    ):
        assert [layer.mixer.window for layer in recipe(name, **changes).layers] == windows
