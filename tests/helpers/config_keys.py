"""Keys of config.json that change no logit of some families, with the reason, and values to try for any key.

A key that stands neither here nor in `zoo/harmless_config_keys.txt` has to change the recipe or be refused by its name.
"""

from collections.abc import Iterator

from zoo.config import Config, harmless_keys
from zoo.errors import ZooError
from zoo.host.registry import default_registry
from zoo.testing import numbers_of

REGISTRY = default_registry()

TRAINING = "it acts in training alone"
START = "how parameters start"
OUTPUT = "an output beside the logits"
KERNEL = "another way to the same numbers"
DERIVED = "it follows from other keys, with which transformers checks it or sets it"
UNUSED = "it has no effect by the other keys of the smallest config"
DRAFTS = "layers that draft, or are left out"

REASONS = {
    **dict.fromkeys(
        (
            *(
                "activation_dropout",
                "attention_dropout",
                "attention_probs_dropout_prob",
                "attn_pdrop",
                "dropout",
            ),
            *("classifier_dropout", "decoder_layerdrop", "encoder_layerdrop", "dropout_rate", "embd_pdrop"),
            *("embedding_dropout", "hidden_dropout_prob", "mlp_dropout", "resid_pdrop", "residual_dropout"),
            *("router_aux_loss_coef", "router_jitter_noise", "sparse_pred_ignore_index", "sparse_prediction"),
        ),
        TRAINING,
    ),
    **dict.fromkeys(
        (
            *("init_std", "initializer_cutoff_factor", "initializer_factor", "rescale_prenorm_residual"),
            *(
                "time_step_floor",
                "time_step_init_scheme",
                "time_step_max",
                "time_step_min",
                "time_step_scale",
            ),
        ),
        START,
    ),
    **dict.fromkeys(
        (
            *("classifier_pooling", "output_router_logits", "num_logits_to_keep"),
            *("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type"),
            "summary_use_proj",
        ),
        OUTPUT,
    ),
    **dict.fromkeys(
        (
            *("chunk_size", "mamba_chunk_size", "deterministic_flash_attn", "pretraining_tp"),
            *("reorder_and_upcast_attn", "use_associative_scan", "use_mamba_kernels", "use_mambapy"),
        ),
        KERNEL,
    ),
    **dict.fromkeys(
        (
            *("_sliding_window_pattern", "dense_act_fn", "is_gated_act", "eod_token_id", "qk_head_dim"),
            *("original_max_position_embeddings",),
        ),
        DERIVED,
    ),
    **dict.fromkeys(("num_mtp_layers", "num_nextn_predict_layers"), DRAFTS),
}
# Of single families, by "family.key".
OF_FAMILIES = {
    **dict.fromkeys(("deepseek-v3.head_dim", "deepseek-v2.head_dim", "mistral4.head_dim"), DERIVED),
    **dict.fromkeys(("deepseek-v3.2.head_dim", "glm-moe-dsa.head_dim", "kimi-linear.head_dim"), DERIVED),
    **dict.fromkeys(
        (f"{name}.first_k_dense_replace" for name in ("deepseek-v3.2", "glm-moe-dsa")),
        "mlp_layer_types stands before it",
    ),
    **dict.fromkeys((f"distilbert.{key}" for key in ("qa_dropout", "seq_classif_dropout")), UNUSED),
    "distilbert.sinusoidal_pos_embds": "the table is in the files either way",
    **dict.fromkeys((f"{name}.hidden_dropout" for name in ("bloom", "falcon", "gpt-neox")), UNUSED),
    "stablelm.hidden_dropout": TRAINING,
    "diffllama.lambda_std_dev": START,
    "bloom.slow_but_exact": KERNEL,
    "falcon.multi_query": "num_kv_heads stands before it in the newer models",
    "ernie4.5-moe.moe_layer_end_index": "the smallest config ends there",
    **dict.fromkeys(("dots1.max_window_layers", "dots1.sliding_window"), "layer_types stands before them"),
    "mamba2.expand": DERIVED,
    "mamba2.time_step_rank": "the first Mamba's, which transformers keeps and does not use",
    "mt5.tie_word_embeddings": "a head that is there is used, whatever the config says",
    "lfm2.block_ffn_dim_multiplier": UNUSED,
    "lfm2.block_multiple_of": UNUSED,
    "lfm2.full_attn_idxs": "layer_types stands before it",
    "falcon-h1.mamba_expand": "mamba_d_ssm stands before it",
    "falcon-h1.mamba_norm_before_gate": UNUSED,
    "granite-hybrid.rope_parameters": UNUSED,
    **dict.fromkeys(
        (f"gemma4.{key}" for key in ("moe_intermediate_size", "num_experts", "top_k_experts")), UNUSED
    ),
    "minimax.block_size": KERNEL,
    "gemma3n.altup_coef_clip": "of training alone",
    "gemma4.use_double_wide_mlp": "of layers that share keys and values, which the smallest config lacks",
    "gemma4.vocab_size_per_layer_input": "of inputs for each layer, which the smallest config lacks",
    **dict.fromkeys(
        ("hunyuan-dense.rope_parameters", "hunyuan-moe.rope_parameters"), "rope_scaling stands before it"
    ),
    "qwen3-next.intermediate_size": UNUSED,
    "qwen3-next.mlp_only_layers": UNUSED,
    "qwen3-moe.mlp_only_layers": UNUSED,
    "qwen3-moe.num_local_experts": "num_experts stands before it",
    **dict.fromkeys(("qwen2-moe.max_window_layers", "qwen3.max_window_layers"), UNUSED),
    **dict.fromkeys(("qwen3.sliding_window", "qwen3-moe.sliding_window", "smollm3.sliding_window"), UNUSED),
    **dict.fromkeys(("qwen3.use_sliding_window", "smollm3.use_sliding_window"), UNUSED),
}


def is_harmless(family, key):
    """Whether a key has a reason to change nothing."""
    return key in harmless_keys() or key in REASONS or f"{family}.{key}" in OF_FAMILIES


def other_values(value) -> Iterator:
    """Values that are not a key's own, of its type; of several types where it has none."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value * 2, max(value // 2, 1), 3)
        case float():
            yield from (value * 1.5 + 0.25, 0.5)
        case str():
            yield from ("relu" if value == "gelu" else "gelu", "another")
        case list() | tuple():
            yield from ([], list(value)[::-1])
        case dict():
            yield {**value, "rope_theta": 123.0}
        case _:
            yield from (True, 2, 0.5, "another", [1, 2])


def effect(family, key, value):
    """The effect of a key on a family's smallest config: "changed", "refused", "nothing" or "unknown".

    "refused by another name" is that of a key that contradicts it.
    """
    architecture = REGISTRY.architecture(family)
    numbers = numbers_of(architecture)
    config = Config({**numbers, key: value})
    try:
        recipe = architecture.recipe_of(config)
    except ZooError as error:
        return "refused" if key in str(error) else "refused by another name"
    if recipe != architecture.recipe_of(Config(numbers)):
        return "changed"
    return "unknown" if key in config.unread() else "nothing"
