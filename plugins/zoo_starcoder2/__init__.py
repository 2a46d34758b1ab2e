"""StarCoder2: LLaMA's positions and grouped queries with GPT-2's norms and feed-forward. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, Rename, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import MLP, LayerNorm
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


def starcoder2(config):
    """LLaMA with LayerNorm, a feed-forward without a gate, biases everywhere, and a window (Lozhkov et al., 2024)."""
    # Of training, and what the released configs say of the code that trained them.
    config.ignore("residual_dropout", "embedding_dropout", "norm_type", "mlp_type", "activation_function")
    config.ignore("layer_norm_epsilon", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    bias = config.flag("use_bias", True)
    config = config.with_defaults(
        attention_bias=bias,
        hidden_act="gelu_pytorch_tanh",
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    norm = LayerNorm(eps=config.number("norm_epsilon", 1e-5))
    return (
        llama(config)
        .change_layers(
            lambda index, layer: dict(
                mixer=dict(window=config.count("sliding_window", None)),
                feedforward=MLP(layer.feedforward.hidden, layer.feedforward.activation, bias),
                mixer_norm=norm,
                feedforward_norm=norm,
            )
        )
        .change(norm=norm)
    )


WEIGHTS = (
    Rename("[model.]layers.{i}.mlp.c_fc.*", "layers.{i}.feedforward.up.*"),
    Rename("[model.]layers.{i}.mlp.c_proj.*", "layers.{i}.feedforward.down.*"),
    *LLAMA_WEIGHTS,
)


def biases(config, tensors):
    """Whether the projections have biases: only the tensors show it."""
    return dict(use_bias="blk.0.attn_q.bias" in tensors)


# What the checkpoints of all sizes have in common.
STARCODER2 = dict(
    vocab_size=49152, max_position_embeddings=16384, sliding_window=4096, norm_epsilon=1e-5, use_bias=True
)


@hookimpl
def zoo_architectures():
    """StarCoder2."""
    yield Architecture(
        name="starcoder2",
        base="llama",
        summary="LLaMA with LayerNorm, a feed-forward without a gate, biases everywhere, and a window",
        model_types=("starcoder2",),
        recipe=starcoder2,
        weights=WEIGHTS,
        gguf=GGUF(
            "starcoder2", DECODER, keys={"attention.layer_norm_epsilon": "norm_epsilon"}, config=biases
        ),
        presets=(
            published(
                "3b",
                "bigcode/starcoder2-3b",
                "BigCode OpenRAIL-M",
                **sized(layers=30, dim=3072, heads=24, kv_heads=2, hidden=12288, **STARCODER2),
                rope_theta=999999.4420358813,
            ),
            published(
                "7b",
                "bigcode/starcoder2-7b",
                "BigCode OpenRAIL-M",
                **sized(layers=32, dim=4608, heads=36, kv_heads=4, hidden=18432, **STARCODER2),
                rope_theta=1000000.0,
            ),
            Preset("pocket", config=POCKET | dict(sliding_window=16, intermediate_size=512)),
            Preset("tiny", config=TINY | dict(sliding_window=6)),
        ),
        references=("Lozhkov et al., 2024, arXiv:2402.19173",),
        published="2024-02",
    )
