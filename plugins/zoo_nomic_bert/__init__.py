"""Nomic-BERT, as a difference from BERT. Imports no mlx."""

from zoo.architecture import Architecture, Ignore, Preset, Rename, Split, hookimpl
from zoo.recipe import GatedMLP, RoPE
from zoo_bert import POCKET, TINY, bert, norm_rules

# Of the published configs, whose code has further variants, each with the value that is implemented.
FIXED = dict(
    activation_function="swiglu",
    causal=False,
    prenorm=False,
    qkv_proj_bias=False,
    mlp_fc1_bias=False,
    mlp_fc2_bias=False,
    parallel_block=False,
    rotary_emb_fraction=1.0,
    rotary_emb_interleaved=False,
    rotary_emb_scale_base=None,
    rotary_scaling_factor=None,
    use_rms_norm=False,
    scale_attn_by_inverse_layer_idx=False,
    scale_attn_weights=True,
)
OLDER = dict(
    hidden_size="n_embd",
    num_hidden_layers="n_layer",
    num_attention_heads="n_head",
    intermediate_size="n_inner",
    max_position_embeddings="n_positions",
    layer_norm_eps="layer_norm_epsilon",
    rope_theta="rotary_emb_base",
)


def nomic_bert(config):
    """BERT with rotary positions, SwiGLU and no biases (Nussbaum et al., 2024)."""
    for key, value in FIXED.items():
        if config.get(key, value) != value:
            raise config.error(key, f"is not implemented; it is {value} in the published models")
    config.ignore("attn_pdrop", "embd_pdrop", "resid_pdrop", "summary_activation", "summary_first_dropout")
    config.ignore(
        "summary_proj_to_labels", "summary_type", "summary_use_proj", "use_flash_attn", "use_xentropy"
    )
    config.ignore(
        "dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "last_layer_subset", "mlp_type"
    )
    config.ignore("pad_vocab_size_multiple", "reorder_and_upcast_attn", "max_trained_positions")
    config = config.with_defaults(
        **{key: value for key, old in OLDER.items() if (value := config.get(old)) is not None}
    ).with_defaults(vocab_size=30528, max_position_embeddings=2048, rope_theta=1000.0, hidden_act="silu")
    recipe = bert(config)
    head_dim = config.count("head_dim", None) or config.head_width()
    rope, hidden = RoPE.of(config, head_dim), recipe.layers[0].feedforward.hidden
    return recipe.change(embedding=dict(positions=None), head=None).change_layers(
        mixer=dict(rope=rope, head_dim=head_dim, bias=False, output_bias=False),
        feedforward=GatedMLP(hidden=hidden, activation=config.activation("hidden_act", "silu")),
    )


LAYER, HELD = (
    "[nomic_bert.]encoder.layers.{i}.",
    "[nomic_bert.]layers.{i}.",
)  # published; as transformers holds them
QKV = tuple(f"layers.{{i}}.mixer.{name}.weight" for name in ("query", "key", "value"))
FEEDFORWARD = {"fc11": "up", "fc12": "gate", "fc2": "down"}
WEIGHTS = (
    Rename("[nomic_bert.]embeddings.word_embeddings.*", "embedding.tokens.*"),
    Rename("[nomic_bert.]embeddings.token_type_embeddings.*", "embedding.types.*"),
    *norm_rules("[nomic_bert.]emb_ln", "embedding.norm"),
    *norm_rules("[nomic_bert.]embeddings.LayerNorm", "embedding.norm"),
    Split(LAYER + "attn.Wqkv.weight", QKV),
    *(
        Rename(f"{HELD}self_attn.{short}_proj.*", f"layers.{{i}}.mixer.{name}.*")
        for short, name in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output"))
    ),
    Rename(LAYER + "attn.out_proj.*", "layers.{i}.mixer.output.*"),
    *norm_rules(LAYER + "norm1", "layers.{i}.mixer_norm"),
    *norm_rules(HELD + "post_attention_layernorm", "layers.{i}.mixer_norm"),
    *(
        Rename(f"{LAYER}mlp.{own}.*", f"layers.{{i}}.feedforward.{name}.*")
        for own, name in FEEDFORWARD.items()
    ),
    Rename(HELD + "mlp.{p}_proj.*", "layers.{i}.feedforward.{p}.*"),
    *norm_rules(LAYER + "norm2", "layers.{i}.feedforward_norm"),
    *norm_rules(HELD + "post_mlp_layernorm", "layers.{i}.feedforward_norm"),
    Ignore("cls.predictions.*"),
    Ignore("[nomic_bert.]pooler.dense.*"),
)


@hookimpl
def zoo_architectures():
    """Nomic-BERT, without its masked-LM head."""
    yield Architecture(
        name="nomic-bert",
        base="bert",
        summary="BERT with rotary positions, SwiGLU and no biases, for vectors of long texts",
        task="encode",
        causality="full",
        model_types=("nomic_bert",),
        recipe=nomic_bert,
        weights=WEIGHTS,
        presets=(
            Preset(
                "v1.5",
                hub="nomic-ai/nomic-embed-text-v1.5",
                config=dict(
                    n_embd=768, n_layer=12, n_head=12, n_inner=3072, n_positions=8192, vocab_size=30528
                ),
                licence="Apache-2.0",
            ),
            Preset("pocket", config=POCKET | dict(hidden_act="silu")),
            Preset("tiny", config=TINY | dict(hidden_act="silu")),
        ),
        references=("Nussbaum et al., 2024, arXiv:2402.01613",),
        published="2024-02",
    )
