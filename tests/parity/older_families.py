"""Families of decoders from before LLaMA, and some that other ways of attending came with."""

from .family import LINEAR, TIED, UNTIED, Family, edit, heads, rope


def spelled_as_gpt_neox(folder):
    """Rewrite a config.json as transformers 4 wrote those of GPT-NeoX."""

    def change(config):
        rope = config.pop("rope_parameters")
        kind = rope.pop("rope_type")
        shares = dict(rotary_emb_base=rope.pop("rope_theta"), rotary_pct=rope.pop("partial_rotary_factor"))
        return config | shares | dict(rope_scaling={"type": kind, **rope} if kind != "default" else None)

    edit(folder, change)


# mlx-lm has no other activation, and a feed-forward four times as wide.
NEOX_WIDE = dict(intermediate_size=256, hidden_act="gelu_new")

OLDER = {
    "gpt-neox": Family(
        "GPTNeoX",
        (
            dict(),
            dict(use_parallel_residual=False),
            dict(attention_bias=False, hidden_act="gelu_new"),
            TIED | dict(layer_norm_eps=1e-3),
            dict(rope_parameters=rope(partial_rotary_factor=1.0)),
            dict(rope_parameters=rope("linear", 300.0, factor=4.0, partial_rotary_factor=0.5)),
        ),
        shapes=(heads(4, 4), heads(3, 3, 16)),
        respelled=spelled_as_gpt_neox,
        wide=NEOX_WIDE,
        mlx=dict(rotary_emb_base=10000, rotary_pct=0.25),
    ),
    "phi": Family(
        "Phi",
        (
            dict(),
            dict(qk_layernorm=True, num_key_value_heads=2),
            TIED | dict(hidden_act="gelu", layer_norm_eps=1e-3),
            dict(rope_parameters=rope("linear", 300.0, factor=4.0, partial_rotary_factor=0.25)),
        ),
        shapes=(heads(4, 4), heads(4, 2, 16)),
        mlx=dict(rope_theta=10000.0, partial_rotary_factor=0.5),
    ),
    "apertus": Family(
        "Apertus",
        (dict(), TIED | dict(rms_norm_eps=1e-3, attention_bias=True, rope_parameters=rope())),
        wide=dict(head_dim=16),  # which is no key of its config: mlx-lm divides the width by the heads
        mlx=dict(post_norm=False),
    ),
    "stablelm": Family(
        "StableLm",
        (
            dict(),
            TIED
            | dict(use_qkv_bias=True, layer_norm_eps=1e-3, rope_parameters=rope(partial_rotary_factor=0.5)),
            dict(use_parallel_residual=True, rope_parameters=LINEAR | dict(partial_rotary_factor=1.0)),
        ),
        shapes=(heads(4, 2, 16), heads(3, 3, 16)),
        mlx=dict(rope_theta=10000.0),
    ),
    "nanochat": Family(
        "NanoChat",
        (
            dict(),
            TIED | dict(final_logit_softcapping=None, attention_bias=True, rms_norm_eps=1e-3),
            dict(final_logit_softcapping=4.0, hidden_act="gelu", rope_parameters=rope()),
        ),
        wide=dict(rms_norm_eps=1e-5),
    ),
    "diffllama": Family(
        "DiffLlama",
        (dict(), TIED | dict(head_dim=16, attention_bias=True, rms_norm_eps=1e-3, rope_parameters=LINEAR)),
        dict(head_dim=8),
        shapes=(heads(4, 2), heads(4, 4), heads(6, 2)),
        mlx=None,
    ),
    "bloom": Family(
        "Bloom",
        (dict(), UNTIED | dict(layer_norm_epsilon=1e-3)),
        shapes=(heads(4, 4) | dict(n_layer=3, n_head=4), heads(6, 6) | dict(n_layer=2, n_head=6)),
        mlx=None,
    ),
    "falcon": Family(
        "Falcon",
        (
            dict(),
            dict(new_decoder_architecture=True, num_kv_heads=2),
            UNTIED
            | dict(new_decoder_architecture=True, num_kv_heads=1, num_ln_in_parallel_attn=1, bias=True),
            dict(multi_query=False, parallel_attn=False, ffn_hidden_size=40, activation="gelu_new"),
            dict(alibi=True, multi_query=False, parallel_attn=False, bias=True),
            dict(alibi=True, layer_norm_epsilon=1e-3),
        ),
        shapes=(heads(4, 4), heads(6, 6)),
        mlx=None,
        lengths=(1, 24, 40, 300),
        attention="sdpa",  # "eager" adds linear biases twice
    ),
}
