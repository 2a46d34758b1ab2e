"""nanochat, as a difference from LLaMA. Imports no mlx."""

from zoo.architecture import Architecture, Block, OutputHead, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.recipe import MLP, PlainRMSNorm, RoPE, Spec
from zoo_gemma import CappedHead, cap
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


@frozen()
class BackwardTurns(Spec):
    """Each pair is turned the other way round."""

    kind, name = "rope-scaling", "backward"

    @property
    def title(self):
        """The direction of the turns."""
        return "backward turns, no scaling"


def nanochat(config):
    """LLaMA with norms that learn nothing, squared ReLU without a gate, and capped logits (Karpathy, 2025)."""
    config = config.with_defaults(hidden_act="relu2")
    rope = RoPE.of(config)
    if rope.scaling is not None:
        raise config.error("rope_parameters", "must be of the default kind")
    norm, limit = (
        PlainRMSNorm(config.number("rms_norm_eps", 1e-6)),
        cap(config, "final_logit_softcapping", 15.0),
    )
    recipe = llama(config, rope.change(scaling=BackwardTurns()))
    # RoPE does not change the length of a vector. The norms of queries and keys may come before it, as here, or after.
    return recipe.change_layers(
        lambda index, layer: dict(
            mixer=dict(query_norm=norm, key_norm=norm),
            mixer_norm=norm,
            feedforward_norm=norm,
            feedforward=MLP(layer.feedforward.hidden, layer.feedforward.activation, bias=False),
        )
    ).change(
        norm=norm,
        embedding=dict(norm=norm),
        head=CappedHead(tied=recipe.head.tied, cap=limit) if limit else recipe.head,
    )


def mlp(layer, up, down):
    """The rules of the feed-forward, whose matrices have these names."""
    target = "layers.{i}.feedforward."
    return Rename(f"{layer}mlp.{up}.*", target + "up.*"), Rename(f"{layer}mlp.{down}.*", target + "down.*")


WEIGHTS = (*mlp("[model.]layers.{i}.", "fc1", "fc2"), *LLAMA_WEIGHTS)
MLX_LAYER = "transformer.h.{i}."
PROJECTIONS = {"c_q": "query", "c_k": "key", "c_v": "value", "c_proj": "output"}
MLX_WEIGHTS = (
    Rename("transformer.wte.*", "embedding.tokens.*"),
    *(
        Rename(f"{MLX_LAYER}attn.{name}.*", f"layers.{{i}}.mixer.{ours}.*")
        for name, ours in PROJECTIONS.items()
    ),
    *mlp(MLX_LAYER, "c_fc", "c_proj"),
    OutputHead("lm_head.*", "head.output.*"),
)
D32 = sized(32, 2048, 16, 16, 8192, vocab_size=65536, max_position_embeddings=2048)


@hookimpl
def zoo_blocks():
    """The direction of its turns, which is all that the zoo lacks."""
    yield Block(
        BackwardTurns, "zoo_nanochat.block:BackwardTurns", "rotary positions turned the other way round"
    )


@hookimpl
def zoo_architectures():
    """nanochat."""
    yield Architecture(
        name="nanochat",
        base="llama",
        summary="LLaMA with norms that learn nothing, squared ReLU without a gate, and capped logits",
        model_types=("nanochat",),
        recipe=nanochat,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published("d32", "karpathy/nanochat-d32", "MIT", **D32),
            Preset("pocket", config=POCKET | dict(intermediate_size=512)),
            Preset("tiny", config=TINY),
        ),
        references=('Karpathy, 2025, "nanochat"',),
        published="2025-10",
    )
